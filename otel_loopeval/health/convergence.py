"""Convergence of a loop: did its scores reach the threshold, when, and what came after.

The rules are those of ``praisonaiagents.eval.LoopEvaluator``, result for result. They are a pure function
of the scores, so that a live run, a finished result and a stored trace are judged by the same lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, isfinite
from typing import Any

from otel_loopeval import semconv

_REVIEW = semconv.MODE_REVIEW
_DELTA_DIGITS = 4
_SCALE = 10.0**_DELTA_DIGITS

_TO_INTEGER = 1.5 * 2.0**52
"""Adding and subtracting this rounds a double below 2**51 to an integer (IEEE 754, half to even)."""

_CLEAR_OF_A_TIE = 0.4999
"""A scaled delta this close to its integer rounds there; nearer to a half, ``round()`` decides."""

_FAST_LIMIT = 1e7
"""Largest norm of the scores for which scaling errs by less than the distance kept from a tie."""

_PLAIN_SUMS = (float, int)


@dataclass(frozen=True, slots=True)
class Convergence:
    """Where a loop reached its threshold.

    Attributes:
        iterations_to_success: Number of the iteration that first met the threshold, from 1; all
            iterations if none did, and always all of them in review mode.
        converged: Whether the loop reached its threshold.
        wasted_iterations: Iterations after the one that met the threshold (0 in review mode).
        num_iterations: Iterations that ran, scored or not.
    """

    iterations_to_success: int
    converged: bool
    wasted_iterations: int
    num_iterations: int


def converge(
    scores: Sequence[Any],
    threshold: float,
    mode: str = semconv.MODE_OPTIMIZE,
    success: bool | None = None,
) -> Convergence:
    """Say whether and when a loop converged.

    Optimize mode (any mode but review) converges at the first score at or above the threshold, and
    every iteration after it is waste. Review mode runs all iterations by design: the loop's own success
    decides, else its last score, and nothing is waste.

    Args:
        scores: One score an iteration, in order. ``None`` stands for an iteration without a score; it
            never converges, nor does a score that is not finite or not a number.
        threshold: Score at which an iteration is good enough.
        mode: ``"optimize"`` or ``"review"``, lower case.
        success: The loop's own verdict, read in review mode only; ``None`` where it has none.

    Returns:
        The loop's convergence.
    """
    return Convergence(*reach(scores, threshold, mode, success))


def reach(
    scores: Sequence[Any], threshold: float, mode: str, success: bool | None
) -> tuple[int, bool, int, int]:
    """As :func:`converge`, without the record: making one takes longer than a short search."""
    count = len(scores)
    if mode == _REVIEW and count:
        converged = bool(success) if success is not None else _meets(scores[-1], threshold)
        return count, converged, 0, count
    try:
        for score in scores:
            if score >= threshold and isfinite(score):
                # Counting along would cost more than finding it again: equal scores all meet it.
                number = scores.index(score) + 1
                return number, True, count - number, count
    except Exception:  # noqa: BLE001 - a score of any type may raise anything when compared
        for number, score in enumerate(scores, 1):
            if _meets(score, threshold):
                return number, True, count - number, count
    return count, False, 0, count


def score_deltas(scores: Sequence[Any]) -> list[float | None]:
    """Change of the score from each iteration to the next, rounded to four digits.

    Args:
        scores: One score an iteration, in order; ``None`` for an iteration without a score.

    Returns:
        One delta fewer than there are scores; ``None`` where a side is missing, is not a number, or
        where the difference is not finite.
    """
    try:
        # At the speed of C: the sum has another type if a number brings its own arithmetic (Decimal,
        # numpy), and the norm is no small number if a score is NaN, infinite or huge.
        plain = type(sum(scores)) in _PLAIN_SUMS and hypot(*scores) < _FAST_LIMIT
    except Exception:  # noqa: BLE001 - as above: then the careful way finds the score that is to blame
        plain = False
    if not plain:
        return [_delta(before, after) for before, after in pairwise(scores)]
    # round() works through decimal strings and would be four fifths of an evaluation. Where the scaled
    # delta is clear of a tie, the nearest integer divided by the scale is the same double: the division
    # is correctly rounded, as is the decimal that round() parses.
    deltas: list[float | None] = []
    scale, to_integer, low, high = _SCALE, _TO_INTEGER, -_CLEAR_OF_A_TIE, _CLEAR_OF_A_TIE
    following = iter(scores)
    before = next(following, 0.0)
    for after in following:
        scaled = (after - before) * scale
        integer = scaled + to_integer - to_integer
        if low < scaled - integer < high:
            deltas.append(integer / scale)
        else:
            deltas.append(float(round(after - before, _DELTA_DIGITS)))
        before = after
    return deltas


def _meets(score: Any, threshold: float) -> bool:
    try:
        met = bool(score >= threshold)
    except Exception:  # noqa: BLE001 - not comparable: never converges
        return False
    if not met:
        return False
    try:
        return isfinite(score)
    except Exception:  # noqa: BLE001 - comparable, yet no float: it has no infinity to exclude
        return True


def _delta(before: Any, after: Any) -> float | None:
    try:
        delta = round(after - before, _DELTA_DIGITS)
        if type(delta) is int:  # exact, however large
            return delta
        delta = float(delta)
    except Exception:  # noqa: BLE001 - a missing score or no number: there is no difference
        return None
    return delta if isfinite(delta) else None
