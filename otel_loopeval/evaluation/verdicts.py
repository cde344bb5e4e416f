"""Reading a judge's answer: structured JSON where the endpoint gives it, else JSON in prose, else text."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

LOWEST_SCORE: Final = 1.0
HIGHEST_SCORE: Final = 10.0

# A label at the start of a line, with the decoration that models like to put around it.
_LABEL = re.compile(r"^[\s>*_#`-]*(score|reasoning|suggestions)[\s*_`]*:[\s*_`]*(.*)$", re.IGNORECASE)
_NUMBER = re.compile(r"^\[?\s*(-?\d+(?:[.,]\d+)?)\s*\]?\s*(?:(?:/|out of)\s*(\d+(?:\.\d+)?))?")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(.*)$")
# Each try may read far before it fails, so that a long enough answer of braces would take minutes.
_MOST_TRIES: Final = 1000
_NOTHING: Final = ("", "none", "none.", "n/a", "[]")


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """A judge's verdict.

    Attributes:
        score: From 1 to 10; 0 only for an empty output, which no model is asked about.
        reasoning: Why.
        suggestions: What to improve.
    """

    score: float
    reasoning: str = ""
    suggestions: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """A goal judge's verdict on one turn.

    Attributes:
        met: Whether the goal is met.
        reason: Why, or why not.
        readable: False if the judge's answer could not be read, in which case ``met`` is False.
    """

    met: bool
    reason: str = ""
    readable: bool = True


def read_score(answer: str) -> JudgeResult | None:
    """Read a scored verdict; None if it holds no score from 0 to 10 (a score below 1 counts as 1)."""
    for entries in _json_objects(answer):
        score = _score(entries.get("score"))
        if score is not None:
            return JudgeResult(score, _text(entries.get("reasoning")), _texts(entries.get("suggestions")))
    return _labelled(answer)


def read_goal(answer: str) -> GoalVerdict | None:
    """Read a goal verdict, ``{"verdict": "done" | "continue", "reason": ...}``; None if there is none."""
    for entries in _json_objects(answer):
        verdict = str(entries.get("verdict", "")).strip().lower()
        if verdict in {"done", "continue"}:
            return GoalVerdict(verdict == "done", _text(entries.get("reason")))
        if isinstance(entries.get("done"), bool):
            return GoalVerdict(entries["done"], _text(entries.get("reason")))
    return None


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in a text, whatever stands around them."""
    decoder = json.JSONDecoder()
    position = text.find("{")
    tries = 0
    while position >= 0 and tries < _MOST_TRIES:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield cast("dict[str, Any]", value)
        position = text.find("{", end)


def _score(value: Any) -> float | None:
    if isinstance(value, str):
        return _spelled(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _in_range(value)


def _spelled(text: str) -> float | None:
    """A number in words' company: ``8``, ``[8]``, ``8,5``, ``8/10``, ``8 out of 10``."""
    match = _NUMBER.match(text.strip())
    if match is None or (match[2] is not None and float(match[2]) != HIGHEST_SCORE):
        return None
    return _in_range(float(match[1].replace(",", ".")))


def _in_range(number: float) -> float | None:
    # A score beyond the scale was given on another one: to clamp 85 to 10 would invent a pass.
    if not math.isfinite(number) or not 0 <= number <= HIGHEST_SCORE:
        return None
    return max(LOWEST_SCORE, float(number))


def _labelled(answer: str) -> JudgeResult | None:
    """Read ``SCORE:``, ``REASONING:`` and ``SUGGESTIONS:`` lines."""
    score: float | None = None
    reasoning: list[str] = []
    suggestions: list[str] = []
    section = ""
    for line in answer.splitlines():
        label = _LABEL.match(line)
        text = line.strip()
        if label is not None:
            section, text = label[1].lower(), label[2].strip()
            if section == "score":
                score = _spelled(text) if score is None else score
                continue
        if text.lower() in _NOTHING:
            continue
        if section == "reasoning":
            reasoning.append(text)
        elif section == "suggestions":
            bullet = _BULLET.match(text)
            suggestions.append(bullet[1].strip() if bullet else text)
    return None if score is None else JudgeResult(score, " ".join(reasoning), suggestions)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _texts(value: Any) -> list[str]:
    if not value:
        return []
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for item in items if (text := _text(item)).lower() not in _NOTHING]
