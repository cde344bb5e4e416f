"""The answering half of a connection: one request at a time, in order, no faster than answers are read."""

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple

from otel_loopeval.server.http.asgi import AsgiAnswer
from otel_loopeval.server.http.heads import Head
from otel_loopeval.server.http.receiving import App, Receiver
from otel_loopeval.server.http.replies import CONTINUE, Reply, as_http
from otel_loopeval.server.requests import Otlp

_MAX_QUEUE: Final = 100


class Exchange(NamedTuple):
    """A request that is all there.

    Attributes:
        what: OTLP, an answer that is known already, or who answers; None only in :data:`KNOWN`.
        body: Its body.
        head: Its head; None where it came before.
        path: Its path, where an application answers.
        keep_alive: Whether the connection lives on after the answer.
    """

    what: Otlp | Reply | App | None
    body: bytes = b""
    head: Head | None = None
    path: str = ""
    keep_alive: bool = True


KNOWN: Final = Exchange(None)
"""Stands for any whose head came before, and that is begun with at once."""


class Answering(asyncio.Protocol):
    """What answers the requests of one connection. Who reads them says what is under way.

    Args:
        receiver: What tells who answers.
        loop: The event loop.

    Attributes:
        since: When a request began to come in, or the connection was made or last answered.
        transport: Its transport.
        write_paused: Whether the sender has to read before more is written.
    """

    def __init__(self, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self.transport: Any = None
        self.since = 0.0
        self.write_paused = False
        self._receiver = receiver
        self._core = receiver.core
        self._clock = receiver.core.clock
        self._loop = loop
        self._queue: deque[Exchange] = deque()
        self._current: Exchange | None = None
        self._page: AsgiAnswer | None = None
        self._may_begin = False
        self._owes_continue = False
        self._paused = False
        self._ending = False
        self._deaf = False

    @property
    def in_message(self) -> bool:
        """Whether a request has come in part."""
        raise NotImplementedError

    def release(self) -> None:
        """Forget what has come of a body."""
        raise NotImplementedError

    # asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        del exc
        self._deaf = True
        self.release()
        self._forget_queue()
        self._current = None
        if self._page is not None:
            self._page.lost()

    def eof_received(self) -> bool:
        """See :class:`asyncio.Protocol`. Who has sent all that it wants to still gets its answers."""
        if self._current is None or not self.transport.can_write_eof():
            return False
        self._ending = True
        return True

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self.write_paused = True
        self.since = self._clock.now
        self._mind_reading()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self.write_paused = False
        if self._page is not None:
            self._page.writable()
        self._work()

    # Answers -----------------------------------------------------------------------------------------------

    def _enqueue(self, exchange: Exchange) -> None:
        if self._deaf:
            return
        if self._may_begin and self._current is None and not self._queue and not self.write_paused:
            self._may_begin = False  # one at a time, so that many in one packet do not keep others waiting
            self._begin(exchange)
            return
        self._core.inflight += len(exchange.body)
        self._queue.append(exchange)
        if self._current is None:
            self._loop.call_soon(self._work)
        if len(self._queue) > _MAX_QUEUE:
            self._hang_up()

    def _work(self) -> None:
        """Go on with one that had to wait."""
        if self._queue and self._current is None and not self.write_paused:
            exchange = self._queue.popleft()
            self._core.inflight -= len(exchange.body)
            self._begin(exchange)
        self._mind_reading()

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        what = exchange.what
        if isinstance(what, Otlp):
            self._core.begin(what, exchange.body, self._answer)
        elif isinstance(what, Reply):
            self._answer(what)
        else:
            assert exchange.head is not None and what is not None  # noqa: S101, PT018 - as known ones are
            self._page = AsgiAnswer(self, exchange.head, exchange.path, exchange.body)
            self._page.start(what)

    def _answer(self, reply: Reply) -> None:
        exchange = self._current
        if exchange is None:  # the sender has gone
            return
        head = exchange.head
        keep_alive = exchange.keep_alive and (not self._ending or bool(self._queue))
        with_body = head is None or head.method != "HEAD"
        self.transport.write(as_http(reply, keep_alive=keep_alive, with_body=with_body))
        self.answered(keep_alive=keep_alive)

    def answered(self, *, keep_alive: bool) -> None:
        """The request that was worked on has its answer."""
        self._current = self._page = None
        self.since = self._clock.now
        if not keep_alive or (self._ending and not self._queue):
            self._hang_up()
        elif self._queue:
            self._loop.call_soon(self._work)
        elif self._owes_continue:
            self._owes_continue = False
            self.transport.write(CONTINUE)
        elif self._paused:
            self._mind_reading()

    def _mind_reading(self) -> None:
        """Read no more than what can be answered."""
        pause = not self._deaf and (bool(self._queue) or self.write_paused)
        if pause == self._paused or self.transport.is_closing():
            return
        self._paused = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # The end -----------------------------------------------------------------------------------------------

    @property
    def waits_for_sender(self) -> bool:
        """Whether it waits for its sender, and not for us."""
        return self._current is None or self.write_paused

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._current is None and not self._queue and not self.in_message

    def end(self) -> None:
        """Close it after the answers that it owes."""
        self._ending = True
        if self.is_idle:
            self.transport.close()

    def _hang_up(self) -> None:
        self._deaf = True
        self._forget_queue()
        if self.in_message and self.transport.can_write_eof():
            # Closed at once, what is still on its way here would make the sender's side drop the answer.
            self.transport.write_eof()
            self._mind_reading()
        else:
            self.transport.close()

    def _forget_queue(self) -> None:
        while self._queue:
            self._core.inflight -= len(self._queue.popleft().body)
