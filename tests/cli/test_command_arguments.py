"""The command's own arguments, errors and exit statuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import COMMAND, TIMEOUT_S, environment, run_command

from otel_loopeval import __version__
from otel_loopeval.cli.main import main


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"otel-loopeval {__version__}\n"


def test_help_lists_the_commands_and_the_exit_statuses(tmp_path: Path):
    outcome = run_command("--help", cwd=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith("usage: otel-loopeval [-h] [--version] <command> ...\n")
    assert "    demo      run three loops offline and see their health\n" in outcome.out
    assert "exit status: 0 success; 1 the command could not do its work" in outcome.out


def test_the_demos_help_tells_where_the_traces_go(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "With OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) set" in text
    assert "--output FILE" in text


def test_no_command_shows_the_help_as_an_error(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: otel-loopeval")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "invalid choice: 'dmeo'"),
        (["demo", "--outpt", "x"], "unrecognized arguments: --outpt x"),
        (["demo", "--out", "x"], "unrecognized arguments: --out x"),
        (["demo", "extra"], "unrecognized arguments: extra"),
        (["demo", "--output"], "expected one argument"),
        (["--verison"], "unrecognized arguments: --verison"),
    ],
)
def test_what_it_does_not_know_is_said_with_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_help_imports_nothing_that_only_commands_need(tmp_path: Path):
    program = (
        "import sys\n"
        "from otel_loopeval.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'rich', 'opentelemetry', 'google', 'grpc', 'wrapt'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )
    assert process.stderr.split() == [b"[]"]


@pytest.mark.parametrize("arguments", [["demo"], ["--help"]])
def test_a_reader_that_goes_away_ends_it_quietly(arguments: list[str], tmp_path: Path):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, env=environment(), stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_the_output_is_said(tmp_path: Path):
    with Path("/dev/full").open("wb") as full:
        outcome = run_command("demo", cwd=tmp_path, stdout=full)
    assert (outcome.status, outcome.err) == (
        1,
        "otel-loopeval: cannot write the output: No space left on device\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
def test_closed_streams_are_no_reason_to_fail(tmp_path: Path):
    shell = f"exec {sys.executable} -m otel_loopeval demo >&- 2>&-"
    process = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, env=environment(), timeout=TIMEOUT_S, check=False
    )
    assert process.returncode == 0
    assert (tmp_path / "loopeval-demo.jsonl").exists()
