"""Tables that others have made: ClickHouse's Parquet, and messages of a real Kafka broker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")

from sources.stored_spans import request
from spark import broker
from spark.fleet import Fleet, exported
from spark.spark_session import committed, rows_of, scored

from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.spark import Patience, health, register_kafka

pytestmark = pytest.mark.e2e
CLICKHOUSE = """
CREATE TABLE otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String), ScopeName String, ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String), Duration UInt64, StatusCode LowCardinality(String),
    StatusMessage String, Events Nested (Timestamp DateTime64(9), Name LowCardinality(String),
    Attributes Map(LowCardinality(String), String))
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, Timestamp)
"""
BODIES = exported(list(Fleet(seed=6, loops=0.5).traces(40)), per_body=100)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("expected") / "spans.jsonl"
    path.write_text("".join(trace_line(body) + "\n" for body in BODIES))
    rows = scored(str(path))
    assert len(rows) > 10
    return rows


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def mapped(attributes: Any) -> str:
    pairs = (f"{quoted(key)}:{quoted(text_of(value))}" for key, value in attributes.items())
    return "{" + ",".join(pairs) + "}"


def inserted(span: SpanData) -> str:
    times = ",".join(f"fromUnixTimestamp64Nano({event.time_ns})" for event in span.events)
    names = ",".join(quoted(event.name) for event in span.events)
    told = ",".join(mapped(event.attributes) for event in span.events)
    parent = "" if span.parent_id is None else f"{span.parent_id:016x}"
    service = quoted(span.resource["service.name"])
    return (
        f"(fromUnixTimestamp64Nano({span.start_ns}), '{span.trace_id:032x}', '{span.span_id:016x}',"
        f" '{parent}', '', {quoted(span.name)}, 'Internal', {service}, {mapped(span.resource)},"
        f" '{span.scope}', '', {mapped(span.attributes)}, {span.end_ns - span.start_ns},"
        f" '{'Error' if span.error else 'Unset'}', '', [{times}], [{names}], [{told}])"
    )


def test_the_parquet_of_clickhouse(spark: Any, tmp_path: Path) -> None:
    chdb = pytest.importorskip("chdb.session", reason="chdb is not installed (the extra [clickhouse])")
    data, path = tmp_path / "data", tmp_path / "spans.parquet"
    opened = chdb.Session(str(data))
    opened.query(CLICKHOUSE)
    for body in BODIES:
        opened.query("INSERT INTO otel_traces VALUES " + ", ".join(map(inserted, body)))
    opened.query(f"SELECT * FROM otel_traces INTO OUTFILE '{path}' FORMAT Parquet")
    opened.close()
    rows = rows_of(health(spark.read.parquet(str(path))))
    assert len(rows) > 10
    assert rows == scored(f"chdb://{path}")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a broker with the bodies in its topic."""
    missing = broker.why_not()
    if missing is not None:
        pytest.skip(missing)
    with broker.broker(tmp_path_factory.mktemp("broker") / "log") as found:
        messages = (
            trace_line(body).encode() if number % 3 == 0 else request(*body)
            for number, body in enumerate(BODIES)
        )
        broker.fill(found, "otlp", messages)
        yield found


def test_messages_of_kafka_as_a_table(spark: Any, address: str, expected: list[dict[str, Any]]) -> None:
    register_kafka(spark)
    frame = broker.options(spark.read, address, "otlp").load()
    assert frame.columns == ["topic", "partition", "offset", "value"]
    assert frame.count() == len(BODIES)
    assert rows_of(health(frame)) == expected


def test_messages_of_kafka_as_a_stream(
    spark: Any, address: str, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    register_kafka(spark)
    # All in one batch: what a trace is waited for can be short then.
    frame = broker.options(spark.readStream, address, "otlp").option("maxOffsetsPerTrigger", 1000).load()

    def start() -> Any:
        return (
            health(frame, patience=Patience(grace_s=1, idle_s=2), buckets=3)
            .writeStream.partitionBy("day")
            .format("parquet")
            .option("path", str(tmp_path / "verdicts"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )

    query = start()
    end = time.monotonic() + 300
    try:
        while len(committed(spark, tmp_path / "verdicts")) < len(expected):
            failure = query.exception()
            if failure is not None:
                # Spark gives the source's interpreter ten seconds to start, which a busy machine may not.
                assert "failed to connect back" in str(failure)
                query = start()
            assert time.monotonic() < end, "the stream gave no verdicts"
            time.sleep(0.3)
    finally:
        query.stop()
    assert committed(spark, tmp_path / "verdicts") == expected
