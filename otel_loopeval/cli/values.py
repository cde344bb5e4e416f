"""Values of options, as several commands read them: each says what is allowed and what was given."""

import argparse
import re
from collections.abc import Callable
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZES: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_MAX_COUNT: Final = 10**18 - 1
_MAX_SIZE: Final = 2**62
_MAX_SECONDS: Final = 36_500 * 86_400.0
"""A hundred years: in nanoseconds since the epoch it still is a number that databases know."""


def count_from(least: int) -> Callable[[str], int]:
    """Reads whole numbers from ``least`` on."""

    def count(text: str) -> int:
        value = int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else None
        if value is None or value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {_MAX_COUNT}")
        return value

    return count


def number(text: str) -> float:
    """Reads finite numbers."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number, such as 8 or 0.5")
    return value


def number_from_0(text: str) -> float:
    """Reads finite numbers that are not negative."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return value


def seconds_from(least: float) -> Callable[[str], float]:
    """Reads times such as ``30s`` or ``7d``, of at least so many seconds."""

    def seconds(text: str) -> float:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", text)
        value = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
        if not least <= value <= _MAX_SECONDS:
            bound = "" if not least else f", at least {least:g} s"
            raise argparse.ArgumentTypeError(
                f"a time is a number with ms, s, m, h or d, such as 30s{bound}, at most 36500d, got {text!r}"
            )
        return value

    return seconds


def size_from(least: int, most: int = _MAX_SIZE) -> Callable[[str], int]:
    """Reads sizes in bytes such as ``16m``."""

    def size(text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,18})([kmg]?)", text.lower())
        value = int(found[1]) << _SIZES[found[2]] if found else -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"a size is a whole number of bytes, or with k, m or g, at least {_told(least)}, "
                f"at most {_told(most)}, got {text!r}"
            )
        return value

    return size


def _told(size: int) -> str:
    for unit in ("g", "m", "k"):
        if size and size % (1 << _SIZES[unit]) == 0:
            return f"{size >> _SIZES[unit]}{unit}"
    return str(size)
