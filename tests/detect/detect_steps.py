"""Short ways to write the steps of a run, and to read what a detector said of them."""

from collections.abc import Iterable
from typing import Any

from otel_loopeval.detect import DoomLoopDetector, ModelOutput, Observation, ToolCall, UserMessage
from otel_loopeval.health.guards import GuardEvent

Step = ToolCall | ModelOutput | UserMessage
SECOND = 1_000_000_000


def observe(steps: Iterable[Step], **options: Any) -> list[Observation]:
    """Show steps to a new detector."""
    detector = DoomLoopDetector(**options)
    return [detector.observe(step) for step in steps]


def events(steps: Iterable[Step], **options: Any) -> list[tuple[int, GuardEvent]]:
    """Events, with the number of the step (from 1) at which each came."""
    seen = observe(steps, **options)
    return [(at + 1, one.event) for at, one in enumerate(seen) if one.event is not None]


def fired(steps: Iterable[Step], **options: Any) -> list[tuple[int, str | None]]:
    """Doom loops, as number of the step (from 1) and rule."""
    return [(at, event.rule) for at, event in events(steps, **options) if event.doom_loop]


def spaced(steps: Iterable[ToolCall], gap: float, duration: float = 0.1) -> list[ToolCall]:
    """Give steps times: each takes ``duration`` seconds and begins ``gap`` after the one before."""
    timed: list[ToolCall] = []
    now = 0.0
    for step in steps:
        start, now = now + gap, now + gap + duration
        timed.append(
            ToolCall(
                step.name,
                step.arguments,
                step.result,
                step.error,
                step.agent,
                step.turn,
                round(start * SECOND),
                round(now * SECOND),
            )
        )
    return timed
