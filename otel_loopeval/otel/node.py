"""A place in the OpenTelemetry context: what a run and an iteration have in common."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import INVALID_SPAN, Link, Span

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import is_stop
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.errors import swallow
from otel_loopeval.otel.pipeline import open_spans
from otel_loopeval.runs.dialects.frameworks import PAUSES
from otel_loopeval.runs.run import LoopRun

EMPTY_CONTEXT = Context()


class Node:
    """A run or an iteration in the OpenTelemetry context, with its span.

    ``span`` is None only while the span is being started: that tells the processor, which then sees this
    node in the parent context, that the span is fed by its owner. ``span_id`` is None where the span does
    not record.
    """

    __slots__ = ("context", "span", "span_id")

    judging = False
    """Whether what goes on inside it is a judge's work."""

    def __init__(self) -> None:
        self.span: Span | None = None
        self.span_id: int | None = None
        self.context: Context | None = None

    def enter(
        self,
        tracer: Any,
        name: str,
        parent: Context,
        attributes: dict[str, Any],
        start_ns: int,
        links: "Sequence[Link] | None" = None,
    ) -> None:
        """Start the span and make it and this node current."""
        start_context = _sdk.context_with(parent, _sdk.RUN_KEY, self)
        span = tracer.start_span(name, start_context, attributes=attributes, links=links, start_time=start_ns)
        self.span = span
        self.context = _sdk.context_with_span(start_context, span)
        attach(self.context)
        if span.is_recording():
            span_id = self.span_id = _sdk.span_id_of(span)
            open_spans[span_id] = self  # type: ignore[assignment]  # each subclass has the rest

    def enter_without_span(self, parent: Context) -> None:
        """Make this node current where its span could not start: what goes on inside it is still its own."""
        self.span = self.span or INVALID_SPAN
        self.context = _sdk.context_with(parent, _sdk.RUN_KEY, self)
        attach(self.context)


def leave(node: Node | None, outer: Context) -> None:
    """Make the context current again in which a run or iteration began.

    Whoever made it begin keeps that context and calls this, whatever else may have gone wrong with it. A
    run does not keep it: runs that are begun and abandoned one after the other would keep each other alive.
    No token is detached: a token is refused in another context than it was made in, loudly, and loops may
    end elsewhere than they began. Where the node is not current, nothing is done.
    """
    try:
        current: Any = get_current().get(_sdk.RUN_KEY)
        if node is not None and current is not None and (current is node or _is_inside(current, node)):
            attach(outer)
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("leave", error)


def _is_inside(current: Any, node: Any) -> bool:
    """Whether a node is inside another one, which is so too where a run between them was never left."""
    if node.run is None:
        return False
    if current.judging and current.iteration is node:
        return True
    state, wanted = current.run.state, node.run.state
    if node.run is not node:  # an iteration: only runs that began inside it are
        state = state.parent
    while state is not None and state is not wanted:
        state = state.parent
    return state is wanted


def fails(error: BaseException | None, run: LoopRun) -> bool:
    """Whether an exception means that the loop failed, as opposed to being stopped, cancelled or paused."""
    return isinstance(error, Exception) and run.outcome != semconv.OUTCOME_PAUSED and not _is_pause(error)


def _is_pause(error: BaseException) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in PAUSES for kind in type(error).__mro__)


def outcome_of(error: BaseException) -> str:
    """The outcome of a run that an exception ended."""
    if is_stop(error):
        return semconv.OUTCOME_STOPPED
    if isinstance(error, Exception):
        return semconv.OUTCOME_PAUSED if _is_pause(error) else semconv.OUTCOME_FAILED
    # By name, since asyncio and trio have their own and neither need be there.
    if any("Cancel" in kind.__name__ for kind in type(error).__mro__) or isinstance(error, GeneratorExit):
        return semconv.OUTCOME_CANCELLED
    return semconv.OUTCOME_INTERRUPTED
