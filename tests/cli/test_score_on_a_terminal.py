"""``otel-loopeval score`` on a terminal: a bar while it reads, colours, and the result whole."""

import re
from pathlib import Path

import pytest
from terminal import Terminal, plain

from otel_loopeval.otlp import trace_line
from otel_loopeval.testing import TraceBuilder


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    path = tmp_path / "spans.jsonl"
    with path.open("w") as stream:
        for number in range(1, 2_001):
            builder = TraceBuilder(number)
            builder.run([5.0, 9.0])
            stream.write(trace_line(builder.spans) + "\n")
    return path


def test_a_bar_while_it_reads_and_the_result_after_it(spans: Path, tmp_path: Path):
    terminal = Terminal("score", spans.name, cwd=tmp_path)
    assert terminal.close() == 0
    seen = plain(terminal.text)
    assert re.search(r"reading .*\d+%", seen)
    assert seen.rstrip().endswith("2,000 runs, 2,000 healthy, 0 unhealthy\r\n✔ passed")
    assert "\x1b[32m" in terminal.text  # healthy is green
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")  # the cursor is back


def test_a_machine_readable_form_has_no_bar_in_it(spans: Path, tmp_path: Path):
    terminal = Terminal("score", spans.name, "--format", "json", "-o", "report.json", cwd=tmp_path)
    assert terminal.close() == 0
    assert "\x1b" not in (tmp_path / "report.json").read_text()


def test_colours_can_be_switched_off(spans: Path, tmp_path: Path):
    terminal = Terminal("score", spans.name, "--no-color", cwd=tmp_path)
    assert terminal.close() == 0
    assert not re.search(r"\x1b\[(?:\d+;)*3[0-7]m.*healthy", terminal.text)
