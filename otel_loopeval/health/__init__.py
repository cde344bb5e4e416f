"""Scoring a loop: convergence, waste and guard events, in the standard library only."""

from otel_loopeval.health._saving import SaveResultsError
from otel_loopeval.health.assessment import assess
from otel_loopeval.health.captured import (
    captured_guard_events,
    forget_guard_events,
    remember_guard_events,
)
from otel_loopeval.health.convergence import Convergence, converge, score_deltas
from otel_loopeval.health.evaluator import LoopEvaluator
from otel_loopeval.health.guards import (
    GuardEvent,
    guard_event_of,
    is_doom_loop_event,
    tally_guard_events,
)
from otel_loopeval.health.result import LoopHealthResult

__all__ = [
    "Convergence",
    "GuardEvent",
    "LoopEvaluator",
    "LoopHealthResult",
    "SaveResultsError",
    "assess",
    "captured_guard_events",
    "converge",
    "forget_guard_events",
    "guard_event_of",
    "is_doom_loop_event",
    "remember_guard_events",
    "score_deltas",
    "tally_guard_events",
]
