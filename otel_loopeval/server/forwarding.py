"""On to the next hop, byte for byte: a client of HTTP/1.1 that does nothing else.

A general client takes longer for one request than all the rest of the work on a small body.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httptools

_MAX_IDLE: Final = 64
_MAX_CONNECTIONS: Final = 256
_MAX_ANSWER: Final = 1024 * 1024


class Answer(NamedTuple):
    """What the next hop said.

    Attributes:
        status: Its status; 0 if it could not be reached, or said nothing in time.
        content_type: The type of its body.
        body: Its body.
        retry_after: Its ``Retry-After``, empty if it has none.
    """

    status: int
    content_type: bytes = b""
    body: bytes = b""
    retry_after: bytes = b""


UNREACHABLE: Final = Answer(0)


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self.too_slow = False
        self._waiter: asyncio.Future[Answer] | None = None
        self._start()

    def _start(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._content_type = self._retry_after = b""
        self._parts: list[bytes] = []
        self._size = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[reportAttributeAccessIssue]  # of a stream it is one
        self.transport.set_write_buffer_limits(high=4 * 1024 * 1024)  # type: ignore[reportOptionalMemberAccess]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._fail()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered == b"content-type":
            self._content_type = value
        elif lowered == b"retry-after":
            self._retry_after = value

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > _MAX_ANSWER:
            self.close()
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # noqa: PLR2004 - a provisional answer
            return
        if not self._parser.should_keep_alive():
            self.closed = True
        waiter, self._waiter = self._waiter, None
        if self._timer is not None:
            self._timer.cancel()
        if waiter is not None and not waiter.done():
            waiter.set_result(Answer(status, self._content_type, b"".join(self._parts), self._retry_after))

    # ours

    def send(self, head: bytes, body: bytes) -> "asyncio.Future[Answer]":
        """Send a request."""
        assert self.transport is not None  # noqa: S101 - it is connected
        self._start()
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        self._timer = loop.call_later(self._timeout_s, self._give_up)  # cheaper than a task with a time-out
        if len(body) < 65_536:  # noqa: PLR2004 - one packet, or nearly
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        return waiter

    def _give_up(self) -> None:
        self.too_slow = True
        self.close()

    def close(self) -> None:
        """Close it; who waits for an answer gets none."""
        self._fail()
        if self.transport is not None:
            self.transport.abort()

    def _fail(self) -> None:
        self.closed = True
        waiter, self._waiter = self._waiter, None
        if self._timer is not None:
            self._timer.cancel()
        if waiter is not None and not waiter.done():
            waiter.set_result(UNREACHABLE)


class Forwarder:
    """Sends requests to the next hop.

    Args:
        url: Its base URL.
        headers: Headers that it is sent.
        timeout_s: Seconds that it may take.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        parts = urlsplit(url)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context()
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/").encode()
        host = parts.netloc.rpartition("@")[2]
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._fixed = f"host: {host}\r\nuser-agent: otel-loopeval\r\n{fixed}".encode()
        self._timeout_s = timeout_s
        self._idle: deque[_Connection] = deque()
        self._open = 0
        self._heads: dict[Any, bytes] = {}

    async def send(self, path: bytes, content_type: bytes, encoding: bytes, body: bytes) -> Answer:
        """Send a request on and wait for the answer.

        Args:
            path: Such as ``/v1/traces``.
            content_type: Type of the body.
            encoding: How it is compressed; empty if it is not.
            body: The body, as it came in.

        Returns:
            The answer; :data:`UNREACHABLE` where there is none.
        """
        head = self._head(path, content_type, encoding, len(body))
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                self._open -= 1
                continue
            answer = await self._use(connection, head, body)
            if answer.status or connection.too_slow:
                return answer
            # It may have been closed by the other side just then, and the others with it: a new one tells.
            break
        if self._open >= _MAX_CONNECTIONS:
            return UNREACHABLE
        self._open += 1
        connecting = asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._timeout_s), self._host, self._port, ssl=self._tls
        )
        try:
            _, connection = await asyncio.wait_for(connecting, self._timeout_s)
        except (OSError, asyncio.TimeoutError):  # the latter is one of the former only since Python 3.11
            self._open -= 1
            return UNREACHABLE
        except BaseException:
            self._open -= 1
            raise
        return await self._use(connection, head, body)

    async def _use(self, connection: _Connection, head: bytes, body: bytes) -> Answer:
        try:
            answer = await connection.send(head, body)
        except BaseException:  # cancelled: what comes later is no answer to another
            connection.close()
            self._open -= 1
            raise
        if connection.closed or len(self._idle) >= _MAX_IDLE:
            connection.close()
            self._open -= 1
        else:
            self._idle.append(connection)
        return answer

    def _head(self, path: bytes, content_type: bytes, encoding: bytes, size: int) -> bytes:
        key = (path, content_type, encoding)
        start = self._heads.get(key)
        if start is None:
            if len(self._heads) > 100:  # noqa: PLR2004 - whatever senders think up
                self._heads.clear()
            start = b"POST %b%b HTTP/1.1\r\n%bcontent-type: %b\r\n" % (
                self._path,
                path,
                self._fixed,
                content_type,
            )
            if encoding:
                start += b"content-encoding: %b\r\n" % encoding
            self._heads[key] = start
        return b"%bcontent-length: %d\r\n\r\n" % (start, size)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
