"""The verdict: from the facts of a run to its :class:`LoopHealthResult`."""

from collections.abc import Sequence
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health.convergence import reach, score_deltas
from otel_loopeval.health.result import LoopHealthResult


def assess(
    scores: Sequence[Any],
    threshold: float = semconv.DEFAULT_THRESHOLD,
    mode: str = semconv.MODE_OPTIMIZE,
    success: bool | None = None,
    guard_count: int = 0,
    doom_loop_fired: bool = False,
    total_duration_s: float = 0.0,
    max_wasted_iterations: int | None = 0,
) -> LoopHealthResult:
    """Judge an optimize or review run by its scores.

    Healthy is: converged, no doom loop, waste within its bound. The sentence is the one of
    ``praisonaiagents.eval.LoopEvaluator``.

    Args:
        scores: One score an iteration, in order; ``None`` for an iteration without a score.
        threshold: Score at which an iteration is good enough.
        mode: ``"optimize"`` or ``"review"``, lower case.
        success: The loop's own verdict, where it has one (read in review mode).
        guard_count: Guard events of the run, doom loops included.
        doom_loop_fired: Whether one of them said doom loop.
        total_duration_s: Wall-clock duration in seconds.
        max_wasted_iterations: Waste that a healthy run may have; ``None`` if waste does not decide.

    Returns:
        The run's health.
    """
    iterations_to_success, converged, wasted, count = reach(scores, threshold, mode, success)
    if converged:
        reasoning = f"Converged in {iterations_to_success} iteration(s)."
    else:
        reasoning = f"Did not converge after {count} iteration(s)."
    if wasted:
        reasoning += f" {wasted} wasted iteration(s) after threshold."
    if doom_loop_fired:
        reasoning += " Doom-loop guard fired."
    if guard_count:
        reasoning += f" {guard_count} guard intervention(s)."
    return LoopHealthResult(
        iterations_to_success,
        wasted,
        doom_loop_fired,
        guard_count,
        total_duration_s,
        score_deltas(scores),
        converged,
        converged
        and not doom_loop_fired
        and (max_wasted_iterations is None or wasted <= max_wasted_iterations),
        threshold,
        reasoning,
        {"num_iterations": count},
    )
