"""Hostile senders over gRPC: clear statuses, bounded memory, and others are served meanwhile."""

import gzip
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamReset, TrailersReceived
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server.serve_processes import PATIENCE_S, Serve, Traffic, serving
from server.test_serve_hostile import memory_mib, nested

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LIMIT = 16_000_000
OK, INVALID, EXHAUSTED, UNKNOWN_METHOD = "0", "3", "8", "12"
PERMISSION_DENIED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = "7", "13", "14", "16"

WHOLE = Traffic()
WHOLE.agent()
BODY = WHOLE.body()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    folder = tmp_path_factory.mktemp("hostile-grpc")
    arguments = ("--store", "runs.db", "--max-body", str(LIMIT), "--request-time", "4s")
    with serving(*arguments, cwd=folder, grpc=True) as process:
        yield process
        assert process.process.poll() is None
        assert "Traceback" not in "".join(process.lines), "".join(process.lines)


class Caller:
    """A connection of HTTP/2, with calls whose messages are whatever bytes one likes. A context manager."""

    def __init__(self, server: Serve) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.grpc), timeout=PATIENCE_S)
        self._connection = H2Connection(H2Configuration(client_side=True))
        self._connection.initiate_connection()
        self._flush()
        self._headers: dict[int, dict[str, str]] = {}

    def __enter__(self) -> "Caller":  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def call(self, *headers: tuple[str, str], method: str = EXPORT) -> int:
        """Begin a call; its stream."""
        stream = self._connection.get_next_available_stream_id()
        usual = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers"}
        self._connection.send_headers(
            stream, [*usual.items(), ("content-type", "application/grpc"), *headers]
        )
        self._flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = True) -> None:
        """Send as much as the server lets, which is all that it wants to have."""
        until = time.monotonic() + PATIENCE_S
        while data and stream not in self._headers:
            size = min(
                self._connection.local_flow_control_window(stream),
                self._connection.max_outbound_frame_size,
                len(data),
            )
            if size:
                self._connection.send_data(stream, data[:size])
                data = data[size:]
                self._flush()
            elif not self._receive(0.5) or time.monotonic() > until:
                return
        if end and stream not in self._headers:
            self._connection.end_stream(stream)
            self._flush()

    def status(self, stream: int) -> str:
        """The status of a call: gRPC's, or what ended it."""
        until = time.monotonic() + PATIENCE_S
        while "grpc-status" not in (told := self._headers.get(stream, {})):
            assert time.monotonic() < until, f"no status within {PATIENCE_S:g} s"
            self._receive(0.5)
        return told["grpc-status"]

    def _receive(self, seconds: float) -> bool:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(2**20)
        except TimeoutError:
            return False
        if not data:
            raise ConnectionError("closed")
        for event in self._connection.receive_data(data):
            if isinstance(event, (ResponseReceived, TrailersReceived)):
                told = self._headers.setdefault(event.stream_id or 0, {})
                told.update((_text(name), _text(value)) for name, value in event.headers or ())
            elif isinstance(event, StreamReset):
                self._headers.setdefault(event.stream_id or 0, {}).setdefault("grpc-status", "reset")
            elif isinstance(event, DataReceived):
                self._connection.acknowledge_received_data(
                    event.flow_controlled_length or 0, event.stream_id or 0
                )
            elif isinstance(event, ConnectionTerminated):
                raise ConnectionError("going away")
        self._flush()
        return True

    def _flush(self) -> None:
        self._socket.sendall(self._connection.data_to_send())


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def message(body: bytes, *, packed: bool = False, length: int | None = None) -> bytes:
    return struct.pack(">BI", packed, len(body) if length is None else length) + body


def exported(server: Serve, body: bytes = BODY) -> bytes:
    """What an honest sender is told."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        return channel.unary_unary(EXPORT)(body, timeout=PATIENCE_S)


def exported_at_last(server: Serve) -> bytes:
    """The same of one that comes again when it is told to, as exporters do."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return exported(server)
        except grpc.RpcError as error:
            told: Any = error
            if told.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                raise
            time.sleep(0.2)


GZIP = ("grpc-encoding", "gzip")


@pytest.mark.parametrize(
    ("status", "sent", "headers"),
    [
        (OK, message(BODY), ()),
        (OK, message(gzip.compress(BODY), packed=True), (GZIP,)),
        (OK, message(b"") * 3, ()),  # a client that streams: the first one counts
        (INVALID, b"", ()),
        (INVALID, message(b"\xff" * 10), ()),
        (INVALID, message(nested(10_000)), ()),
        (INVALID, message(BODY[:-1]), ()),
        (INTERNAL, message(b"no gzip", packed=True), (GZIP,)),
        (INTERNAL, message(BODY, packed=True), (("grpc-encoding", "zstd"),)),
        (EXHAUSTED, message(b"", length=2**32 - 1), ()),
        (EXHAUSTED, message(bytes(LIMIT + 1)), ()),
        (EXHAUSTED, message(gzip.compress(bytes(1_000_000_000), 1), packed=True), (GZIP,)),
    ],
    ids=[
        *("plain", "gzip", "stream", "nothing", "noise", "nested", "cut", "no-gzip", "zstd"),
        *("four-gigabytes", "too-large", "bomb"),
    ],
)
def test_bad_messages_are_told_so(
    server: Serve, status: str, sent: bytes, headers: tuple[tuple[str, str], ...]
) -> None:
    before = memory_mib(server)
    with Caller(server) as caller:
        stream = caller.call(*headers)
        caller.send(stream, sent)
        assert caller.status(stream) == status
    assert memory_mib(server) - before < 100  # a message may have 16 MB


def test_other_methods_are_unknown_and_health_is_told(server: Serve) -> None:
    with Caller(server) as caller:
        stream = caller.call(method="/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        caller.send(stream, message(b""))
        assert caller.status(stream) == UNKNOWN_METHOD
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=PATIENCE_S) == b"\x08\x01"  # SERVING
        with pytest.raises(grpc.RpcError) as named:
            check(b"\x0a\x04shop", timeout=PATIENCE_S)
    code: Any = named.value
    assert code.code() == grpc.StatusCode.NOT_FOUND


def test_messages_that_never_end_take_bounded_memory_and_keep_nobody_waiting_for_long(server: Serve) -> None:
    before = memory_mib(server)
    callers = [Caller(server) for _ in range(4)]
    try:
        streams: list[int] = []
        for caller in callers:
            streams = [caller.call() for _ in range(90)]
            for stream in streams:  # 360 of 15 MB each would be 5.4 GB
                caller.send(stream, message(bytes(2_000_000), length=15_000_000), end=False)
            assert exported_at_last(server) == b""
        assert memory_mib(server) - before < 350  # the 64 latest, of 2 MB each, and not 720
        assert callers[0].status(streams[0]) == UNAVAILABLE
        assert exported_at_last(server) == b""
        # And those that are left are shown out in their time.
        assert callers[-1].status(streams[-1]) == UNAVAILABLE
    finally:
        for caller in callers:
            caller.__exit__()


def test_calls_without_a_message_end_in_their_time(server: Serve) -> None:
    with Caller(server) as caller:
        streams = [caller.call() for _ in range(90)]
        for stream in streams:
            assert caller.status(stream) == UNAVAILABLE


def test_without_a_token_no_message_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").write_text("red:secret-1\n*:secret-3\n")
    arguments = ("--store", "x.db", "--token-file", "tokens")
    with serving(*arguments, cwd=folder, grpc=True) as server, Caller(server) as caller:
        stream = caller.call(("authorization", "Bearer secret-2"))
        caller.send(stream, message(b"x", length=15_000_000), end=False)
        assert caller.status(stream) == UNAUTHENTICATED
        stream = caller.call(("authorization", "Bearer secret-3"))  # it shows all runs, and sends none
        caller.send(stream, message(b"x", length=15_000_000), end=False)
        assert caller.status(stream) == PERMISSION_DENIED
        stream = caller.call(("authorization", "Bearer secret-1"))
        caller.send(stream, message(BODY))
        assert caller.status(stream) == OK


@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            lambda cut, noise: message(BODY[:cut] + noise), st.integers(0, len(BODY)), st.binary(max_size=40)
        ),
        st.builds(
            lambda body, length: message(body, length=length), st.binary(max_size=99), st.integers(0, 99)
        ),
    )
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_message_is_an_error_of_ours(server: Serve, sent: bytes) -> None:
    with Caller(server) as caller:
        stream = caller.call()
        caller.send(stream, sent)
        assert caller.status(stream) in {OK, INVALID, EXHAUSTED, INTERNAL, "reset"}


@given(st.binary(min_size=1, max_size=200), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_http_2_harms_nobody(server: Serve, noise: bytes, greeted: bool) -> None:
    with socket.create_connection(("127.0.0.1", server.grpc), timeout=10) as connection:
        connection.sendall((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if greeted else b"") + noise)
    assert server.process.poll() is None


def test_after_all_that_honest_senders_are_served(server: Serve) -> None:
    assert exported(server) == b""
    assert server.request("GET", "/healthz")[0] == 200
