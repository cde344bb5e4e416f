"""The verdict: from the facts of a run to its :class:`LoopHealthResult`."""

from collections.abc import Sequence
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health.convergence import Convergence, reach, score_deltas
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
    iterations, converged, wasted, count = reach(scores, threshold, mode, success)
    return _judge(
        iterations,
        converged,
        wasted,
        count,
        score_deltas(scores),
        threshold,
        guard_count,
        doom_loop_fired,
        total_duration_s,
        max_wasted_iterations,
    )


def verdict(
    reached: Convergence,
    deltas: Sequence[float | None],
    threshold: float = semconv.DEFAULT_THRESHOLD,
    guard_count: int = 0,
    doom_loop_fired: bool = False,
    total_duration_s: float = 0.0,
    max_wasted_iterations: int | None = 0,
) -> LoopHealthResult:
    """Judge a run whose convergence was found by other means (a goal that was met, an agent's outcome).

    Healthy is: converged, no doom loop, waste within ``max_wasted_iterations``. The sentence is the one
    of ``praisonaiagents.eval.LoopEvaluator``.

    Args:
        reached: Whether and when the run converged, and what it wasted.
        deltas: Score deltas of the run, empty where it has no scores.
        threshold: As in :func:`assess`.
        guard_count: As in :func:`assess`.
        doom_loop_fired: As in :func:`assess`.
        total_duration_s: As in :func:`assess`.
        max_wasted_iterations: As in :func:`assess`.

    Returns:
        The run's health.
    """
    return _judge(
        reached.iterations_to_success,
        reached.converged,
        reached.wasted_iterations,
        reached.num_iterations,
        deltas,
        threshold,
        guard_count,
        doom_loop_fired,
        total_duration_s,
        max_wasted_iterations,
    )


def _judge(
    iterations_to_success: int,
    converged: bool,
    wasted_iterations: int,
    num_iterations: int,
    deltas: Sequence[float | None],
    threshold: float,
    guard_count: int,
    doom_loop_fired: bool,
    total_duration_s: float,
    max_wasted_iterations: int | None,
) -> LoopHealthResult:
    if converged:
        reasoning = f"Converged in {iterations_to_success} iteration(s)."
    else:
        reasoning = f"Did not converge after {num_iterations} iteration(s)."
    if wasted_iterations:
        reasoning += f" {wasted_iterations} wasted iteration(s) after threshold."
    if doom_loop_fired:
        reasoning += " Doom-loop guard fired."
    if guard_count:
        reasoning += f" {guard_count} guard intervention(s)."
    success = (
        converged
        and not doom_loop_fired
        and (max_wasted_iterations is None or wasted_iterations <= max_wasted_iterations)
    )
    return LoopHealthResult(
        iterations_to_success,
        wasted_iterations,
        doom_loop_fired,
        guard_count,
        total_duration_s,
        deltas,
        converged,
        success,
        threshold,
        reasoning,
        {"num_iterations": num_iterations},
    )
