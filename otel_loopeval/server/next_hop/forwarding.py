"""On to the next hop, byte for byte: a client of HTTP/1.1 that does nothing else.

A general client takes longer for one request than all the rest of the work on a small body. This one calls
back instead of having tasks wait, and has the heads of requests ready.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from otel_loopeval.server.clock import RunningClock
from otel_loopeval.server.http.replies import Reply
from otel_loopeval.server.next_hop.hop_connection import BUSY, UNREACHABLE, HopConnection, Question
from otel_loopeval.server.tls import ForwardTls

_MAX_IDLE: Final = 64
_MAX_CONNECTIONS: Final = 256
_MAX_HEADS: Final = 100
_TELL_S: Final = 60.0

_log = logging.getLogger("otel_loopeval.serve")


class Forwarder:
    """Sends requests to the next hop.

    Args:
        url: Its base URL.
        headers: Headers that it is sent.
        timeout_s: Seconds that it may take.
        clock: Measures them.
        tls: Whom it trusts and who trusts us, where the URL is one of https.

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
        tls: ForwardTls,
    ) -> None:
        parts = urlsplit(url)
        self._tls = tls.for_server() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/").encode()
        host = parts.netloc.rpartition("@")[2]
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._fixed = f"host: {host}\r\nuser-agent: otel-loopeval\r\n{fixed}".encode()
        self._timeout_s = timeout_s
        self.clock = clock
        self.known: dict[bytes, Reply] = {}
        self._idle: dict[HopConnection, None] = {}  # the one used last is the last: it lives most surely
        self._busy: set[HopConnection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._heads: dict[Any, bytes] = {}
        self._tell_at = 0.0

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
        question = Question(self._head(path, content_type, encoding, len(body)), body, answered)
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

    def connect(self, question: Question) -> None:
        """Send a request over a new connection."""
        if len(self._busy) + len(self._connecting) >= _MAX_CONNECTIONS:
            question.answered(BUSY)
            return
        task = asyncio.get_running_loop().create_task(self._connected(question))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, question: Question) -> None:
        connecting = asyncio.get_running_loop().create_connection(
            lambda: HopConnection(self), self._host, self._port, ssl=self._tls
        )
        try:
            _, connection = await asyncio.wait_for(connecting, self._timeout_s)
        except (OSError, asyncio.TimeoutError) as error:  # the latter is a former only since Python 3.11
            self.tell(error)
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

    def tell(self, error: Exception) -> None:
        """Say why there is no connection, of which senders are not told; but not again and again."""
        self._say("cannot connect to the next hop: %s", str(error) or "it does not answer")

    def complain(self, what: str) -> None:
        """Say what the next hop does instead of taking something."""
        self._say("the next hop %s: what comes in is refused meanwhile", what)

    def _say(self, text: str, what: str) -> None:
        if self.clock.now >= self._tell_at:
            self._tell_at = self.clock.now + _TELL_S
            _log.warning(text, what)

    def free(self, connection: HopConnection, *, reusable: bool) -> None:
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
