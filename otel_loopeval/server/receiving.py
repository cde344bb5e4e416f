"""OTLP over HTTP, as a plain ASGI application: no framework is between a sender and the work."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from otel_loopeval.server.bodies import BodyError
from otel_loopeval.server.core import JSON, PROTOBUF, SIGNALS, Core, Reply, refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SIGNAL_OF: Final = {f"/v1/{signal}": signal for signal in SIGNALS}
_TEXT: Final = b"text/plain; charset=utf-8"


class Receiver:
    """Takes OTLP at ``/v1/traces``, ``/v1/metrics`` and ``/v1/logs``; the rest goes to other applications.

    Args:
        core: Does the work.
        ready: Whether the server is ready for work.
        metrics: Gives the metrics as text, and their type.
        page: What answers everything else, and asks for tokens itself; None for nothing.
    """

    def __init__(
        self,
        core: Core,
        *,
        ready: Callable[[], bool],
        metrics: Callable[[], tuple[bytes, bytes]],
        page: App | None = None,
    ) -> None:
        self._core = core
        self._ready = ready
        self._metrics = metrics
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        signal = _SIGNAL_OF.get(path)
        if signal is not None:
            reply = await self._otlp(signal, scope, receive)
            if reply is not None:
                await _answer(send, reply)
            return
        reply = self._plain(path, scope["method"])
        if reply is not None:
            await _answer(send, reply)
        elif self._page is None:
            await _answer(send, refused(404, "OTLP is taken at /v1/traces, /v1/metrics and /v1/logs"))
        else:
            await self._page(scope, receive, send)

    def _plain(self, path: str, method: str) -> Reply | None:
        if path not in ("/healthz", "/readyz", "/metrics"):
            return None
        if method not in ("GET", "HEAD"):
            return refused(405, "GET it")
        if path == "/metrics":
            body, content_type = self._metrics()
            return Reply(200, body, content_type)
        if path == "/readyz" and not self._ready():
            return refused(503, "not ready")
        return Reply(200, b"ok", _TEXT)

    async def _otlp(self, signal: str, scope: Scope, receive: Receive) -> Reply | None:
        headers = dict(scope["headers"])  # ASGI has their names in lower case
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        size = headers.get(b"content-length", b"")
        core = self._core
        tenant = core.tenant_of(headers.get(b"authorization", b""))
        refusal = self._refusal(scope["method"], tenant, content_type, int(size) if size.isdigit() else 0)
        if refusal is not None:
            core.count(signal, refusal.status, tenant or "")
            return refusal
        try:
            body = await self._body(receive)
        except BodyError as error:
            core.count(signal, error.status, tenant or "")
            return refused(error.status, str(error), b"1" if error.status == 503 else b"")  # noqa: PLR2004
        if body is None:
            return None
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        return await core.take(signal, content_type, encoding, body, tenant or "")

    def _refusal(self, method: str, tenant: str | None, content_type: bytes, size: int) -> Reply | None:
        options = self._core.options
        if method != "POST":
            return refused(405, "POST it")
        if tenant is None:
            return refused(401, "a bearer token is needed")
        if content_type not in (PROTOBUF, JSON):
            return refused(415, "content-type is application/x-protobuf or application/json")
        if size > options.max_body:
            return refused(413, f"a body may have {options.max_body} bytes, got {size}")
        if size + self._core.inflight > options.max_inflight:
            return refused(503, "too much at once", b"1")
        return None

    async def _body(self, receive: Receive) -> bytes | None:
        """The body; None if the sender has gone.

        What has come in so far counts as being worked on, since any number of senders may be slow.

        Raises:
            BodyError: It is too large, or there is too much at once.
        """
        message = await receive()
        if message["type"] != "http.request":
            return None
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        core = self._core
        parts = [body]
        size = counted = len(body)
        core.inflight += counted
        try:
            while message.get("more_body", False):
                message = await receive()
                if message["type"] != "http.request":
                    return None
                part: bytes = message.get("body", b"")
                parts.append(part)
                size += len(part)
                core.inflight += size - counted
                counted = size
                if size > core.options.max_body:
                    raise BodyError(413, f"a body may have {core.options.max_body} bytes, this one has more")
                if core.inflight > core.options.max_inflight:
                    raise BodyError(503, "too much at once")
        finally:
            core.inflight -= counted
        return b"".join(parts)


async def _answer(send: Send, reply: Reply) -> None:
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
    if reply.retry_after:
        headers.append((b"retry-after", reply.retry_after))
    if reply.status == 401:  # noqa: PLR2004
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
