"""Building neutral spans, as they would come from a file."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.runs.dialects.own import root_name
from otel_loopeval.runs.spans import SpanData, SpanEvent


class FixedClock:
    """A clock that goes forward only when it is told to.

    Args:
        now_ns: Where it begins, in nanoseconds since the epoch.

    Attributes:
        now_ns: The time, in nanoseconds since the epoch.
    """

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = now_ns

    def advance(self, seconds: float = 1.0) -> int:
        """Go forward; returns the new time in nanoseconds since the epoch."""
        self.now_ns += int(seconds * 1e9)
        return self.now_ns


class TraceBuilder:
    """Builds neutral spans of one trace, with counting ids and a fixed clock.

    Args:
        trace_id: Id of the trace.
        clock: Times of the spans; a new clock if None.

    Attributes:
        spans: The spans so far, in the order in which they were built.
        clock: Times of the spans.
    """

    def __init__(self, trace_id: int = 1, clock: FixedClock | None = None) -> None:
        self.trace_id = trace_id
        self.clock = clock or FixedClock()
        self.spans: list[SpanData] = []
        self._ids = itertools.count(1)

    def span_id(self) -> int:
        """The next span id, for a parent whose children are built first."""
        return next(self._ids)

    def span(
        self,
        name: str,
        *,
        parent_id: int | None = None,
        span_id: int | None = None,
        start_ns: int | None = None,
        duration_s: float = 1.0,
        attributes: Mapping[str, Any] | None = None,
        events: Iterable[SpanEvent] = (),
        error: bool = False,
        scope: str = semconv.SCOPE,
    ) -> SpanData:
        """Add a span.

        Args:
            name: Its name.
            parent_id: Id of its parent.
            span_id: Its id; the next one if None.
            start_ns: Its start, in nanoseconds since the epoch. If None, the clock's time; the clock then
                goes on to its end.
            duration_s: Seconds from its start to its end.
            attributes: Its attributes.
            events: Its events.
            error: Whether its status is ERROR.
            scope: Its instrumentation scope.
        """
        start = self.clock.now_ns if start_ns is None else start_ns
        end = self.clock.advance(duration_s) if start_ns is None else start + int(duration_s * 1e9)
        span = SpanData(
            name=name,
            trace_id=self.trace_id,
            span_id=self.span_id() if span_id is None else span_id,
            parent_id=parent_id,
            start_ns=start,
            end_ns=end,
            attributes=dict(attributes or {}),
            events=tuple(events),
            error=error,
            scope=scope,
        )
        self.spans.append(span)
        return span

    def guard_event(
        self, kind: str = semconv.KIND_LOOP_DETECTED, *, doom_loop: bool = True, **more: Any
    ) -> SpanEvent:
        """A guard event at the clock's time, for ``events``.

        Args:
            kind: One of ``semconv.GUARD_KINDS``.
            doom_loop: Whether it says that the run is in a doom loop.
            **more: Further attributes, by the last part of their name, such as ``tool`` or ``rule``.
        """
        attributes = {semconv.GUARD_KIND: kind, semconv.GUARD_DOOM_LOOP: doom_loop}
        prefix = semconv.EVENT_GUARD + "."
        attributes.update({prefix + key: value for key, value in more.items()})
        return SpanEvent(semconv.EVENT_GUARD, self.clock.now_ns, attributes)

    def run(
        self,
        scores: Iterable[float | None],
        *,
        agent: str = "agent",
        mode: str = semconv.MODE_OPTIMIZE,
        parent_id: int | None = None,
        events: Mapping[int, Sequence[SpanEvent]] | None = None,
        attributes: Mapping[str, Any] | None = None,
        error: bool = False,
    ) -> SpanData:
        """Add the spans of a run, an iteration of one second for each score.

        Args:
            scores: Score of each iteration, or None for an iteration without one.
            agent: Name of the agent.
            mode: Mode of the run.
            parent_id: Id of the root's parent.
            events: Events of the iterations, by their number from 1.
            attributes: More attributes of the root.
            error: Whether the root's status is ERROR.

        Returns:
            The root.
        """
        root_id, start_ns = self.span_id(), self.clock.now_ns
        for number, score in enumerate(scores, start=1):
            on_iteration: dict[str, Any] = {semconv.ITERATION_NUMBER: number}
            if score is not None:
                on_iteration[semconv.ITERATION_SCORE] = score
            self.span(
                semconv.SPAN_ITERATION,
                parent_id=root_id,
                attributes=on_iteration,
                events=(events or {}).get(number, ()),
            )
        return self.span(
            root_name(mode, agent),
            parent_id=parent_id,
            span_id=root_id,
            start_ns=start_ns,
            duration_s=(self.clock.now_ns - start_ns) / 1e9,
            attributes={semconv.GEN_AI_AGENT_NAME: agent, semconv.RUN_MODE: mode, **(attributes or {})},
            error=error,
        )
