"""Runs out of stored spans, each with its verdict and the spans that tell of it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy

SpanKey = tuple[int, int]


class StoredRuns:
    """The runs in a collection of spans.

    Args:
        spans: Spans of any number of traces, in any order; a repeated span counts once.
        policy: What counts as healthy where a run does not say.
        runs: The runs in them, where they were judged already.

    Attributes:
        runs: The runs, nested ones included, in the order in which they began.
        span_count: How many spans there are.
    """

    def __init__(
        self,
        spans: Iterable[SpanData],
        policy: Policy | None = None,
        *,
        runs: Iterable[Replayed] | None = None,
    ) -> None:
        by_key = {_key(span): span for span in spans}
        self.span_count = len(by_key)
        self._children: defaultdict[SpanKey, list[SpanData]] = defaultdict(list)
        for span in sorted(by_key.values(), key=lambda span: span.start_ns):
            if span.parent_id is not None:
                self._children[span.trace_id, span.parent_id].append(span)
        if runs is None:
            runs = replay(by_key.values(), Tracker(policy))
        self.runs = sorted(runs, key=lambda stored: stored.run.started_ns)
        self._by_root = {_key(stored.root): stored for stored in self.runs if stored.root is not None}

    def children(self, span: SpanData) -> Sequence[SpanData]:
        """The spans right inside a span, in the order in which they began."""
        return self._children.get(_key(span), ())

    def run_of(self, root: SpanData) -> Replayed | None:
        """The run that a span is the root of, or None."""
        return self._by_root.get(_key(root))


def _key(span: SpanData) -> SpanKey:
    return span.trace_id, span.span_id
