"""What open spans stand for: a run, an iteration of one, or something that may turn out to be a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.dialects.facts import Look, look_of
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

    Every outermost span gets one, so it keeps next to nothing until something makes it matter.

    Attributes:
        span_id: The span; 0 for one that is missing.
        span: Gives the span as long as it is there. Spans may be left without an end, and must be garbage
            then. Opaque to the core, which looks at it through :meth:`see`.
        ai: Whether it belongs to an AI library.
        outer: The opening that it is inside of, or None.
        node: The run that it would be, once there was a call of a model or a tool in it.
        queue: News of that run, held back until it is sure that it is one.
        log: What was taken into that run, to be handed to the outer opening if it is none; None without one.
        closed: Whether it has ended.
    """

    ai = False
    outer: "Opening | None" = None
    node: SpanNode | None = None
    queue: "Sequence[Ending]" = ()
    log: list[SpanData] | None = None
    closed = False

    def __init__(self, span_id: int, span: Callable[[], Any]) -> None:
        self.span_id = span_id
        self.span = span

    def see(self) -> tuple[Look, int]:
        """What there is to see of the span at present, and when it started.

        Spans of an SDK have their own way to be looked at: see the subclass there.
        """
        span: SpanData | None = self.span()
        return (NOTHING_SEEN, 0) if span is None else (look_of(span), span.start_ns)


NOTHING_SEEN: Final = Look("", "", {})
"""What there is to see of a span that is not there."""


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
