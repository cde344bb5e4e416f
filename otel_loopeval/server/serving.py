"""The server as a whole: its protocols, its clock, its end."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from otel_loopeval.runs.usage import Price
from otel_loopeval.server import grpc_intake
from otel_loopeval.server.addresses import Address
from otel_loopeval.server.core import Core
from otel_loopeval.server.http.connections import Connections
from otel_loopeval.server.http.exposition import Exposition
from otel_loopeval.server.http.receiving import App, Receiver
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.self_metrics import SelfMetrics
from otel_loopeval.server.served import RunStore

_TICK_S: Final = 0.5
_DRAIN_S: Final = 10
_STORE_S: Final = 10
_BACKLOG: Final = 2_048

_log = logging.getLogger("otel_loopeval.serve")


class Listening(NamedTuple):
    """Where the server listens.

    Attributes:
        http: For HTTP.
        grpc: For gRPC; None if it does not.
        tls: Whether with TLS.
    """

    http: Address
    grpc: Address | None
    tls: bool


class Server:
    """The server.

    Args:
        options: What to do.
        store: Where runs go; None for nowhere. It is closed at the end.
        page: What answers requests for anything but OTLP and metrics.
        price: Tells what a model call cost.
        on_ready: Called with where it listens, once it does.

    Attributes:
        core: What does the work.
    """

    def __init__(
        self,
        options: ServeOptions,
        *,
        store: RunStore | None = None,
        page: App | None = None,
        price: Price | None = None,
        on_ready: Callable[[Listening], object] | None = None,
    ) -> None:
        self.core = Core(options, store, price)
        self.core.registry.register(SelfMetrics(self.core))
        self._options = options
        self._store = store
        self._page = page
        self._on_ready = on_ready
        self._ready = False
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask it to end. From its own loop."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until :meth:`stop`, SIGTERM or SIGINT; what is open is judged at the end.

        Raises:
            OSError: An address cannot be had.
        """
        options = self._options
        loop = asyncio.get_running_loop()
        listener = _listen(options.http)
        host, port = listener.getsockname()[:2]
        connections = Connections(
            Receiver(
                self.core,
                ready=lambda: self._ready,
                metrics=Exposition(self.core.registry),
                page=self._page,
            ),
            options.max_connections,
        )
        grpc_server = None
        grpc_address: Address | None = None
        if options.grpc is not None:
            grpc_server, grpc_port = await grpc_intake.start(self.core, options.grpc, options.tls)
            grpc_address = Address(options.grpc.host, grpc_port)
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(
                NotImplementedError, RuntimeError, ValueError
            ):  # no main thread, Windows
                loop.add_signal_handler(number, self.stop)
        web = await loop.create_server(
            connections.new,
            sock=listener,
            backlog=_BACKLOG,
            ssl=None if options.tls is None else options.tls.for_clients(),
            ssl_handshake_timeout=None if options.tls is None else options.request_s,
        )
        clocks = [asyncio.create_task(self._watch(connections)), asyncio.create_task(self._tick())]
        # What is there by now stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._ready = True
        if self._on_ready is not None:
            self._on_ready(Listening(Address(host, port), grpc_address, options.tls is not None))
        await self._stop.wait()
        self._ready = False
        self.core.draining = True
        web.close()
        drained = [connections.drain(_DRAIN_S)]
        if grpc_server is not None:
            drained.append(grpc_server.stop(grace=_DRAIN_S))
        await asyncio.gather(*drained)
        clocks[1].cancel()
        await asyncio.wait(clocks[1:])  # what it was about to tell is told below
        try:
            await self.core.finish()  # the other clock goes on: the next hop may be slow
        except Exception:  # noqa: BLE001 - whatever it was, the store is closed
            _log.exception("this should not have happened; ending")
        clocks[0].cancel()
        if self._store is not None and not await asyncio.to_thread(self._store.close, _STORE_S):
            _log.error("the store is at its last write still after %d s: it is left to itself", _STORE_S)

    async def _watch(self, connections: Connections) -> None:
        """Give up what others take too long for."""
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self.core.close_slow()
                connections.close_stuck()
            except Exception:  # noqa: BLE001 - whatever it was
                _log.exception("this should not have happened; going on")

    async def _tick(self) -> None:
        """Judge what is over. It waits for the next hop."""
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self.core.tick()
            except Exception:  # noqa: BLE001 - whatever it was
                _log.exception("this should not have happened; going on")


def _listen(address: Address) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(f"argument --http: cannot listen on {address}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(f"argument --http: cannot listen on {address}: {error.strerror or error}") from None
    return listener


def serve(options: ServeOptions, **parts: Any) -> None:
    """Run a :class:`Server` with its options and parts, in the quickest event loop there is.

    Raises:
        OSError: An address cannot be had.
    """

    async def main() -> None:
        await Server(options, **parts).run()

    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        asyncio.run(main())
        return
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    else:
        uvloop.install()
        asyncio.run(main())
