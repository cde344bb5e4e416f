"""Connections of HTTP/1.1: bytes in, requests out.

Nothing is between a sender and the work but the parser: no framework, no task for a request. Only what the
page answers is handed on as ASGI. Requests with heads that came before do without the parser, too.
"""

import asyncio
from itertools import islice
from typing import Any, Final

from otel_loopeval.server.http.answering import KNOWN, Exchange
from otel_loopeval.server.http.heads import KnownHeads
from otel_loopeval.server.http.reading import Reading
from otel_loopeval.server.http.receiving import Receiver
from otel_loopeval.server.requests import Otlp

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


class Connection(Reading):
    """One connection. Requests are answered one after the other.

    Args:
        everyone: What it has in common with others.
        loop: Its event loop.
    """

    def __init__(self, everyone: Connections, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(everyone.receiver, loop, everyone.known)
        self._everyone = everyone
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
            known = self._known.find(head)
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
