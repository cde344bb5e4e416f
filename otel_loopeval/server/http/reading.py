"""The reading half of a connection: what the parser finds in its bytes becomes requests."""

import asyncio
from typing import Final
from urllib.parse import unquote

import httptools

from otel_loopeval.server.http.answering import Answering, Exchange
from otel_loopeval.server.http.heads import Head, KnownHeads
from otel_loopeval.server.http.receiving import App, Receiver
from otel_loopeval.server.http.replies import CONTINUE, Reply, refused
from otel_loopeval.server.requests import Otlp

_MAX_HEAD: Final = 65_536
_MAX_PAGE_BODY: Final = 65_536


class Reading(Answering):
    """What reads the requests of one connection, from their first byte on. Who knows a head skips some of it.

    Args:
        receiver: What tells who answers.
        loop: The event loop.
        known: Heads that came before, which this one adds to.
    """

    def __init__(self, receiver: Receiver, loop: asyncio.AbstractEventLoop, known: KnownHeads[Otlp]) -> None:
        super().__init__(receiver, loop)
        self._known = known
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
            self._known.keep(raw_head, what)

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
