"""What happens when a guard steps in: metrics, and the user's callback on a doom loop."""

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.otel import emission
from otel_loopeval.otel.errors import swallow

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import Pipeline
    from otel_loopeval.runs.run import LoopRun


_GUARD_EVENTS_ON_SPANS: Final = 100
"""Guard events of a run that go onto spans: a span keeps 128 events and drops the oldest, among which is
the one that matters. Doom loops that fire are told beyond it."""


def tell(
    pipeline: "Pipeline",
    run: "LoopRun",
    event: GuardEvent,
    span: Span | None,
    context: Context,
    *,
    fired: bool,
) -> None:
    """Put a guard event on a span of the run that is still open, or into the log, as the options say."""
    if not fired and run.interventions > _GUARD_EVENTS_ON_SPANS:
        return
    try:
        emission.emit(
            pipeline.options.events,
            span or INVALID_SPAN,
            pipeline.logger,
            context,
            semconv.EVENT_GUARD,
            emission.guard_event(event),
            event.time_ns or run.active_ns,
            (semconv.GUARD_REASON, event.reason),
        )
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("doom.tell", error)


def announce(
    pipeline: "Pipeline", run: "LoopRun", event: GuardEvent, context: Context, *, fired: bool
) -> None:
    """Record a guard event and, if it fired a doom loop, call ``on_doom_loop(event, run)``.

    Called without any lock of ours held. ``StopLoop`` from the callback is kept on the run and surfaces
    at its next seam, on the loop's own thread; other exceptions of the callback are swallowed.
    """
    try:
        pipeline.instruments.guard_event(run, event, context, fired=fired)
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("doom.metrics", error)
    callback = pipeline.options.on_doom_loop
    if not fired or callback is None:
        return
    owner: Any = run.owner
    try:
        callback(event, run if owner is None else owner)
    except StopLoop as stop:
        if owner is not None:
            owner.stop(stop)
    except Exception as error:  # noqa: BLE001 - the user's callback must not end the user's run
        swallow("on_doom_loop", error)
