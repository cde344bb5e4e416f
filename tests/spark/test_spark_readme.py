"""The README's examples for Spark run as they are, but for where they read and write."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")

from spark.fleet import Fleet, exported
from spark.spark_session import rows_of, scored
from support.readme import blocks

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("spark")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spans").mkdir()
    bodies = exported(list(Fleet(seed=3, loops=0.5).traces(30)), per_body=200)
    (tmp_path / "spans" / "a.jsonl").write_text("".join(trace_line(body) + "\n" for body in bodies))
    return tmp_path


def program(name: str, folder: Path) -> str:
    """An example, reading and writing in a folder: paths are those of the process that Spark runs in."""
    (text,) = (block.text for block in blocks("python") if block.note == f"file: {name}")
    for path in ("spans", "verdicts", "checkpoint"):
        text = text.replace(f'"{path}"', repr(str(folder / path)))
    return text


def test_a_table_of_spans(spark: Any, folder: Path) -> None:
    exec(program("fleet.py", folder), {})

    expected = scored(str(folder / "spans"))
    assert len(expected) > 5
    assert rows_of(spark.read.parquet(str(folder / "verdicts"))) == expected


def test_a_stream_of_spans(spark: Any, folder: Path) -> None:
    text = program("stream.py", folder)
    waits = "query.awaitTermination()"
    assert text.count(waits) == 1
    found: dict[str, Any] = {}
    exec(text.replace(waits, ""), found)
    query = found["query"]
    first = folder / "checkpoint" / "commits" / "0"
    end = time.monotonic() + 180
    try:
        while not first.exists() and query.isActive and time.monotonic() < end:
            time.sleep(0.2)
    finally:
        query.stop()

    assert query.exception() is None
    assert first.exists()


def test_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (block for block in blocks("bash") if "--engine spark" in block.text)
    install, command = block.text.splitlines()
    assert install == 'pip install ".[spark]"'
    assert main(["demo", "-o", str(folder / "traces.jsonl")]) == 0
    monkeypatch.chdir(folder)
    capsys.readouterr()
    name, *arguments = command.split()
    arguments[arguments.index("traces.jsonl")] = str(folder / "traces.jsonl")

    assert name == "otel-loopeval"
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert all(agent in told for agent in ("writer", "polisher", "researcher"))
