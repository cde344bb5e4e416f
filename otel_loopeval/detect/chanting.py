"""Evidence *chanting*: a message that repeats a word, a sentence or a paragraph over and over.

Only exact periodicity counts: the lines of a list, a table or of code share a prefix but differ somewhere,
and a rule or a border has no letters. To find a period, a short piece of the text is searched for in what
follows it; how far the text equals itself shifted by that period is then found by comparing slices.
"""

import re
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import OUTPUTS, Finding, Ladder, Unit

_PIECE: Final = 24
_PROBES: Final = 48
_MAX_PERIOD: Final = 2000
_WINDOW: Final = 40_000
_MIN_LENGTH: Final = 160
_SENTENCE: Final = 30
_PARAGRAPH: Final = 160
_LETTERS: Final = re.compile(r"[^\W\d_]{2}")
_SPACE: Final = re.compile(r"\s+")


class Chanting:
    """A message that chants.

    A long unit counts sooner than a short one, since a word may well be repeated, but a paragraph may not.

    Args:
        ladder: Repeats for each severity, of a unit of 30 to 159 characters; of a longer one half as many, of
            a shorter one twice as many, and in code or a table four times as many of each.
    """

    name = "chanting"
    track = OUTPUTS
    strict = False
    fresh: None = None

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(6, 8, 10)

    def advance(self, state: None, unit: Unit) -> tuple[None, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if len(unit.text) < _MIN_LENGTH:
            return state, None
        chant = longest_chant(unit.text)
        if chant.repeats < self._ladder.notice // 2:
            return state, None
        slack = 0.5 if chant.period >= _PARAGRAPH else 1.0 if chant.period >= _SENTENCE else 2.0
        level = self._ladder.level(chant.repeats, slack * (4 if chant.tabular else 1))
        finding = Finding(semconv.KIND_REPEATED_OUTPUT, unit.id, chant.repeats, unit.first, level)
        return state, finding if level else None


class Chant(NamedTuple):
    """A stretch of text that repeats itself.

    Attributes:
        repeats: How often its unit is there in a row.
        period: Length of the unit in characters.
        tabular: Whether it is code or a table, where repetition is common.
    """

    repeats: int
    period: int
    tabular: bool


def longest_chant(text: str) -> Chant:
    """Find the stretch of a text that repeats itself most.

    Args:
        text: The text; of a very long one the first and last 40,000 characters are looked at.

    Returns:
        The stretch; without repeats if there is none.
    """
    if len(text) > 2 * _WINDOW:
        ends = (longest_chant(text[:_WINDOW]), longest_chant(text[-_WINDOW:]))
        return max(ends, key=lambda chant: chant.repeats * chant.period)
    text = _SPACE.sub(" ", text)
    best = Chant(0, 0, tabular=False)
    step = max(len(text) // _PROBES, _PIECE)
    at = 0
    while at + 2 * _PIECE <= len(text):
        again = text.find(text[at : at + _PIECE], at + 1, at + _MAX_PERIOD + _PIECE)
        if again < 0:
            at += step
            continue
        period = again - at
        start = at
        while start and text[start - 1] == text[start - 1 + period] and at - start < _MAX_PERIOD:
            start -= 1
        length = at - start + _matching(text, at, again)
        repeats = 1 + length // period
        if repeats * period > best.repeats * best.period and _LETTERS.search(text, start, start + period + 1):
            tabular = text.count("```", 0, start) % 2 == 1 or "|" in text[start : start + period]
            best = Chant(repeats, period, tabular)
        at = max(at + step, start + length - _PIECE)
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
