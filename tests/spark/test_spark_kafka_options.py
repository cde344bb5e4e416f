"""The Kafka source's options and offsets."""

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")

from otel_loopeval.spark.kafka import Settings, limited, parts

LEAST = {"topic": "otlp", "kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_options_without_regard_to_case() -> None:
    settings = Settings(
        {
            **LEAST,
            "STARTINGOFFSETS": "latest",
            "maxOffsetsPerTrigger": "500",
            "kafka.security.protocol": "SSL",
        }
    )
    assert (settings.topic, settings.starting, settings.max_offsets) == ("otlp", "latest", 500)
    assert settings.client == {"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "SSL"}


def test_defaults() -> None:
    settings = Settings(LEAST)
    assert (settings.starting, settings.max_offsets) == ("earliest", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": "x:1"}, "the option 'topic' is needed"),
        ({"topic": "otlp"}, "the option 'kafka.bootstrap.servers' is needed"),
        ({**LEAST, "startingOffsets": "first"}, "startingOffsets must be earliest or latest, got 'first'"),
        (
            {**LEAST, "maxOffsetsPerTrigger": "0"},
            "maxOffsetsPerTrigger must be a whole number from 1, got '0'",
        ),
        ({**LEAST, "maxOffsetsPerTrigger": "-5"}, "must be a whole number from 1, got '-5'"),
        ({**LEAST, "topics": "x"}, "no such option: topics; there are topic, "),
    ],
)
def test_bad_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(options)


def test_parts_are_what_is_new() -> None:
    assert parts({"0": 5, "1": 7}, {"0": 9, "1": 7, "2": 3}) == [(0, 5, 9), (2, 0, 3)]


def test_a_limit_is_shared_fairly_and_every_partition_goes_on() -> None:
    start, end = {"0": 100, "1": 0, "2": 50}, {"0": 1100, "1": 1, "2": 1050}
    assert limited(start, end, 200) == {"0": 199, "1": 1, "2": 149}
    assert limited(start, end, 2) == {"0": 101, "1": 1, "2": 51}
    assert limited(start, end, 5000) == end
    assert limited(start, end, None) == end
    assert limited(start, start, 5) == start
