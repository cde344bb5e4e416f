"""The escalation ``DoomLoopDetector``, and the ``DoomLoopTracker`` of autonomous agents that holds one."""

import functools
import itertools
from dataclasses import replace
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of
from otel_loopeval.health.captured import ByIdentity
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards.alarms import Alarms
from otel_loopeval.instrumentation.praisonai.guards.overhearing import (
    Findings,
    overhearing,
    report,
    watching,
)
from otel_loopeval.otel.errors import guarded

_ACTION_OF_RECOVERY: Final = {
    "continue": semconv.ACTION_OBSERVE,
    "retry_different": semconv.ACTION_RECOVER,
    "escalate_model": semconv.ACTION_RECOVER,
    "request_help": semconv.ACTION_RECOVER,
    "abort": semconv.ACTION_HALT,
}

_alarms: Final = Alarms()
_found: Final[ByIdentity[bool]] = ByIdentity()
"""Detectors that found something in the action that is being recorded."""


def action_of_recovery(recovery: Any) -> str:
    """The action of a recovery, given as an enum member or its value."""
    value = getattr(recovery, "value", recovery)
    return _ACTION_OF_RECOVERY.get(value, semconv.ACTION_OBSERVE) if isinstance(value, str) else ""


def patch_detector(module: Any, patches: Patches) -> None:
    """Report what the detector finds, once per alarm: each further action that matches fires again there.

    An alarm begins where ``is_doom_loop`` becomes true, which ``record_action`` asks for itself and others
    ask for when only responses are recorded. It is over when that is false again, or the session is.
    ``_handle_loop_detection`` is looked at for subclasses that decide in another way.
    """
    detector = module.DoomLoopDetector

    def looped(args: tuple[Any, ...], _kwargs: dict[str, Any], found: Any) -> None:
        if found:
            _fired(args[0])
        else:
            _alarms.over(args[0])

    def handled(args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        _fired(args[0])

    def started(args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        _alarms.over(args[0])

    def record_action(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            _begin_action(self)
            result = original(self, *args, **kwargs)
            _end_action(self)
            return result

        return wrapper

    patches.on_restore(_alarms.clear)
    patches.wrap(detector, "record_action", record_action)
    patches.wrap(detector, "is_doom_loop", watching(looped, patches))
    patches.wrap(detector, "_handle_loop_detection", watching(handled, patches))
    patches.wrap(detector, "start_session", watching(started, patches))


@guarded("praisonai.detector")
def _begin_action(detector: Any) -> None:
    _found.pop(detector)


@guarded("praisonai.detector")
def _end_action(detector: Any) -> None:
    if _found.pop(detector) is None:
        _alarms.over(detector)


def _fired(detector: Any) -> None:
    _found.set(detector, True)
    event = _event_of(detector)
    if _alarms.rises(detector, None, event.action):
        report(event)


def _event_of(detector: Any) -> GuardEvent:
    found = detector.get_loop_event()
    actions: Any = getattr(detector, "_actions", ())
    known = guard_event_of(found)
    last = actions[-1] if actions else None
    return GuardEvent(
        kind=known.kind if found is not None else semconv.KIND_LOOP_DETECTED,
        doom_loop=True,
        source=semconv.SOURCE_PRAISONAI_ESCALATION,
        action=action_of_recovery(getattr(found, "recovery_action", None)) or semconv.ACTION_OBSERVE,
        tool=getattr(last, "action_type", None),
        count=_repetitions(detector, actions, known.kind),
        rule=known.kind if found is not None else None,
        reason=known.reason,
        key=f"{id(detector)}:{known.kind}:{getattr(last, 'action_hash', '')}",
    )


def _repetitions(detector: Any, actions: Any, kind: str) -> int | None:
    """How often what is repeated has come, up to now; None where nothing is."""
    if kind == semconv.KIND_REPEATED_OUTPUT:
        return max(getattr(detector, "_content_chunk_counts", {}).values(), default=None)
    if kind == semconv.KIND_REPEATED_FAILURE:
        return _trailing(actions, "success")
    if kind == semconv.KIND_NO_PROGRESS:
        return _trailing(actions, "result_hash", None)
    if kind == semconv.KIND_REPEATED_ACTION:
        same = _trailing(actions, "action_hash")
        return same if same >= detector.config.max_identical_actions else _trailing(actions, "action_type")
    return None


def _trailing(actions: Any, name: str, *more: Any) -> int:
    """How many of the last actions have what the last one has, or one of some more values."""
    alike = (getattr(actions[-1], name), *more)
    return sum(
        1 for _ in itertools.takewhile(lambda action: getattr(action, name) in alike, reversed(actions))
    )


def patch_tracker(module: Any, patches: Patches) -> None:
    """Let what the tracker's detector finds be the tracker's own finding, with the tracker's recovery."""
    tracker = module.DoomLoopTracker

    def passed_on(_args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any, findings: Findings) -> None:
        for event in findings:
            report(replace(event, source=semconv.SOURCE_PRAISONAI_AUTONOMY))

    def advised(args: tuple[Any, ...], _kwargs: dict[str, Any], recovery: Any, findings: Findings) -> None:
        # Its detector has mostly reported the alarm already, when the action was recorded: then only a
        # harder action than the detector's own is news.
        action = action_of_recovery(recovery)
        if not action or recovery == "continue":
            return
        detector = getattr(args[0], "_delegate", None)
        if (detector is not None and _alarms.rises(detector, None, action)) or findings:
            event = findings[-1] if findings else _event_of(detector)
            report(replace(event, source=semconv.SOURCE_PRAISONAI_AUTONOMY, action=action))

    for name in ("record", "is_doom_loop"):
        patches.wrap(tracker, name, overhearing(passed_on, patches))
    patches.wrap(tracker, "get_recovery_action", overhearing(advised, patches))
