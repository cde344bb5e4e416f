"""Loop health for LLM agents in OpenTelemetry.

Every public name is imported from here. Importing the package is cheap: a name's module is loaded when
the name is first used, and no agent framework is imported before the program imports it itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otel_loopeval.version import __version__

if TYPE_CHECKING:
    from otel_loopeval.detect import DoomLoopDetector, ModelOutput, ToolCall, UserMessage
    from otel_loopeval.evaluation import (
        AutonomyResult,
        EvaluationLoop,
        EvaluationLoopResult,
        GoalCriteria,
        IterationResult,
        Judge,
        StopLoop,
        run_until,
        run_until_async,
    )
    from otel_loopeval.health import GuardEvent, LoopEvaluator, LoopHealthResult
    from otel_loopeval.instrumentation import instrument, uninstrument
    from otel_loopeval.otel import (
        LoopHealthProcessor,
        current_run,
        iteration,
        loop,
        record_guard_event,
    )

__all__ = [
    "AutonomyResult",
    "DoomLoopDetector",
    "EvaluationLoop",
    "EvaluationLoopResult",
    "GoalCriteria",
    "GuardEvent",
    "IterationResult",
    "Judge",
    "LoopEvaluator",
    "LoopHealthProcessor",
    "LoopHealthResult",
    "ModelOutput",
    "StopLoop",
    "ToolCall",
    "UserMessage",
    "__version__",
    "current_run",
    "instrument",
    "iteration",
    "loop",
    "record_guard_event",
    "run_until",
    "run_until_async",
    "uninstrument",
]

_ROOMS = {
    "otel_loopeval.detect": ("DoomLoopDetector", "ModelOutput", "ToolCall", "UserMessage"),
    "otel_loopeval.evaluation": (
        "AutonomyResult",
        "EvaluationLoop",
        "EvaluationLoopResult",
        "GoalCriteria",
        "IterationResult",
        "Judge",
        "StopLoop",
        "run_until",
        "run_until_async",
    ),
    "otel_loopeval.health": ("GuardEvent", "LoopEvaluator", "LoopHealthResult"),
    "otel_loopeval.instrumentation": ("instrument", "uninstrument"),
    "otel_loopeval.otel": (
        "LoopHealthProcessor",
        "current_run",
        "iteration",
        "loop",
        "record_guard_event",
    ),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its room on first use (PEP 562)."""
    room = _HOME.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
