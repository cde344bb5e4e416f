"""Real Spark jobs on this machine: the same verdicts as ``score``, row for row."""

import gzip
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")

import shutil

from sources.stored_spans import request
from spark.fleet import Fleet, exported
from spark.spark_session import committed, rows_of, scored

from otel_loopeval.otlp import trace_line
from otel_loopeval.otlp.files import read_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.spark import Patience, health
from otel_loopeval.spark.schema import VERDICT_COLUMNS

pytestmark = pytest.mark.e2e
MS = 1_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's spans in two files of JSON lines, traces mixed over both, some spans sent twice."""
    folder = tmp_path_factory.mktemp("fleet")
    bodies = exported(list(Fleet(seed=5, loops=0.5).traces(60)), per_body=200)
    bodies.append(bodies[2])
    write(folder / "a.jsonl", bodies[::2])
    write(folder / "b.jsonl", bodies[1::2])
    return folder


def write(path: Path, bodies: list[list[SpanData]]) -> None:
    path.write_text("".join(trace_line(body) + "\n" for body in bodies))


def test_lines_of_files_have_the_verdicts_of_score(spark: Any, files: Path) -> None:
    frame = health(spark.read.text(str(files)))
    assert frame.columns == list(VERDICT_COLUMNS)
    expected = scored(str(files))
    assert len(expected) > 20
    assert {row["passed"] for row in expected} == {True, False}
    assert rows_of(frame) == expected


def test_bodies_of_protobuf_have_the_verdicts_of_score(spark: Any, files: Path) -> None:
    lines = [line for path in sorted(files.iterdir()) for line in path.read_bytes().splitlines()]
    bodies = [(request(*read_line(line)),) for line in lines]
    assert rows_of(health(spark.createDataFrame(bodies, "value binary"))) == scored(str(files))


def test_files_of_protobuf_have_the_verdicts_of_score(spark: Any, files: Path, tmp_path: Path) -> None:
    for path in files.iterdir():
        bodies = [request(*read_line(line)) for line in path.read_bytes().splitlines()]
        framed = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
        (tmp_path / f"{path.stem}-framed.pb").write_bytes(framed)
        (tmp_path / f"{path.stem}-whole.pb").write_bytes(b"".join(bodies))
    for form in ("framed", "whole"):
        paths = [(str(tmp_path / f"{name}-{form}.pb"),) for name in ("a", "b")]
        assert rows_of(health(spark.createDataFrame(paths, "path string"))) == scored(str(files))


def test_policies_and_the_agent_are_those_of_score(spark: Any, files: Path) -> None:
    frame = health(spark.read.text(str(files)), threshold=9.0, token_budget=4000, agent="finder")
    assert rows_of(frame) == scored(
        str(files), "--threshold", "9", "--token-budget", "4000", "--agent", "finder"
    )


def test_whole_files_compressed_or_not_by_path_and_by_content(
    spark: Any, files: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress((files / f"{name}.jsonl").read_bytes()))
    expected = scored(str(files))
    assert rows_of(health(spark.read.format("binaryFile").load(str(tmp_path)))) == expected
    paths = spark.createDataFrame([(str(path),) for path in sorted(tmp_path.iterdir())], "path string")
    assert rows_of(health(paths, partitions=3)) == expected


def test_the_table_is_written_by_day(spark: Any, files: Path, tmp_path: Path) -> None:
    health(spark.read.text(str(files))).write.partitionBy("day").parquet(str(tmp_path / "verdicts"))
    assert [path.name for path in (tmp_path / "verdicts").glob("day=*")] == ["day=2026-01-02"]
    assert rows_of(spark.read.parquet(str(tmp_path / "verdicts"))) == rows_of(
        health(spark.read.text(str(files)))
    )


def test_a_run_goes_on_in_another_trace_after_a_pause(spark: Any, tmp_path: Path) -> None:
    lines: list[list[SpanData]] = []
    for trace_id, outcome in ((1, "paused"), (2, "paused"), (3, "completed")):
        start = 1_767_323_045_000_000_000 + trace_id * 1000 * MS
        told: dict[str, Any] = {"loopeval.run.id": "one", "loopeval.run.outcome": outcome}
        if trace_id > 1:
            told["loopeval.run.resumed"] = True
        score = {"loopeval.iteration.number": trace_id, "loopeval.iteration.score": 3.0 * trace_id}
        lines.append(
            [
                SpanData(
                    "evaluation_loop.iteration", trace_id, 2, 1, start + MS, start + 2 * MS, attributes=score
                ),
                SpanData("evaluation_loop writer", trace_id, 1, None, start, start + 9 * MS, attributes=told),
            ]
        )
    write(tmp_path / "runs.jsonl", lines)
    expected = scored(str(tmp_path))
    assert [(row["outcome"], row["iterations"]) for row in expected] == [
        ("paused", 1),
        ("paused", 2),
        ("completed", 3),
    ]
    write(tmp_path / "runs.jsonl", lines[::-1])  # the order in files says nothing in a cluster
    assert rows_of(health(spark.read.text(str(tmp_path)))) == expected


def test_what_cannot_be_read_is_left_out_or_ends_the_job(spark: Any, files: Path, tmp_path: Path) -> None:
    whole = (files / "a.jsonl").read_text()
    (tmp_path / "a.jsonl").write_text('{"resourceSpans": 3}\n' + whole + "no json\n")
    frame = spark.read.text(str(tmp_path))
    assert rows_of(health(frame)) == scored(str(files / "a.jsonl"))
    with pytest.raises(Exception, match="a value: "):
        health(frame, strict=True).collect()


def test_a_table_of_something_else_is_refused(spark: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a column 'value' .* got the columns 'id'"):
        health(spark.range(1))


def test_a_stream_has_the_verdicts_of_score_each_once(spark: Any, files: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()

    def run_on_with(name: str, patience: Patience) -> list[dict[str, Any]]:
        """What there is once the stream has taken one more file, from the checkpoint on."""
        shutil.copy(files / "a.jsonl" if name == "first" else files / "b.jsonl", source / f"{name}.jsonl")
        frame = spark.readStream.schema("value string").format("text").load(str(source))
        query = (
            health(frame, patience=patience, buckets=3)
            .writeStream.partitionBy("day")
            .format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            # Spark's own ways to wait never end where state has time-outs: these may always come.
            end = time.monotonic() + 240
            while not any(progress["numInputRows"] for progress in query.recentProgress):
                assert query.exception() is None, query.exception()
                assert time.monotonic() < end, "the stream takes no file"
                time.sleep(0.1)
        finally:
            query.stop()
        return committed(spark, out)

    patient = Patience(grace_s=3600, idle_s=3600)
    assert run_on_with("first", patient) == []  # all may go on in what comes later
    # The traces that were open come from the checkpoint; there is no room for any, and so they all close.
    expected = scored(str(files))
    assert run_on_with("second", Patience(max_bytes=1)) == expected
    # What comes late and what comes again gives no second verdict, with the checkpoint of the one before.
    assert run_on_with("again", Patience(grace_s=0, max_bytes=1)) == expected
