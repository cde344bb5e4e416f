"""One request answered by an ASGI application: the page, or the metrics. Its body is there already."""

import asyncio
import logging
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_loopeval.server.http.heads import Head
from otel_loopeval.server.http.replies import as_http, refused, status_line

if TYPE_CHECKING:
    from otel_loopeval.server.http.receiving import App

_WITHOUT_BODY: Final = frozenset({204, 304})
_SCHEMES: Final = {False: "http", True: "https"}

_log = logging.getLogger("otel_loopeval.serve")


class Sender(Protocol):
    """The connection that a request came from."""

    transport: Any

    @property
    def write_paused(self) -> bool:
        """Whether the sender has to read before more is written."""
        ...

    def answered(self, *, keep_alive: bool) -> None:
        """The request has its answer."""
        ...


class AsgiAnswer:
    """The answer to one request.

    Args:
        sender: Where it came from.
        head: Its head.
        path: Its path, decoded.
        body: Its body.
    """

    def __init__(self, sender: Sender, head: Head, path: str, body: bytes) -> None:
        self._sender = sender
        self._head = head
        self._path = path
        self._body: bytes | None = body
        self._keep_alive = head.keep_alive
        self._start = b""  # of the answer, until there is some of its body
        self._started = self._complete = self._chunked = self._gone = False
        self._without_body = head.method == "HEAD"
        self._changed = asyncio.Event()  # something that the application may wait for
        self._task: asyncio.Task[None] | None = None

    def start(self, app: "App") -> None:
        """Let an application answer."""
        self._task = asyncio.get_running_loop().create_task(self._run(app))

    def lost(self) -> None:
        """The sender has gone."""
        self._gone = True
        self._changed.set()

    def writable(self) -> None:
        """The sender has read what was written."""
        self._changed.set()

    async def _run(self, app: "App") -> None:
        try:
            await app(self._scope(), self._receive, self._send)
        except Exception:  # noqa: BLE001 - whatever it was
            _log.exception("%s failed; going on", self._path)
        if self._complete or self._gone:
            return
        if self._started:  # in the middle: only an early end can tell
            self._sender.transport.abort()
            return
        self._sender.transport.write(as_http(refused(500, "this should not have happened"), keep_alive=False))
        self._sender.answered(keep_alive=False)

    def _scope(self) -> dict[str, Any]:
        head, transport = self._head, self._sender.transport
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method,
            "scheme": _SCHEMES[transport.get_extra_info("sslcontext") is not None],
            "path": self._path,
            "raw_path": path,
            "query_string": query.partition(b"#")[0],
            "root_path": "",
            "headers": head.headers,
            "client": _pair(transport.get_extra_info("peername")),
            "server": _pair(transport.get_extra_info("sockname")),
            "state": {},
        }

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not (self._gone or self._complete):
            self._changed.clear()
            await self._changed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        while self._sender.write_paused and not self._gone:
            self._changed.clear()
            await self._changed.wait()
        if self._gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and not self._complete:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, status: int, headers: Any) -> None:
        parts = [status_line(status)]
        sized = False
        for name, value in headers:
            if b"\r" in value or b"\n" in value or b"\n" in name:
                raise ValueError(f"a header's value is one line, got {value!r} for {name!r}")
            lowered = name.lower()
            sized |= lowered == b"content-length"
            if lowered == b"connection" and b"close" in value.lower():
                self._keep_alive = False
            elif lowered not in (b"connection", b"transfer-encoding"):  # those are ours to say
                parts.append(b"%b: %b\r\n" % (lowered, value))
        self._without_body |= status in _WITHOUT_BODY
        if not sized and not self._without_body:
            self._chunked = self._head.version == "1.1"
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                self._keep_alive = False  # its end is the end of the connection
        if not self._keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self._start = b"".join(parts)

    def _write(self, body: bytes, *, more: bool) -> None:
        if self._without_body:
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        self._sender.transport.write(self._start + body)
        self._started, self._start = True, b""
        if not more:
            self._complete = True
            self._changed.set()
            self._sender.answered(keep_alive=self._keep_alive)


def _pair(address: Sequence[Any] | str | None) -> tuple[str, int] | None:
    """Host and port, of which an address of IPv6 has more; a socket without them has a text."""
    return None if address is None or isinstance(address, str) else (address[0], address[1])
