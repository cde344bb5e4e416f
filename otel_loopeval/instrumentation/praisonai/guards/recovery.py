"""What an autonomous agent does about a doom loop, and ``ObservabilityHooks`` that tell of it."""

from dataclasses import replace
from typing import Any, Final, cast

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of
from otel_loopeval.health.captured import ByIdentity
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards.escalation import action_of_recovery
from otel_loopeval.instrumentation.praisonai.guards.overhearing import (
    Findings,
    argument,
    overhearing,
    report,
    watching,
)

_undecided: Final[ByIdentity[GuardEvent]] = ByIdentity()
"""What agents have found in their last turn, until they ask how to recover."""

_echoes: Final[ByIdentity[bool]] = ByIdentity()
"""Hooks that will be told next of a recovery that has been reported."""

_DOOM_LOOP_DETECTED: Final = "doom_loop_detected"


def patch_recovery(module: Any, patches: Patches) -> None:
    """Report the recovery of an autonomous run, ``run_autonomous`` and its async twin alike.

    An agent records a turn, and, where its tracker sees a doom loop in that, asks at once how to recover.
    """

    def recorded(args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any, findings: Findings) -> None:
        agent = args[0]
        missed = _undecided.pop(agent)
        if missed is not None:
            report(missed)
        if findings:
            # The action that the tracker knows is a turn ("chat"), and no tool.
            _undecided.set(agent, replace(findings[-1], tool=None))

    def recovers(args: tuple[Any, ...], _kwargs: dict[str, Any], recovery: Any, findings: Findings) -> None:
        agent = args[0]
        found = _undecided.pop(agent) or (replace(findings[-1], tool=None) if findings else None)
        action = action_of_recovery(recovery)
        if found is None:
            return
        report(replace(found, action=action or found.action))
        hooks = getattr(agent, "_observability_hooks", None)
        if hooks is not None:
            _echoes.set(hooks, True)

    patches.wrap(module.Agent, "_record_action", overhearing(recorded, patches))
    patches.wrap(module.Agent, "_get_doom_recovery", overhearing(recovers, patches))


def patch_observability(module: Any, patches: Patches) -> None:
    """Report doom loops that somebody tells the hooks of, but not what an agent has just recovered from."""

    def emitted(args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        hooks, data = args[0], argument(args, kwargs, 2, "data")
        kind = getattr(argument(args, kwargs, 1, "event_type"), "value", None)
        told: dict[str, Any] = dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {}
        if not told.get("doom_loop") and kind != _DOOM_LOOP_DETECTED:
            return
        if _echoes.pop(hooks) is None and getattr(hooks, "enabled", True):
            event = guard_event_of({**told, "doom_loop": True})
            report(replace(event, source=semconv.SOURCE_PRAISONAI_OBSERVABILITY))

    patches.wrap(module.ObservabilityHooks, "emit", watching(emitted, patches))
