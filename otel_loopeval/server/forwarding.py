"""On to the next hop, byte for byte: a client of HTTP/1.1 that does nothing else.

A general client takes longer for one request than all the rest of the work on a small body. This one calls
back instead of having tasks wait, and does not parse again what the next hop says again and again.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from otel_loopeval.server.clock import RunningClock
from otel_loopeval.server.replies import Reply

_MAX_IDLE: Final = 64
_MAX_CONNECTIONS: Final = 256
_MAX_ANSWER: Final = 1024 * 1024
_MAX_HEADS: Final = 100
_ONE_WRITE: Final = 65_536
_MAX_KNOWN: Final = 100
_MAX_KNOWN_BYTES: Final = 2_048


UNREACHABLE: Final = Reply(0, content_type=b"")
"""The next hop could not be reached, or said nothing in time."""
BUSY: Final = Reply(-1, content_type=b"")
"""It was not asked: too many requests wait for it already."""


class _Question(NamedTuple):
    """A request for the next hop, and who is told the answer."""

    head: bytes
    body: bytes
    answered: Callable[[Reply], object]


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, forwarder: "Forwarder") -> None:
        self.asked_at = 0.0
        self.transport: Any = None
        self._forwarder = forwarder
        self._known = forwarder.known
        self._parser = httptools.HttpResponseParser(self)
        self._parsing = False
        self._question: _Question | None = None
        self._answer: Reply | None = None
        self._used = False  # it has had an answer before
        self.closed = False
        self._forget()

    def _forget(self) -> None:
        self._content_type = self._retry_after = b""
        self._sized = False  # how long it is is told
        self._head_complete = False
        self._reusable = False
        self._body = bytearray()

    def send(self, question: _Question) -> None:
        """Send a request."""
        self._question = question
        self.asked_at = self._forwarder.clock.now
        head, body, _ = question
        if len(body) < _ONE_WRITE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    # asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        self.transport = transport
        self.transport.set_write_buffer_limits(high=4 * 1024 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        answer = UNREACHABLE
        if exc is None and self._head_complete and not self._sized:  # its end is that of the connection
            answer = self._as_answer()
        self._over(answer, reusable=False)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._question is None:  # nobody has asked
            self.transport.abort()
            return
        known = None if self._parsing else self._known.get(data)
        if known is not None:
            self._over(known, reusable=True)
            return
        whole = not self._parsing
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
            return
        answer = self._answer
        if answer is not None:
            reusable = self._reusable
            if whole and reusable and answer.status == 200 and len(data) <= _MAX_KNOWN_BYTES:  # noqa: PLR2004
                if len(self._known) >= _MAX_KNOWN:  # such as those with a date
                    self._known.clear()
                self._known[data] = answer
            self._over(answer, reusable=reusable)

    # httptools ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """See :class:`httptools.HttpResponseParser`."""
        self._parsing = True
        if self._answer is None:
            self._forget()
        else:
            self._reusable = False  # nobody has asked for this one: it would be taken for the next answer

    def on_header(self, name: bytes, value: bytes) -> None:
        """See :class:`httptools.HttpResponseParser`."""
        lowered = name.lower()
        if lowered == b"content-type":
            self._content_type = value
        elif lowered == b"retry-after":
            self._retry_after = value
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._sized = True

    def on_headers_complete(self) -> None:
        """See :class:`httptools.HttpResponseParser`."""
        self._head_complete = True

    def on_body(self, body: bytes) -> None:
        """See :class:`httptools.HttpResponseParser`."""
        self._body += body
        if len(self._body) > _MAX_ANSWER:
            self._body.clear()
            self.close()

    def on_message_complete(self) -> None:
        """See :class:`httptools.HttpResponseParser`."""
        self._parsing = False
        if self._answer is None and self._parser.get_status_code() >= 200:  # noqa: PLR2004 - else more follows
            self._answer = self._as_answer()
            self._reusable = self._parser.should_keep_alive()

    def _as_answer(self) -> Reply:
        status = self._parser.get_status_code()
        return Reply(status, bytes(self._body), self._content_type, self._retry_after)

    # The end of a request ----------------------------------------------------------------------------------

    def _over(self, answer: Reply, *, reusable: bool) -> None:
        question, self._question = self._question, None
        self._answer = None
        again = self._used and answer is UNREACHABLE
        self._used = True
        self._forwarder.free(self, reusable=reusable)
        if not reusable:
            self.closed = True
            self.transport.abort()
        if question is None:
            return
        if again:
            # It may have been closed by the other side just then: a new connection tells.
            self._forwarder.connect(question)
        else:
            question.answered(answer)

    def give_up(self) -> None:
        """Its answer takes too long."""
        self._used = False  # another connection would not be quicker
        self.close()

    def close(self) -> None:
        """Close it; who waits for an answer gets none."""
        self._over(UNREACHABLE, reusable=False)


class Forwarder:
    """Sends requests to the next hop.

    Args:
        url: Its base URL.
        headers: Headers that it is sent.
        timeout_s: Seconds that it may take.
        clock: Measures them.
        tls: What is trusted where the URL is one of https; what the system trusts by default.

    Attributes:
        clock: Measures how long the next hop takes.
        known: Answers that came before, by all their bytes.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_s: float,
        clock: RunningClock,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = tls or ssl.create_default_context()
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/").encode()
        host = parts.netloc.rpartition("@")[2]
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._fixed = f"host: {host}\r\nuser-agent: otel-loopeval\r\n{fixed}".encode()
        self._timeout_s = timeout_s
        self.clock = clock
        self.known: dict[bytes, Reply] = {}
        self._idle: dict[_Connection, None] = {}  # the one used last is the last: it lives most surely
        self._busy: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._heads: dict[Any, bytes] = {}

    def send(
        self,
        path: bytes,
        content_type: bytes,
        encoding: bytes,
        body: bytes,
        answered: Callable[[Reply], object],
    ) -> None:
        """Send a request on.

        Args:
            path: Such as ``/v1/traces``.
            content_type: Type of the body.
            encoding: How it is compressed; empty if it is not.
            body: The body, as it came in.
            answered: Called with the answer; :data:`UNREACHABLE` or :data:`BUSY` where there is none.
        """
        question = _Question(self._head(path, content_type, encoding, len(body)), body, answered)
        if self._idle:
            connection, _ = self._idle.popitem()
            self._busy.add(connection)
            connection.send(question)
        else:
            self.connect(question)

    async def ask(self, path: bytes, content_type: bytes, encoding: bytes, body: bytes) -> Reply:
        """Send a request on, and wait for the answer. See :meth:`send`."""
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answered(answer: Reply) -> None:
            if not waiter.done():
                waiter.set_result(answer)

        self.send(path, content_type, encoding, body, answered)
        return await waiter

    def connect(self, question: _Question) -> None:
        """Send a request over a new connection."""
        if len(self._busy) + len(self._connecting) >= _MAX_CONNECTIONS:
            question.answered(BUSY)
            return
        task = asyncio.get_running_loop().create_task(self._connected(question))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, question: _Question) -> None:
        connecting = asyncio.get_running_loop().create_connection(
            lambda: _Connection(self), self._host, self._port, ssl=self._tls
        )
        try:
            _, connection = await asyncio.wait_for(connecting, self._timeout_s)
        except (OSError, asyncio.TimeoutError):  # the latter is one of the former only since Python 3.11
            question.answered(UNREACHABLE)
        except BaseException:
            question.answered(UNREACHABLE)
            raise
        else:
            if connection.closed:  # as fast as that
                question.answered(UNREACHABLE)
                return
            self._busy.add(connection)
            connection.send(question)

    def free(self, connection: _Connection, *, reusable: bool) -> None:
        """A connection has nothing more to do, or has come to its end."""
        self._busy.discard(connection)
        if reusable:
            self._idle[connection] = None
            if len(self._idle) > _MAX_IDLE:
                next(iter(self._idle)).close()
        else:
            self._idle.pop(connection, None)

    def close_slow(self) -> None:
        """Give up requests that have taken too long."""
        since = self.clock.now - self._timeout_s
        for connection in list(self._busy):
            if connection.asked_at < since:
                connection.give_up()

    def _head(self, path: bytes, content_type: bytes, encoding: bytes, size: int) -> bytes:
        key = (path, content_type, encoding)
        start = self._heads.get(key)
        if start is None:
            if len(self._heads) > _MAX_HEADS:  # whatever senders think up
                self._heads.clear()
            start = b"POST %b%b HTTP/1.1\r\n%bcontent-type: %b\r\n" % (
                self._path,
                path,
                self._fixed,
                content_type,
            )
            if encoding:
                start += b"content-encoding: %b\r\n" % encoding
            self._heads[key] = start + b"content-length: "
            start = self._heads[key]
        return b"%b%d\r\n\r\n" % (start, size)

    def close(self) -> None:
        """Close the connections."""
        for task in list(self._connecting):
            task.cancel()
        for connection in [*self._idle, *self._busy]:
            connection.close()
