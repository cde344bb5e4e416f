"""One connection to the next hop: a client of HTTP/1.1 that calls back.

It does not parse again what the next hop says again and again.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import httptools

from otel_loopeval.server.clock import RunningClock
from otel_loopeval.server.http.replies import Reply

_MAX_ANSWER: Final = 1024 * 1024
_ONE_WRITE: Final = 65_536
_MAX_KNOWN: Final = 100
_MAX_KNOWN_BYTES: Final = 2_048

UNREACHABLE: Final = Reply(0, content_type=b"")
"""The next hop could not be reached, or said nothing in time."""
BUSY: Final = Reply(-1, content_type=b"")
"""It was not asked: too many requests wait for it already."""


class Question(NamedTuple):
    """A request for the next hop, and who is told the answer.

    Attributes:
        head: Its head.
        body: Its body.
        answered: Called with the answer; :data:`UNREACHABLE` or :data:`BUSY` where there is none.
    """

    head: bytes
    body: bytes
    answered: Callable[[Reply], object]


class Pool(Protocol):
    """What connections to the next hop belong to.

    Attributes:
        clock: Measures how long the next hop takes.
        known: Answers that came before, by all their bytes.
    """

    clock: RunningClock
    known: dict[bytes, Reply]

    def free(self, connection: "HopConnection", *, reusable: bool) -> None:
        """A connection has nothing more to do, or has come to its end."""
        ...

    def connect(self, question: Question) -> None:
        """Send a request over a new connection."""
        ...

    def tell(self, error: Exception) -> None:
        """Say why there is no connection."""
        ...


class HopConnection(asyncio.Protocol):
    """One connection to the next hop; one request at a time.

    Args:
        pool: What it belongs to.

    Attributes:
        asked_at: When it was last asked something, on the pool's clock.
        transport: Its transport.
        closed: Whether it has come to its end.
    """

    def __init__(self, pool: Pool) -> None:
        self.asked_at = 0.0
        self.transport: Any = None
        self._pool = pool
        self._known = pool.known
        self._parser = httptools.HttpResponseParser(self)
        self._parsing = False
        self._question: Question | None = None
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

    def send(self, question: Question) -> None:
        """Send a request."""
        self._question = question
        self.asked_at = self._pool.clock.now
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
        if (
            exc is not None and self._question is not None and not self._used
        ):  # such as our certificate refused
            self._pool.tell(exc)
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
        self._pool.free(self, reusable=reusable)
        if not reusable:
            self.closed = True
            self.transport.abort()
        if question is None:
            return
        if again:
            # It may have been closed by the other side just then: a new connection tells.
            self._pool.connect(question)
        else:
            question.answered(answer)

    def give_up(self) -> None:
        """Its answer takes too long."""
        self._used = False  # another connection would not be quicker
        self.close()

    def close(self) -> None:
        """Close it; who waits for an answer gets none."""
        self._over(UNREACHABLE, reusable=False)
