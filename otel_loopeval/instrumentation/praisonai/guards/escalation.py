"""The escalation ``DoomLoopDetector``, and ``LoopGuard`` that holds one."""

import functools
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.otel.errors import guarded
from otel_loopeval.otel.loops import record_guard_event

_ACTION_OF_RECOVERY = {
    "continue": semconv.ACTION_OBSERVE,
    "retry_different": semconv.ACTION_RECOVER,
    "escalate_model": semconv.ACTION_RECOVER,
    "request_help": semconv.ACTION_RECOVER,
    "abort": semconv.ACTION_HALT,
}

_in_loop_guard: ContextVar[bool] = ContextVar("otel_loopeval_in_loop_guard", default=False)
"""Whether the code runs inside a ``LoopGuard``, which ignores the verdict of the detector it holds."""


def patch_detector(module: Any, patches: Patches) -> None:
    """Report what the escalation detector finds.

    The detector is level-triggered: each further action that matches fires again. One alarm is reported
    once; it is over when an action does not fire.
    """
    alarmed: WeakSet[Any] = WeakSet()
    firing: WeakSet[Any] = WeakSet()
    detector = module.DoomLoopDetector

    @guarded("praisonai.detector")
    def acts(detector: Any) -> None:
        firing.discard(detector)

    @guarded("praisonai.detector")
    def acted(detector: Any) -> None:
        if detector not in firing:
            alarmed.discard(detector)

    @guarded("praisonai.detector")
    def fired(detector: Any) -> None:
        firing.add(detector)
        if patches.active and detector not in alarmed and not _in_loop_guard.get():
            alarmed.add(detector)
            _report(detector)

    def record_action(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            acts(self)
            result = original(self, *args, **kwargs)
            acted(self)
            return result

        return wrapper

    def handle_loop_detection(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            fired(self)
            return result

        return wrapper

    patches.wrap(detector, "record_action", record_action)
    patches.wrap(detector, "_handle_loop_detection", handle_loop_detection)


def _report(detector: Any) -> None:
    event = detector._loop_events[-1]  # noqa: SLF001 - the package tells nobody else
    recovery = getattr(getattr(event, "recovery_action", None), "value", "")
    actions = detector._actions  # noqa: SLF001
    known = guard_event_of(event)
    record_guard_event(
        GuardEvent(
            kind=known.kind,
            doom_loop=True,
            source=semconv.SOURCE_PRAISONAI_ESCALATION,
            action=_ACTION_OF_RECOVERY.get(recovery, semconv.ACTION_OBSERVE),
            tool=actions[-1].action_type if actions else None,
            count=len(actions) or None,
            rule=known.kind,
            reason=known.reason,
            key=f"{id(detector)}:{known.kind}:{actions[-1].action_hash if actions else ''}",
        )
    )


def patch_loop_guard(module: Any, patches: Patches) -> None:
    """Mark the time that a ``LoopGuard`` spends in its own detector, whose verdict it ignores.

    It feeds the detector in ``record`` and reads it in ``check``.
    """

    def marked(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            token = _in_loop_guard.set(True)
            try:
                return original(self, *args, **kwargs)
            finally:
                _in_loop_guard.reset(token)

        return wrapper

    for name in ("check", "record"):
        patches.wrap(module.LoopGuard, name, marked)
