"""Connections of HTTP/1.1: bytes in, requests out.

Nothing is between a sender and the work but the parser: no framework, no task for a request. Only what the
page answers is handed on as ASGI.
"""

import asyncio
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

import httptools

from otel_loopeval.server.answering import KNOWN, Answering, Exchange
from otel_loopeval.server.heads import Head, KnownHeads
from otel_loopeval.server.receiving import App, Receiver
from otel_loopeval.server.replies import CONTINUE, Reply, refused
from otel_loopeval.server.requests import Otlp

_MAX_HEAD: Final = 65_536
_MAX_PAGE_BODY: Final = 65_536
_LOOKED_AT: Final = 50


class Connections:
    """What the connections of a server have in common.

    Args:
        receiver: What tells who answers.
        most: How many there may be at once.

    Attributes:
        receiver: What tells who answers.
        most: How many there may be at once.
        open: The connections.
        known: Heads that came before.
    """

    def __init__(self, receiver: Receiver, most: int) -> None:
        self.receiver = receiver
        self.most = most
        self.open: dict[Connection, None] = {}  # in the order in which they were looked at
        self.known: KnownHeads[Otlp] = KnownHeads()
        self._loop = asyncio.get_running_loop()

    def new(self) -> "Connection":
        """A protocol for a new connection."""
        return Connection(self, self._loop)

    def has_room(self) -> bool:
        """Whether one more may be. An idle one gives way, so that the idle lock nobody out."""
        if len(self.open) < self.most:
            return True
        first = list(islice(self.open, _LOOKED_AT))
        idle = [connection for connection in first if connection.is_idle]
        if idle:
            longest = min(idle, key=lambda connection: connection.since)
            del self.open[longest]
            longest.transport.abort()
            return True
        for connection in first:  # next time it is for others to give way
            self.open[connection] = self.open.pop(connection)
        return False

    def close_stuck(self) -> None:
        """Close those whose sender has had its time."""
        since = self.receiver.core.clock.now - self.receiver.core.options.request_s
        for connection in list(self.open):
            if connection.since < since and connection.waits_for_sender:
                connection.transport.abort()

    async def drain(self, seconds: float) -> None:
        """Let each finish what it is at, and close it; after a while, close it in any case."""
        until = self._loop.time() + seconds
        while self.open and self._loop.time() < until:
            for connection in list(self.open):
                connection.end()
            await asyncio.sleep(0.02)
        for connection in list(self.open):
            connection.transport.abort()


class Connection(Answering):
    """One connection. Requests are answered one after the other.

    Args:
        everyone: What it has in common with others.
        loop: Its event loop.

    """

    def __init__(self, everyone: Connections, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(everyone.receiver, loop)
        self._everyone = everyone
        self._max_body = self._core.options.max_body
        self._parser = httptools.HttpRequestParser(self)
        self._parsing = False  # the parser is inside of a message
        self._headers: list[tuple[bytes, bytes]] = []
        self._target = b""
        self._head: Head | None = None  # of the message, once it is there
        self._offered = False  # the head offers another protocol
        self._headway = 0  # bytes that came without any of a body
        self._raw_head = b""  # of the message that the parser is given next
        self._what: Otlp | App | None = None  # what the body is for
        self._path = ""
        self._refused = False  # the rest of the body is for nobody
        self._buffer = bytearray()
        self._missing = 0  # bytes of a body whose head was known

    @property
    def in_message(self) -> bool:
        """Whether a request has come in part."""
        return self._parsing or self._missing > 0

    # asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        self.transport = transport
        self.since = self._clock.now
        if not self._everyone.has_room():
            self._deaf = True
            transport.abort()
            return
        self._everyone.open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._everyone.open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self._may_begin = True
        if self._missing:
            data = self._take_missing(data)
        while data and not self._parsing and not self._deaf:
            end = data.find(b"\r\n\r\n") + 2
            if end < 2:  # noqa: PLR2004 - not there yet
                break
            head = data[:end]
            known = self._everyone.known.find(head)
            if known is None or known[1] > self._max_body:
                self._raw_head = head
                break
            data = self._take_known(*known, data, end + 2)
        if data and not self._deaf:
            self._parse(data)
        if self._queue or self._paused:
            self._mind_reading()

    # Requests with heads that came before ------------------------------------------------------------------

    def _take_known(self, what: Otlp, size: int, data: bytes, start: int) -> bytes:
        """Take a request; what follows it."""
        end = start + size
        there = len(data)
        self._headway = 0
        if end <= there:
            body = data[start:end]
            if self._may_begin and self._current is None and not self._queue and not self.write_paused:
                self._may_begin = False
                self._current = KNOWN
                self._core.begin(what, body, self._answer)
            else:
                self._enqueue(Exchange(what, body))
            return data[end:] if end < there else b""
        self.since = self._clock.now
        self._what, self._head, self._refused = what, None, False
        self._missing = size
        return self._take_missing(data[start:])

    def _take_missing(self, data: bytes) -> bytes:
        """Take more of the body; what follows it."""
        size = self._missing
        if len(data) < size:
            self._missing = size - len(data)
            self.on_body(data)
            return b""
        self._missing = 0
        self.on_body(data if len(data) == size else data[:size])
        self._body_complete()
        return data[size:]

    # All others --------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        self._headway += len(data)  # of a body there may be some in it: then it begins anew
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._give_up(refused(400, "this is no HTTP/1.1"))
        else:
            if self._headway > _MAX_HEAD:
                self._give_up(refused(431, f"a head may have {_MAX_HEAD} bytes, this one has more"))

    def _decline(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 where another protocol was offered, as Java's own client does.

        The parser stops there, and takes the body for the other protocol: it is given the head again, without
        the offer.
        """
        method = self._parser.get_method()
        self._parser = httptools.HttpRequestParser(self)
        self._offered = False
        if method == b"CONNECT":
            self._give_up(refused(405, "this is no proxy"))
            return
        lines = [b"%b %b HTTP/1.1" % (method, self._target)]
        for name, value in self._headers:
            if name != b"connection":  # without it, an upgrade is none
                lines.append(b"%b: %b" % (name, value))
            elif b"close" in value.lower():
                lines.append(b"connection: close")
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        self.since = self._clock.now
        self._parsing = True
        self._headers = []
        self._target = b""
        self._head = None
        self._headway = 0

    def on_url(self, url: bytes) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        if self._head is None:  # else it is one after the body
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        self._offered = self._parser.should_upgrade()
        if self._offered:
            return
        if self._deaf:
            self._refused = True
            return
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        head = self._head = Head(
            parser.get_method().decode("ascii"),
            self._target,
            headers,
            version,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
        )
        raw_head, self._raw_head = self._raw_head, b""
        self._refused = False
        expects = version == "1.1" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in headers
        )
        try:
            path = unquote((httptools.parse_url(self._target).path or b"").decode("ascii"))
        except (httptools.HttpParserError, UnicodeDecodeError):
            what: Otlp | Reply | App = refused(400, "this is no URL")
        else:
            self._path = path
            what = self._receiver.route(head, path)
        if isinstance(what, Reply):
            head.keep_alive = head.keep_alive and not expects  # a body may come now, or may not
            self._refuse(what)
            return
        self._what = what
        if expects:
            if self._current is None:
                self.transport.write(CONTINUE)
            else:
                self._owes_continue = True
        elif (
            isinstance(what, Otlp)
            and raw_head
            and head.keep_alive
            and not any(name == b"transfer-encoding" for name, _ in headers)
        ):
            self._everyone.known.keep(raw_head, what)

    def on_body(self, body: bytes) -> None:
        """See :class:`httptools.HttpRequestParser`. What has come counts as being worked on."""
        self._headway = 0
        if self._refused:
            return
        self._buffer += body
        self._core.inflight += len(body)
        if not isinstance(self._what, Otlp):
            if len(self._buffer) > _MAX_PAGE_BODY:
                self._refuse(refused(413, "nothing here takes a body"))
            return
        refusal = self._receiver.too_much(len(self._buffer), len(self._buffer))
        if refusal is not None:
            self._core.count(self._what.signal, refusal.status, self._what.tenant)
            self._refuse(refusal)

    def on_message_complete(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        if self._offered:
            return
        self._parsing = False
        self._headway = 0
        self._body_complete()

    def _body_complete(self) -> None:
        if self._refused:
            return
        body = bytes(self._buffer)
        self.release()
        head = self._head
        self._owes_continue = False
        self._enqueue(Exchange(self._what, body, head, self._path, head is None or head.keep_alive))

    def release(self) -> None:
        """Forget what has come of a body."""
        if self._buffer:
            self._core.inflight -= len(self._buffer)
            self._buffer = bytearray()

    def _refuse(self, reply: Reply) -> None:
        """Answer before the body is there; what is left of it is for nobody."""
        self.release()
        self._refused = True
        head = self._head
        self._enqueue(Exchange(reply, b"", head, keep_alive=head is None or head.keep_alive))

    def _give_up(self, reply: Reply) -> None:
        """Answer for the last time: what follows makes no sense."""
        self.release()
        if self._parsing and self._refused and self._current is None:
            self._hang_up()  # it has its answer
        else:
            self._enqueue(Exchange(reply, keep_alive=False))
            self._deaf = True
