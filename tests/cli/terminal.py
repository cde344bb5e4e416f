"""A command on a terminal of its own."""

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


class Terminal:
    """A command on a terminal of 80 columns."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        # A job in the background ignores interrupts, and so would what it starts.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=cwd,
                env=environment({"COLUMNS": "80", "LINES": "50", **(env or {})}),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)
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
