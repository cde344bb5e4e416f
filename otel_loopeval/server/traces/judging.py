"""From a trace that is over to the runs in it, judged as ``otel-loopeval score`` judges stored ones."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.runs.reconstruct import Replayed, replay
from otel_loopeval.runs.resume import Segments
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Price
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.server.served import ServedRun

_ENVIRONMENTS: Final = (semconv.DEPLOYMENT_ENVIRONMENT_NAME, semconv.DEPLOYMENT_ENVIRONMENT)


class Closed(NamedTuple):
    """A trace that is over.

    Attributes:
        tenant: Whose it is.
        trace_id: Its id.
        spans: Its spans.
        judged: Ids of the roots that have a verdict already; None for a run without a root.
        cut: Whether spans of it are missing.
        size: Estimated memory of what was held of it.
    """

    tenant: str
    trace_id: int
    spans: tuple[SpanData, ...]
    judged: frozenset[int | None]
    cut: bool
    size: int


class Judging:
    """Judges the runs of traces that are over.

    Args:
        policy: What counts as healthy where a run does not say.
        price: Tells what a call cost.
        complete_since_ns: When we began, in nanoseconds since the epoch: of a trace that was under way then,
            an earlier process may have spans, so it is incomplete; 0 if none can have.
        max_age_s: How long a trace may be under way.
        clock_ns: The time, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        *,
        policy: Policy | None,
        price: Price | None,
        complete_since_ns: int,
        max_age_s: float,
        clock_ns: Callable[[], int],
    ) -> None:
        self._policy = policy
        self._price = price
        self._complete_since_ns = complete_since_ns
        self._ended_before_ns = complete_since_ns - int(max_age_s * 1e9)
        self._clock_ns = clock_ns
        # A run that pauses goes on in a trace of its own, and never in another tenant's.
        self._segments: dict[str, Segments] = {}

    def runs(self, closed: Closed) -> list[ServedRun]:
        """The runs of a trace. Thread-safe."""
        segments = self._segments.get(closed.tenant)
        if segments is None:
            # One call, so that of two threads neither gets what the other one does not.
            segments = self._segments.setdefault(closed.tenant, Segments())
        tracker = Tracker(self._policy, price=self._price, segments=segments)
        return [self._served(replayed, closed) for replayed in replay(closed.spans, tracker)]

    def straddles(self, spans: Iterable[SpanData]) -> bool:
        """Whether a trace was under way when we began, so that an earlier process may have some of it.

        It may have ended, too, while there was no process to take its end. What ended long before is history
        that somebody sends, and whole.
        """
        spans = tuple(spans)
        since, ended = self._complete_since_ns, self._ended_before_ns
        return any(span.start_ns < since for span in spans) and any(span.end_ns > ended for span in spans)

    def _served(self, replayed: Replayed, closed: Closed) -> ServedRun:
        run, verdict, root = replayed
        if closed.cut:
            verdict = verdict._replace(outcome=semconv.OUTCOME_INCOMPLETE, decided=False, reasons=())
        judged_before = (None if root is None else root.span_id) in closed.judged or (
            root is not None and semconv.HEALTH_DOOM_LOOP_FIRED in root.attributes
        )
        resource = (root or closed.spans[0]).resource
        return ServedRun(
            run,
            verdict,
            root,
            closed.spans,
            closed.trace_id,
            _text(resource.get(semconv.SERVICE_NAME)),
            next((text for name in _ENVIRONMENTS if (text := _text(resource.get(name)))), ""),
            verdict.outcome != semconv.OUTCOME_INCOMPLETE,
            self._clock_ns(),
            judged_before,
            closed.tenant,
            _text(resource.get(semconv.SERVICE_VERSION)),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
