"""What happens to a request, whichever protocol brought it: read, sent on or stored, followed."""

import asyncio
import logging
import time
from collections.abc import Callable
from importlib import import_module
from typing import Final

from prometheus_client import CollectorRegistry

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.usage import Price, Usage
from otel_loopeval.server.bodies import BodyError, plain
from otel_loopeval.server.clock import RunningClock
from otel_loopeval.server.http.replies import JSON, Reply, refused
from otel_loopeval.server.next_hop.forwarding import Forwarder
from otel_loopeval.server.next_hop.passing_on import is_taken, is_told_elsewhere, passed_on, what_is_wrong
from otel_loopeval.server.next_hop.telling import Telling
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.requests import SIGNALS, TRACES, Otlp, Work
from otel_loopeval.server.run_metrics import RunMetrics
from otel_loopeval.server.served import RunStore, ServedRun
from otel_loopeval.server.store.keeping import Keeping
from otel_loopeval.server.tokens import Tokens
from otel_loopeval.server.traces.aside import Aside
from otel_loopeval.server.traces.following import Following
from otel_loopeval.server.traces.intake import Intake

_PATHS: Final = {signal: f"/v1/{signal}".encode() for signal in SIGNALS}
_CLOSED_AT_ONCE: Final = 32
_LARGE_BYTES: Final = 65_536
_TOLD_AGAIN: Final = 2
_TOLD_AGAIN_S: Final = 0.5

_log = logging.getLogger("otel_loopeval.serve")


class Core:
    """The server without its protocols. It belongs to one event loop.

    Args:
        options: What to do.
        store: Where runs go; None for nowhere.
        price: Tells what a model call cost.

    Attributes:
        options: What to do.
        registry: The metrics.
        following: The traces that are followed.
        requests: Requests that were answered, by signal, status and tenant.
        telling: Verdicts on their way to the next hop.
        keeping: Runs on their way into the store; None without one.
        inflight: Bytes of the requests that are worked on.
        clock: Measures what others take.
        draining: Whether the server is about to end, and takes nothing more.
        tokens: Who is let in.
    """

    def __init__(
        self, options: ServeOptions, store: RunStore | None = None, price: Price | None = None
    ) -> None:
        self.options = options
        self.registry = CollectorRegistry()
        self.requests: dict[tuple[str, int, str], int] = {}
        self.inflight = 0
        self.clock = RunningClock()
        self.draining = False
        self._retry_after = b"%d" % options.retry_after_s
        self._not_kept = refused(503, "the store failed", self._retry_after)
        self._intake = Intake()
        self._run_metrics = RunMetrics(self.registry)
        self._unpacking: set[asyncio.Task[None]] = set()
        self._forwarder: Forwarder | None = None
        if options.forward is not None:
            self._forwarder = Forwarder(
                options.forward, options.forward_headers, options.forward_s, self.clock, options.forward_tls
            )
        self._aside = Aside()
        self.telling = Telling(self._forwarder)
        self.keeping = None if store is None else Keeping(store)
        self.following = Following(
            self._intake,
            self._over,
            clock_ns=time.time_ns,
            on_close=None if self.keeping is None else self.keeping.closed,
            limits=options.limits,
            policy=options.policy,
            price=price,
            # What another process took in before this one is lost, unless a store has it.
            complete_since_ns=time.time_ns() if store is None else 0,
            aside=self._aside.add,
        )
        if store is not None:
            since_ns = time.time_ns() - int(options.limits.max_age_s * 1e9)
            self.following.remember(store.closed_traces(since_ns, options.limits.remembered))
            restored = self.following.restore(store.open_spans(), time.monotonic())
            if restored:
                _log.info("restored %d spans of open runs", restored)
        import_module("otel_loopeval.runs.turns")  # runs import it when they need it: not later
        if price is not None:
            price(Usage(1, 1, model="gpt-4o", provider="openai"), time.time_ns())  # reads its list: not later
        self.tokens = Tokens(options.tokens)

    # In ----------------------------------------------------------------------------------------------------

    async def take(
        self, signal: str, content_type: bytes, encoding: bytes, body: bytes, tenant: str
    ) -> Reply:
        """Take a request, and wait for its answer. See :class:`Otlp` and :meth:`begin`."""
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answered(reply: Reply) -> None:
            if not waiter.done():  # else the sender has gone
                waiter.set_result(reply)

        self.begin(Otlp(signal, content_type, encoding, tenant), body, answered)
        return await waiter

    def begin(self, what: Otlp, body: bytes, answered: Callable[[Reply], object]) -> None:
        """Take a request.

        Args:
            what: What it says of its body.
            body: Its body as it came.
            answered: Called with the answer, once, perhaps at once.
        """
        work = Work(self, what, body, answered)
        if self.draining:
            work.answer(refused(503, "shutting down", b"1"))
        elif self.inflight > self.options.max_inflight:  # its own bytes among them
            work.answer(refused(503, "too much at once", b"1"))
        elif what.encoding and what.signal == TRACES and len(body) > _LARGE_BYTES:
            task = asyncio.get_running_loop().create_task(self._unpack(work))
            self._unpacking.add(task)
            task.add_done_callback(self._unpacking.discard)
        else:
            self._go_on(work)

    def count(self, signal: str, status: int, tenant: str) -> None:
        """Count an answer."""
        key = (signal, status, tenant)
        self.requests[key] = self.requests.get(key, 0) + 1

    async def _unpack(self, work: Work) -> None:
        """Undo a compression in a thread: zlib and zstd let go of the interpreter's lock."""
        try:
            data = await asyncio.to_thread(plain, work.body, work.what.encoding, self.options.max_body)
        except BodyError as error:
            work.answer(refused(error.status, str(error)))
        except BaseException as error:  # whatever it is, the sender is told
            work.fail(error)
            raise
        else:
            self._go_on(work, data)

    def _go_on(self, work: Work, data: bytes | None = None) -> None:
        """Read a request, and send it on.

        Args:
            work: The request.
            data: Its body without its compression, where that has been undone already.
        """
        signal, content_type, encoding, _ = work.what
        body = work.body
        try:
            if signal == TRACES:
                if data is None:
                    data = plain(body, encoding, self.options.max_body) if encoding else body
                intake = self._intake
                work.batch = intake.read_json(data) if content_type == JSON else intake.read(data)
            if self._forwarder is None:
                self._accept(work, Reply(200, b"{}" if content_type == JSON else b"", content_type))
            else:
                self._forwarder.send(_PATHS[signal], content_type, encoding, body, work.forwarded)
        except BodyError as error:
            work.answer(refused(error.status, str(error)))
        except Misfit as misfit:
            work.answer(refused(400, f"no OTLP traces: {misfit}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender is told
            work.fail(error)

    def answered(self, work: Work, answer: Reply) -> None:
        """The next hop has answered a request."""
        if is_taken(answer):
            known = answer.status == 200  # noqa: PLR2004 - nearly always
            self._accept(work, answer if known else passed_on(answer, self._retry_after))
            return
        if self._forwarder is not None and not is_told_elsewhere(answer):
            self._forwarder.complain(what_is_wrong(answer))
        work.answer(passed_on(answer, self._retry_after))

    def _accept(self, work: Work, answer: Reply) -> None:
        """Follow what is in a request that the next hop has, if there is one, and acknowledge it.

        It is acknowledged once the store has it too: what a kill takes along would be missing in its run.
        """
        reply = answer if answer.content_type else answer._replace(content_type=work.what.content_type)
        batch = work.batch
        if batch is not None:
            tenant = work.what.tenant
            kept = self.following.take(batch, time.monotonic(), tenant)
            keeping = self.keeping
            if keeping is not None:
                if keeping.owes(tenant, batch.marked):
                    work.answer(self._not_kept)
                    return
                if kept or keeping.writes(tenant, batch.marked):

                    def put(error: BaseException | None) -> None:
                        failed = error is not None or keeping.owes(tenant, batch.marked)
                        work.answer(self._not_kept if failed else reply)

                    keeping.keep(kept, tenant, put)
                    return
        work.answer(reply)

    # Out ---------------------------------------------------------------------------------------------------

    def _over(self, served: ServedRun) -> None:
        if self.keeping is not None:
            self.keeping.over(served)
        if not served.judged_before:
            self._run_metrics.ended(served)
            self.telling.add(served)

    def close_slow(self) -> None:
        """Give up requests that the next hop takes too long for. To be called about twice a second."""
        self.clock.tick()
        if self._forwarder is not None:
            self._forwarder.close_slow()

    async def tick(self) -> None:
        """Close what is over, and hand the verdicts on. To be called about twice a second."""
        now = time.monotonic()
        while self.following.tick(now, _CLOSED_AT_ONCE):  # noqa: ASYNC110 - it is no waiting
            await asyncio.sleep(0)  # there is more, but others come first
        await self._aside.work(self.following.judge, self.following.deliver)
        told = await self.telling.send()
        if self.keeping is not None:
            self.keeping.tick(told=told)

    async def finish(self) -> None:
        """Judge what is open and hand it on: nothing more will come."""
        self.draining = True
        self.following.finish(kept=self.keeping is not None)
        await self._aside.work(self.following.judge, self.following.deliver)
        told = await self.telling.send()
        for _ in range(_TOLD_AGAIN):
            if told:
                break
            await asyncio.sleep(_TOLD_AGAIN_S)
            told = await self.telling.send()
        self.telling.give_up()
        if self.keeping is not None:
            await self.keeping.finish(told=told)
        if self._forwarder is not None:
            self._forwarder.close()
