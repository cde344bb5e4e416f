"""Our own dialect: ``evaluation_loop {agent}`` roots, iteration spans, ``loopeval.guard`` events.

Whoever emits spans under these names, this package or another one, gets the same verdict.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.spans import SpanData, SpanEvent

_MODE_OF_ROOT = {
    semconv.SPAN_EVALUATION_LOOP: semconv.MODE_OPTIMIZE,
    semconv.SPAN_GOAL_LOOP: semconv.MODE_GOAL,
    semconv.SPAN_AGENT_LOOP: semconv.MODE_AGENT,
}

NAME_PREFIXES = tuple(_MODE_OF_ROOT)
"""What the name of every root and iteration span begins with: the cheap test for a hot path."""


AGENT_PREFIXES = (semconv.OPERATION_INVOKE_AGENT, "execute_tool")
"""What the names of spans begin with that need no attribute to be known."""


def root_name(mode: str, agent: str) -> str:
    """The name of the root span of a run: operation and agent, of low cardinality."""
    if mode == semconv.MODE_GOAL:
        return f"{semconv.SPAN_GOAL_LOOP} {agent}"
    if mode == semconv.MODE_AGENT:
        return f"{semconv.SPAN_AGENT_LOOP} {agent}"
    return f"{semconv.SPAN_EVALUATION_LOOP} {agent}"


def is_root(name: str) -> bool:
    """Whether a span of this name is the root of a run."""
    return name.partition(" ")[0] in _MODE_OF_ROOT


def is_iteration(name: str) -> bool:
    """Whether a span of this name is an iteration."""
    return name == semconv.SPAN_ITERATION


def is_ours(name: str) -> bool:
    """Whether a span of this name is a root or an iteration: its name says all that there is to know."""
    return name == semconv.SPAN_ITERATION or (name.startswith(NAME_PREFIXES) and is_root(name))


def is_evaluation(name: str) -> bool:
    """Whether a span of this name, inside an iteration, is a judge at work."""
    return name == semconv.SPAN_EVALUATE


def open_run(name: str, attributes: Mapping[str, Any], start_ns: int, parent: LoopRun | None) -> LoopRun:
    """Begin a run from its root span.

    Args:
        name: The span's name.
        attributes: Its attributes so far; those set later are read by :func:`close_run`.
        start_ns: When it began, in nanoseconds since the epoch.
        parent: The run that it is inside of, or None.
    """
    prefix, _, agent = name.partition(" ")
    run = LoopRun(
        _text(attributes, semconv.GEN_AI_AGENT_NAME) or agent or semconv.AGENT_UNKNOWN,
        started_ns=start_ns,
        mode=_MODE_OF_ROOT[prefix],
        parent=parent,
        run_id=_text(attributes, semconv.RUN_ID),
        framework=_text(attributes, semconv.RUN_FRAMEWORK) or semconv.FRAMEWORK_OTHER,
    )
    _read_settings(run, attributes)
    run.resumed = attributes.get(semconv.RUN_RESUMED) is True
    return run


def close_run(
    run: LoopRun, attributes: Mapping[str, Any], events: Iterable[SpanEvent], *, error: bool
) -> list[tuple[GuardEvent, bool]]:
    """Take the facts that the root span carries at its end.

    Returns:
        The guard events on it, each with whether it fired a doom loop.
    """
    _read_settings(run, attributes)
    success = attributes.get(semconv.RUN_SUCCESS)
    if isinstance(success, bool):
        run.success = success
    run.completion_reason = _text(attributes, semconv.RUN_COMPLETION_REASON)
    outcome = attributes.get(semconv.RUN_OUTCOME)
    if outcome in semconv.OUTCOMES:
        run.outcome = outcome
    elif error:
        run.outcome = semconv.OUTCOME_FAILED
    return read_guard_events(run, events)


def open_iteration(run: LoopRun, attributes: Mapping[str, Any], start_ns: int) -> IterationState:
    """Begin an iteration from its span."""
    return run.begin_iteration(start_ns, _iteration_number(attributes))


def close_iteration(run: LoopRun, iteration: IterationState, span: SpanData) -> None:
    """Take the facts that an iteration span carries at its end."""
    number = _iteration_number(span.attributes)
    if number is not None:
        iteration.number = number
    iteration.score = _number(span.attributes, semconv.ITERATION_SCORE)
    run.active_ns = max(run.active_ns, span.end_ns)


def read_guard_events(run: LoopRun, events: Iterable[SpanEvent]) -> list[tuple[GuardEvent, bool]]:
    """Add the guard events among a span's events, but for those that were detected in the same steps here.

    Returns:
        Each with whether it fired a doom loop.
    """
    turns = run.turns
    return [
        (guard_event, run.add_guard_event(guard_event))
        for guard_event in (_guard_event(event) for event in events if event.name == semconv.EVENT_GUARD)
        if turns is None or not turns.was_told(guard_event)
    ]


def _read_settings(run: LoopRun, attributes: Mapping[str, Any]) -> None:
    mode = attributes.get(semconv.RUN_MODE)
    if mode in semconv.MODES:
        run.mode = mode
    run.threshold = _number(attributes, semconv.RUN_THRESHOLD, run.threshold)
    run.max_iterations = _count(attributes, semconv.RUN_MAX_ITERATIONS, run.max_iterations)
    run.max_wasted_iterations = _count(
        attributes, semconv.RUN_MAX_WASTED_ITERATIONS, run.max_wasted_iterations
    )
    run.token_budget = _count(attributes, semconv.RUN_TOKEN_BUDGET, run.token_budget)
    run.conversation_id = _text(attributes, semconv.GEN_AI_CONVERSATION_ID) or run.conversation_id


def _guard_event(event: SpanEvent) -> GuardEvent:
    attributes = event.attributes
    kind = attributes.get(semconv.GUARD_KIND)
    source = attributes.get(semconv.GUARD_SOURCE)
    action = attributes.get(semconv.GUARD_ACTION)
    return GuardEvent(
        kind=kind if kind in semconv.GUARD_KINDS else semconv.KIND_OTHER,
        doom_loop=attributes.get(semconv.GUARD_DOOM_LOOP) is True,
        source=source if source in semconv.GUARD_SOURCES else semconv.SOURCE_APPLICATION,
        action=action if action in semconv.GUARD_ACTIONS else semconv.ACTION_OBSERVE,
        tool=_text(attributes, semconv.GUARD_TOOL),
        count=_count(attributes, semconv.GUARD_COUNT),
        iteration=_count(attributes, semconv.GUARD_ITERATION),
        rule=_text(attributes, semconv.GUARD_RULE),
        time_ns=event.time_ns,
    )


def _iteration_number(attributes: Mapping[str, Any]) -> int | None:
    number = _count(attributes, semconv.ITERATION_NUMBER)
    return None if number is None or number < 1 else number


def _text(attributes: Mapping[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    return value if isinstance(value, str) and value else None


def _number(attributes: Mapping[str, Any], key: str, default: float | None = None) -> float | None:
    value = attributes.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return default


def _count(attributes: Mapping[str, Any], key: str, default: int | None = None) -> int | None:
    value = attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
