"""From spans to runs: the state machine that the live processor and the replay share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Price, Spent, read_usage
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


@dataclass(slots=True)
class SpanNode:
    """A node of a run that is known from its spans only.

    Attributes:
        state: The run.
        iteration_state: The iteration, or None for the run itself.
        span_id: The span that opened it.
        judging: Whether it is a judge at work in the iteration.
    """

    state: LoopRun
    iteration_state: IterationState | None
    span_id: int
    judging: bool = False


class Ending(NamedTuple):
    """What the end of a span brought."""

    run: LoopRun
    verdict: Verdict | None
    guard_events: list[tuple[GuardEvent, bool]]
    spent: Spent | None


class Replayed(NamedTuple):
    """A run out of stored spans.

    Attributes:
        run: The run.
        verdict: What it amounts to.
        root: The span that is its root; None where that is missing.
    """

    run: LoopRun
    verdict: Verdict
    root: SpanData | None


def begin(
    tracker: Tracker,
    parent: Node | None,
    span_id: int,
    name: str,
    attributes: Mapping[str, Any],
    start_ns: int,
) -> SpanNode | None:
    """A span under one of our names has started.

    Args:
        tracker: Follows the run.
        parent: The node that its parent span stands for, or None.
        span_id: Its id.
        name: Its name.
        attributes: Its attributes at the start.
        start_ns: When it started, in nanoseconds since the epoch.

    Returns:
        The node that it stands for, or None if it opens nothing: then its parent's node is its own too.
    """
    if own.is_root(name):
        run = own.open_run(name, attributes, start_ns, None if parent is None else parent.state)
        run.serves_judge = parent is not None and parent.judging
        tracker.start(run)
        return SpanNode(run, None, span_id)
    if own.is_iteration(name) and isinstance(parent, SpanNode) and parent.iteration_state is None:
        iteration = own.open_iteration(parent.state, attributes, start_ns)
        return SpanNode(parent.state, iteration, span_id)
    if own.is_evaluation(name) and isinstance(parent, SpanNode) and parent.iteration_state is not None:
        return SpanNode(parent.state, parent.iteration_state, span_id, judging=True)
    return None


def end_inside(node: Node, span: SpanData, price: Price | None = None) -> Ending:
    """A span inside a run has ended: take its scores, guard events and tokens."""
    run = node.state
    iteration = node.iteration_state
    guard_events: list[tuple[GuardEvent, bool]] = []
    if isinstance(node, SpanNode):
        if iteration is not None and node.span_id == span.span_id and not node.judging:
            own.close_iteration(run, iteration, span)
        guard_events = own.read_guard_events(run, span.events)
    spent = run.account_span(
        span.span_id,
        span.parent_id,
        read_usage(span.attributes),
        iteration,
        ended_ns=span.end_ns,
        price=price,
        judging=node.judging,
    )
    return Ending(run, None, guard_events, spent)


def end_root(
    tracker: Tracker,
    node: SpanNode,
    attributes: Mapping[str, Any],
    events: Iterable[SpanEvent],
    end_ns: int,
    *,
    error: bool,
) -> Ending:
    """The root span of a run has ended: judge the run."""
    run = node.state
    guard_events = own.close_run(run, attributes, events, error=error)
    verdict = tracker.finish(run, end_ns)
    return Ending(run, verdict, guard_events, None)


def replay(spans: Iterable[SpanData], tracker: Tracker) -> list[Replayed]:
    """Judge the runs in stored spans, as the live processor would have.

    Starts and ends are fed in the order of their times. Spans that ended after their run's root are
    late, as they are live. A run whose root is missing is judged from its iterations and ``incomplete``.

    Args:
        spans: Spans of any number of traces, in any order; a repeated span id counts once.
        tracker: A tracker of the replay's own.

    Returns:
        The runs with their verdicts and roots, in the order in which they ended.
    """
    by_id: dict[tuple[int, int | None], SpanData] = {(span.trace_id, span.span_id): span for span in spans}
    nodes: dict[tuple[int, int], Node] = {}
    orphans: dict[tuple[int, int | None], SpanNode] = {}
    endings: list[Replayed] = []
    for span, is_end in _in_order(by_id):
        key = (span.trace_id, span.span_id)
        if not is_end:
            parent = None if span.parent_id is None else nodes.get((span.trace_id, span.parent_id))
            if parent is None and own.is_iteration(span.name):
                parent = _orphanage(orphans, tracker, span)
            node = begin(tracker, parent, span.span_id, span.name, span.attributes, span.start_ns) or parent
            if node is not None:
                nodes[key] = node
            continue
        node = nodes.pop(key, None)
        if node is None or node.state.closed:
            continue
        if isinstance(node, SpanNode) and node.iteration_state is None and node.span_id == span.span_id:
            ending = end_root(tracker, node, span.attributes, span.events, span.end_ns, error=span.error)
            if ending.verdict is not None:
                endings.append(Replayed(ending.run, ending.verdict, span))
        else:
            end_inside(node, span, tracker.price)
    for node in orphans.values():
        verdict = tracker.finish(node.state, node.state.active_ns, outcome=semconv.OUTCOME_INCOMPLETE)
        if verdict is not None:
            endings.append(Replayed(node.state, verdict, None))
    return endings


def _orphanage(orphans: dict[tuple[int, int | None], SpanNode], tracker: Tracker, span: SpanData) -> SpanNode:
    """The stand-in for the missing root of an iteration: one for all iterations of the same parent."""
    key = (span.trace_id, span.parent_id)
    node = orphans.get(key)
    if node is None:
        run = LoopRun(semconv.AGENT_UNKNOWN, started_ns=span.start_ns, framework=semconv.FRAMEWORK_OTHER)
        tracker.start(run)
        node = orphans[key] = SpanNode(run, None, 0)
    return node


def _in_order(by_id: Mapping[tuple[int, int | None], SpanData]) -> list[tuple[SpanData, bool]]:
    """Starts and ends by time; at equal times outer spans start first and inner spans end first."""
    depth: dict[tuple[int, int | None], int] = {}

    def measure(key: tuple[int, int | None]) -> None:
        path: list[tuple[int, int | None]] = []
        on_path: set[tuple[int, int | None]] = set()  # parents may form a cycle in broken input
        while (span := by_id.get(key)) is not None and key not in depth and key not in on_path:
            on_path.add(key)
            path.append(key)
            key = (key[0], span.parent_id)
        level = depth.get(key, -1)
        for inner in reversed(path):
            level += 1
            depth[inner] = level

    moments: list[tuple[int, bool, int, int, SpanData]] = []
    for order, (key, span) in enumerate(by_id.items()):
        measure(key)
        level = depth[key]
        moments.append((span.start_ns, False, level, order, span))
        moments.append((max(span.end_ns, span.start_ns), True, -level, order, span))
    moments.sort(key=itemgetter(0, 1, 2, 3))
    return [(moment[4], moment[1]) for moment in moments]
