"""What happens to a request, whichever protocol brought it: read, sent on or stored, followed."""

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Price, Usage
from otel_loopeval.server.bodies import BodyError, plain
from otel_loopeval.server.clock import RunningClock
from otel_loopeval.server.following import Following
from otel_loopeval.server.forwarding import BUSY, Forwarder
from otel_loopeval.server.intake import Batch, Intake
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.replies import JSON, PROTOBUF, Reply, refused
from otel_loopeval.server.served import RunStore, ServedRun
from otel_loopeval.server.verdicts import RunMetrics, verdict_request

TRACES: Final = "traces"
SIGNALS: Final = (TRACES, "metrics", "logs")

_PATHS: Final = {signal: f"/v1/{signal}".encode() for signal in SIGNALS}
_MAX_VERDICTS: Final = 10_000
_VERDICTS_A_REQUEST: Final = 500
_CLOSED_AT_ONCE: Final = 32
_LARGE: Final = 65_536
_RETRIED: Final = frozenset({429, 502, 503, 504})
_OURS: Final = frozenset({401, 403, 404, 405, 407})
"""What the next hop says of our own set-up, and not of what came in."""

_log = logging.getLogger("otel_loopeval.serve")


class Otlp(NamedTuple):
    """What a request with OTLP says of its body. It was let in.

    Attributes:
        signal: One of :data:`SIGNALS`.
        content_type: :data:`PROTOBUF` or :data:`JSON`.
        encoding: How its body is compressed; empty if it is not.
        tenant: Whose it is.
    """

    signal: str
    content_type: bytes
    encoding: bytes
    tenant: str


class _Work:
    """A request that is worked on. Its bytes count until it is answered."""

    __slots__ = ("_answered", "batch", "body", "core", "what")

    def __init__(self, core: "Core", what: Otlp, body: bytes, answered: Callable[[Reply], object]) -> None:
        self.core = core
        self.what = what
        self.body = body
        self.batch: Batch | None = None
        self._answered: Callable[[Reply], object] | None = answered
        core.inflight += len(body)

    def forwarded(self, answer: Reply) -> None:
        """The next hop has answered."""
        try:
            self.core.answered(self, answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender is told
            self.fail(error)

    def answer(self, reply: Reply) -> None:
        """Tell the sender, once."""
        answered, self._answered = self._answered, None
        if answered is None:
            return
        self.core.inflight -= len(self.body)
        self.core.count(self.what.signal, reply.status, self.what.tenant)
        answered(reply)

    def fail(self, error: BaseException) -> None:
        """Tell the sender that it is our fault."""
        _log.error("this should not have happened; going on", exc_info=error)
        self.answer(refused(500, "this should not have happened"))


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
        verdicts_lost: Verdict spans that the next hop did not take.
        inflight: Bytes of the requests that are worked on.
        clock: Measures what others take.
        draining: Whether the server is about to end, and takes nothing more.
    """

    def __init__(
        self, options: ServeOptions, store: RunStore | None = None, price: Price | None = None
    ) -> None:
        self.options = options
        self.registry = CollectorRegistry()
        self.requests: dict[tuple[str, int, str], int] = {}
        self.verdicts_lost = 0
        self.inflight = 0
        self.clock = RunningClock()
        self.draining = False
        self._store = store
        self._intake = Intake()
        self._run_metrics = RunMetrics(self.registry)
        self._verdicts: deque[ServedRun] = deque()
        self._closed: list[int] = []
        self._unpacking: set[asyncio.Task[None]] = set()
        self._forwarder: Forwarder | None = None
        if options.forward is not None:
            self._forwarder = Forwarder(
                options.forward, options.forward_headers, options.forward_s, self.clock
            )
        self.following = Following(
            self._intake,
            self._over,
            clock_ns=time.time_ns,
            on_close=None if store is None else self._closed.append,
            limits=options.limits,
            policy=options.policy,
            price=price,
            # What another process took in before this one is lost, unless a store has it.
            complete_since_ns=time.time_ns() if store is None else 0,
        )
        if store is not None:
            since_ns = time.time_ns() - int(options.limits.max_age_s * 1e9)
            self.following.remember(trace_id for trace_id, _ in store.closed_roots(since_ns))
            restored = self.following.restore(store.open_spans(), time.monotonic())
            if restored:
                _log.info("restored %d spans of open runs", restored)
        import_module("otel_loopeval.runs.turns")  # runs import it when they need it: not later
        if price is not None:
            price(Usage(1, 1, model="gpt-4o", provider="openai"), time.time_ns())  # reads its list: not later
        self._tokens = [(token.encode(), tenant) for token, tenant in options.tokens.items()]

    # In ----------------------------------------------------------------------------------------------------

    def tenant_of(self, authorization: bytes) -> str | None:
        """Whose token a request brings: empty where nobody is asked for one, None where it is not known."""
        if not self._tokens:
            return ""
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        found = None
        for token, tenant in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(token, given.strip()):
                found = tenant
        return found

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
        work = _Work(self, what, body, answered)
        if self.draining:
            work.answer(refused(503, "shutting down", b"1"))
        elif self.inflight > self.options.max_inflight:  # its own bytes among them
            work.answer(refused(503, "too much at once", b"1"))
        elif what.encoding and what.signal == TRACES and len(body) > _LARGE:
            task = asyncio.get_running_loop().create_task(self._unpack(work))
            self._unpacking.add(task)
            task.add_done_callback(self._unpacking.discard)
        else:
            self._go_on(work)

    def count(self, signal: str, status: int, tenant: str) -> None:
        """Count an answer."""
        key = (signal, status, tenant)
        self.requests[key] = self.requests.get(key, 0) + 1

    async def _unpack(self, work: _Work) -> None:
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

    def _go_on(self, work: _Work, data: bytes | None = None) -> None:
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

    def _accept(self, work: _Work, answer: Reply) -> None:
        """Follow what is in a request that the next hop has, if there is one, and acknowledge it.

        It is acknowledged once the store has it too: what a kill takes along would be missing in its run.
        """
        reply = answer if answer.content_type else answer._replace(content_type=work.what.content_type)
        batch = work.batch
        if batch is not None:
            kept = self.following.take(batch, time.monotonic())
            if kept and self._store is not None:
                self._keep(self._store, work, kept, reply)
                return
        work.answer(reply)

    def _keep(self, store: RunStore, work: _Work, kept: list[SpanData], reply: Reply) -> None:
        loop = asyncio.get_running_loop()

        def stored(future: "Future[None]") -> None:
            if future.cancelled():
                work.answer(self._store_failed("it ends"))
                return
            error = future.exception()
            work.answer(reply if error is None else self._store_failed(error))

        try:
            future = store.put_spans(kept)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a disk
            work.answer(self._store_failed(error))
            return
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(stored, done))

    def _store_failed(self, why: object) -> Reply:
        _log.error("the store failed: %s", why)
        return refused(503, "the store failed", self._retry_after)

    def answered(self, work: _Work, answer: Reply) -> None:
        """The next hop has answered a request."""
        if answer.status == 200:  # noqa: PLR2004
            self._accept(work, answer)
        else:
            work.answer(self._passed_on(answer))

    @property
    def _retry_after(self) -> bytes:
        return b"%d" % self.options.retry_after_s

    def _passed_on(self, answer: Reply) -> Reply:
        status = answer.status
        if 200 < status < 300:  # noqa: PLR2004 - it has it
            return Reply(200, answer.body, answer.content_type)
        if 400 <= status < 500 and status not in _RETRIED and status not in _OURS:  # noqa: PLR2004
            return Reply(status, answer.body, answer.content_type or b"text/plain")  # for good
        if status == 429:  # noqa: PLR2004
            return refused(429, "the next hop is busy", answer.retry_after or self._retry_after)
        if answer is BUSY:
            return refused(503, "too much at once", b"1")
        what = f"says {status}" if status else "does not answer"
        return refused(503, f"the next hop {what}", answer.retry_after or self._retry_after)

    # Out ---------------------------------------------------------------------------------------------------

    def _over(self, served: ServedRun) -> None:
        if self._store is not None:
            self._store.put_run(served)
        if served.judged_before:
            return
        self._run_metrics.ended(served)
        if self._forwarder is not None:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.popleft()
                self.verdicts_lost += 1
            self._verdicts.append(served)

    def close_slow(self) -> None:
        """Give up requests that the next hop takes too long for. To be called about twice a second."""
        self.clock.tick()
        if self._forwarder is not None:
            self._forwarder.close_slow()

    async def tick(self) -> None:
        """Close what is over, and send the verdicts on."""
        now = time.monotonic()
        while self.following.tick(now, _CLOSED_AT_ONCE):  # noqa: ASYNC110 - it is no waiting
            await asyncio.sleep(0)  # there is more, but others come first
        if await self.send_verdicts():
            self._close_traces()

    def _close_traces(self) -> None:
        """Let the store forget the spans of traces that are over, now that their verdicts have arrived.

        Killed before that, the next process judges them again: its verdicts have the same ids.
        """
        if self._store is not None:
            for trace_id in self._closed:
                self._store.close_trace(trace_id)
        self._closed.clear()  # the same list always: what is over is put into it

    async def send_verdicts(self) -> bool:
        """Send the verdicts on.

        Returns:
            Whether none is left.
        """
        while self._verdicts and self._forwarder is not None:
            count = min(len(self._verdicts), _VERDICTS_A_REQUEST)
            batch = [self._verdicts.popleft() for _ in range(count)]
            answer = await self._forwarder.ask(b"/v1/traces", PROTOBUF, b"", verdict_request(batch))
            if 200 <= answer.status < 300:  # noqa: PLR2004
                continue
            if 400 <= answer.status < 500 and answer.status not in _RETRIED:  # noqa: PLR2004 - for good
                self.verdicts_lost += count
                continue
            room = _MAX_VERDICTS - len(self._verdicts)
            self.verdicts_lost += max(count - room, 0)
            self._verdicts.extendleft(reversed(batch[max(count - room, 0) :]))
            return False
        return True

    async def finish(self) -> None:
        """Judge what is open and send it on: nothing more will come."""
        self.draining = True
        self.following.finish()
        for _ in range(3):
            if await self.send_verdicts():
                self._close_traces()
                break
            await asyncio.sleep(0.5)
        self.verdicts_lost += len(self._verdicts)
        if self._forwarder is not None:
            self._forwarder.close()
