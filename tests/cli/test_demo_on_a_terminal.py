"""The demo on a terminal: it moves, it may be colourless, and it can be interrupted."""

import re
import signal
from pathlib import Path

import pytest
from terminal import Terminal, plain

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|38;)")


def test_progress_moves_and_the_terminal_is_left_as_it_was(tmp_path: Path):
    terminal = Terminal("demo", cwd=tmp_path)
    assert terminal.close() == 0
    seen = plain(terminal.text)
    # The same row was drawn again with each score that came in.
    assert [count for count in ("1 of 5", "2 of 5", "3 of 5", "1 of 8", "4 of 8") if count not in seen] == []
    assert seen.count("repeats the same search") > 3
    assert COLOUR.search(terminal.text)
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")  # the cursor is back
    assert "✘ unhealthy" in seen
    assert "▲ doom loop: repeated_action of search, 4 times (detector, rule exact)" in seen
    assert (tmp_path / "loopeval-demo.jsonl").exists()


@pytest.mark.parametrize(("arguments", "env"), [((), {"NO_COLOR": "1"}), (("--no-color",), {})])
def test_without_colours_it_still_moves(arguments: tuple[str, ...], env: dict[str, str], tmp_path: Path):
    terminal = Terminal("demo", "--fast", *arguments, cwd=tmp_path, env=env)
    assert terminal.close() == 0
    assert not COLOUR.search(terminal.text)
    assert "\x1b[?25l" in terminal.text
    assert "✔ healthy" in plain(terminal.text)


def test_a_terminal_that_cannot_move_gets_lines(tmp_path: Path):
    terminal = Terminal("demo", cwd=tmp_path, env={"TERM": "dumb"})
    assert terminal.close() == 0
    assert "\x1b[?25l" not in terminal.text
    assert "✘ polisher    goes on when it is good enough    6 → 8 → 8 → 8 → 6 → 8" in plain(terminal.text)


def test_an_interrupt_ends_it_with_130_without_a_traceback_or_a_file(tmp_path: Path):
    terminal = Terminal("demo", cwd=tmp_path)
    terminal.read_until(lambda text: "1 of 6" in plain(text))
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.close() == 130
    seen = plain(terminal.text)
    assert "1 of 6" in seen
    assert "Traceback" not in seen
    assert "Next steps" not in seen
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")
    assert list(tmp_path.iterdir()) == []
