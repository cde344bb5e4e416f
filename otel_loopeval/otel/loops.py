"""``loop()`` and ``iteration()``: health for any hand-written loop, as context managers and decorators."""

import functools
from collections.abc import Callable
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from opentelemetry import trace
from opentelemetry.context import Context, get_current

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import StopLoop, is_stop
from otel_loopeval.health import guard_event_of
from otel_loopeval.otel import _sdk, emission, lifecycle, stepping
from otel_loopeval.otel.errors import guarded, swallow
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.node import leave
from otel_loopeval.otel.options import (
    EVENTS_LOG,
    checked_choice,
    checked_count,
    checked_number,
    checked_positive,
)
from otel_loopeval.otel.pipeline import Pipeline, inert_pipeline, open_spans, registry
from otel_loopeval.runs.following import enclosing
from otel_loopeval.runs.resume import Segment, carry_over, read_token
from otel_loopeval.runs.run import LoopRun

if TYPE_CHECKING:
    from otel_loopeval.runs.nodes import Node

F = TypeVar("F", bound=Callable[..., Any])

NO_RUN = Run(inert_pipeline(), LoopRun(semconv.AGENT_UNKNOWN, started_ns=time_ns()))
"""What a program gets where its run could not begin because of an error of ours: nothing comes of it."""
NO_RUN.state.closed = True


@guarded("current_run")
def current_run() -> Run | None:
    """The run that the calling code is in, or None.

    Works inside agents, judges, tools and callbacks, in tasks that the loop starts, and in threads to
    which the OpenTelemetry context was passed on.
    """
    node: Any = get_current().get(_sdk.RUN_KEY)
    return None if node is None else node.run


@guarded("record_guard_event")
def record_guard_event(event: Any) -> None:
    """Record that a guard stepped in, on the current run.

    Args:
        event: A dict or object of any recognised shape, such as ``{"type": "doom_loop"}``, an object with
            ``loop_type`` or ``is_loop``, or a :class:`GuardEvent`. Outside of any run it becomes an event
            on the current span, if there is one.
    """
    node: Any = get_current().get(_sdk.RUN_KEY)
    if node is not None:
        node.run.record_guard_event(event)
    else:
        _record_outside(event)


def _record_outside(event: Any) -> None:
    pipeline = registry.current()
    guard_event = guard_event_of(event)
    context = get_current()
    emission.emit(
        pipeline.options.events,
        trace.get_current_span(),
        pipeline.logger,
        context,
        semconv.EVENT_GUARD,
        emission.guard_event(guard_event),
        time_ns(),
        (semconv.GUARD_REASON, guard_event.reason),
    )
    if _foreign_node() is not None and pipeline.options.events != EVENTS_LOG:
        return  # the processor finds it on the span as that ends, and counts it for the run
    pipeline.instruments.guard_event(None, guard_event, context, fired=guard_event.doom_loop)


def begin_run(
    agent: str,
    *,
    scope: str = semconv.SCOPE,
    pipeline: Pipeline | None = None,
    run_id: str | None = None,
    before: Segment | None = None,
    **settings: Any,
) -> Run:
    """Begin a run inside the current one, if there is one.

    Args:
        agent: Name of the agent.
        scope: Instrumentation scope of its spans.
        pipeline: Where it goes; the configured one if None.
        run_id: Its identifier; a new one if None.
        before: The segment of the run that this one goes on from.
        **settings: Settings of :class:`~otel_loopeval.runs.run.LoopRun`, such as ``mode``.
    """
    lifecycle.note_run()
    node: Any = get_current().get(_sdk.RUN_KEY)
    if node is None:
        node = _foreign_node()
    state = LoopRun(
        agent,
        started_ns=time_ns(),
        parent=None if node is None else node.state,
        serves_judge=node is not None and node.judging,
        run_id=run_id,
        **settings,
    )
    if before is not None:
        carry_over(before, state)
    run = Run(pipeline or registry.current(), state, scope)
    run.begin(before)
    return run


def _foreign_node() -> "Node | None":
    """What somebody else's current span stands for, if it is inside a run: it is in no context of ours."""
    if not open_spans:
        return None
    node = enclosing(open_spans.find(open_spans.get(trace.get_current_span().get_span_context().span_id)))
    return None if node is None or node.state.closed else node


def _checked_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}")
    return value


def _segment_before(token: str) -> Segment | None:
    """The segment that a token tells of; None on an error of ours.

    Raises:
        ValueError: It is no token.
    """
    try:
        return read_token(token)
    except ValueError:
        raise
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("loop.resume", error)
        return None


@guarded("loop.exit")
def _run_here(entered: list[Run]) -> Run | None:
    """The innermost of some runs that the calling code is in."""
    found = current_run()
    while found is not None and found not in entered:
        found = None if found.state.parent is None else found.state.parent.owner
    return found


class Loop:
    """What :func:`loop` gives: a context manager and a decorator."""

    __slots__ = ("_agent", "_before", "_entered", "_id", "_settings")

    def __init__(
        self,
        agent: str | None,
        run_id: str | None,
        settings: dict[str, Any],
        before: Segment | None = None,
    ) -> None:
        self._agent = agent
        self._id = run_id
        self._before = before
        self._settings = settings
        self._entered: dict[Run, Context] = {}  # with the context that was current before

    def __enter__(self) -> Run:
        outer = get_current()
        try:
            run = self._begin(self._agent or semconv.AGENT_UNKNOWN)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("loop.enter", error)
            return NO_RUN
        self._entered[run] = outer
        return run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        entered = list(self._entered)  # other threads may be entering and leaving this object
        run = entered[-1] if entered else None
        if len(entered) > 1:
            run = _run_here(entered) or run
        outer = None if run is None else self._entered.pop(run, None)
        if outer is not None:
            leave(run, outer)
        try:
            if run is not None and outer is not None:
                run.end(error)
            return is_stop(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("loop.exit", problem)
            return isinstance(error, StopLoop)

    async def __aenter__(self) -> Run:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Decorate a function: every call is a run."""
        name = self._agent or getattr(function, "__name__", None) or type(function).__name__
        return stepping.decorate(function, functools.partial(self._begin, name), is_stop)

    def _begin(self, agent: str) -> Run:
        return begin_run(agent, run_id=self._id, before=self._before, **self._settings)


@overload
def loop(agent: F, /) -> F: ...


@overload
def loop(
    agent: str | None = None,
    *,
    threshold: float | None = None,
    max_iterations: int | None = None,
    mode: str = semconv.MODE_OPTIMIZE,
    framework: str = semconv.FRAMEWORK_OWN,
    conversation_id: str | None = None,
    id: str | None = None,
    max_wasted_iterations: int | None = None,
    token_budget: int | None = None,
    resume: str | None = None,
) -> Loop: ...


def loop(
    agent: Any = None,
    *,
    threshold: float | None = None,
    max_iterations: int | None = None,
    mode: str = semconv.MODE_OPTIMIZE,
    framework: str = semconv.FRAMEWORK_OWN,
    conversation_id: str | None = None,
    id: str | None = None,  # noqa: A002 - the public name of the argument
    max_wasted_iterations: int | None = None,
    token_budget: int | None = None,
    resume: str | None = None,
) -> Any:
    """Follow a hand-written loop as a run.

    As a context manager (``with`` or ``async with``) it gives the
    :class:`~otel_loopeval.otel.live.Run`; as a decorator, every call of the function, coroutine, generator
    or async generator is a run of its own. ``StopLoop`` ends the block quietly; every other exception passes.

    Args:
        agent: Name of the agent that the loop runs; as a decorator, the function's name if not given.
        threshold: Score at which an iteration is good enough, on the judge's scale.
        max_iterations: Iterations that the loop may run.
        mode: ``"optimize"`` (stops at the first good score), ``"review"`` (runs all iterations),
            ``"goal"`` (set ``run.success`` when the goal is met) or ``"agent"`` (an agent at work, without
            scores).
        framework: What runs the loop, of low cardinality.
        conversation_id: Conversation that the run belongs to.
        id: Identifier of the run; a new one if not given.
        max_wasted_iterations: Wasted iterations tolerated, if not those of ``instrument()``.
        token_budget: Input plus output tokens that the run may use, if not those of ``instrument()``.
        resume: What ``run.paused()`` or ``run.resume_token`` gave in the segment before, maybe in another
            process: this segment is linked to it and judged as the whole run, under the same id. A W3C
            ``traceparent`` gives the link alone.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An argument is out of its range, or ``resume`` is of another run than ``id``.
    """
    if callable(agent):  # @loop without parentheses
        return Loop(None, None, {})(agent)
    settings: dict[str, Any] = {"mode": checked_choice("mode", mode, semconv.MODES)}
    if framework is not semconv.FRAMEWORK_OWN:
        settings["framework"] = _checked_text("framework", framework)
    if threshold is not None:
        settings["threshold"] = checked_number("threshold", threshold)
    if max_iterations is not None:
        settings["max_iterations"] = checked_count("max_iterations", max_iterations)
    if conversation_id is not None:
        settings["conversation_id"] = _checked_text("conversation_id", conversation_id)
    if max_wasted_iterations is not None:
        settings["max_wasted_iterations"] = checked_count("max_wasted_iterations", max_wasted_iterations)
    if token_budget is not None:
        settings["token_budget"] = checked_count("token_budget", token_budget)
    run_id = None if id is None else _checked_text("id", id)
    before = None if resume is None else _segment_before(_checked_text("resume", resume))
    if before is not None and before.run_id is not None:
        if run_id is not None and run_id != before.run_id:
            raise ValueError(f"resume is of run {before.run_id!r}, not of id {run_id!r}")
        run_id = before.run_id
    return Loop(None if agent is None else _checked_text("agent", agent), run_id, settings, before)


@overload
def iteration(number: F, /) -> F: ...


@overload
def iteration(number: int | None = None) -> Iteration: ...


def iteration(number: Any = None) -> Any:
    """Follow one iteration of the current run.

    As a context manager (``with`` or ``async with``) it gives the
    :class:`~otel_loopeval.otel.iterations.Iteration`, to set ``score``, ``output``, ``reasoning`` and
    ``findings`` on; as a decorator every call is an iteration (``current_run().iteration`` inside). Outside
    of any run nothing goes out.

    Args:
        number: Its number, from 1; the next one if not given.

    Raises:
        TypeError: The number is no whole number.
        ValueError: The number is below 1.
    """
    if number is None:
        return Iteration(None)
    if callable(number):  # @iteration without parentheses
        return Iteration(None)(number)
    return Iteration(None, checked_positive("number", number))
