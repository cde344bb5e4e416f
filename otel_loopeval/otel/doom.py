"""What happens when a guard steps in: metrics, and the user's callback on a doom loop."""

from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context

from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.otel.errors import swallow

if TYPE_CHECKING:
    from otel_loopeval.otel.pipeline import Pipeline
    from otel_loopeval.runs.run import LoopRun


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
