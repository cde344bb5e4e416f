"""The geometry of the charts, which templates draw as SVG: scores over iterations, iterations over time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_WIDTH: Final = 720.0
_HEIGHT: Final = 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 12.0, 26.0, 30.0
_MOST_POINTS: Final = 400
_MOST_DOTS: Final = 60
_SPARK_WIDTH: Final = 88.0
_SPARK_HEIGHT: Final = 30.0
_LARGEST: Final = 1e300
_TICKS: Final = 4
_FAR: Final = 20.0
"""How many times the best score a threshold may be and still be drawn: beyond, the curve would be flat."""
_NEARLY: Final = 0.999_999  # of a quotient that rounding spoils
_SPARK_SCORES: Final = 32
_MOST_LABELS: Final = 12


class Dot(NamedTuple):
    """A point of a curve."""

    x: float
    y: float
    title: str
    met: bool


class Label(NamedTuple):
    """A word on an axis, and where it is on it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Scores as a line, a piece for each stretch without a gap.

    Attributes:
        width: Width of the drawing.
        height: Its height.
        lines: The pieces, as the ``points`` of SVG's polylines.
        dots: A dot for each score; none where there are very many.
        threshold_y: Where the threshold is; None where it is out of the drawing.
        left: Where the drawing's inside begins.
        right: Where it ends.
        bottom: Its lower edge.
        ys: Labels of the scores.
        xs: Labels of the iterations.
    """

    width: float
    height: float
    lines: tuple[str, ...]
    dots: tuple[Dot, ...]
    threshold_y: float | None
    left: float = 0.0
    right: float = 0.0
    bottom: float = 0.0
    ys: tuple[Label, ...] = ()
    xs: tuple[Label, ...] = ()


def curve(scores: Sequence[tuple[int, float | None]], threshold: float | None) -> Curve | None:
    """The scores of a run's iterations as a chart; None where there is none.

    Args:
        scores: Number and score of each iteration, in order.
        threshold: Score at which an iteration is good enough.
    """
    scores = [(number, _bounded(score)) for number, score in scores]
    known = [score for _, score in scores if score is not None]
    if not known:
        return None
    if len(scores) > _MOST_POINTS:
        step = math.ceil(len(scores) / _MOST_POINTS)
        scores = [*scores[:-1:step], scores[-1]]
    low, high, ticks = _ticks(*_range(known, threshold))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x_of(position: int) -> float:
        share = position / (len(scores) - 1) if len(scores) > 1 else 0.5
        return round(_LEFT + 10 + share * (right - _LEFT - 20), 1)

    def y_of(score: float) -> float:
        return round(bottom - (score - low) / (high - low) * (bottom - _TOP), 1)

    dots = [
        Dot(
            x_of(position),
            y_of(score),
            f"iteration {number}: {score:g}",
            met=threshold is not None and score >= threshold,
        )
        for position, (number, score) in enumerate(scores)
        if score is not None
    ]
    every = math.ceil(len(scores) / _MOST_LABELS)
    return Curve(
        width=_WIDTH,
        height=_HEIGHT,
        lines=_lines(
            None if score is None else (x_of(p), y_of(score)) for p, (_, score) in enumerate(scores)
        ),
        dots=tuple(dots) if len(dots) <= _MOST_DOTS else (),
        threshold_y=None if threshold is None or not low <= threshold <= high else y_of(threshold),
        left=_LEFT,
        right=right,
        bottom=bottom,
        ys=tuple(Label(y_of(value), f"{value:.4g}") for value in ticks),
        xs=tuple(Label(x_of(p), str(number)) for p, (number, _) in enumerate(scores) if p % every == 0),
    )


def spark(scores: Sequence[float | None], threshold: float | None) -> Curve | None:
    """The last scores of a run as a small line; None where there is none."""
    scores = [_bounded(score) for score in scores[-_SPARK_SCORES:]]
    known = [score for score in scores if score is not None]
    if not known:
        return None
    low, high = _range(known, threshold)

    def at(position: int, score: float) -> tuple[float, float]:
        share = position / (len(scores) - 1) if len(scores) > 1 else 0.5
        return (
            round(3 + share * (_SPARK_WIDTH - 6), 1),
            round(_SPARK_HEIGHT - 3 - (score - low) / (high - low) * (_SPARK_HEIGHT - 6), 1),
        )

    last = max(position for position, score in enumerate(scores) if score is not None)
    x, y = at(last, known[-1])
    return Curve(
        width=_SPARK_WIDTH,
        height=_SPARK_HEIGHT,
        lines=_lines(None if score is None else at(p, score) for p, score in enumerate(scores)),
        dots=(Dot(x, y, "", met=threshold is not None and known[-1] >= threshold),),
        threshold_y=None if threshold is None or not low <= threshold <= high else at(0, threshold)[1],
    )


def _bounded(score: float | None) -> float | None:
    """A score whose distance to any other is a float, too."""
    return None if score is None else min(max(score, -_LARGEST), _LARGEST)


def _range(known: Sequence[float], threshold: float | None) -> tuple[float, float]:
    low, high = min(0.0, *known), max(known)
    if threshold is not None and math.isfinite(threshold) and threshold <= _FAR * max(abs(high), 1.0):
        high = max(high, threshold)
    return (low, high) if high > low else (low, low + max(1.0, abs(low)))


def _ticks(low: float, high: float) -> tuple[float, float, list[float]]:
    """The range widened to round numbers, and those in it."""
    step = 10.0 ** math.floor(math.log10(max((high - low) / _TICKS, 1e-300)))
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor * _TICKS >= (high - low) * _NEARLY)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [number * step for number in range(first, last + 1)]
    # Beyond a float's precision there are no round numbers between.
    if len(ticks) > 2 * _TICKS or not all(map(math.isfinite, ticks)) or not ticks[0] < ticks[-1]:
        return low, high, [low, high]
    return ticks[0], ticks[-1], ticks


def _lines(points: Iterable[tuple[float, float] | None]) -> tuple[str, ...]:
    pieces: list[list[str]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{point[0]},{point[1]}")
    return tuple(" ".join(piece) for piece in pieces if len(piece) > 1)
