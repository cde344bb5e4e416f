"""Spans in any order → traces that are whole, or as whole as bounded memory allows.

A stream of spans never says that a trace is over: its root is written last by most exporters and first by
some, and a late span may follow. So a trace is closed when its root is there and there has been no news of
it for a while, and otherwise only where the bounds on what is held demand it or the stream ends. The
assembler is a state machine with one owner: not thread-safe, and without a clock, since stored spans bring
their own time.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_loopeval.runs.sizes import size_of
from otel_loopeval.runs.spans import SpanData

CLOSED_QUIET: Final = "quiet"
CLOSED_CAPACITY: Final = "capacity"
CLOSED_TOO_LARGE: Final = "too_large"
CLOSED_END: Final = "end"

_PATIENCE: Final = 10
"""How many times ``quiet_spans`` a trace with a root is waited for when the times in the stream stand
still: one span with a wrong clock must not keep all others open."""
_CLOSED_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is held, and for how long.

    Attributes:
        max_spans: Spans held at once, of all traces.
        max_bytes: Estimated memory that they take, in bytes.
        max_traces: Traces held at once.
        quiet_spans: Spans of other traces after which one that has its root is taken to be whole...
        quiet_s: ...if the latest end of any span is also so many seconds after the latest of its own.
    """

    max_spans: int = 200_000
    max_bytes: int = 512 * 1024 * 1024
    max_traces: int = 50_000
    quiet_spans: int = 10_000
    quiet_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("max_spans", "max_bytes", "max_traces", "quiet_spans"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Trace(NamedTuple):
    """A trace that is closed.

    Attributes:
        trace_id: Its 128-bit id.
        spans: Its spans, each once, in the order in which they first came.
        reason: Why it was closed: one of the ``CLOSED_*``.
        cut: Whether spans of it are missing, as far as one can know: it was closed because it alone is too
            large, or without its root and while there was still news of it.
    """

    trace_id: int
    spans: tuple[SpanData, ...]
    reason: str
    cut: bool


class _Open:
    """A trace of which more may come."""

    __slots__ = ("bytes", "heard_at", "latest_ns", "rooted", "spans")

    def __init__(self) -> None:
        self.spans: dict[int, SpanData] = {}
        self.bytes = 0
        self.rooted = False
        self.heard_at = 0
        self.latest_ns = 0


class TraceAssembler:
    """Puts spans together into traces.

    A repeated span counts once, and its last version counts. What comes for a trace after it was closed is
    dropped and counted: a part of a trace would be judged as if it were the whole.

    Args:
        bounds: How much is held, and for how long.

    Attributes:
        held: Spans held now.
        late_spans: Spans that came after their trace was closed.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._quiet_ns = int(self._bounds.quiet_s * 1e9)
        # Each in the order of the last news, so that the first has been quiet longest. A plain dictionary
        # would look through the places of all that went before to find it.
        self._rooted: OrderedDict[int, _Open] = OrderedDict()
        self._rootless: OrderedDict[int, _Open] = OrderedDict()
        self._closed: OrderedDict[int, None] = OrderedDict()
        self._count = 0
        self._latest_ns = 0
        self._bytes = 0
        self.held = 0
        self.late_spans = 0

    def add(self, span: SpanData) -> list[Trace]:
        """Take a span.

        Returns:
            The traces that are closed by it, mostly none.
        """
        trace_id = span.trace_id
        if trace_id in self._closed:
            self.late_spans += 1
            return []
        self._count += 1
        self._latest_ns = max(self._latest_ns, span.end_ns)
        trace = self._rooted.pop(trace_id, None) or self._rootless.pop(trace_id, None) or _Open()
        self._put(trace, span)
        (self._rooted if trace.rooted else self._rootless)[trace_id] = trace
        closed: list[Trace] = []
        bounds = self._bounds
        if len(trace.spans) * 2 > bounds.max_spans or trace.bytes * 2 > bounds.max_bytes:
            # One trace with half of the room would leave none for the others.
            closed.append(self._close(trace_id, CLOSED_TOO_LARGE))
        while (
            self.held > bounds.max_spans
            or self._bytes > bounds.max_bytes
            or len(self._rooted) + len(self._rootless) > bounds.max_traces
        ):
            closed.append(self._close(self._quietest(), CLOSED_CAPACITY))
        while (quiet := self._whole()) is not None:
            closed.append(self._close(quiet, CLOSED_QUIET))
        return closed

    def finish(self) -> Iterator[Trace]:
        """Close what is left, in the order of the last news, one by one: each is let go as it is taken."""
        while self._rooted or self._rootless:
            yield self._close(self._quietest(), CLOSED_END)

    def _put(self, trace: _Open, span: SpanData) -> None:
        size = size_of(span)
        before = trace.spans.get(span.span_id)
        if before is None:
            self.held += 1
        else:
            size -= size_of(before)
        trace.spans[span.span_id] = span
        trace.bytes += size
        self._bytes += size
        trace.heard_at = self._count
        trace.latest_ns = max(trace.latest_ns, span.end_ns)
        if span.parent_id is None:
            trace.rooted = True

    def _whole(self) -> int | None:
        """The trace that has its root and has been quiet longest, if that is long enough."""
        for trace_id, trace in self._rooted.items():
            quiet = self._count - trace.heard_at
            if quiet >= self._bounds.quiet_spans and (
                self._latest_ns - trace.latest_ns >= self._quiet_ns
                or quiet >= self._bounds.quiet_spans * _PATIENCE
            ):
                return trace_id
            break
        return None

    def _quietest(self) -> int:
        """The trace that has been quiet longest, with a root or without."""
        heads = [next(iter(table.items())) for table in (self._rooted, self._rootless) if table]
        return min(heads, key=lambda head: head[1].heard_at)[0]

    def _close(self, trace_id: int, reason: str) -> Trace:
        trace = self._rooted.pop(trace_id, None) or self._rootless.pop(trace_id)
        self.held -= len(trace.spans)
        self._bytes -= trace.bytes
        self._closed[trace_id] = None
        if len(self._closed) > _CLOSED_REMEMBERED:
            self._closed.popitem(last=False)
        still_coming = not trace.rooted and self._count - trace.heard_at < self._bounds.quiet_spans
        cut = reason == CLOSED_TOO_LARGE or (reason == CLOSED_CAPACITY and still_coming)
        return Trace(trace_id, tuple(trace.spans.values()), reason, cut)
