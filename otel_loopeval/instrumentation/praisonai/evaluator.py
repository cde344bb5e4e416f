"""The package's ``LoopEvaluator``: without guard events it takes those that were captured in the run."""

import functools
from typing import Any

from otel_loopeval.health import captured_guard_events
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.otel.errors import swallow


def patch_evaluator(module: Any, patches: Patches) -> None:
    """Fill in ``guard_events`` where ``run`` is given none; ``run_async`` goes through ``run``.

    As in our own evaluator, what is given wins, even an empty list.
    """

    def run(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                if patches.active:
                    args, kwargs = _with_captured(args, kwargs)
            except Exception as error:  # noqa: BLE001 - the guard
                swallow("praisonai.evaluator", error)
            return original(*args, **kwargs)

        return wrapper

    patches.wrap(module.LoopEvaluator, "run", run)


def _with_captured(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``run(self, loop_result, guard_events=None, ...)`` with the captured events."""
    result = args[1] if len(args) > 1 else kwargs.get("loop_result")
    given = args[2] if len(args) > 2 else kwargs.get("guard_events")  # noqa: PLR2004 - a position
    events = captured_guard_events(result) if given is None else None
    if events is None:
        return args, kwargs
    return (*args[:2], *args[3:]), {**kwargs, "guard_events": list(events)}
