"""Ten thousand connections that say nothing, for real; and the one too many."""

import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from server import idle_clients
from server.serve_processes import Serve, Traffic, await_that, serving
from server.test_serve_hostile import memory_mib

NEEDED = 19_000
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Idle:
    """Clients that say nothing."""

    def __init__(self, port: int, count: int, protocol: str) -> None:
        command = [sys.executable, idle_clients.__file__, str(port), str(count), protocol]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.made = self._number()

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def ended(self) -> int:
        """How many of them the server has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._number()


@contextmanager
def idle(port: int, count: int, protocol: str) -> Generator[Idle, None, None]:
    clients = Idle(port, count, protocol)
    try:
        yield clients
    finally:
        clients.process.communicate(timeout=60)


def files(server: Serve) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.mark.e2e
@pytest.mark.parametrize(("protocol", "count", "kib_each"), [("http", 10_000, 20), ("grpc", 8_000, 40)])
def test_ten_thousand_idle_connections_keep_nobody_waiting(
    protocol: str, count: int, kib_each: int, tmp_path: Path
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        pytest.skip(f"this machine lets a process open {hard} files")
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    arguments = ("--store", "runs.db", "--grace", "0s", "--request-time", "10m")
    with serving(*arguments, cwd=tmp_path, grpc=True) as server:
        before = memory_mib(server)
        with idle(server.port if protocol == "http" else server.grpc, count, protocol) as clients:
            assert clients.made == count
            await_that(lambda: files(server) > count, "all of them accepted")
            held = memory_mib(server) - before
            print(f"{count} idle {protocol} connections: {before:.0f} MiB and {held:.0f} more")
            assert held * 1024 < count * kib_each
            assert server.send(body) == 200
            with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
                assert channel.unary_unary(EXPORT)(body, timeout=30) == b""
            assert clients.ended() == 0
        await_that(lambda: files(server) < 200, "all of them forgotten")
        assert server.send(body) == 200


def test_the_connection_that_is_one_too_many_ends_at_once(tmp_path: Path) -> None:
    limited = ("prlimit", "--nofile=1000:1000")  # less our own, 600: 330 for one and 264 for the other
    arguments = ("--store", "runs.db", "--request-time", "10m")
    with serving(*arguments, cwd=tmp_path, grpc=True, before=limited) as server:
        for protocol, port, over in (("http", server.port, 170), ("grpc", server.grpc, 236)):
            with idle(port, 500, protocol) as clients:
                assert clients.made == 500
                await_that(lambda: clients.ended() >= over, "the others ended")  # noqa: B023 - called here
                assert clients.ended() == over
                assert files(server) >= 500 - over
            await_that(lambda: files(server) < 100, "all of them forgotten")
        assert server.request("GET", "/healthz")[0] == 200
