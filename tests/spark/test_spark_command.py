"""``otel-loopeval score --engine spark``."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark.fleet import Fleet, exported
from spark.spark_session import BRIEF, PACKAGE, in_order, why_not

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line

BODIES = exported(list(Fleet(seed=7, loops=0.5).traces(40)), per_body=100)
SPANS = sum(map(len, BODIES))


def write(path: Path) -> None:
    path.write_text("".join(trace_line(body) + "\n" for body in BODIES))


@pytest.fixture
def installed(spark: Any) -> None:
    """With Spark: in the session of the tests, which the command leaves as it is."""


def reported(*arguments: str, engine: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """What the command says: its status, what it writes, and what it tells of errors."""
    status = main(["score", *arguments, "--engine", engine])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.e2e
def test_a_session_of_its_own(tmp_path: Path) -> None:
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    write(tmp_path / "spans.jsonl")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "otel_loopeval",
            "score",
            str(tmp_path),
            "--engine",
            "spark",
            "--fail-on",
            "none",
        ],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "SPARK_CONF_DIR": str(quiet(tmp_path / "conf"))},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "finder" in done.stdout


def quiet(folder: Path) -> Path:
    """Settings for one core."""
    folder.mkdir()
    told = f"spark.master local[1]\nspark.sql.shuffle.partitions 2\nspark.driver.extraJavaOptions {BRIEF}\n"
    (folder / "spark-defaults.conf").write_text(told)
    return folder


@pytest.mark.e2e
@pytest.mark.usefixtures("installed")
def test_the_report_is_that_of_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "spans.jsonl")
    (tmp_path / "more.jsonl").write_text("no json\n")
    arguments = [str(tmp_path), "--format", "json", "--fail-on", "none", "--threshold", "9"]
    reports = [json.loads(reported(*arguments, engine=one, capsys=capsys)[1]) for one in ("spark", "python")]
    found, expected = (in_order(one["runs"]) for one in reports)
    assert found == expected
    assert len(found) > 10
    source = reports[0]["source"]
    assert (source["spans"], source["traces"], source["errors"]) == (SPANS, 40, 1)


@pytest.mark.e2e
@pytest.mark.usefixtures("installed")
def test_the_example_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "spans.jsonl")
    example = str(PACKAGE / "examples" / "spark_fleet.py")
    monkeypatch.setattr("sys.argv", [example, "batch", str(tmp_path / "*.jsonl"), str(tmp_path / "verdicts")])
    runpy.run_path(example, run_name="__main__")
    assert "|  agent|" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "verdicts").glob("day=*")] == ["day=2026-01-02"]


@pytest.mark.e2e
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (b"", [], 0, ""),
        (b"\n\n", [], 0, ""),
        (b"no json\n", [], 3, "cannot read any of the input"),
        (b"\xff\xfe\x00\x01", [], 3, "cannot read any of the input"),
        (b'{"resourceSpans": 3}\nGOOD', [], 0, ""),
        (
            b'{"resourceSpans": 3}\nGOOD',
            ["--strict"],
            3,
            "spans.jsonl, line 1: resourceSpans: expected an array, got 3",
        ),
    ],
    ids=str,
)
def test_input_that_is_empty_or_broken(
    content: bytes,
    options: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "spans.jsonl")
    good = (tmp_path / "spans.jsonl").read_bytes()
    (tmp_path / "spans.jsonl").write_bytes(content.replace(b"GOOD", good))
    found, out, told = reported(
        str(tmp_path), "--fail-on", "none", "--format", "jsonl", *options, engine="spark", capsys=capsys
    )
    assert (found, message in told, "Traceback" in told) == (status, True, False)
    expected = reported(
        str(tmp_path), "--fail-on", "none", "--format", "jsonl", *options, engine="python", capsys=capsys
    )
    assert found == expected[0]
    assert out.count('"type": "run"') == expected[1].count('"type": "run"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spans.jsonl", "--explain", "abcd"], "--explain shows one trace: leave out --engine spark"),
        (["spans.jsonl", "--limit", "3"], "--limit takes the first traces, and a cluster has none"),
        (["-"], "--engine spark reads files, not -"),
        (["jaeger+http://127.0.0.1:1"], "--engine spark reads files, not jaeger+http://127.0.0.1:1"),
    ],
    ids=str,
)
def test_what_a_cluster_has_not(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *arguments, "--engine", "spark"]) == 2
    assert message in capsys.readouterr().err


def test_without_spark_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "spans.jsonl")
    monkeypatch.setattr("otel_loopeval.cli.score_spark._NEEDED", ("json", "pyspark_that_is_not_there"))
    assert main(["score", str(tmp_path), "--engine", "spark"]) == 2
    told = capsys.readouterr().err
    assert "--engine spark needs pyspark_that_is_not_there: pip install 'otel-loopeval[spark]'" in told


def test_without_java_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "spans.jsonl")
    monkeypatch.setattr("otel_loopeval.cli.score_spark._NEEDED", ())
    for home in ("", str(tmp_path)):
        monkeypatch.setenv("JAVA_HOME", home)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert main(["score", str(tmp_path), "--engine", "spark"]) == 2
        assert (
            "--engine spark needs Java 17 or newer: there is no java on the PATH" in capsys.readouterr().err
        )


@pytest.mark.parametrize("there", ["/nowhere/at/all", "FOLDER"])
def test_a_place_without_files_is_input_that_cannot_be_read(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("msgspec", reason="the extra [spark] is not installed")
    monkeypatch.setattr("otel_loopeval.cli.score_spark._NEEDED", ())
    monkeypatch.setattr("otel_loopeval.cli.score_spark._has_java", lambda: True)
    place = there.replace("FOLDER", str(tmp_path))
    assert main(["score", place, "--engine", "spark"]) == 3
    assert f"cannot read {place}" in capsys.readouterr().err
