"""OTLP over gRPC: handlers that take and give raw bytes, so that a message is read once, and by us."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_loopeval.server.core import PROTOBUF, SIGNALS, Core
from otel_loopeval.server.options import Address, Tls

_METHODS: Final = {
    f"/opentelemetry.proto.collector.{signal.removesuffix('s') if signal != 'metrics' else signal}.v1."
    f"{name}Service/Export": signal
    for signal, name in zip(SIGNALS, ("Trace", "Metrics", "Logs"), strict=True)
}
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.INVALID_ARGUMENT,  # nothing that a sender should try again
    429: grpc.StatusCode.UNAVAILABLE,  # as the specification has it for what may be tried again
    503: grpc.StatusCode.UNAVAILABLE,
}
_DETAILS: Final = "grpc-status-details-bin"
_MAX_STREAMS: Final = 1_000


class _Handler(grpc.GenericRpcHandler):
    """Answers the three methods of OTLP."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(self._export_of(signal))
            for method, signal in _METHODS.items()
        }

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method, or None."""
        return self._handlers.get(handler_call_details.method)

    def _export_of(self, signal: str) -> Any:
        core = self._core

        async def export(request: bytes, context: Any) -> bytes:
            tenant = core.tenant_of(_authorization(context.invocation_metadata() or ()))
            if tenant is None:
                core.count(signal, 401, "")
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
            reply = await core.take(signal, PROTOBUF, b"", request, tenant or "")
            if reply.status == 200:  # noqa: PLR2004
                return reply.body
            code = _CODES.get(reply.status, grpc.StatusCode.INTERNAL)
            text = reply.body.decode("utf-8", "replace")[:500]
            if reply.retry_after.isdigit():
                trailing = ((_DETAILS, _retry_details(code, text, int(reply.retry_after))),)
                await context.abort(code, text, trailing)
            await context.abort(code, text)
            raise AssertionError("abort raises")

        return export


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
        OSError: The address cannot be had.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", core.options.max_body),
            ("grpc.max_concurrent_streams", _MAX_STREAMS),
            ("grpc.so_reuseport", 0),  # else two servers share one port, and nobody is told
        ],
        maximum_concurrent_rpcs=_MAX_STREAMS,
    )
    server.add_generic_rpc_handlers((_Handler(core),))
    try:
        if tls is None:
            port = server.add_insecure_port(str(address))
        else:
            pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
            port = server.add_secure_port(str(address), grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address} for gRPC: {error}") from None
    await server.start()
    return server, port
