"""What a finished run amounts to: its outcome, its health, and why.

Pure functions of a :class:`~otel_loopeval.runs.run.LoopRun`; the scoring itself is
:mod:`otel_loopeval.health`'s.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from otel_loopeval import semconv
from otel_loopeval.health import LoopHealthResult, assess
from otel_loopeval.runs.run import MAX_ITERATIONS_KEPT, IterationState, LoopRun


@dataclass(frozen=True, slots=True)
class Policy:
    """What counts as healthy where the run itself does not say.

    Attributes:
        threshold: Threshold of runs that bring none, on the judge's scale; None for the default, 8.0.
        max_wasted_iterations: Wasted iterations tolerated. None for the default: 0 for loops with scores,
            while the turns that an agent wastes are counted and do not decide.
        token_budget: Input plus output tokens that a run may use, or None for no limit.
    """

    threshold: float | None = None
    max_wasted_iterations: int | None = None
    token_budget: int | None = None


class Verdict(NamedTuple):
    """What a run amounts to. A tuple, since a frozen dataclass costs ten times as much to make.

    Attributes:
        outcome: How it ended, one of ``semconv.OUTCOMES``.
        health: Its health. Only meaningful for its numbers where ``decided`` is False.
        decided: Whether the outcome allows a verdict: a run that was paused, cancelled, interrupted or
            cut off is neither healthy nor unhealthy.
        success: Whether the loop calls itself a success.
        reasons: Why it is unhealthy, of ``semconv.REASON_*``.
        doom_loop_kinds: Kinds of the doom loops that fired in it, in order of appearance.
        final_score: Score of the last scored iteration, or None.
        best_score: Highest score, or None.
        best_iteration: Number of the iteration with the highest score, or None.
        wasted_tokens: Tokens of the wasted iterations; None where no iteration has any.
        wasted_cost_usd: Their cost in USD; None where it is unknown.
        over_token_budget: Whether it used more tokens than its budget; None without a budget.
    """

    outcome: str
    health: LoopHealthResult
    decided: bool
    success: bool
    reasons: tuple[str, ...]
    doom_loop_kinds: tuple[str, ...]
    final_score: float | None
    best_score: float | None
    best_iteration: int | None
    wasted_tokens: int | None
    wasted_cost_usd: float | None
    over_token_budget: bool | None

    @property
    def passed(self) -> bool | None:
        """Whether the run is healthy, or None if its outcome allows no verdict."""
        return self.health.success if self.decided else None

    @property
    def converged(self) -> bool | None:
        """Whether the run reached its threshold or goal, or None if its outcome allows no verdict."""
        return self.health.converged if self.decided else None


def effective_threshold(run: LoopRun, policy: Policy) -> float:
    """The threshold that a run is judged by: its own, else the policy's, else 8.0."""
    if run.threshold is not None:
        return run.threshold
    return semconv.DEFAULT_THRESHOLD if policy.threshold is None else policy.threshold


def effective_token_budget(run: LoopRun, policy: Policy) -> int | None:
    """The token budget of a run: its own, else the policy's, else none."""
    return policy.token_budget if run.token_budget is None else run.token_budget


def judge(run: LoopRun, ended_ns: int, policy: Policy) -> Verdict:
    """Judge a run.

    Args:
        run: The run; it may still be open, for a live look.
        ended_ns: When it ended (or now), in nanoseconds since the epoch.
        policy: What counts as healthy where the run does not say.
    """
    threshold = effective_threshold(run, policy)
    iterations = _in_order(run.iterations)
    scores: list[float | None] = []
    best: IterationState | None = None
    best_score: float | None = None
    final_score: float | None = None
    for iteration in iterations:
        score = iteration.score
        scores.append(score)
        if score is not None:
            final_score = score
            if best_score is None or score > best_score:  # the first of equals, as the package has it
                best, best_score = iteration, score
    if run.dropped_iterations:
        # A very long run dropped iterations from its middle: they count, as iterations without a score.
        middle = MAX_ITERATIONS_KEPT // 2
        scores[middle:middle] = [None] * run.dropped_iterations
    success = run.success
    if success is None:
        success = best_score is not None and best_score >= threshold
    outcome = run.outcome or _outcome(run, success=success)
    if run.cut and outcome not in semconv.OUTCOMES_WITHOUT_VERDICT:
        outcome = semconv.OUTCOME_INCOMPLETE
    if run.mode == semconv.MODE_AGENT and run.success is None:
        success = outcome == semconv.OUTCOME_COMPLETED
    max_wasted = (
        policy.max_wasted_iterations if run.max_wasted_iterations is None else run.max_wasted_iterations
    )
    if max_wasted is None and run.mode != semconv.MODE_AGENT:
        max_wasted = 0
    duration_s = (max(ended_ns - run.started_ns, 0) + run.carried_ns) / 1e9  # not the time between segments
    if run.mode in (semconv.MODE_GOAL, semconv.MODE_AGENT):
        health = _assess_without_scores(run, threshold, outcome, duration_s, max_wasted, success=success)
    else:
        health = assess(
            scores,
            threshold=threshold,
            mode=run.mode,
            success=success,
            guard_count=run.interventions,
            doom_loop_fired=run.doom_loop_fired,
            total_duration_s=duration_s,
            max_wasted_iterations=max_wasted,
        )
    budget = effective_token_budget(run, policy)
    over_budget = None if budget is None else run.spending is not None and run.spending.tokens > budget
    if over_budget:
        health.success = False
        health.reasoning += " Over the token budget."
    decided = outcome not in semconv.OUTCOMES_WITHOUT_VERDICT
    wasted_tokens, wasted_cost_usd = _waste(
        iterations,
        [iteration for iteration in iterations if iteration.wasted]
        if run.mode == semconv.MODE_AGENT
        else iterations[len(iterations) - health.wasted_iterations :],
    )
    return Verdict(
        outcome=outcome,
        health=health,
        decided=decided,
        success=success,
        reasons=_reasons(health, max_wasted, over_budget=bool(over_budget)) if decided else (),
        doom_loop_kinds=_doom_loop_kinds(run) if run.own_doom_loop else (),
        final_score=final_score,
        best_score=best_score,
        best_iteration=None if best is None else best.number,
        wasted_tokens=wasted_tokens,
        wasted_cost_usd=wasted_cost_usd,
        over_token_budget=over_budget,
    )


def _waste(iterations: list[IterationState], wasted: list[IterationState]) -> tuple[int | None, float | None]:
    """The tokens of the wasted iterations and their cost; None where it is unknown."""
    if all(iteration.spending is None for iteration in iterations):
        return None, None
    tokens, cost_usd = 0, 0.0
    unpriced = False
    for iteration in wasted:
        spending = iteration.spending
        if spending is not None:
            tokens += spending.tokens
            cost_usd += spending.known_cost_usd
            unpriced = unpriced or spending.unpriced
    return tokens, None if unpriced else cost_usd


def _in_order(iterations: list[IterationState]) -> list[IterationState]:
    """Iterations by number: parallel ones may begin out of order."""
    last = 0
    for iteration in iterations:
        if iteration.number < last:
            return sorted(iterations, key=attrgetter("number"))
        last = iteration.number
    return iterations


def _outcome(run: LoopRun, *, success: bool) -> str:
    """The outcome of a run whose owner declared none: it left its loop without an exception."""
    if run.mode == semconv.MODE_REVIEW or success:
        return semconv.OUTCOME_COMPLETED
    count = run.iteration_count
    if run.max_iterations is not None and count >= run.max_iterations:
        return semconv.OUTCOME_LIMIT
    # Leaving early without success is what `if run.doom_loop_fired: break` does.
    return semconv.OUTCOME_STOPPED if run.doom_loop_fired else semconv.OUTCOME_COMPLETED


def _assess_without_scores(
    run: LoopRun,
    threshold: float,
    outcome: str,
    duration_s: float,
    max_wasted: int | None,
    *,
    success: bool,
) -> LoopHealthResult:
    """Goal runs converge when the goal is met, agent runs when they complete and nobody says they failed."""
    count = run.iteration_count
    converged = success
    wasted = 0
    if run.mode == semconv.MODE_AGENT:
        converged = outcome == semconv.OUTCOME_COMPLETED and run.success is not False
        wasted = sum(iteration.wasted for iteration in run.iterations)
    health = assess(
        [],
        threshold,
        semconv.MODE_REVIEW,
        guard_count=run.interventions,
        doom_loop_fired=run.doom_loop_fired,
        total_duration_s=duration_s,
    )
    health.iterations_to_success = count
    health.converged = converged
    health.wasted_iterations = wasted
    health.success = converged and not run.doom_loop_fired and (max_wasted is None or wasted <= max_wasted)
    health.metadata = {"num_iterations": count}
    done, missed = _WORDS[run.mode]
    word = f"{done} in {count} iteration(s)." if converged else f"{missed} after {count} iteration(s)."
    if wasted:
        word += f" {wasted} iteration(s) only repeated earlier ones."
    health.reasoning = word + health.reasoning.partition("iteration(s).")[2]
    return health


_WORDS = {
    semconv.MODE_GOAL: ("Goal met", "Goal not met"),
    semconv.MODE_AGENT: ("Completed", "Did not complete"),
}


def _reasons(health: LoopHealthResult, max_wasted: int | None, *, over_budget: bool) -> tuple[str, ...]:
    if health.success:
        return ()
    reasons: list[str] = []
    if not health.converged:
        reasons.append(semconv.REASON_NOT_CONVERGED)
    if max_wasted is not None and health.wasted_iterations > max_wasted:
        reasons.append(semconv.REASON_WASTED_ITERATIONS)
    if health.doom_loop_fired:
        reasons.append(semconv.REASON_DOOM_LOOP)
    if over_budget:
        reasons.append(semconv.REASON_OVER_TOKEN_BUDGET)
    return tuple(reasons)


def _doom_loop_kinds(run: LoopRun) -> tuple[str, ...]:
    # By time: events are fed as they happen, or as the spans that carry them end.
    events = sorted((event.time_ns or 0, event.kind) for event in run.guard_events if event.doom_loop)
    return tuple(dict.fromkeys(kind for _, kind in events))
