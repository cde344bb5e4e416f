"""What open spans stand for: a run, an iteration of one, or something that may turn out to be a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.dialects.facts import Look
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Spent
from otel_loopeval.runs.verdict import Verdict


class Node(Protocol):
    """What a span inside a run stands for: the run, or an iteration of it."""

    @property
    def state(self) -> LoopRun:
        """The run."""
        ...

    @property
    def iteration_state(self) -> IterationState | None:
        """The iteration, or None for the run itself."""
        ...

    @property
    def span_id(self) -> int | None:
        """Id of the span that opened it; None where that is not recorded."""
        ...

    @property
    def judging(self) -> bool:
        """Whether what goes on inside it is a judge's work."""
        ...


@dataclass(slots=True, eq=False)
class SpanNode:
    """A node of a run that is known from its spans only.

    Attributes:
        state: The run.
        iteration_state: The iteration, or None for the run itself.
        span_id: The span that opened it.
        judging: Whether it is a judge at work in the iteration.
        foreign: Whether the run is somebody else's agent, and not a loop under our names.
        opening: Where it is not yet sure that this is a run: the span that it would be the run of.
        span: Gives the root as long as it is there, for whoever can write on it. Opaque to the core.
    """

    state: LoopRun
    iteration_state: IterationState | None
    span_id: int
    judging: bool = False
    foreign: bool = False
    opening: "Opening | None" = None
    span: Callable[[], Any] | None = None


class Opening:
    """An open span of which it is not known yet whether it is a run.

    It is the outermost span of a trace in this process, or the outermost span of an AI library inside that.
    A hand-written loop around a model's client has no other span of its own, and some instrumentations say
    what a span is only as it ends. The spans inside it share it.

    Attributes:
        span_id: The span; 0 for one that is missing.
        name: Its name.
        scope: Its instrumentation scope.
        start_ns: When it started, in nanoseconds since the epoch.
        ai: Whether it belongs to an AI library.
        outer: The opening that it is inside of, or None.
        node: The run that it would be, once there was a call of a model or a tool in it.
        queue: News of that run, held back until it is sure that it is one.
        log: What was taken into that run, to be handed to the outer opening if it is none; None without one.
        closed: Whether it has ended.
        span: Gives the span as long as it is there, for whoever can write on it. Opaque to the core. Spans
            may be left without an end, and must be garbage then.
    """

    __slots__ = (
        "ai",
        "closed",
        "log",
        "name",
        "node",
        "outer",
        "queue",
        "scope",
        "span",
        "span_id",
        "start_ns",
    )

    def __init__(
        self,
        span_id: int,
        name: str,
        scope: str,
        start_ns: int,
        *,
        ai: bool = False,
        outer: "Opening | None" = None,
        span: Callable[[], Any] | None = None,
    ) -> None:
        self.span_id = span_id
        self.name = name
        self.scope = scope
        self.start_ns = start_ns
        self.ai = ai
        self.outer = outer
        self.node: SpanNode | None = None
        self.queue: Sequence[Ending] = ()
        self.log: list[SpanData] | None = None if outer is None else []
        self.closed = False
        self.span = span

    @property
    def look(self) -> Look:
        """What there is to see of the span at present."""
        span = None if self.span is None else self.span()
        attributes: Mapping[str, Any] | None = None if span is None else span.attributes
        return Look(self.name, self.scope, attributes or {})


Entry: TypeAlias = Node | Opening
"""What an open span stands for."""


class Ending(NamedTuple):
    """News of a run that the end (or the start) of a span brought.

    Attributes:
        run: The run.
        started: Whether it is only now sure that this is a run.
        verdict: Its verdict, if it has ended.
        guard_events: Guard events, each with whether it fired a doom loop.
        detected: Of these, how many are our detectors', which nobody has put on a span yet: the first ones.
        spent: What a model call used, if it was counted.
        span: Gives the root, as :attr:`SpanNode.span`.
    """

    run: LoopRun
    started: bool = False
    verdict: Verdict | None = None
    guard_events: tuple[tuple[GuardEvent, bool], ...] = ()
    detected: int = 0
    spent: Spent | None = None
    span: Callable[[], Any] | None = None
