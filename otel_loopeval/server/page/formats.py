"""Numbers and times for people."""

from datetime import datetime, timedelta, timezone
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MINUTES_FROM_S: Final = 120.0
_HOURS_FROM_S: Final = 7_200.0
_DIGITS: Final = 4
_ALL_DIGITS: Final = 17
"""Those with which each float differs from its neighbours."""


def duration(seconds: float | None) -> str:
    """A duration in the unit that suits it; empty where it is unknown."""
    if seconds is None:
        return ""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTES_FROM_S:
        return f"{seconds:.1f} s" if seconds else "0 s"
    return f"{seconds / 60:.0f} min" if seconds < _HOURS_FROM_S else f"{seconds / 3600:.1f} h"


def number(value: float | None) -> str:
    """A number with a separator between thousands; empty where it is unknown."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.{_DIGITS}g}"


def score_beside(score: float, threshold: float | None) -> tuple[str, str]:
    """A score and its threshold; one below it with as many digits as tell them apart."""
    digits = _DIGITS
    texts = number(score), number(threshold)
    while threshold is not None and score < threshold and texts[0] == texts[1] and digits < _ALL_DIGITS:
        digits += 1
        texts = f"{score:,.{digits}g}", f"{threshold:,.{digits}g}"
    return texts


def usd(value: float | None) -> str:
    """An amount of money; empty where it is unknown."""
    if value is None:
        return ""
    return f"${value:,.2f}" if value == 0 or value >= 1 else f"${value:.4f}"


def moment(time_ns: int) -> str:
    """A time to the second, UTC."""
    return _iso(time_ns)[:19].replace("T", " ")


def machine_moment(time_ns: int) -> str:
    """A time as the ``datetime`` of HTML's ``<time>`` takes it."""
    return f"{_iso(time_ns)[:19]}Z"


def _iso(time_ns: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time_ns // 1000)).isoformat()
    except OverflowError:  # beyond the year 9999: the spans are broken
        return "9999-12-31T23:59:59"
