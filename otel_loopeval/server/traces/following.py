"""Traces across processes: from spans as they come in to runs that are over, with bounded memory.

A trace is over a short while after its root is there; without a root, once nothing has been heard of it for a
while; and in any case at a certain age. What is over is replayed as stored spans are, so the verdicts are
those of ``otel-loopeval score``. A state machine with one owner: not thread-safe, and without a clock.

Each trace is one tenant's: spans that two tenants sent never meet in a run, whatever ids they have.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Price
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.traces.counts import Counts
from otel_loopeval.server.traces.intake import Batch, Intake
from otel_loopeval.server.traces.judging import Closed, Judging
from otel_loopeval.server.traces.limits import Limits
from otel_loopeval.server.traces.open_traces import (
    CLOSED_CAPACITY,
    CLOSED_SHUTDOWN,
    CLOSED_TOO_LARGE,
    OpenTraces,
    Trace,
    key_of,
    read_key,
)
from otel_loopeval.server.traces.surroundings import Surroundings

_CLOSED_A_BODY: Final = 32
_LARGE: Final = 32
"""Spans for each of which a trace counts as one more: judging them takes 50 µs a span."""
_VERY_LARGE: Final = 1_000
"""Spans of a trace over which it is judged aside."""
_ASIDE_SHARE: Final = 4
"""What is held may be more by this part of its bound for traces that wait to be judged aside."""

_log: Final = logging.getLogger("otel_loopeval.serve")


class Following:
    """Follows traces and hands on the runs in them.

    Args:
        intake: What read the bodies.
        on_verdict: Called with each run that is over.
        on_close: Called with the tenant and the id of each trace that is over, after its runs.
        limits: How long is waited, and how much is held.
        policy: What counts as healthy where a run does not say.
        price: Tells what a call cost.
        complete_since_ns: When we began, in nanoseconds since the epoch: of a trace that was under way then,
            an earlier process may have spans, so it is incomplete; 0 if none can have.
        clock_ns: The time, in nanoseconds since the epoch.
        aside: Takes a trace of so many spans that it should not be judged while others wait: who takes it is
            to have it judged by :meth:`judge`, and to hand the runs to :meth:`deliver`. None for nobody.

    Attributes:
        counts: What happened so far.
    """

    def __init__(
        self,
        intake: Intake,
        on_verdict: Callable[[ServedRun], object],
        *,
        clock_ns: Callable[[], int],
        on_close: Callable[[str, int], object] | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        price: Price | None = None,
        complete_since_ns: int = 0,
        aside: Callable[[Closed], object] | None = None,
    ) -> None:
        limits = limits or Limits()
        self.counts = Counts()
        self._on_verdict = on_verdict
        self._on_close = on_close
        self._limits = limits
        self._traces = OpenTraces(limits)
        self._surroundings = Surroundings(intake, self._traces, self._put, limits=limits, counts=self.counts)
        self._judging = Judging(
            policy=policy,
            price=price,
            complete_since_ns=complete_since_ns,
            max_age_s=limits.max_age_s,
            clock_ns=clock_ns,
        )
        self._over: OrderedDict[bytes, None] = OrderedDict()
        self._aside = aside
        self._aside_bytes = 0
        self._surprises: set[type[Exception]] = set()

    @property
    def open_traces(self) -> int:
        """Traces that are followed now."""
        return len(self._traces.by_key)

    @property
    def held_bytes(self) -> int:
        """Estimated memory of what is held."""
        return self._traces.held_bytes + self._aside_bytes

    # In --------------------------------------------------------------------------------------------------

    def take(self, batch: Batch, now: float, tenant: str = "") -> list[SpanData]:
        """Take the spans of a body.

        Args:
            batch: The spans.
            now: The time, in seconds of a steady clock.
            tenant: Whose they are.

        Returns:
            The spans that a store has to keep: those of traces that are followed.
        """
        counts = self.counts
        whose = tenant.encode() if tenant else b""
        counts.spans += batch.total
        kept: list[SpanData] = []
        fresh: set[bytes] = set()
        if batch.marked:
            counts.marked += len(batch.marked)
            self._take_marked(batch.marked, whose, now, kept, fresh)
        if batch.decoded:
            self._take_decoded(batch.decoded, whose, now, kept)
        self._surroundings.take(batch, whose, now, kept)
        for key in fresh:
            self._surroundings.recall(key, now, kept)
        self._make_room()
        # Each body closes more than it opened, and no more than takes a moment: others wait meanwhile.
        self.tick(now, max(_CLOSED_A_BODY, 2 * (len(fresh) + len(batch.marked) // _LARGE)))
        return kept

    def _take_marked(
        self, marked: list[SpanData], whose: bytes, now: float, kept: list[SpanData], fresh: set[bytes]
    ) -> None:
        """Take spans of interest: a trace that has one is followed from now on."""
        for trace_id, several in groupby(marked, _trace_id):
            spans = list(several)
            key = trace_id.to_bytes(16, "big") + whose
            trace = self._traces.by_key.get(key)
            if trace is None:
                if key in self._over:
                    self.counts.late += len(spans)
                    continue
                trace = self._traces.begin(key, now)
                fresh.add(key)
            self._put(key, trace, spans, now)
            kept += spans

    def _take_decoded(self, decoded: list[SpanData], whose: bytes, now: float, kept: list[SpanData]) -> None:
        """Take other spans that were decoded all the same."""
        for trace_id, several in groupby(decoded, _trace_id):
            spans = list(several)
            key = trace_id.to_bytes(16, "big") + whose
            trace = self._traces.by_key.get(key)
            if trace is not None:
                self._put(key, trace, spans, now)
                kept += spans
            else:
                self._surroundings.wait(key, spans)

    def remember(self, traces: Iterable[tuple[str, int]]) -> None:
        """Know traces that were over before we began: what is retried of them is not judged again.

        Args:
            traces: The tenant and the id of each.
        """
        for tenant, trace_id in traces:
            self._remember(key_of(tenant, trace_id))

    def restore(self, spans: Iterable[tuple[str, SpanData]], now: float) -> int:
        """Take the spans that a store has kept of traces that were not over.

        Where there are more than is held at once, some of the traces are over now.

        Args:
            spans: Each with its tenant.
            now: The time, in seconds of a steady clock.

        Returns:
            How many there were.
        """
        count = 0
        for key, several in groupby(spans, _key_of_restored):
            found = [span for _, span in several]
            trace = self._traces.by_key.get(key)
            if trace is None:
                trace = self._traces.begin(key, now)
                trace.restored = True
            self._put(key, trace, found, now)
            count += len(found)
            self._make_room()
        return count

    def _make_room(self) -> None:
        """Close traces until no more is held than may be."""
        traces, limits = self._traces, self._limits
        while traces.held_bytes > limits.max_bytes or len(traces.by_key) > limits.max_traces:
            self._close(traces.least(), CLOSED_CAPACITY)

    def _put(self, key: bytes, trace: Trace, spans: Iterable[SpanData], now: float) -> None:
        self.counts.repeated += self._traces.hold(key, trace, spans, now)
        if len(trace.spans) > self._limits.max_trace_spans:
            self._close(key, CLOSED_TOO_LARGE)

    def _remember(self, key: bytes) -> None:
        self._over[key] = None
        if len(self._over) > self._limits.remembered:
            self._over.popitem(last=False)

    # Out -------------------------------------------------------------------------------------------------

    def tick(self, now: float, most: int | None = None) -> bool:
        """Close what is over by now.

        Args:
            now: The time, in seconds of a steady clock.
            most: How many traces at most, since judging takes its time; all by default. One of many spans
                counts as several.

        Returns:
            Whether there are more.
        """
        closed = 0
        while (due := self._traces.due(now)) is not None:
            if most is not None and closed >= most:
                return True
            key, reason = due
            closed += 1 + len(self._traces.by_key[key].spans) // _LARGE
            self._close(key, reason)
        return False

    def finish(self, *, kept: bool = False) -> None:
        """Judge what is open: nothing more will come.

        Args:
            kept: Whether a store has the spans of what goes on. Then traces without their root are not over,
                and are left to whoever begins with the store next: judged now, what comes later would be
                judged as if it were the whole.
        """
        for key, trace in list(self._traces.by_key.items()):
            if trace.rooted is not None or not kept:
                self._close(key, CLOSED_SHUTDOWN)

    def _close(self, key: bytes, reason: str) -> None:
        trace = self._traces.pop(key)
        if trace is None:
            return
        self._remember(key)
        counts = self.counts
        counts.closed[reason] = counts.closed.get(reason, 0) + 1
        spans = (*trace.spans.values(), *self._surroundings.around(trace))
        cut = self._is_cut(trace, reason, spans)
        closed = Closed(*read_key(key), spans, frozenset(trace.judged), cut, trace.bytes)
        if self._aside is not None and self._may_wait(closed, reason):
            self._aside_bytes += closed.size
            self._aside(closed)
            return
        try:
            runs = self.judge(closed)
        except Exception as error:  # noqa: BLE001 - the others shall be judged
            # Whatever it was, it is no other trace's fault, nor that of whoever sends something now. A store
            # keeps the spans, as of what cannot be judged aside.
            if type(error) not in self._surprises:
                self._surprises.add(type(error))
                _log.exception("this should not have happened; going on")
            return
        self._hand_on(closed, runs)

    def _is_cut(self, trace: Trace, reason: str, spans: tuple[SpanData, ...]) -> bool:
        """Whether spans of a trace are missing, as far as one can know."""
        if reason == CLOSED_CAPACITY:
            # What a store has with its root is most often over: its verdict was not told before the end.
            return not trace.restored or trace.rooted is None
        return reason == CLOSED_TOO_LARGE or (not trace.restored and self._judging.straddles(spans))

    def _may_wait(self, closed: Closed, reason: str) -> bool:
        """Whether a trace is to be judged aside: while it waits, what is held of it is held."""
        most = self._limits.max_bytes // _ASIDE_SHARE
        # What goes on with a run that has paused is judged after it, and that may be waiting.
        follows = self._aside_bytes > 0 and any(semconv.RUN_RESUMED in s.attributes for s in closed.spans)
        return (
            (len(closed.spans) > _VERY_LARGE or follows)
            and reason != CLOSED_SHUTDOWN
            and self._aside_bytes + closed.size <= most
        )

    def judge(self, closed: Closed) -> list[ServedRun]:
        """The runs of a trace that was put aside. In any thread."""
        return self._judging.runs(closed)

    def deliver(self, closed: Closed, runs: list[ServedRun] | None) -> None:
        """A trace that was put aside was judged; None if it could not be."""
        self._aside_bytes -= closed.size
        if runs is not None:
            self._hand_on(closed, runs)

    def _hand_on(self, closed: Closed, runs: list[ServedRun]) -> None:
        for served in runs:
            self.counts.judged_before += served.judged_before
            self._on_verdict(served)
        if self._on_close is not None:
            self._on_close(closed.tenant, closed.trace_id)


_trace_id: Final[Callable[[SpanData], int]] = attrgetter("trace_id")


def _key_of_restored(restored: tuple[str, SpanData]) -> bytes:
    tenant, span = restored
    return key_of(tenant, span.trace_id)
