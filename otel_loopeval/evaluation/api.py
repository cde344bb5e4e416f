"""``run_until``: either loop in one call, over any agent."""

from collections.abc import Callable
from typing import Any, overload

from otel_loopeval.evaluation.autonomy import AutonomyResult
from otel_loopeval.evaluation.criteria import GoalCriteria
from otel_loopeval.evaluation.goal import GoalLoop
from otel_loopeval.evaluation.loop import EvaluationLoop
from otel_loopeval.evaluation.results import EvaluationLoopResult, IterationResult

Callback = Callable[[IterationResult], Any]


@overload
def run_until(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    goal: None = None,
    goal_criteria: None = None,
    judge_model: str | None = None,
    *,
    judge: Any = None,
    metric: Callable[[str], Any] | None = None,
    model: str = "gpt-4o-mini",
) -> EvaluationLoopResult: ...
@overload
def run_until(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    *,
    goal: str,
    goal_criteria: GoalCriteria | None = None,
    judge_model: str | None = None,
    judge: Any = None,
    metric: None = None,
    model: str = "gpt-4o-mini",
) -> AutonomyResult: ...
def run_until(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    goal: str | None = None,
    goal_criteria: GoalCriteria | None = None,
    judge_model: str | None = None,
    *,
    judge: Any = None,
    metric: Callable[[str], Any] | None = None,
    model: str = "gpt-4o-mini",
) -> EvaluationLoopResult | AutonomyResult:
    """Run an agent until its output is good enough, or its goal is met.

    Args:
        agent: A function, or an object with a method such as ``chat``, ``run`` or ``invoke``.
        prompt: What to ask it.
        criteria: What the judge looks for. Beside ``goal``, it becomes ``GoalCriteria(outcome=criteria)``
            unless ``goal_criteria`` is given.
        threshold: Score at which an output is good enough. Not used with ``goal``.
        max_iterations: Iterations, or turns of the goal loop, to run at most.
        mode: ``"optimize"`` or ``"review"``. Not used with ``goal``.
        on_iteration: Called after each iteration or turn with its :class:`IterationResult`.
        verbose: Log each iteration.
        goal: Runs the goal loop (:class:`GoalLoop`) instead of the evaluation loop.
        goal_criteria: What it means for the goal to be met.
        judge_model: Model of the default judge, before ``model``.
        judge: The judge of :class:`EvaluationLoop`, or of :class:`GoalLoop`.
        metric: Scores an output instead of the judge. Not with ``goal``.
        model: Model of the default judge.

    Returns:
        An :class:`EvaluationLoopResult`; with ``goal``, an :class:`AutonomyResult`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument has a value that is not allowed, or does not go with another.
    """
    return _make_loop(
        agent,
        criteria,
        threshold,
        max_iterations,
        mode,
        on_iteration,
        verbose,
        goal,
        goal_criteria,
        judge_model or model,
        judge,
        metric,
    ).run(prompt)


@overload
async def run_until_async(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    goal: None = None,
    goal_criteria: None = None,
    judge_model: str | None = None,
    *,
    judge: Any = None,
    metric: Callable[[str], Any] | None = None,
    model: str = "gpt-4o-mini",
) -> EvaluationLoopResult: ...
@overload
async def run_until_async(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    *,
    goal: str,
    goal_criteria: GoalCriteria | None = None,
    judge_model: str | None = None,
    judge: Any = None,
    metric: None = None,
    model: str = "gpt-4o-mini",
) -> AutonomyResult: ...
async def run_until_async(
    agent: Any,
    prompt: str,
    criteria: str = "",
    threshold: float = 8.0,
    max_iterations: int = 5,
    mode: str = "optimize",
    on_iteration: Callback | None = None,
    verbose: bool = False,
    goal: str | None = None,
    goal_criteria: GoalCriteria | None = None,
    judge_model: str | None = None,
    *,
    judge: Any = None,
    metric: Callable[[str], Any] | None = None,
    model: str = "gpt-4o-mini",
) -> EvaluationLoopResult | AutonomyResult:
    """As :func:`run_until`, without blocking the event loop."""
    return await _make_loop(
        agent,
        criteria,
        threshold,
        max_iterations,
        mode,
        on_iteration,
        verbose,
        goal,
        goal_criteria,
        judge_model or model,
        judge,
        metric,
    ).run_async(prompt)


def _make_loop(
    agent: Any,
    criteria: str,
    threshold: float,
    max_iterations: int,
    mode: str,
    on_iteration: Callback | None,
    verbose: bool,
    goal: str | None,
    goal_criteria: GoalCriteria | None,
    model: str,
    judge: Any,
    metric: Callable[[str], Any] | None,
) -> EvaluationLoop | GoalLoop:
    if goal is None:
        if goal_criteria is not None:
            raise ValueError("goal_criteria is allowed only together with goal")
        return EvaluationLoop(
            agent,
            criteria,
            threshold=threshold,
            max_iterations=max_iterations,
            mode=mode,
            judge=judge,
            on_iteration=on_iteration,
            verbose=verbose,
            model=model,
            metric=metric,
        )
    if metric is not None:
        raise ValueError("metric is not allowed together with goal: a judge decides whether a goal is met")
    return GoalLoop(
        agent,
        goal,
        goal_criteria or (GoalCriteria(outcome=criteria) if criteria else None),
        max_iterations,
        judge=judge,
        model=model,
        on_iteration=on_iteration,
        verbose=verbose,
    )
