"""Packs of a trace → the verdicts on its runs: the same replay as ``score``'s."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.pricing import prices_of_stored_calls
from otel_loopeval.reports.records import RunRecord, record_of
from otel_loopeval.runs.assembly import Bounds
from otel_loopeval.runs.reconstruct import replay_trace
from otel_loopeval.runs.resume import Segments
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.sources import Query
from otel_loopeval.spark.packing import unpack

MAX_TRACE_SPANS: Final = Bounds().max_spans // 2
"""Spans of one trace that are judged: ``score``'s bound."""


@dataclass(frozen=True, slots=True)
class Judging:
    """What is judged, and how. It is sent to every task.

    Attributes:
        policy: What counts as healthy where a run does not say.
        query: Which traces are wanted, and runs of which agent.
        max_trace_spans: Spans of one trace that are judged; runs of a larger one are incomplete.
    """

    policy: Policy = field(default_factory=Policy)
    query: Query = field(default_factory=Query)
    max_trace_spans: int = MAX_TRACE_SPANS

    def __post_init__(self) -> None:
        if self.max_trace_spans < 1:
            raise ValueError(f"max_trace_spans must be at least 1, got {self.max_trace_spans}")
        if self.query.limit is not None:
            raise ValueError(f"limit must be None: a cluster has no first traces, got {self.query.limit}")


class Judged(NamedTuple):
    """A trace that was judged.

    Attributes:
        began_ns: When it began, in nanoseconds since the epoch.
        records: The wanted runs in it, in the order in which they began.
        in_segments: Whether a run in it has paused, or goes on from one that has.
    """

    began_ns: int
    records: list[RunRecord]
    in_segments: bool


class Judge:
    """Judges traces, one after the other.

    Args:
        judging: What, and how.
        segments: Runs that have paused, for those that go on in another trace; none if None.
    """

    def __init__(self, judging: Judging, segments: Segments | None = None) -> None:
        self._judging = judging
        self._price = prices_of_stored_calls()
        self._segments = segments

    def judge(self, trace_id: bytes, payloads: Iterable[bytes], *, cut: bool = False) -> Judged | None:
        """Judge the runs in a trace.

        Args:
            trace_id: Its id, 16 bytes.
            payloads: Its spans, packed, in the order in which they came.
            cut: Whether spans of it are known to be missing.

        Returns:
            The runs; None if the trace is not wanted.
        """
        spans, too_many = unpack(trace_id, payloads, self._judging.max_trace_spans)
        if not self._judging.query.selects(spans):
            return None
        tracker = Tracker(self._judging.policy, price=self._price, segments=self._segments)
        found = replay_trace(spans, tracker, cut=cut or too_many)
        in_segments = any(one.run.resumed or one.verdict.outcome == semconv.OUTCOME_PAUSED for one in found)
        agent = self._judging.query.agent
        number = int.from_bytes(trace_id, "big")
        records = [record_of(one, number) for one in found if agent is None or one.run.agent == agent]
        return Judged(min(span.start_ns for span in spans), records, in_segments)
