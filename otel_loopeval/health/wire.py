"""Values as OTLP can carry them.

An exporter encodes a batch as a whole: one name with a lone surrogate, or one time outside of 64 bits,
costs every span of the batch. So what others give us is made to fit when it comes in.
"""

from enum import Enum
from math import isfinite, nan
from operator import index
from typing import Any

MAX_INT = 2**63 - 1
"""The largest integer that OTLP has."""


def as_text(value: Any) -> str | None:
    """The text of a string, or of an enum of strings, in characters that UTF-8 has.

    Args:
        value: Anything.

    Returns:
        The text, a lone surrogate in it as its escape sequence; None if it is empty or no string.
    """
    if value is None:  # most fields of most guard events
        return None
    try:
        value = value.value if isinstance(value, Enum) else value
        # str.__str__: the text itself, also of a subclass that prints as something else.
        return encodable(str.__str__(value)) or None
    except Exception:  # noqa: BLE001 - no string
        return None


def encodable(text: str) -> str:
    """The text, with a lone surrogate in it as its escape sequence: UTF-8 has none."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def as_int(value: Any) -> int | None:
    """The value as an integer of 64 bits; None if it is none (booleans are none)."""
    if value is None:
        return None
    try:
        number = None if isinstance(value, bool) else index(value)
    except Exception:  # noqa: BLE001 - no integer
        return None
    return number if number is not None and -MAX_INT - 1 <= number <= MAX_INT else None


def as_float(value: Any) -> float | None:
    """The value as a finite number; None if it is none."""
    try:
        number = float(value) if isinstance(value, (int, float)) else nan
    except OverflowError:  # an integer beyond the floats
        return None
    return number if isfinite(number) else None


def as_time_ns(value: Any) -> int | None:
    """The value as nanoseconds since the epoch; None if it is no time."""
    number = as_int(value)
    return number if number is not None and number > 0 else None
