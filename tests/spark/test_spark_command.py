"""``otel-loopeval score --engine spark``."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from spark.fleet import Fleet, exported
from spark.spark_session import PACKAGE, in_order, scored

from otel_loopeval.cli.main import main
from otel_loopeval.otlp import trace_line

HERE = find_spec("pyspark") is not None and find_spec("msgspec") is not None and which("java") is not None


def write(path: Path) -> None:
    bodies = exported(list(Fleet(seed=7, loops=0.5).traces(40)), per_body=100)
    path.write_text("".join(trace_line(body) + "\n" for body in bodies))


@pytest.mark.e2e
@pytest.mark.skipif(not HERE, reason="the extra [spark] is not installed, or there is no java")
def test_the_report_is_that_of_score(tmp_path: Path) -> None:
    write(tmp_path / "spans.jsonl")
    (tmp_path / "more.jsonl").write_text("no json\n")
    arguments = ["score", str(tmp_path), "--format", "json", "--fail-on", "none", "--threshold", "9"]
    done = subprocess.run(
        [sys.executable, "-m", "otel_loopeval", *arguments, "--engine", "spark"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = [{name: value for name, value in run.items() if name != "failed_on"} for run in report["runs"]]
    assert in_order(runs) == scored(str(tmp_path), "--threshold", "9")
    assert report["source"]["spans"] == sum(
        len(body) for body in exported(list(Fleet(seed=7, loops=0.5).traces(40)))
    )
    assert (report["source"]["traces"], report["source"]["errors"]) == (40, 1)


@pytest.mark.e2e
@pytest.mark.skipif(not HERE, reason="the extra [spark] is not installed, or there is no java")
def test_the_example_writes_the_table(tmp_path: Path) -> None:
    write(tmp_path / "spans.jsonl")
    settings = ("ui.enabled=false", "driver.bindAddress=127.0.0.1", "driver.host=127.0.0.1")
    submit = " ".join(["--master", "local[1]", *(f"--conf spark.{one}" for one in settings), "pyspark-shell"])
    example = PACKAGE / "examples" / "spark_fleet.py"
    done = subprocess.run(
        [sys.executable, str(example), "batch", str(tmp_path / "*.jsonl"), str(tmp_path / "verdicts")],
        env={
            **os.environ,
            "PYTHONPATH": str(PACKAGE),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": submit,
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|  agent|" in done.stdout
    assert [path.name for path in (tmp_path / "verdicts").glob("day=*")] == ["day=2026-01-02"]


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


@pytest.mark.skipif(HERE, reason="the extra [spark] is installed")
def test_without_spark_it_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "spans.jsonl")
    assert main(["score", str(tmp_path), "--engine", "spark"]) == 2
    assert "pip install 'otel-loopeval[spark]'" in capsys.readouterr().err


@pytest.mark.skipif(not HERE, reason="the extra [spark] is not installed, or there is no java")
def test_a_place_without_files_is_input_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "/nowhere/at/all", "--engine", "spark"]) == 3
    assert "cannot read /nowhere/at/all" in capsys.readouterr().err
