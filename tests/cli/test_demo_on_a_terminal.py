"""The demo on a terminal: it moves, it may be colourless, and it can be interrupted."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from command_line import COMMAND, TIMEOUT_S, environment

pty = pytest.importorskip("pty")

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|38;)")


class Terminal:
    """A command on a terminal of 80 columns."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=environment({"COLUMNS": "80", "LINES": "50", **(env or {})}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""
        self._deadline = time.monotonic() + TIMEOUT_S

    def read_until(self, enough: Callable[[str], bool]) -> str:
        """What was shown, as soon as it is enough or the process has closed its end."""
        while not enough(self.text) and time.monotonic() < self._deadline:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not chunk:
                break
            self.output += chunk
        return self.text

    def close(self) -> int:
        """Wait for the end, and give the exit status."""
        self.read_until(lambda _: False)
        status = self.process.wait(timeout=TIMEOUT_S)
        os.close(self._master)
        return status

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


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
