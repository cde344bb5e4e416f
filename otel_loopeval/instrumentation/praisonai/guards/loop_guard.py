"""``LoopGuard``: warns of repeated tool calls, blocks them, and halts the turn."""

from dataclasses import replace
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health import guard_event_of
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards.alarms import Alarms
from otel_loopeval.instrumentation.praisonai.guards.overhearing import (
    Findings,
    argument,
    overhearing,
    report,
    watching,
)

_NO_PROGRESS: Final = "no_progress"
_OF_THE_TURN: Final = (_NO_PROGRESS, "time")
"""Rules that look at the whole turn and not at the tool that is checked."""
_RULES: Final = ("idempotent", "mutating")

_alarms: Final = Alarms()


def patch_loop_guard(module: Any, patches: Patches) -> None:
    """Report the guard's decisions, once per rule and tool and turn, and again where it acts harder.

    It checks twice per tool call, and each later check decides the same again. It feeds a
    ``DoomLoopDetector`` of its own for the record alone: what that finds is nothing to it, nor to us.
    """

    def checked(args: tuple[Any, ...], kwargs: dict[str, Any], decision: Any, _findings: Findings) -> None:
        guard, tool = args[0], argument(args, kwargs, 1, "tool_name")
        if getattr(decision.action, "value", None) not in semconv.GUARD_ACTIONS:  # it allows the call
            if _alarms.stand(guard):
                _alarms.over(guard, _NO_PROGRESS, *((rule, tool) for rule in _RULES))
            return
        event = guard_event_of(decision)
        rule = (event.rule or "").rpartition("_")[0]
        if rule == _NO_PROGRESS:
            tool = _stuck_tool(guard) or tool
        elif rule in _RULES:  # it looks for a lack of progress first
            _alarms.over(guard, _NO_PROGRESS)
        if _alarms.rises(guard, rule if rule in _OF_THE_TURN else (rule, tool), event.action):
            report(replace(event, source=semconv.SOURCE_PRAISONAI_LOOP_GUARD, tool=tool))

    def recorded(_args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any, _findings: Findings) -> None:
        pass

    def reset(args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        _alarms.over(args[0])

    patches.on_restore(_alarms.clear)
    guard = module.LoopGuard
    patches.wrap(guard, "check", overhearing(checked, patches))
    patches.wrap(guard, "record", overhearing(recorded, patches))
    patches.wrap(guard, "reset_turn", watching(reset, patches))


def _stuck_tool(guard: Any) -> str | None:
    """The tool that keeps giving the same result: it may be another one than is checked now."""
    actions: Any = getattr(guard.detector, "_actions", None)
    return actions[-1].action_type if actions else None
