"""The permissions ``DoomLoopDetector``, and the agent's gate that denies what it finds."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards.alarms import Alarms
from otel_loopeval.instrumentation.praisonai.guards.overhearing import (
    Findings,
    argument,
    overhearing,
    report,
    watching,
)

_IDENTICAL: Final = "identical_calls"
_OF_ONE_TOOL: Final = "calls_of_one_tool"
_ALL: Final = "all_calls"

_UNKNOWN: Final = GuardEvent(
    kind=semconv.KIND_LOOP_DETECTED,
    doom_loop=True,
    source=semconv.SOURCE_PRAISONAI_PERMISSIONS,
    action=semconv.ACTION_BLOCK,
)
"""What a permission manager of another class found."""

_alarms: Final = Alarms()
_gate_alarms: Final = Alarms()


def call_key(tool: Any, arguments: Any) -> Hashable:
    """What tells calls of tools apart, whatever their arguments are."""
    try:
        told = hash(repr(arguments or {}))
    except Exception:  # noqa: BLE001 - somebody else's object: calls of this tool are one
        told = 0
    return tool if isinstance(tool, str) else None, told


def patch_detector(module: Any, patches: Patches) -> None:
    """Report what ``check`` finds, once per alarm: ``record_and_check`` and managers go through it.

    An alarm is over when the same call is no loop any more.
    """

    def checked(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        detector, tool = args[0], argument(args, kwargs, 1, "tool_name")
        if not result.is_loop:
            if _alarms.stand(detector):
                call = call_key(tool, argument(args, kwargs, 2, "arguments"))
                _alarms.over(detector, (_IDENTICAL, call), (_OF_ONE_TOOL, tool), _ALL)
            return
        rule = _rule(result)
        if rule == _IDENTICAL:
            key: Hashable = (rule, call_key(tool, argument(args, kwargs, 2, "arguments")))
        else:
            key = (rule, tool) if rule == _OF_ONE_TOOL else rule
        if _alarms.rises(detector, key):
            report(_event(result, rule, key))

    patches.on_restore(_alarms.clear)
    patches.wrap(module.DoomLoopDetector, "check", watching(checked, patches))


def _rule(result: Any) -> str:
    if result.tool_name is None:
        return _ALL
    return _IDENTICAL if "same arguments" in result.reason else _OF_ONE_TOOL


def _event(result: Any, rule: str, key: Hashable) -> GuardEvent:
    return replace(
        guard_event_of(result),
        kind=semconv.KIND_REPEATED_ACTION if rule == _IDENTICAL else semconv.KIND_RESOURCE_EXHAUSTION,
        rule=rule,
        source=semconv.SOURCE_PRAISONAI_PERMISSIONS,
        key=str(key),
    )


def patch_gate(module: Any, patches: Patches) -> None:
    """Say that the agent blocked the call, where it does; its permission manager may be of any class."""

    def gated(args: tuple[Any, ...], kwargs: dict[str, Any], denial: Any, findings: Findings) -> None:
        agent, tool = args[0], argument(args, kwargs, 1, "function_name")
        if findings:
            action = semconv.ACTION_OBSERVE if denial is None else semconv.ACTION_BLOCK
            report(replace(findings[-1], tool=findings[-1].tool or tool, action=action))
            return
        manager = getattr(agent, "_permission_manager", None)
        if _alarms.stand(getattr(manager, "_doom_detector", None)):
            return  # what it blocks now has been reported
        call = call_key(tool, argument(args, kwargs, 2, "arguments"))
        if denial is None:
            _gate_alarms.over(agent, call)
        elif _gate_alarms.rises(agent, call, semconv.ACTION_BLOCK):
            report(replace(_UNKNOWN, tool=tool, key=str(call)))

    patches.on_restore(_gate_alarms.clear)
    patches.wrap(module.Agent, "_check_permission_manager_doom_loop", overhearing(gated, patches))
