"""Guards inside guards: one cause is one event, and the outermost guard says what became of it."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from otel_loopeval.health import GuardEvent
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.otel.errors import guarded, swallow
from otel_loopeval.otel.loops import record_guard_event

Findings = list[GuardEvent]
Conclude = Callable[[tuple[Any, ...], dict[str, Any], Any, Findings], None]
"""Called as ``conclude(args, kwargs, result, findings)`` when a method of an outer guard has returned."""

_overheard: ContextVar[Findings | None] = ContextVar("otel_loopeval_overheard", default=None)
"""Where the findings of guards go while a guard around them is at work."""


@guarded("praisonai.guards.report")
def report(event: GuardEvent) -> None:
    """Tell what a guard found: the guard around it, if there is one, else the current run."""
    outer = _overheard.get()
    if outer is None:
        record_guard_event(event)
    else:
        outer.append(event)


def overhearing(conclude: Conclude, patches: Patches) -> Callable[[Any], Any]:
    """Wrap a method of a guard that has other guards inside, and let it decide what their findings are worth.

    Where the method raises, the findings stand as they are.

    Args:
        conclude: Takes the call and the findings, and reports what there is to report.
        patches: Tells whether to do anything.

    Returns:
        A wrapper for :meth:`Patches.wrap`.
    """

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not patches.active:
                return original(*args, **kwargs)
            findings: Findings = []
            token = _overheard.set(findings)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                _overheard.reset(token)
                for event in findings:
                    report(event)
                raise
            _overheard.reset(token)
            try:
                conclude(args, kwargs, result, findings)
            except Exception as error:  # noqa: BLE001 - the guard
                swallow("praisonai.guards.conclude", error)
            return result

        return wrapper

    return wrap


def watching(look: Callable[[tuple[Any, ...], dict[str, Any], Any], None], patches: Patches) -> Any:
    """Wrap a function, and look at each call that has returned: ``look(args, kwargs, result)``."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if patches.active:
                try:
                    look(args, kwargs, result)
                except Exception as error:  # noqa: BLE001 - the guard
                    swallow("praisonai.guards.look", error)
            return result

        return wrapper

    return wrap


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str) -> Any:
    """An argument of a call, however it was given; None if it was not."""
    return args[index] if len(args) > index else kwargs.get(name)
