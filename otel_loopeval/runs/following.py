"""From spans to runs: the state machine that the live processor and the replay of stored spans share.

Everything is decided from what a span tells as it starts (its name, its scope, the attributes it has by then)
and as it ends. A run is, in this order: a loop under our own names; an agent's span, and an agent inside
another one is a child run; else what is outermost among the spans of an AI library, or outermost in the
process, if models and tools were called in it. A model's call alone is no run.

Where a library says only at the end that a span is an agent's, what went on inside it was taken for the
outermost span's; it is handed over, unless there was more than that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import own, reading
from otel_loopeval.runs.dialects.facts import AGENT, EVALUATION, MODEL, TOOL, WORKFLOW, Look, look_of
from otel_loopeval.runs.dialects.frameworks import (
    AI,
    FLAT,
    HOST,
    LEAF,
    NATURES,
    PAUSES,
    SILENT_ROOTS,
    framework_of,
    is_ai,
    nature_of,
)
from otel_loopeval.runs.nodes import Ending, Entry, Node, Opening, SpanNode
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.usage import read_usage

if TYPE_CHECKING:
    from otel_loopeval.detect.steps import Step
    from otel_loopeval.health.guards import GuardEvent
    from otel_loopeval.runs.spans import SpanData
    from otel_loopeval.runs.tracker import Tracker
    from otel_loopeval.runs.turns import Turn, Turns

_MAX_LOG: Final = 64
"""Spans that are kept of a run that may be none; one with more is not handed on."""
_MAX_CHILDREN: Final = 10_000
_INTERRUPTED: Final = ("KeyboardInterrupt", "SystemExit")
_OUT_OF_TURNS: Final = (
    "UsageLimitExceeded",  # Pydantic AI
    "MaxTurnsExceeded",  # OpenAI Agents SDK
    "GraphRecursionError",  # LangGraph
    "LlmCallsLimitExceededError",  # ADK
    "AgentMaxStepsError",  # smolagents
)
_OUT_OF_TURNS_TEXT: Final = "Max turns exceeded"
"""What the OpenAI Agents SDK says of it: it tells no type of the exception."""
_PAUSED: Final = frozenset(name.rpartition(".")[2] for name in PAUSES)  # spans may tell no module


class Following:
    """Follows runs by their spans.

    Not thread-safe: where several threads may feed it, hold the tracker's lock.

    Args:
        tracker: Judges the runs.
        detects: Whether steps go to our detectors.
        opening: Kind of openings, for spans that are looked at in a way of their own.
    """

    def __init__(self, tracker: "Tracker", *, detects: bool = True, opening: type[Opening] = Opening) -> None:
        self.tracker = tracker
        self.detects = detects
        self._opening = opening

    # Starts ------------------------------------------------------------------------------------------------

    def started(  # noqa: PLR0911 - one return a kind of span
        self,
        entry: Entry | None,
        span_id: int,
        look: Look,
        kind: str | None,
        start_ns: int,
        span: Callable[[], Any],
    ) -> Entry | None:
        """A span has started.

        Args:
            entry: What its parent stands for, or None.
            span_id: Its id.
            look: What there is to see of it.
            kind: What it is, as :func:`kind_of` says.
            start_ns: When it started, in nanoseconds since the epoch.
            span: Gives the span itself as long as it is there, for whoever can write on it.

        Returns:
            What it stands for; None if that is what its parent stands for.
        """
        around = enclosing(entry)
        name = look.name
        if own.is_root(name):
            run = own.open_run(name, look.attributes, start_ns, None if around is None else around.state)
            run.cut = run.resumed and not self.tracker.segments.go_on(run)
            return self._open(run, around, span_id, span)
        if isinstance(around, SpanNode) and not around.foreign:
            if own.is_iteration(name) and around.iteration_state is None:
                iteration = own.open_iteration(around.state, look.attributes, start_ns)
                return SpanNode(around.state, iteration, span_id)
            if own.is_evaluation(name) and around.iteration_state is not None:
                return SpanNode(around.state, around.iteration_state, span_id, judging=True)
        elif entry is around and entry is not None and kind != AGENT:
            return None
        # What a server's span stands for is told after its start, if at all.
        if kind is not None and nature_of(look.scope) is HOST:
            kind = None
        if kind == AGENT and not _is_part(look, entry, around):
            return self._open(_agent_run(look, start_ns, around), around, span_id, span, foreign=True)
        if entry is None:
            opening = self._opening(span_id, span)
            opening.ai = kind == WORKFLOW or is_ai(look.scope)
            return opening
        if (
            isinstance(entry, Opening)
            and not entry.ai
            and (kind in (WORKFLOW, AGENT) or (kind is None and is_ai(look.scope)))
        ):
            opening = self._opening(span_id, span)
            opening.ai, opening.outer, opening.log = True, entry, []
            return opening
        return None

    def _open(
        self,
        run: LoopRun,
        around: Node | None,
        span_id: int,
        span: Callable[[], Any] | None,
        *,
        foreign: bool = False,
    ) -> SpanNode:
        if around is not None:
            run.serves_judge = around.judging
            turns = around.state.turns
            if foreign and turns is not None and not around.judging and len(turns.children) < _MAX_CHILDREN:
                turns.children.append(run.started_ns)
        node = SpanNode(run, None, span_id, foreign=foreign, span=span)
        if foreign:
            run.turns = self._new_turns(run, foreign=True)
        self.tracker.start(run)
        return node

    # Ends --------------------------------------------------------------------------------------------------

    def ended(self, entry: Entry, span: "SpanData", kind: str | None) -> list[Ending]:
        """A span has ended.

        Args:
            entry: What :meth:`started` said that it stands for, or else its parent.
            span: The span.
            kind: What it is, as :func:`kind_of` says.

        Returns:
            News of runs.
        """
        if isinstance(entry, Opening):
            if entry.span_id == span.span_id:
                return self._end_opening(entry, span, kind)
            return self._inside_opening(entry, span, kind)
        if isinstance(entry, SpanNode) and entry.iteration_state is None and entry.span_id == span.span_id:
            return [self._end_root(entry, span)]
        return self._inside(entry, span, kind)

    def incomplete(self, opening: Opening) -> list[Ending]:
        """Give up waiting for the end of an opening, or for one that is missing."""
        node, opening.closed = opening.node, True
        if node is None or node.opening is not None:
            return []
        return self.abandoned(node)

    def abandoned(self, node: SpanNode) -> list[Ending]:
        """Give up waiting for the end of a run: it is cut off."""
        run = node.state
        events = self._observe_all(run.turns, run.turns.end()) if run.turns is not None else ()
        verdict = self.tracker.finish(run, run.active_ns, outcome=semconv.OUTCOME_INCOMPLETE)
        if verdict is None:
            return []
        return [Ending(run, verdict=verdict, guard_events=events, detected=len(events), span=node.span)]

    def _inside(self, node: Node, span: "SpanData", kind: str | None) -> list[Ending]:
        """A span inside a run has ended: take its scores, guard events, tokens and steps."""
        run, iteration = node.state, node.iteration_state
        if run.closed:
            return []
        told: list[tuple[GuardEvent, bool]] = []
        foreign = False
        if isinstance(node, SpanNode):
            foreign = node.foreign
            if iteration is not None and node.span_id == span.span_id and not node.judging:
                own.close_iteration(run, iteration, span)
            if span.events:
                told = own.read_guard_events(run, span.events)
        steps, turn = self._steps(node, span, kind, foreign=foreign)
        events = self._observe_all(run.turns, steps) if steps else ()
        if foreign:
            iteration = None if turn is None else turn.iteration
            run.active_ns = max(run.active_ns, span.end_ns)
            if span.events or kind == EVALUATION:
                for score in reading.scores_of(span, kind):
                    run.turns.score(score)
        spent = run.account_span(
            span.span_id,
            span.parent_id,
            read_usage(span.attributes) if kind is None else reading.usage_of(span.attributes),
            iteration,
            ended_ns=span.end_ns,
            price=self.tracker.price,
            judging=node.judging,
        )
        if spent is None and not events and not told:
            return []
        ending = Ending(
            run,
            guard_events=(*events, *told),
            detected=len(events),
            spent=spent,
            span=node.span if isinstance(node, SpanNode) else None,
        )
        return [ending]

    def steps_for(self, node: Node, span: "SpanData") -> "list[Step]":
        """The steps that a span inside a run tells of, for the run's owner to show to its detector."""
        steps, _ = self._steps(node, span, kind_of(look_of(span)), foreign=node_is_foreign(node))
        return [step for step, _ in steps]

    def _steps(
        self, node: Node, span: "SpanData", kind: str | None, *, foreign: bool
    ) -> "tuple[list[tuple[Step, Turn]], Turn | None]":
        run = node.state
        if node.judging:  # a judge's calls are no steps of the agent
            return [], None
        turns: Turns | None = run.turns
        if kind in (MODEL, TOOL):
            if turns is None:
                turns = run.turns = self._new_turns(run, foreign=foreign)
            steps = turns.model_ended(span) if kind == MODEL else turns.tool_ended(span)
            return steps, turns.current
        if turns is None:
            return [], None
        turns.leave(span)
        return [], turns.current

    def _observe_all(
        self, turns: "Turns | None", steps: "Iterable[tuple[Step, Turn]]"
    ) -> "tuple[tuple[GuardEvent, bool], ...]":
        events: tuple[tuple[GuardEvent, bool], ...] = ()
        if turns is not None:
            for step, turn in steps:
                event = turns.observe(step, turn)
                if event is not None:
                    events += (event,)
        return events

    def _new_turns(self, run: LoopRun, *, foreign: bool) -> "Turns":
        from otel_loopeval.runs.turns import Turns  # noqa: PLC0415 - only for programs with such spans

        # What a loop of ours answers in each iteration is shown by the loop itself.
        return Turns(run, counts=foreign, detects=self.detects and run.owner is None, speaks=foreign)

    # Roots -------------------------------------------------------------------------------------------------

    def _end_root(self, node: SpanNode, span: "SpanData") -> Ending:
        run, turns = node.state, node.state.turns
        events = self._observe_all(turns, turns.end()) if turns is not None else ()
        if node.foreign:
            told = _close_foreign(run, span)
            usage = reading.usage_of(span.attributes)
        else:
            told = own.close_run(run, span.attributes, span.events, error=span.error)
            usage = None
        spent = run.account_span(
            span.span_id, None, usage, None, ended_ns=span.end_ns, price=self.tracker.price
        )
        if run.parent is not None and (run.spending is not None or run.judge_spending is not None):
            run.parent.account_child(span.span_id, span.parent_id)
        verdict = self.tracker.finish(run, span.end_ns)
        if verdict is not None and verdict.outcome == semconv.OUTCOME_PAUSED:
            self.tracker.segments.paused(run, span.end_ns)
        run.turns = None  # it holds the detector's memory
        return Ending(
            run,
            verdict=verdict,
            guard_events=(*events, *told),
            detected=len(events),
            spent=spent,
            span=node.span,
        )

    # What may be a run ----------------------------------------------------------------------------------

    def _inside_opening(self, opening: Opening, span: "SpanData", kind: str | None) -> list[Ending]:
        node = opening.node
        if opening.closed:
            return []
        if kind == AGENT and framework_of(span.scope) not in FLAT:
            found = self._hand_over(opening, span)
            if found:
                return found
        if kind not in (MODEL, TOOL) and node is None:
            return []
        if node is None:
            node = opening.node = self._tentative(opening, span)
        if opening.log is not None:
            if len(opening.log) < _MAX_LOG:
                opening.log.append(span)
            else:
                opening.log = None
        return self._settle(node, self._inside(node, span, kind))

    def _settle(self, node: SpanNode, endings: list[Ending]) -> list[Ending]:
        """Hold news back as long as it is not sure that there is a run."""
        opening = node.opening
        if opening is None:
            return endings
        opening.queue = [*opening.queue, *endings][:_MAX_LOG]
        return self._sure(node) if node.state.turns.loops else []

    def _sure(self, node: SpanNode) -> list[Ending]:
        """It is sure now that there is a run."""
        opening, node.opening = node.opening, None
        self.tracker.start(node.state)
        start = Ending(node.state, started=True, span=node.span)
        if opening is None:
            return [start]
        held, opening.queue = opening.queue, ()
        return [start, *held]

    def _tentative(self, opening: Opening, span: "SpanData") -> SpanNode:
        around = enclosing(opening.outer)
        look, start_ns = opening.see()
        run = LoopRun(
            reading.agent_of(look),
            started_ns=start_ns or span.start_ns,
            mode=semconv.MODE_AGENT,
            framework=framework_of(look.scope) or framework_of(span.scope) or semconv.FRAMEWORK_OTHER,
            parent=None if around is None else around.state,
            conversation_id=reading.conversation_of(look.attributes)
            or reading.conversation_of(span.attributes),
        )
        run.turns = self._new_turns(run, foreign=True)
        return SpanNode(run, None, opening.span_id, foreign=True, opening=opening, span=opening.span)

    def _end_opening(self, opening: Opening, span: "SpanData", kind: str | None) -> list[Ending]:
        node, outer = opening.node, opening.outer
        opening.closed = True
        if kind == AGENT and not (framework_of(span.scope) in FLAT and outer is not None and outer.node):
            if node is None:
                node = self._tentative(opening, span)
            endings = self._sure(node) if node.opening is not None else []
            return [*endings, self._end_root(node, span)]
        if node is not None and node.opening is None:
            return [self._end_root(node, span)]
        if outer is None:
            return []
        endings: list[Ending] = []
        log = opening.log if node is not None else None
        for inner in (*(log or ()), span):
            endings += self._inside_opening(outer, inner, kind_of(look_of(inner)))
        return endings

    def _hand_over(self, opening: Opening, span: "SpanData") -> list[Ending]:
        """A span turns out to be an agent's at its end: what was taken for the opening's is its own."""
        node = opening.node
        look = look_of(span)
        if node is None:
            run = _agent_run(look, span.start_ns, enclosing(opening))
            node = SpanNode(run, None, span.span_id, foreign=True)
            run.turns = self._new_turns(run, foreign=True)
            self.tracker.start(run)
            return [Ending(run, started=True), self._end_root(node, span)]
        turns: Turns = node.state.turns
        if turns.contains(span.span_id) != turns.facts:
            return []
        opening.node, opening.log = None, None
        endings = self._sure(node) if node.opening is not None else []
        node.state.started_ns = span.start_ns
        return [*endings, self._end_root(node, span)]


def enclosing(entry: Entry | None) -> Node | None:
    """The run that something is in, as far as it is sure that it is one."""
    while isinstance(entry, Opening):
        if entry.node is not None and entry.node.opening is None:
            return entry.node
        entry = entry.outer
    return entry


def node_is_foreign(node: Node) -> bool:
    """Whether a node is somebody else's agent."""
    return isinstance(node, SpanNode) and node.foreign


def may_have_kind(name: str, scope: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a span may have to do with agents: a quick look, which passes over nearly all that have not."""
    nature = NATURES.get(scope) or nature_of(scope)
    return nature is not LEAF and (
        nature is AI or not reading.MARKS.isdisjoint(attributes) or name.startswith(own.AGENT_PREFIXES)
    )


def kind_of(look: Look) -> str | None:
    """What a span is; None for one that has nothing to do with agents, as nearly all have, and for ours."""
    if not may_have_kind(*look) or own.is_ours(look.name):
        return None
    return reading.kind_of(look)


def _is_part(look: Look, entry: Entry | None, around: Node | None) -> bool:
    """Whether an agent's span is only a part of the agent around it."""
    framework = framework_of(look.scope)
    if framework not in FLAT:
        return False
    if isinstance(entry, Opening) and entry.ai and framework_of(entry.see()[0].scope) == framework:
        return True
    return around is not None and node_is_foreign(around) and around.state.framework == framework


def _agent_run(look: Look, start_ns: int, around: Node | None) -> LoopRun:
    return LoopRun(
        reading.agent_of(look),
        started_ns=start_ns,
        mode=semconv.MODE_AGENT,
        framework=framework_of(look.scope) or semconv.FRAMEWORK_OTHER,
        parent=None if around is None else around.state,
        conversation_id=reading.conversation_of(look.attributes),
    )


def _close_foreign(run: LoopRun, span: "SpanData") -> "list[tuple[GuardEvent, bool]]":
    """Take what an agent's root tells at its end."""
    attributes = span.attributes
    run.agent = reading.agent_of(Look(span.name, span.scope, attributes))
    run.conversation_id = reading.conversation_of(attributes) or run.conversation_id
    for score in reading.scores_of(span, None):
        run.turns.score(score)
    run.outcome = _outcome(span)
    around = None if run.parent is None else run.parent.turns
    if around is not None:
        around.inner_outcome, around.inner_evidence = run.outcome, run.evidence
    turns: Turns = run.turns
    if not turns.count and turns.inner_outcome is not None:  # it only calls agents
        run.evidence = turns.inner_evidence
        if run.framework in SILENT_ROOTS and run.outcome == semconv.OUTCOME_COMPLETED:
            run.outcome = turns.inner_outcome
    return own.read_guard_events(run, span.events)


def _outcome(span: "SpanData") -> str:
    """How an agent's run ended, by the status of its root and the exception on it."""
    errors = [span.attributes.get(semconv.ERROR_TYPE)]
    errors += [
        event.attributes.get(semconv.EXCEPTION_TYPE)
        for event in span.events
        if event.name == semconv.EXCEPTION_EVENT
    ]
    for error in errors:
        if isinstance(error, str):
            name = error.rpartition(".")[2]
            if "Cancel" in name or name == "GeneratorExit":
                return semconv.OUTCOME_CANCELLED
            if name in _INTERRUPTED:
                return semconv.OUTCOME_INTERRUPTED
            if name in _PAUSED:
                return semconv.OUTCOME_PAUSED
            if name in _OUT_OF_TURNS:
                return semconv.OUTCOME_LIMIT
    if not span.error:
        return semconv.OUTCOME_COMPLETED
    agents_sdk = framework_of(span.scope) == semconv.FRAMEWORK_OPENAI_AGENTS
    return (
        semconv.OUTCOME_LIMIT
        if agents_sdk and _OUT_OF_TURNS_TEXT in span.status_message
        else semconv.OUTCOME_FAILED
    )
