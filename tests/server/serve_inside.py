"""The server's parts inside of the test's process, on real sockets, where a test looks at what they hold."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from otel_loopeval.server.core import Core
from otel_loopeval.server.http.connections import Connections
from otel_loopeval.server.http.exposition import Exposition
from otel_loopeval.server.http.receiving import Receiver
from otel_loopeval.server.options import ServeOptions

PATIENCE_S = 20.0


class Inside(NamedTuple):
    """A server inside of this process."""

    core: Core
    connections: Connections
    port: int


@asynccontextmanager
async def inside(options: ServeOptions) -> AsyncGenerator[Inside, None]:
    """A server of HTTP with its clock, ended at the end."""
    core = Core(options)
    receiver = Receiver(core, ready=lambda: True, metrics=Exposition(core.registry))
    connections = Connections(receiver, options.max_connections)
    server = await asyncio.get_running_loop().create_server(connections.new, "127.0.0.1", 0, backlog=1_000)

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.05)
            core.close_slow()
            connections.close_stuck()

    clock = asyncio.create_task(watch())
    try:
        yield Inside(core, connections, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await connections.drain(1)
        clock.cancel()
        await core.finish()


NextHop = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def next_hop(script: NextHop) -> AsyncGenerator[str, None]:
    """A next hop that does what a script says with each connection; its URL."""
    server = await asyncio.start_server(script, "127.0.0.1", 0, backlog=1_000)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of the next request.

    Raises:
        asyncio.IncompleteReadError: There is none.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    return head, await reader.readexactly(size)


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer, of which the length is told."""
    first, *lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), PATIENCE_S)
    return int(first.split()[1]), headers, body


def post(body: bytes, *headers: str, signal: str = "logs") -> bytes:
    """A request."""
    lines = [f"POST /v1/{signal} HTTP/1.1", "host: x", "content-type: application/x-protobuf", *headers]
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n").encode() + body
