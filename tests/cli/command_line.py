"""Running the command as a process, with pipes or on a terminal, and receivers for what it sends."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "otel_loopeval"]
TIMEOUT_S = 60
"""The time that the demo may take at most."""


@dataclass(frozen=True)
class Outcome:
    """What a process wrote and how it ended."""

    status: int
    out: str
    err: str


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what would change the command's output, and with the changes."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "LOOPEVAL_"))
        and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "PYTHONUNBUFFERED")
    }
    return {**clean, "PYTHONUTF8": "1", "TERM": "xterm-256color", **(changes or {})}


def run_command(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdout: Any = subprocess.PIPE
) -> Outcome:
    """Run the command with its output piped."""
    process = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Outcome(process.returncode, (process.stdout or b"").decode(), process.stderr.decode())


@dataclass
class Receiver:
    """An OTLP receiver over HTTP: answers each path with a status, and keeps what it was sent."""

    statuses: dict[str, int] = field(default_factory=dict[str, int])
    requests: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    endpoint: str = ""

    def bodies(self, path: str) -> list[bytes]:
        """What was posted to a path."""
        return [body for where, body in self.requests if where == path]


@contextmanager
def http_receiver(**statuses: int) -> Generator[Receiver, None, None]:
    """A receiver that answers ``/v1/{signal}`` with the status given for the signal, or 200."""
    receiver = Receiver({f"/v1/{signal}": status for signal, status in statuses.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, body))
            self.send_response(receiver.statuses.get(self.path, 200))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
