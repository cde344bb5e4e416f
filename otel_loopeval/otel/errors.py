"""The one guard between our code and the user's program.

Every hook, wrapper and callback of ours that runs inside the user's program catches ``Exception`` and
hands it to :func:`swallow`; ``BaseException`` (cancellation, KeyboardInterrupt, StopLoop) passes. What is
swallowed is counted and logged once per place and kind.

Hot paths spell the ``try`` out, since a decorator would cost more than the code it guards.
"""

import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

_logger = logging.getLogger("otel_loopeval")

P = ParamSpec("P")
R = TypeVar("R")

counts: Counter[str] = Counter()
"""Errors swallowed so far, by place: read by the ``loopeval.tracker.errors`` counter."""

listeners: list[Callable[[str, Exception], None]] = []
"""Called with the place and the error of everything that is swallowed."""

_logged: set[tuple[str, type]] = set()


def swallow(place: str, error: Exception, warning: str | None = None) -> None:
    """Keep an error of ours from the user's program.

    Args:
        place: Where it happened, of low cardinality, such as ``"processor.on_start"``.
        error: The error. Its message may be content, so the log carries it only at debug level.
        warning: What to log, where it can be said better than by the error's type and the place.
    """
    try:
        counts[place] += 1
        for listener in listeners:
            listener(place, error)
        kind = (place, type(error))
        if kind not in _logged and len(_logged) < 1_000:  # noqa: PLR2004 - a bound, not a tuning knob
            _logged.add(kind)
            what = f"otel-loopeval: {type(error).__name__} in {place}"
            _logger.warning(
                warning or f"{what} was kept from your program; this run's telemetry may be incomplete"
            )
        _logger.debug("otel-loopeval: error in %s", place, exc_info=error)
    except Exception:  # noqa: BLE001, S110 - a logging handler of the user's that raises must not surface here
        pass


@overload
def guarded(place: str, default: None = None) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...


@overload
def guarded(place: str, default: R) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def guarded(place: str, default: Any = None) -> Any:
    """Decorate a function so that its errors are swallowed and it returns ``default`` instead."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the guard
                swallow(place, error)
                return default

        return wrapper

    return decorate


def warn_once(message: str, *args: object) -> None:
    """Log a warning the first time that this message comes up."""
    kind = (message, str)
    if kind not in _logged:
        _logged.add(kind)
        with contextlib.suppress(Exception):  # as in swallow
            _logger.warning(message, *args)


def reset() -> None:
    """Forget what was counted and logged, as if the process had just begun: for tests."""
    counts.clear()
    _logged.clear()
