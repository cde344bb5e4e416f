"""Loop health in an evaluation suite: an evaluator for ``praisonaiagents.eval.EvalSuite`` and its like.

A suite gives its evaluators no arguments, so that the package's own ``LoopEvaluator`` cannot run in one, and
takes an evaluator that returns for a success, whatever it returns. :class:`LoopHealthEvaluator` brings its
loop along, scores it on the suite's scale, and raises where the loop is unhealthy. Nothing is imported from
the package: whatever calls ``run()`` or ``run_async()`` is a suite.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from otel_loopeval.evaluation.calls import call
from otel_loopeval.evaluation.checks import shown
from otel_loopeval.health import LoopEvaluator, LoopHealthResult, captured_guard_events
from otel_loopeval.health.wire import as_float

_BEST = 10.0
_HALF = 5.0


@dataclass(frozen=True, slots=True)
class LoopHealthScore:
    """A loop's health as suites take it.

    Attributes:
        score: From 0 to 10; see :func:`health_score`.
        health: The verdict.
    """

    score: float
    health: LoopHealthResult

    @property
    def passed(self) -> bool:
        """Whether the loop is healthy."""
        return self.health.success

    @property
    def success(self) -> bool:
        """Whether the loop is healthy."""
        return self.health.success

    def to_dict(self) -> dict[str, Any]:
        """The score, and the verdict's own fields."""
        return {"score": self.score, **self.health.to_dict()}

    def __str__(self) -> str:
        """The score and the verdict in a sentence, generated from numbers and never from content."""
        word = "healthy" if self.passed else "unhealthy"
        return f"{word} loop, {self.score:.1f}/10: {self.health.reasoning}"


class UnhealthyLoopError(AssertionError):
    """A loop is unhealthy: what fails a suite.

    Attributes:
        result: The :class:`LoopHealthScore`.
    """

    def __init__(self, result: LoopHealthScore) -> None:
        super().__init__(str(result))
        self.result = result


def health_score(
    health: LoopHealthResult, best_score: float | None = None, max_wasted_iterations: int = 0
) -> float:
    """The health of a loop as one number from 0 to 10.

    - 0 where a doom loop fired.
    - Where the loop converged, ``5 + 5 * u / (u + w)``, with the ``u`` iterations that it took and the ``w``
      that were wasted beyond ``max_wasted_iterations``: a healthy loop has 10, all others have less.
    - Where it did not, ``5 * best_score / threshold``, within 0 and 5.

    Args:
        health: The verdict.
        best_score: The loop's highest score, on the judge's scale; none (or NaN) counts as 0.
        max_wasted_iterations: Wasted iterations that are tolerated.
    """
    if health.doom_loop_fired:
        return 0.0
    if health.converged:
        used = max(health.iterations_to_success, 1)
        return _HALF + _HALF * used / (used + max(health.wasted_iterations - max_wasted_iterations, 0))
    if best_score is None or not math.isfinite(best_score) or health.threshold <= 0:
        return 0.0
    return _HALF * min(max(best_score / health.threshold, 0.0), 1.0)


class LoopHealthEvaluator:
    """Runs a loop, or takes one that has run, and judges its health inside an evaluation suite.

        EvalSuite([AccuracyEvaluator(...), LoopHealthEvaluator(loop, "Write a haiku")]).run().success

    Such a suite knows failed evaluators only by their exceptions: an unhealthy loop raises
    :class:`UnhealthyLoopError`, which makes ``success`` false, stands among ``errors`` with the score, and
    stops the suite under ``fail_fast``. As with every evaluator that fails there, the score is then not part
    of ``overall_score``; it is on :attr:`result`.

    Args:
        loop: What there is to judge: a loop with ``run(prompt)`` and perhaps ``run_async(prompt)``, such as
            an ``EvaluationLoop``; or a callable without arguments, sync or async, that returns a loop's
            result (``lambda: agent.run_until("task", criteria="is thorough")``); or a finished result.
        prompt: What to run a loop with; loops only.
        guard_events: What guards reported, as for :class:`~otel_loopeval.LoopEvaluator`: ``None`` stands for
            the events that were captured while the loop ran, if ``instrument()`` was on.
        threshold: Score at which the loop has converged; ``None`` for the result's own, else 8.0.
        max_wasted_iterations: Iterations after convergence that a healthy loop may have.
        name: Name of this evaluation; ``eval_{eval_id}`` if ``None``.
        save_results_path: Where the verdict is saved as JSON; may hold ``{name}`` and ``{eval_id}``.
        verbose: Whether to print a summary.
        fail_suite: Raise where the loop is unhealthy. Without it only the score tells, which then is part of
            ``overall_score``.

    Attributes:
        result: The :class:`LoopHealthScore` of the last run; ``None`` before.
        agent: The loop's agent, where it has one: suites tell by it what they have evaluated.

    Raises:
        TypeError: ``loop`` is nothing of the above, or a prompt is missing or out of place.
        ValueError: As for :class:`~otel_loopeval.LoopEvaluator`.
    """

    def __init__(
        self,
        loop: Any,
        prompt: str | None = None,
        *,
        guard_events: Any = None,
        threshold: float | None = None,
        max_wasted_iterations: int = 0,
        name: str | None = None,
        save_results_path: str | None = None,
        verbose: bool = False,
        fail_suite: bool = True,
    ) -> None:
        self._run, self._run_async = _ways_to_run(loop, prompt)
        self._guard_events = guard_events
        self._evaluator = LoopEvaluator(
            threshold, max_wasted_iterations, name=name, save_results_path=save_results_path
        )
        self.verbose = verbose
        self.fail_suite = fail_suite
        self.result: LoopHealthScore | None = None
        self.agent = getattr(loop, "agent", None)

    @property
    def eval_id(self) -> str:
        """Eight hex digits that identify this evaluator."""
        return self._evaluator.eval_id

    @property
    def name(self) -> str:
        """Name of this evaluation."""
        return self._evaluator.name

    def run(self, print_summary: bool = False, **_kwargs: Any) -> LoopHealthScore:
        """Run the loop, if it has not run, and judge it.

        Args:
            print_summary: Whether to print a summary.
            **_kwargs: Ignored: what suites pass to all of their evaluators.

        Raises:
            UnhealthyLoopError: The loop is unhealthy, and ``fail_suite`` is on.
            TypeError: The loop returned something that is no loop's result.
            Exception: Whatever the loop raises.
        """
        return self._judge(self._run(), print_summary)

    async def run_async(self, print_summary: bool = False, **_kwargs: Any) -> LoopHealthScore:
        """Judge the loop, like :meth:`run`; it is run by ``run_async`` if it has that.

        Args:
            print_summary: As in :meth:`run`.
            **_kwargs: As in :meth:`run`.

        Raises:
            UnhealthyLoopError: As in :meth:`run`.
            TypeError: As in :meth:`run`.
            Exception: Whatever the loop raises.
        """
        loop_result = self._run_async()
        if inspect.isawaitable(loop_result):
            loop_result = await loop_result
        return self._judge(loop_result, print_summary)

    def _judge(self, loop_result: Any, print_summary: bool) -> LoopHealthScore:
        if not _is_result(loop_result):
            raise TypeError(f"the loop returned {shown(loop_result)}, which is no loop's result")
        events = self._guard_events
        if events is None:
            events = captured_guard_events(loop_result)
        # None would let the evaluator look for what was captured under the stand-in of a goal loop's result.
        health = self._evaluator.run(_scored(loop_result), () if events is None else events)
        wasted = self._evaluator.max_wasted_iterations
        result = LoopHealthScore(health_score(health, _best_score(loop_result), wasted), health)
        self.result = result
        if print_summary or self.verbose:
            health.print_summary()
        if self.fail_suite and not result.passed:
            raise UnhealthyLoopError(result)
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, eval_id={self.eval_id!r})"


def _ways_to_run(loop: Any, prompt: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """How to get the loop's result, synchronously and otherwise."""
    if prompt is not None and not isinstance(prompt, str):
        raise TypeError(f"prompt={shown(prompt)} must be a str or None")
    if isinstance(loop, type):
        raise TypeError(f"loop={shown(loop)} is a class: give a loop, its result, or a callable")
    if _is_result(loop):
        if prompt is not None:
            raise TypeError("prompt= is for a loop that is to run, and loop= is a result")
        return lambda: loop, lambda: loop
    run = getattr(loop, "run", None)
    if callable(run):
        if prompt is None:
            raise TypeError(f"prompt=None: the loop {shown(loop)} needs one to run with")
        run_async = getattr(loop, "run_async", None)
        return (
            lambda: call(run, prompt),
            lambda: run_async(prompt) if callable(run_async) else run(prompt),
        )
    if not callable(loop):
        raise TypeError(f"loop={shown(loop)} must be a loop with run(), a loop's result, or a callable")
    if prompt is not None:
        raise TypeError("prompt= is for a loop that is to run, and loop= is a callable without arguments")
    return lambda: call(loop), loop


def _is_result(subject: Any) -> bool:
    return hasattr(subject, "score_history") or _is_goal_result(subject)


def _is_goal_result(subject: Any) -> bool:
    return all(hasattr(subject, name) for name in ("completion_reason", "iterations", "success"))


def _scored(loop_result: Any) -> Any:
    """The result itself, or, of a goal loop, one whose last turn has the gate's verdict as its score."""
    if hasattr(loop_result, "score_history") or not _is_goal_result(loop_result):
        return loop_result
    met = bool(loop_result.success)
    turns = loop_result.iterations if isinstance(loop_result.iterations, int) else 1
    return SimpleNamespace(
        score_history=[0.0] * (turns - 1) + [float(met)],
        threshold=1.0,
        mode="review",  # the loop's own word is final
        success=met,
        total_duration_seconds=getattr(loop_result, "duration_seconds", 0.0),
    )


def _best_score(loop_result: Any) -> float | None:
    scores = getattr(loop_result, "score_history", None) or ()
    return max((number for score in scores if (number := as_float(score)) is not None), default=None)
