"""What happens to a request, whichever protocol brought it: read, sent on or stored, followed."""

import asyncio
import hmac
import logging
import time
from collections import deque
from importlib import import_module
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.usage import Price, Usage
from otel_loopeval.server.bodies import BodyError, plain
from otel_loopeval.server.following import Following
from otel_loopeval.server.forwarding import Answer, Forwarder
from otel_loopeval.server.intake import Batch, Intake
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.served import RunStore, ServedRun
from otel_loopeval.server.verdicts import RunMetrics, verdict_request

TRACES: Final = "traces"
SIGNALS: Final = (TRACES, "metrics", "logs")
PROTOBUF: Final = b"application/x-protobuf"
JSON: Final = b"application/json"

_MAX_VERDICTS: Final = 10_000
_VERDICTS_A_REQUEST: Final = 500
_LARGE: Final = 65_536
_RETRIED: Final = frozenset({429, 502, 503, 504})
_OURS: Final = frozenset({401, 403, 404, 405, 407})
"""What the next hop says of our own set-up, and not of what came in."""

_log = logging.getLogger("otel_loopeval.serve")


class Reply(NamedTuple):
    """What a sender is told.

    Attributes:
        status: Status of HTTP.
        body: The response's message, in the type of the request; for errors, a text.
        content_type: Its type.
        retry_after: Seconds to wait, empty where that is no matter.
    """

    status: int
    body: bytes = b""
    content_type: bytes = PROTOBUF
    retry_after: bytes = b""


def refused(status: int, message: str, retry_after: bytes = b"") -> Reply:
    """An error, as text."""
    return Reply(status, message.encode("utf-8", "replace"), b"text/plain; charset=utf-8", retry_after)


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
        self.draining = False
        self._store = store
        self._intake = Intake()
        self._run_metrics = RunMetrics(self.registry)
        self._verdicts: deque[ServedRun] = deque()
        self._closed: list[int] = []
        self._forwarder: Forwarder | None = None
        if options.forward is not None:
            self._forwarder = Forwarder(options.forward, options.forward_headers, options.forward_s)
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
        """Take a request.

        Args:
            signal: One of :data:`SIGNALS`.
            content_type: :data:`PROTOBUF` or :data:`JSON`.
            encoding: Its ``Content-Encoding``.
            body: Its body as it came.
            tenant: Whose it is.
        """
        size = len(body)
        if self.draining:
            reply = refused(503, "shutting down", b"1")
        elif self.inflight + size > self.options.max_inflight:
            reply = refused(503, "too much at once", b"1")
        else:
            self.inflight += size
            try:
                reply = await self._take(signal, content_type, encoding, body)
            finally:
                self.inflight -= size
        self.count(signal, reply.status, tenant)
        return reply

    def count(self, signal: str, status: int, tenant: str) -> None:
        """Count an answer."""
        key = (signal, status, tenant)
        self.requests[key] = self.requests.get(key, 0) + 1

    async def _take(self, signal: str, content_type: bytes, encoding: bytes, body: bytes) -> Reply:
        batch: Batch | None = None
        if signal == TRACES:
            try:
                if encoding and len(body) > _LARGE:
                    # zlib and zstd let go of the interpreter's lock.
                    data = await asyncio.to_thread(plain, body, encoding, self.options.max_body)
                else:
                    data = plain(body, encoding, self.options.max_body)
                batch = self._intake.read_json(data) if content_type == JSON else self._intake.read(data)
            except BodyError as error:
                return refused(error.status, str(error))
            except Misfit as misfit:
                return refused(400, f"no OTLP traces: {misfit}")
        if self._forwarder is None:
            if batch is not None:
                return await self._keep(batch, content_type)
            return Reply(200, b"{}" if content_type == JSON else b"", content_type)
        answer = await self._forwarder.send(b"/v1/" + signal.encode(), content_type, encoding, body)
        if answer.status != 200:  # noqa: PLR2004
            return self._passed_on(answer)
        if batch is not None:
            # Acknowledged once the store has it too: what a kill takes along would be missing in its run.
            await self._keep(batch, content_type)
        return Reply(200, answer.body, answer.content_type or content_type)

    async def _keep(self, batch: Batch, content_type: bytes) -> Reply:
        kept = self.following.take(batch, time.monotonic())
        if kept and self._store is not None:
            try:
                await asyncio.wrap_future(self._store.put_spans(kept))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a disk
                _log.error("the store failed: %s", error)
                return refused(503, "the store failed", self._retry_after)
        return Reply(200, b"{}" if content_type == JSON else b"", content_type)

    @property
    def _retry_after(self) -> bytes:
        return b"%d" % self.options.retry_after_s

    def _passed_on(self, answer: Answer) -> Reply:
        status = answer.status
        if 200 < status < 300:  # noqa: PLR2004 - it has it
            return Reply(200, answer.body, answer.content_type)
        if 400 <= status < 500 and status not in _RETRIED and status not in _OURS:  # noqa: PLR2004
            return Reply(status, answer.body, answer.content_type or b"text/plain")  # for good
        if status == 429:  # noqa: PLR2004
            return refused(429, "the next hop is busy", answer.retry_after or self._retry_after)
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

    async def tick(self) -> None:
        """Close what is over, and send the verdicts on."""
        self.following.tick(time.monotonic())
        if await self.send_verdicts():
            self._close_traces()

    def _close_traces(self) -> None:
        """Let the store forget the spans of traces that are over, now that their verdicts have arrived.

        Killed before that, the next process judges them again: its verdicts have the same ids.
        """
        closed, self._closed = self._closed, []
        if self._store is not None:
            for trace_id in closed:
                self._store.close_trace(trace_id)

    async def send_verdicts(self) -> bool:
        """Send the verdicts on.

        Returns:
            Whether none is left.
        """
        while self._verdicts and self._forwarder is not None:
            count = min(len(self._verdicts), _VERDICTS_A_REQUEST)
            batch = [self._verdicts.popleft() for _ in range(count)]
            answer = await self._forwarder.send(b"/v1/traces", PROTOBUF, b"", verdict_request(batch))
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
