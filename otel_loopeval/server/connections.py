"""Connections of HTTP: uvicorn's, that look after slow senders and take a body as a whole."""

import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from otel_loopeval.server.core import Core


class Connections:
    """What the connections of a server have in common.

    Args:
        core: What does the work.

    Attributes:
        open: The connections, and when their request began, or they had been made.
        core: What does the work.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.open: dict[Connection, float] = {}

    def close_stuck(self) -> None:
        """Close those whose sender has had its time."""
        since = time.monotonic() - self.core.options.request_s
        for connection, began in list(self.open.items()):
            if began < since and connection.waits_for_sender():
                connection.transport.abort()


class Connection(HttpToolsProtocol):
    """One connection.

    uvicorn lets a sender take as long as it likes for a request, and hands a body on in many small parts.
    """

    everyone: Connections
    """Set by the class that :func:`connection_class` makes."""

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        super().connection_made(transport)
        self._parts: list[bytes] = []
        self._size = 0
        self._too_much = False
        if len(self.everyone.open) >= self.everyone.core.options.max_connections:
            transport.abort()
            return
        self.everyone.open[self] = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self.everyone.open.pop(self, None)
        self._collected()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        if self in self.everyone.open:
            self.everyone.open[self] = time.monotonic()
        self._too_much = False
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        if self._too_much:
            super().on_body(body)
            return
        core = self.everyone.core
        self._parts.append(body)
        self._size += len(body)
        core.inflight += len(body)
        if self._size > core.options.max_body or core.inflight > core.options.max_inflight:
            self._too_much = True  # as the application finds out by what it gets
            super().on_body(self._collected())

    def on_message_complete(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        if self._size:
            body = self._collected()
            if not self.cycle.response_complete:
                self.cycle.body += body
        super().on_message_complete()

    def _collected(self) -> bytes:
        parts = self._parts
        self.everyone.core.inflight -= self._size
        self._parts, self._size = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def waits_for_sender(self) -> bool:
        """Whether it waits for its sender, and not for us."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body


def connection_class(everyone: Connections) -> type[Connection]:
    """The class of a server's connections."""
    return type("ConnectionOfServer", (Connection,), {"everyone": everyone})
