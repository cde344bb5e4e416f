"""Traces across processes: from spans as they come in to runs that are over, with bounded memory.

A trace is over a short while after its root is there; without a root, once nothing has been heard of it for a
while; and in any case at a certain age. What is over is replayed as stored spans are, so the verdicts are
those of ``otel-loopeval score``. A state machine with one owner: not thread-safe, and without a clock.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.resume import Segments
from otel_loopeval.runs.sizes import size_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Price
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.intake import Batch, Group, Intake, Others, ids_of
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.waiting import Waiting

CLOSED_ROOT: Final = "root"
CLOSED_IDLE: Final = "idle"
CLOSED_AGE: Final = "age"
CLOSED_CAPACITY: Final = "capacity"
CLOSED_TOO_LARGE: Final = "too_large"
CLOSED_SHUTDOWN: Final = "shutdown"

_CLOSED_A_BODY: Final = 32
_LARGE: Final = 32
"""Spans for each of which a trace counts as one more: judging them takes 50 µs a span."""
_CUT: Final = frozenset({CLOSED_CAPACITY, CLOSED_TOO_LARGE})
_SERVICE: Final = "service.name"
_ENVIRONMENTS: Final = ("deployment.environment.name", "deployment.environment")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long traces are waited for, and how much is held.

    Attributes:
        grace_s: Seconds from the root of a trace to its end.
        idle_s: Seconds without news after which a trace without a root is over.
        max_age_s: Seconds after which a trace is over in any case.
        max_traces: Traces with spans of interest held at once.
        max_bytes: Estimated memory that their spans take.
        max_trace_spans: Spans held of one trace.
        waiting_bytes: Bodies that are remembered for the spans in them that turn out to be around a run.
        remembered: Traces that are over and still known, so that their late and retried spans start no other.
    """

    grace_s: float = 10.0
    idle_s: float = 30.0
    max_age_s: float = 3600.0
    max_traces: int = 50_000
    max_bytes: int = 512 * 1024 * 1024
    max_trace_spans: int = 20_000
    waiting_bytes: int = 64 * 1024 * 1024
    remembered: int = 200_000

    def __post_init__(self) -> None:
        for name in ("grace_s", "idle_s", "max_age_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("max_traces", "max_bytes", "max_trace_spans", "waiting_bytes", "remembered"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class _Other(NamedTuple):
    """A span that is not decoded."""

    parent_id: bytes
    group: Group
    data: bytes


class _Trace:
    """A trace of which more may come."""

    __slots__ = ("age_at", "bytes", "heard", "judged", "others", "restored", "rooted", "spans", "wanted")

    def __init__(self, now: float) -> None:
        self.spans: dict[int, SpanData] = {}
        self.others: dict[bytes, _Other] = {}
        self.bytes = 0
        self.heard = now
        self.age_at = now
        self.rooted: float | None = None
        self.restored = False
        self.wanted: set[int] = set()  # ids of what the spans are inside of
        self.judged: set[int | None] = set()  # ids of roots that have a verdict


@dataclass(slots=True)
class Counts:
    """What happened so far.

    Attributes:
        spans: Spans that came in.
        marked: Spans of interest among them.
        late: Spans of interest that came after their trace was over.
        repeated: Spans that came again.
        forgotten: Spans around runs that there was no room for.
        closed: Traces that are over, by reason.
        judged_before: Runs that came with a verdict: neither told of nor counted again.
        unreadable: Spans around runs that could not be decoded.
    """

    spans: int
    marked: int
    late: int
    repeated: int
    forgotten: int
    closed: dict[str, int]
    judged_before: int
    unreadable: int


class Following:
    """Follows traces and hands on the runs in them.

    Args:
        intake: What read the bodies.
        on_verdict: Called with each run that is over.
        on_close: Called with the id of each trace that is over, after its runs.
        limits: How long is waited, and how much is held.
        policy: What counts as healthy where a run does not say.
        price: Tells what a call cost.
        complete_since_ns: When we began, in nanoseconds since the epoch: of a trace that was under way then,
            an earlier process may have spans, so it is incomplete; 0 if none can have.
        clock_ns: The time, in nanoseconds since the epoch.

    Attributes:
        counts: What happened so far.
        held_bytes: Estimated memory of what is held.
    """

    def __init__(
        self,
        intake: Intake,
        on_verdict: Callable[[ServedRun], object],
        *,
        clock_ns: Callable[[], int],
        on_close: Callable[[int], object] | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        price: Price | None = None,
        complete_since_ns: int = 0,
    ) -> None:
        self._intake = intake
        self._on_verdict = on_verdict
        self._on_close = on_close
        self._limits = limits or Limits()
        self._policy = policy
        self._price = price
        self._complete_since_ns = complete_since_ns
        self._clock_ns = clock_ns
        self._segments = Segments()
        # Each is in the order in which its first has to be looked at first: a plain dictionary would look
        # through the places of all that went before, each time.
        self._open: OrderedDict[bytes, _Trace] = OrderedDict()  # by age
        self._rooted: OrderedDict[bytes, _Trace] = OrderedDict()  # by when the root came
        self._rootless: OrderedDict[bytes, _Trace] = OrderedDict()  # by when there was news
        self._over: OrderedDict[bytes, None] = OrderedDict()
        self._waiting = Waiting(self._limits.waiting_bytes, self._limits.idle_s)
        self.held_bytes = 0
        self.counts = Counts(0, 0, 0, 0, 0, {}, 0, 0)

    @property
    def open_traces(self) -> int:
        """Traces that are followed now."""
        return len(self._open)

    def idle_max_s(self, now: float) -> float:
        """Seconds since there was news of the trace that has been quiet longest."""
        first = next(iter(self._rootless.values()), None)
        return 0.0 if first is None else max(now - first.heard, 0.0)

    # In --------------------------------------------------------------------------------------------------

    def take(self, batch: Batch, now: float) -> list[SpanData]:
        """Take the spans of a body.

        Args:
            batch: The spans.
            now: The time, in seconds of a steady clock.

        Returns:
            The spans that a store has to keep: those of traces that are followed.
        """
        counts = self.counts
        counts.spans += batch.total
        counts.marked += len(batch.marked)
        kept: list[SpanData] = []
        fresh: set[bytes] = set()
        for trace_id, several in groupby(batch.marked, _trace_id):
            spans = list(several)
            key = trace_id.to_bytes(16, "big")
            trace = self._open.get(key)
            if trace is None:
                if key in self._over:
                    counts.late += len(spans)
                    continue
                trace = self._begin(key, now)
                fresh.add(key)
            self._put(key, trace, spans, now)
            kept += spans
        for trace_id, several in groupby(batch.decoded, _trace_id):
            spans = list(several)
            key = trace_id.to_bytes(16, "big")
            trace = self._open.get(key)
            if trace is not None:
                self._put(key, trace, spans, now)
                kept += spans
            else:
                self._waiting.add_decoded(key, spans)
        self._take_others(batch, now, kept)
        for key in fresh:
            self._recall(key, now, kept)
        # Each body closes more than it opened, and no more than takes a moment: others wait meanwhile.
        self._bound(now, max(_CLOSED_A_BODY, 2 * (len(fresh) + len(batch.marked) // _LARGE)))
        return kept

    def remember(self, trace_ids: Iterable[int]) -> None:
        """Know traces that were over before we began: what is retried of them is not judged again."""
        for trace_id in trace_ids:
            self._remember(trace_id.to_bytes(16, "big"))

    def _remember(self, key: bytes) -> None:
        self._over[key] = None
        if len(self._over) > self._limits.remembered:
            self._over.popitem(last=False)

    def restore(self, spans: Iterable[SpanData], now: float) -> int:
        """Take the spans that a store has kept of traces that were not over.

        Returns:
            How many there were.
        """
        count = 0
        for trace_id, several in groupby(spans, _trace_id):
            found = list(several)
            key = trace_id.to_bytes(16, "big")
            trace = self._open.get(key)
            if trace is None:
                trace = self._begin(key, now)
                trace.restored = True
            self._put(key, trace, found, now)
            count += len(found)
        return count

    def _begin(self, key: bytes, now: float) -> _Trace:
        trace = self._open[key] = self._rootless[key] = _Trace(now)
        return trace

    def _put(self, key: bytes, trace: _Trace, spans: Iterable[SpanData], now: float) -> None:
        held = trace.spans
        rooted = False
        size = 0
        for span in spans:
            before = held.get(span.span_id)
            held[span.span_id] = span  # its last version counts
            size += size_of(span)
            if before is not None:
                self.counts.repeated += 1
                size -= size_of(before)
            if span.name == semconv.SPAN_VERDICT:
                trace.judged.add(span.parent_id)
            elif span.parent_id is None:
                rooted = True
            else:
                trace.wanted.add(span.parent_id)
        trace.bytes += size
        self.held_bytes += size
        self._heard(key, trace, now, rooted=rooted)
        if len(held) > self._limits.max_trace_spans:
            self._close(key, CLOSED_TOO_LARGE)

    def _heard(self, key: bytes, trace: _Trace, now: float, *, rooted: bool) -> None:
        trace.heard = now
        if trace.rooted is not None:
            return
        if self._rootless.pop(key, None) is None:
            return  # it was too large
        if rooted:
            trace.rooted = now
            self._rooted[key] = trace
        else:
            self._rootless[key] = trace

    def _take_others(self, batch: Batch, now: float, kept: list[SpanData]) -> None:
        open_traces, wait = self._open, self._waiting.add
        for key, others in batch.others.items():
            trace = open_traces.get(key)
            if trace is None:
                wait(key, others)
            else:
                self._surround(key, trace, others, now, kept)
        self._waiting.grow(batch.size, batch.total, now)

    def _recall(self, key: bytes, now: float, kept: list[SpanData]) -> None:
        """A trace turns out to be of interest: what has been seen of it before is around it."""
        others, decoded = self._waiting.pop(key)
        if others and (trace := self._open.get(key)) is not None:
            self._surround(key, trace, others, now, kept)
        if decoded and (trace := self._open.get(key)) is not None:  # it may have grown too large just now
            self._put(key, trace, decoded, now)
            kept += decoded

    def _surround(
        self, key: bytes, trace: _Trace, others: list[Others], now: float, kept: list[SpanData]
    ) -> None:
        rooted = False
        room = self._limits.max_trace_spans - len(trace.others)
        for group, several in others:
            if len(several) > room:
                self.counts.forgotten += len(several) - room
                del several[room:]
            room -= len(several)
            for data in several:
                span_id, parent_id = ids_of(data)
                rooted = rooted or not parent_id
                if int.from_bytes(span_id, "big") in trace.wanted:
                    around = self._decode(group, data)
                    if around is not None:
                        self._put(key, trace, (around,), now)
                        kept.append(around)
                    if key not in self._open:
                        return  # it was too large
                    continue
                if span_id not in trace.others:
                    size = len(data) + 300
                    trace.bytes += size
                    self.held_bytes += size
                trace.others[span_id] = _Other(parent_id, group, data)
        self._heard(key, trace, now, rooted=rooted)

    def _bound(self, now: float, most: int) -> None:
        limits = self._limits
        while self._open and (len(self._open) > limits.max_traces or self.held_bytes > limits.max_bytes):
            oldest = next(iter(self._rootless or self._open))
            self._close(oldest, CLOSED_CAPACITY)
        self.tick(now, most)

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
        while (due := self._due(now)) is not None:
            if most is not None and closed >= most:
                return True
            key, reason = due
            closed += 1 + len(self._open[key].spans) // _LARGE
            self._close(key, reason)
        return False

    def _due(self, now: float) -> tuple[bytes, str] | None:
        """A trace that is over by now, and why."""
        limits = self._limits
        if self._rooted:
            key, trace = next(iter(self._rooted.items()))
            if now - (trace.rooted or 0.0) >= limits.grace_s:
                return key, CLOSED_ROOT
        if self._rootless:
            key, trace = next(iter(self._rootless.items()))
            if now - trace.heard >= limits.idle_s:
                return key, CLOSED_IDLE
        if self._open:
            key, trace = next(iter(self._open.items()))
            if now - trace.age_at >= limits.max_age_s:
                return key, CLOSED_AGE
        return None

    def finish(self) -> None:
        """Judge what is open: nothing more will come."""
        for key in list(self._open):
            self._close(key, CLOSED_SHUTDOWN)

    def _close(self, key: bytes, reason: str) -> None:
        trace = self._open.pop(key, None)
        if trace is None:
            return
        self._rooted.pop(key, None)
        self._rootless.pop(key, None)
        self.held_bytes -= trace.bytes
        self._remember(key)
        self.counts.closed[reason] = self.counts.closed.get(reason, 0) + 1
        spans = (*trace.spans.values(), *self._around(trace))
        cut = reason in _CUT or (not trace.restored and self._straddles(spans))
        tracker = Tracker(self._policy, price=self._price, segments=self._segments)
        trace_id = int.from_bytes(key, "big")
        for replayed in replay(spans, tracker):
            root = replayed.root
            judged = (None if root is None else root.span_id) in trace.judged or (
                root is not None and semconv.HEALTH_DOOM_LOOP_FIRED in root.attributes
            )
            self.counts.judged_before += judged
            self._on_verdict(self._served(replayed, spans, trace_id, cut=cut, judged=judged))
        if self._on_close is not None:
            self._on_close(trace_id)

    def _straddles(self, spans: Iterable[SpanData]) -> bool:
        """Whether a trace was under way when we began, so that an earlier process may have some of it.

        It may have ended, too, while there was no process to take its end. What ended long before is history
        that somebody sends, and whole.
        """
        since = self._complete_since_ns
        ended = since - int(self._limits.max_age_s * 1e9)
        return any(span.start_ns < since for span in spans) and any(span.end_ns > ended for span in spans)

    def _served(
        self, replayed: Replayed, spans: tuple[SpanData, ...], trace_id: int, *, cut: bool, judged: bool
    ) -> ServedRun:
        run, verdict, root = replayed
        if cut:
            verdict = verdict._replace(outcome=semconv.OUTCOME_INCOMPLETE, decided=False, reasons=())
        resource = (root or spans[0]).resource
        return ServedRun(
            run,
            verdict,
            root,
            spans,
            trace_id,
            _text(resource.get(_SERVICE)),
            next((text for name in _ENVIRONMENTS if (text := _text(resource.get(name)))), ""),
            verdict.outcome != semconv.OUTCOME_INCOMPLETE,
            self._clock_ns(),
            judged,
        )

    def _around(self, trace: _Trace) -> list[SpanData]:
        """The undecoded spans that spans of interest are inside of."""
        others = trace.others
        found: list[SpanData] = []
        if not others:
            return found
        for span in trace.spans.values():
            parent_id = span.parent_id
            parent = None if parent_id is None else parent_id.to_bytes(8, "big")
            while parent and (other := others.pop(parent, None)) is not None:
                parent = other.parent_id
                around = self._decode(other.group, other.data)
                if around is not None and around.span_id not in trace.spans:
                    found.append(around)
        return found

    def _decode(self, group: Group, data: bytes) -> SpanData | None:
        try:
            return self._intake.decode(group, data)
        except Misfit:
            self.counts.unreadable += 1
            return None


_trace_id: Final[Callable[[SpanData], int]] = attrgetter("trace_id")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
