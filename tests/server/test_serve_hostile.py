"""Hostile senders: clear statuses, bounded memory, and others are served meanwhile."""

import contextlib
import gzip
import resource
import socket
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server.serve_processes import PROTOBUF, Serve, Sink, Traffic, await_that, serving

from otel_loopeval.cli.main import main

LIMIT = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    folder = tmp_path_factory.mktemp("hostile")
    with Sink() as sink, serving("--forward", sink.url, "--max-body", str(LIMIT), cwd=folder) as process:
        yield process


def memory_mib(server: Serve) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def nested(depth: int) -> bytes:
    """A span with an attribute of lists in lists, in protobuf."""
    value = b"\x0a\x01x"
    for _ in range(depth):
        for tag in (b"\x0a", b"\x2a"):  # ArrayValue.values, AnyValue.array_value
            value = tag + varint(len(value)) + value
    pair = b"\x0a\x01k\x12" + varint(len(value)) + value
    span = b"\x0a\x10" + b"1" * 16 + b"\x12\x08" + b"1" * 8 + b"\x2a\x0einvoke_agent x"
    span += b"\x4a" + varint(len(pair)) + pair
    for tag in (b"\x12", b"\x12", b"\x0a"):
        span = tag + varint(len(span)) + span
    return span


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


BOMB = b"\0" * 200_000_000


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"\xff" * 10, {}),
        (400, b"{", {"content-type": "application/json"}),
        (400, b'{"resourceSpans": 1}', {"content-type": "application/json"}),
        (400, b'{"resourceSpans": ' + b"[" * 100_000, {"content-type": "application/json"}),
        (400, nested(5_000), {}),
        (400, b"no gzip", {"content-encoding": "gzip"}),
        (400, gzip.compress(b"x" * 1000)[:-8], {"content-encoding": "gzip"}),
        (400, b"no zstd", {"content-encoding": "zstd"}),
        (413, gzip.compress(BOMB), {"content-encoding": "gzip"}),
        (413, zlib.compress(BOMB), {"content-encoding": "deflate"}),
        (413, zstandard.compress(BOMB), {"content-encoding": "zstd"}),
        (413, b"\0" * (LIMIT + 1), {}),
        (415, b"", {"content-encoding": "br"}),
        (415, b"", {"content-type": "text/plain"}),
        (200, b"", {}),
    ],
)
def test_bad_requests_are_told_so(server: Serve, status: int, body: bytes, headers: dict[str, str]) -> None:
    told, _, text = server.request("POST", "/v1/traces", body, {**PROTOBUF, **headers})
    assert told == status
    assert (text == b"") == (status == 200)
    assert memory_mib(server) < 400


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(server: Serve, method: str) -> None:
    assert server.request(method, "/v1/traces")[0] == 405


WHOLE = Traffic()
WHOLE.agent()
BODY = WHOLE.body()


@given(
    path=st.sampled_from(["/v1/traces", "/v1/metrics", "/v1/logs", "/", "/metrics", "/runs/x", "/live"]),
    method=st.sampled_from(["POST", "GET", "PUT"]),
    kind=st.sampled_from(["application/x-protobuf", "application/json", "application/json;x", ""]),
    encoding=st.sampled_from(["", "gzip", "zstd", "deflate", "identity", "x"]),
    cut=st.integers(0, len(BODY)),
    noise=st.binary(max_size=40),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_is_an_error_of_ours(
    server: Serve, path: str, method: str, kind: str, encoding: str, cut: int, noise: bytes
) -> None:
    headers = {"content-type": kind, "content-encoding": encoding}
    status, _, _ = server.request(method, path, BODY[:cut] + noise, headers)
    assert status in {200, 400, 404, 405, 413, 415}


@given(st.binary(min_size=1, max_size=200))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_http_harms_nobody(server: Serve, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(noise)
    assert server.process.poll() is None


def test_after_all_that_the_server_serves(server: Serve) -> None:
    assert server.request("GET", "/healthz")[0] == 200
    assert not [line for line in server.lines if "Traceback" in line]


def test_a_thousand_idle_and_slow_senders_do_not_keep_others_waiting(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent()
    with (
        Sink() as sink,
        serving("--forward", sink.url, "--grace", "0s", "--request-time", "2s", cwd=tmp_path) as server,
        contextlib.ExitStack() as connections,
    ):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = min(1_000, (soft if hard == resource.RLIM_INFINITY else hard) // 4)
        opened = [
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            for _ in range(count)
        ]
        for number, connection in enumerate(opened):
            if number % 2:
                connection.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n")
            if number % 4 == 3:
                connection.sendall(b"content-type: application/x-protobuf\r\n\r\nabc")
        assert server.send(traffic.body()) == 200
        assert await_that(sink.verdicts, "a verdict")
        assert memory_mib(server) < 400
        # And they are shown out.
        for connection in opened:
            connection.settimeout(30)
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                continue
        until = time.monotonic() + 30
        while time.monotonic() < until and server.request("GET", "/healthz")[0] != 200:
            time.sleep(0.1)
        assert server.request("GET", "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "0.0.0.0:4318"], "can be reached from other machines"),
        (["--grpc", "[::]:4317"], "can be reached from other machines"),
        (["--http", "nowhere"], "an address is HOST:PORT"),
        (["--forward", "ftp://x"], "base URL of an OTLP/HTTP endpoint"),
        (["--forward-header", "x"], "a header is NAME=VALUE"),
        (["--store", "none"], "what comes in has to go somewhere"),
        (["--tls-cert", "x"], "--tls-cert and --tls-key go together"),
        (["--token-file", "not-there"], "not-there"),
        (["--idle", "soon"], "a time is a number"),
        (["--trace-url", "http://x/y"], "{trace_id}"),
    ],
)
def test_what_cannot_be_done_is_told(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["serve", *arguments])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert message in capfd.readouterr().err
