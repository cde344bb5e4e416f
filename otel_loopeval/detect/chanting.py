"""Evidence *chanting*: a message that repeats a word, a sentence or a paragraph over and over.

Only exact periodicity counts: the lines of a list, a table or of code share a prefix but differ somewhere,
and a rule or a border has no letters. To find a period, a short piece of the text is searched for in what
follows it; how far the text equals itself shifted by that period is then found by comparing slices.
"""

import re
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import OUTPUTS, Finding, Ladder, Unit

_PIECE: Final = 24
_PROBES: Final = 48
_MAX_PERIOD: Final = 2000
_WINDOW: Final = 40_000
_MIN_LENGTH: Final = 160
_LETTERS: Final = re.compile(r"[^\W\d_]{2}")
_SPACE: Final = re.compile(r"\s+")


class Chanting:
    """A message that chants.

    A stretch counts by its repeats beyond the first, a long unit sooner than a short one: a paragraph of 200
    characters four times is as bad as a word thirty times.

    Args:
        ladder: Repeats for each severity, of a unit of 40 characters; of a longer one down to half as many,
            of a shorter one up to twice as many.
    """

    name = "chanting"
    track = OUTPUTS
    fresh: None = None

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(6, 8, 10)

    def advance(self, state: None, unit: Unit) -> tuple[None, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if len(unit.text) < _MIN_LENGTH:
            return state, None
        period, repeats = longest_chant(unit.text)
        if not repeats:
            return state, None
        slack = 0.5 if period >= 160 else 1.0 if period >= 30 else 2.0  # noqa: PLR2004 - see the class docstring
        level = self._ladder.level(repeats, slack)
        finding = Finding(semconv.KIND_REPEATED_OUTPUT, unit.id, repeats, unit.first, level)
        return state, finding if level else None


def longest_chant(text: str) -> tuple[int, int]:
    """Find the stretch of a text that repeats itself most.

    Args:
        text: The text; of a very long one the first and last 40,000 characters are looked at.

    Returns:
        Length of the repeated unit in characters and how often it is there in a row, or zeros.
    """
    if len(text) > 2 * _WINDOW:
        return max(longest_chant(text[:_WINDOW]), longest_chant(text[-_WINDOW:]), key=lambda found: found[1])
    text = _SPACE.sub(" ", text)
    best = (0, 0)
    step = max(len(text) // _PROBES, _PIECE)
    at = 0
    while at + 2 * _PIECE <= len(text):
        again = text.find(text[at : at + _PIECE], at + 1, at + _MAX_PERIOD + _PIECE)
        if again < 0:
            at += step
            continue
        period = again - at
        length = _matching(text, at, again)
        repeats = 1 + length // period
        if repeats > best[1] and _LETTERS.search(text, at, again + 1):
            best = (period, repeats)
        at = max(at + step, again + length - _PIECE) if repeats > 2 else at + step  # noqa: PLR2004 - skip what was measured
    return best


def _matching(text: str, left: int, right: int) -> int:
    # Length for which text[left:] and text[right:] agree, by doubling and then halving slices.
    length = 0
    step = 64
    limit = len(text) - right
    while length < limit:
        size = min(step, limit - length)
        if text[left + length : left + length + size] == text[right + length : right + length + size]:
            length += size
            step *= 2
        elif size == 1:
            break
        else:
            step = size // 2
            limit = length + size
    return length
