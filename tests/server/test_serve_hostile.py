"""Hostile senders: clear statuses, bounded memory, and others are served meanwhile."""

import contextlib
import gzip
import re
import resource
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server.serve_processes import PATIENCE_S, PROTOBUF, Serve, Sink, Traffic, as_json, await_that, serving

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


ZEROS = 100_000_000
TEN_GB = 10 * 2**30
JSON = {"content-type": "application/json"}
DEEP_JSON = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":%b1%b}]}]}]}]}' % (
    b'{"arrayValue":{"values":[' * 100_000,
    b"]}}" * 100_000,
)


def zstd_bomb() -> bytes:
    """A frame of ten gigabytes, by hand: blocks of which each is one byte many times."""
    size = 128 * 1024
    block = (size << 3 | 0b010).to_bytes(3, "little") + b"x"
    last = (size << 3 | 0b011).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * (TEN_GB // size - 1) + last


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, lambda: b"\xff" * 10, {}),
        (400, lambda: b"{", JSON),
        (400, lambda: b'{"resourceSpans": 1}', JSON),
        (400, lambda: b'{"resourceSpans": ' + b"[" * 100_000, JSON),
        (400, lambda: DEEP_JSON[:900_000], JSON),
        (400, lambda: zlib.compress(DEEP_JSON[:900_000]), {**JSON, "content-encoding": "deflate"}),
        (400, lambda: nested(5_000), {}),
        (400, lambda: gzip.compress(nested(10_000)), {"content-encoding": "gzip"}),
        (400, lambda: b"no gzip", {"content-encoding": "gzip"}),
        (400, lambda: gzip.compress(b"x" * 1000)[:-8], {"content-encoding": "gzip"}),
        (400, lambda: gzip.compress(b"") * 40_000, {"content-encoding": "gzip"}),
        (400, lambda: b"no zstd", {"content-encoding": "zstd"}),
        (413, lambda: gzip.compress(bytes(ZEROS)), {"content-encoding": "gzip"}),
        (413, lambda: zlib.compress(bytes(ZEROS)), {"content-encoding": "deflate"}),
        (413, zstd_bomb, {"content-encoding": "zstd"}),
        (413, lambda: zstandard.compress(bytes(ZEROS)), {"content-encoding": "zstd"}),
        (413, lambda: bytes(LIMIT + 1), {}),
        (415, lambda: b"", {"content-encoding": "br"}),
        (415, lambda: b"", {"content-encoding": "gzip, gzip"}),
        (415, lambda: b"", {"content-type": "text/plain"}),
        (200, lambda: b"", {}),
    ],
)
def test_bad_requests_are_told_so(
    server: Serve, status: int, body: Callable[[], bytes], headers: dict[str, str]
) -> None:
    before = memory_mib(server)
    told, _, text = server.request("POST", "/v1/traces", body(), {**PROTOBUF, **headers})
    assert told == status
    assert (text == b"") == (status == 200)
    assert memory_mib(server) - before < 64  # of a limit of 1 MB


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(server: Serve, method: str) -> None:
    assert server.request(method, "/v1/traces")[0] == 405


POST = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)  # of TLS


def told(server: Serve, sent: bytes, *, half: bool = False) -> bytes:
    """All that comes back, as far as the server closes or the answer is whole."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(ConnectionError):  # it may have closed in the middle of what is sent
            connection.sendall(sent)
            if half:
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                answer += part
                head, end, body = answer.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                if end and length and len(body) >= int(length[1]) and b"connection: close" not in head:
                    break
        return answer


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        # One length for us and another one for whoever is in front of us
        (400, POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n"),
        (400, POST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + GET + b"\r\n"),
        (400, POST + b"content-length: 0\r\ncontent-length: 5\r\n\r\nabcde"),
        (400, POST + b"content-length: 0\r\ncontent-length: 0\r\n\r\n"),
        (400, POST + b"content-length: 0, 0\r\n\r\n"),
        (400, POST + b"content-length: -1\r\n\r\n"),
        (400, POST + b"content-length: +1\r\n\r\na"),
        (400, POST + b"content-length: 0x1\r\n\r\na"),
        (400, POST + b"content-length: 1 1\r\n\r\na"),
        (400, POST + b"content-length: 99999999999999999999999\r\n\r\n"),
        (400, POST + b"content-length : 5\r\n\r\nabcde"),
        (400, POST + b"x: a\r\n content-length: 5\r\n\r\nabcde"),
        (400, POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        (400, POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        (400, CHUNKED + b"FFFFFFFFFFFFFFFFF\r\nabc"),
        (400, CHUNKED + b"-1\r\nabc"),
        (400, CHUNKED + b"0x1\r\na\r\n0\r\n\r\n"),
        (400, CHUNKED + b"1\r\nabc\r\n0\r\n\r\n"),
        # Other protocols
        (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
        (400, HELLO),
        (400, b"GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n"),
        (400, b"\0" * 100),
        (405, b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: x\r\n\r\n"),
        (200, GET + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"),
        (200, GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"),
        # Too much
        (431, b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
        (431, GET + b"x: " + b"a" * 1_000_000 + b"\r\n\r\n"),
        (431, GET + b"".join(b"x%d: a\r\n" % number for number in range(100_000)) + b"\r\n"),
        (431, CHUNKED + b"1;" + b"a" * 1_000_000 + b"\r\n"),
        (431, b"\r\n" * 500_000),
        (413, POST + b"content-length: %d\r\n\r\n" % 2**62),
        (413, CHUNKED + (b"20000\r\n" + bytes(0x20000) + b"\r\n") * 9),
        # Odd, and right
        (200, CHUNKED + b"0\r\nafter: x\r\n\r\n"),
        (200, CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in b"\x0a\x00") + b"0\r\n\r\n"),
        (200, CHUNKED + b"00000002;a=b\r\n\x0a\x00\r\n0\r\n\r\n"),
        (200, b"GET /healthz HTTP/1.0\r\n\r\n"),
        (200, POST + b"authorization: \xff\xfe\r\ncontent-length: 0\r\n\r\n"),
        (404, b"GET /%ff%00%0d%0aX:y HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    ],
)
def test_what_is_no_plain_request_is_told_so_once(server: Serve, status: int, sent: bytes) -> None:
    before = memory_mib(server)
    answer = told(server, sent)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"%d" % status]
    assert memory_mib(server) - before < 16


def test_a_head_that_is_known_lets_no_other_one_pass(server: Serve) -> None:
    body = b"\x0a\x00"
    for _ in range(3):  # from the second one on it is known
        assert told(server, POST + b"content-length: 2\r\n\r\n" + body).startswith(b"HTTP/1.1 200")
    for length in (b"+2", b"2, 2", b"0x2", b"2\r\ncontent-length: 2", b"2\r\ntransfer-encoding: chunked"):
        answer = told(server, POST + b"content-length: " + length + b"\r\n\r\n" + body)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"400"]


def test_of_half_a_request_nothing_is_taken(server: Serve) -> None:
    spans = server.metrics()["loopeval_serve_spans_total"]
    request = POST + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
    assert told(server, request[:-1], half=True) == b""
    assert server.metrics()["loopeval_serve_spans_total"] == spans
    assert told(server, request, half=True).startswith(b"HTTP/1.1 200")
    assert server.metrics()["loopeval_serve_spans_total"] == spans + 5


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/"])
def test_who_asks_without_end_and_reads_nothing_takes_no_memory(server: Serve, path: str) -> None:
    before = memory_mib(server)
    asked = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode() * 2_000
    with socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection:
        with contextlib.suppress(OSError):  # it is not read any more, or closed
            for _ in range(400):
                connection.sendall(asked)
        assert server.request("GET", "/healthz")[0] == 200
        assert memory_mib(server) - before < 32


def test_who_resets_connections_by_the_hundred_harms_nobody(server: Serve) -> None:
    request = POST + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
    for number in range(500):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # RST at its end
            connection.sendall(request[: number * 7 % len(request)])
    assert server.request("GET", "/healthz")[0] == 200


WHOLE = Traffic()
WHOLE.agent()
BODY = WHOLE.body()
DOCUMENT = as_json(BODY)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "deflate": zlib.compress,
    "identity": bytes,
    "x": bytes,
}


@given(
    path=st.sampled_from(["/v1/traces", "/v1/metrics", "/v1/logs", "/", "/metrics", "/runs/x", "/live"]),
    method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT"]),
    kind=st.sampled_from(["application/x-protobuf", "application/json", "application/json;x", ""]),
    encoding=st.sampled_from(list(PACK)),
    document=st.booleans(),
    cut=st.integers(0, len(BODY)),
    noise=st.binary(max_size=40),
    packed=st.booleans(),
    cut_after=st.integers(0, 40),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_is_an_error_of_ours(
    server: Serve,
    path: str,
    method: str,
    kind: str,
    encoding: str,
    document: bool,
    cut: int,
    noise: bytes,
    packed: bool,
    cut_after: int,
) -> None:
    headers = {"content-type": kind} | ({"content-encoding": encoding} if encoding else {})
    body = (DOCUMENT if document else BODY)[:cut] + noise
    if packed:
        body = PACK[encoding](body)
        body = body[: len(body) - cut_after]
    status, _, _ = server.request(method, path, body, headers)
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
