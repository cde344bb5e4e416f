"""Damaged input: the same verdicts, and the same told of it, as ``score``'s."""

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")
pytest.importorskip("pyarrow", reason="the extra [spark] is not installed")

import pyarrow as pa  # type: ignore[import]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources.stored_spans import request
from spark.fleet import Fleet, exported
from spark.spark_session import Row, in_order

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line
from otel_loopeval.spark.judging import Judging
from otel_loopeval.spark.reading import reader_of
from otel_loopeval.spark.tasks import judged_of, packs_of, verdicts_of

BODIES = exported(list(Fleet(seed=4, loops=0.6).traces(8)), per_body=30)
ODD: tuple[Any, ...] = (None, 3, -1, 1.5, True, "", "x", "\ud800", [], [3], {}, {"key": 3}, 2**70, "0" * 16)
Damage = Callable[[random.Random], bytes]


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All containers in a document, with a key or an index of each."""
    if isinstance(value, dict):
        for key, item in value.items():
            found.append((value, key))
            places(item, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found.append((value, index))
            places(item, found)
    return found


def damaged_line(draw: random.Random) -> bytes:
    """A line of JSON in which some values are something else, or some bytes are."""
    document = json.loads(trace_line(draw.choice(BODIES)))
    for _ in range(draw.choice((1, 1, 2, 5))):
        container, key = draw.choice(places(document, [({}, "")]))
        if draw.random() < 0.3 and container:
            del container[key]
        else:
            container[key] = draw.choice(ODD)
    data = json.dumps(document).encode()
    return damaged_bytes(data, draw) if draw.random() < 0.2 else data


def damaged_request(draw: random.Random) -> bytes:
    """A body of protobuf in which some bytes are something else."""
    return damaged_bytes(request(*draw.choice(BODIES)), draw)


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    """Some bytes are others."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 8))):
        changed[draw.randrange(len(changed))] = draw.choice((0, 8, 34, 92, 127, 128, 255))
    return bytes(changed)


def by_spark(values: list[bytes]) -> list[Row]:
    """What the tasks of a job say, in one process."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
    packed = list(packs_of(reader_of(["value"]), strict=False)(iter([batch])))
    rows = sorted((row for part in packed for row in part.to_pylist()), key=lambda row: row["trace_id"])
    traces = [pa.RecordBatch.from_pylist(rows, schema=packed[0].schema)] if packed else []
    lanes = judged_of(Judging())(iter(traces))
    found = [row for part in verdicts_of(Judging())(lanes) for row in part.to_pylist()]
    for row in found:
        del row["day"]
    return in_order(found)


def by_score(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[Row], int]:
    """What ``score`` says, and how many records it tells of."""
    assert main(["score", str(path), "--format", "json", "--fail-on", "none"]) == 0
    report = json.loads(capsys.readouterr().out)
    for row in report["runs"]:
        del row["failed_on"]
    return in_order(report["runs"]), report["source"]["errors"]


@pytest.mark.parametrize("damaged", [damaged_line, damaged_request], ids=["json", "protobuf"])
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=True,
)
@given(seed=st.integers(0, 2**32))
def test_damaged_spans_have_the_verdicts_of_score(
    damaged: Damage,
    seed: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    draw = random.Random(seed)
    values: list[bytes] = []
    for body in BODIES:
        whole = trace_line(body).encode() if damaged is damaged_line else request(*body)
        values.append(whole if draw.random() < 0.5 else damaged(draw))
    path = tmp_path / "spans"
    if damaged is damaged_line:
        values = [value.replace(b"\n", b" ") for value in values]
        path.write_bytes(b"".join(value + b"\n" for value in values))
    else:
        path.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in values))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "otel_loopeval.spark"):
        found = by_spark(values)
    told = sum("skipped a value: " in record.getMessage() for record in caplog.records)

    assert (found, told) == by_score(path, capsys)
