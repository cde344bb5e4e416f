"""OTLP over gRPC: handlers that take and give raw bytes, so that a message is read once, and by us."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_loopeval.server.addresses import Address
from otel_loopeval.server.core import Core
from otel_loopeval.server.http.replies import PROTOBUF, Reply, refused
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.requests import NO_TOKEN, ONLY_SHOWS, SIGNALS
from otel_loopeval.server.tls import Tls
from otel_loopeval.server.tokens import ALL

_METHODS: Final = {
    f"/opentelemetry.proto.collector.{signal.removesuffix('s') if signal != 'metrics' else signal}.v1."
    f"{name}Service/Export": signal
    for signal, name in zip(SIGNALS, ("Trace", "Metrics", "Logs"), strict=True)
}
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"  # HealthCheckResponse.status, by hand: its package is for two bytes
_NOT_SERVING: Final = b"\x08\x02"
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    413: grpc.StatusCode.INVALID_ARGUMENT,  # nothing that a sender should try again
    429: grpc.StatusCode.UNAVAILABLE,  # as the specification has it for what may be tried again
    503: grpc.StatusCode.UNAVAILABLE,
}
_DETAILS: Final = "grpc-status-details-bin"
_MAX_STREAMS: Final = 100
"""Calls at once on one connection; its other end keeps the next ones waiting."""
_MAX_CALLS: Final = 1_000
"""Calls at once; the next are told to come again."""
_MAX_INT: Final = 2**31 - 1
_WINDOW: Final = 65_535
_PATIENCE_S: Final = 1.0
"""How long a message may always take to come in."""

_TOO_MUCH: Final = refused(503, "too much at once", b"1")
_TOO_SLOW: Final = refused(503, "the message took too long to come in", b"1")
_NO_MESSAGE: Final = refused(400, "there is no message")

_Handle = Callable[[Any, Any], Awaitable[bytes]]


class _Incoming:
    """Calls whose message is still coming in.

    gRPC gathers a message, as long as it says it will be, and tells nobody how much of it is there. So there
    is a bound on how many may be on their way, and on their time; where a new one would be one too many, the
    one that has been on its way for longest is given up, and no slow sender keeps another one waiting.

    Args:
        options: The size of messages and of all of them, and their time.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._most = max(4 * options.max_inflight // options.max_body, 16)
        self._longest_s = options.request_s
        self._began: dict[asyncio.Task[Any], float] = {}  # the oldest first
        self._given_up: set[asyncio.Task[Any]] = set()
        self._look: asyncio.TimerHandle | None = None

    async def read(self, context: Any) -> bytes | Reply:
        """The message of a call; what to say if there is none in time."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        began = self._began
        now = time.monotonic()
        if len(began) >= self._most and not self._give_up_oldest(now):
            return _TOO_MUCH
        began[task] = now
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(1, self._give_up_late)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task not in self._given_up:
                raise
            if hasattr(task, "uncancel"):  # since Python 3.11
                task.uncancel()  # type: ignore[reportAttributeAccessIssue,unused-ignore]
            return _TOO_SLOW
        finally:
            began.pop(task, None)
            self._given_up.discard(task)
        return message if isinstance(message, bytes) else _NO_MESSAGE  # its own word for the end

    def _give_up_oldest(self, now: float) -> bool:
        task, since = next(iter(self._began.items()))
        if now - since < _PATIENCE_S:
            return False
        self._give_up(task)
        return True

    def _give_up_late(self) -> None:
        before = time.monotonic() - self._longest_s
        for task in [task for task, since in self._began.items() if since < before]:
            self._give_up(task)
        self._look = asyncio.get_running_loop().call_later(1, self._give_up_late) if self._began else None

    def _give_up(self, task: "asyncio.Task[Any]") -> None:
        del self._began[task]
        self._given_up.add(task)
        task.cancel()


class _Handler(grpc.GenericRpcHandler):
    """Answers the three methods of OTLP, and health checks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._incoming = _Incoming(core.options)
        self._calls = 0
        # On the wire, one message is a stream of one; as a stream, it is ours when to read it.
        handler = grpc.stream_unary_rpc_method_handler
        self._handlers: dict[str, Any] = {
            method: handler(self._export_of(signal)) for method, signal in _METHODS.items()
        }
        self._handlers[_HEALTH] = handler(self._health)

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method, or None."""
        return self._handlers.get(handler_call_details.method)

    def _export_of(self, signal: str) -> _Handle:
        async def export(_messages: Any, context: Any) -> bytes:
            self._calls += 1
            try:
                reply = await self._reply(signal, context)
            finally:
                self._calls -= 1
            if reply.status == 200:  # noqa: PLR2004
                return reply.body
            code = _CODES.get(reply.status, grpc.StatusCode.INTERNAL)
            text = reply.body.decode("utf-8", "replace")[:500]
            trailing: tuple[tuple[str, bytes], ...] = ()
            if reply.retry_after.isdigit():
                trailing = ((_DETAILS, _retry_details(code, text, int(reply.retry_after))),)
            try:
                await context.abort(code, text, trailing)
            except grpc.aio.InternalError:  # the caller has gone, which would be logged as an error of ours
                raise asyncio.CancelledError from None
            raise AssertionError("abort raises")

        return export

    async def _reply(self, signal: str, context: Any) -> Reply:
        core = self._core
        tenant = core.tokens.tenant_of_bearer(_authorization(context.invocation_metadata() or ()))
        if tenant is None:
            reply = NO_TOKEN
        elif tenant == ALL:
            reply = ONLY_SHOWS
        elif self._calls > _MAX_CALLS:
            reply = _TOO_MUCH
        else:
            message = await self._incoming.read(context)
            if isinstance(message, bytes):
                return await core.take(signal, PROTOBUF, b"", message, tenant)
            reply = message
        core.count(signal, reply.status, tenant or "")
        return reply

    async def _health(self, _messages: Any, context: Any) -> bytes:
        message = await self._incoming.read(context)
        if isinstance(message, Reply):
            await context.abort(_CODES[message.status], message.body.decode())
        elif message not in (b"", b"\x0a\x00"):
            await context.abort(grpc.StatusCode.NOT_FOUND, "ask for the server as a whole: no service's name")
        return _NOT_SERVING if self._core.draining else _SERVING


def _authorization(metadata: Sequence[tuple[str, str | bytes]]) -> bytes:
    for name, value in metadata:
        if name == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return b""


def _retry_details(code: grpc.StatusCode, text: str, seconds: int) -> bytes:
    info = RetryInfo()
    info.retry_delay.seconds = seconds
    detail = AnyMessage()
    detail.Pack(info)
    return Status(code=code.value[0], message=text, details=[detail]).SerializeToString()


async def start(core: Core, address: Address, tls: Tls | None) -> tuple[grpc.aio.Server, int]:
    """Start to take OTLP over gRPC.

    Returns:
        The server, and the port that it listens on.

    Raises:
        OSError: The address cannot be had, or the certificate and its key are of no use.
    """
    options = core.options
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", options.max_body),
            ("grpc.max_concurrent_streams", _MAX_STREAMS),
            ("grpc.max_allowed_incoming_connections", max(options.max_connections * 4 // 5, 1)),
            ("grpc.server_handshake_timeout_ms", min(int(options.request_s * 1_000) or 1, _MAX_INT)),
            # What a call may send before it is its turn; with probes, a fast connection gets megabytes.
            ("grpc.http2.lookahead_bytes", _WINDOW),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.so_reuseport", 0),  # else two servers share one port, and nobody is told
        ],
    )
    server.add_generic_rpc_handlers((_Handler(core),))
    try:
        if tls is None:
            port = server.add_insecure_port(str(address))
        else:
            pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
            port = server.add_secure_port(str(address), grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        raise OSError(f"argument --grpc: cannot listen on {address} for gRPC: {_why(address)}") from None
    await server.start()
    return server, port


def _why(address: Address) -> str:
    """Why one cannot listen there: what gRPC says is where to find its log."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen()
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC tells no reason"
