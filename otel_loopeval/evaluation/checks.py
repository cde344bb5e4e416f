"""Checks of arguments: each error names the argument, the value and what is allowed."""

import math
import operator
from collections.abc import Callable
from typing import Any

_SHOWN = 80


def shown(value: object) -> str:
    """A value's repr for an error message, cut to a readable length."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr that raises, or an int of too many digits to print
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def finite_number(name: str, value: Any) -> float:
    """The value as a finite float.

    Raises:
        TypeError: If it is not a number (booleans and strings are none).
        ValueError: If it is NaN or infinite, or an integer too large for a float.
    """
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a finite number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return number


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """The value as an int of at least ``least``.

    Raises:
        TypeError: If it is not an integer (booleans are none).
        ValueError: If it is below ``least``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    return number


def optional_callable(name: str, value: Any) -> Callable[..., Any] | None:
    """The value if it is callable or None.

    Raises:
        TypeError: If it is neither.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable or None, got {shown(value)}")
    return value


def text(name: str, value: Any) -> str:
    """The value if it is a string.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {shown(value)}")
    return value


def metric_score(value: Any) -> float:
    """A metric's result as a float, which may be non-finite.

    Raises:
        TypeError: If it is not a number and not a string that spells one.
        ValueError: If it is a string that spells no number, or an integer too large for a float.
    """
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"metric must return a number, got {shown(value)}") from None
    except (ValueError, OverflowError):
        raise ValueError(f"metric must return a number, got {shown(value)}") from None
