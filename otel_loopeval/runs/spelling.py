"""How facts of a run are spelled on spans and log records: attribute dictionaries."""

from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.health.wire import encodable
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.usage import Spending
from otel_loopeval.runs.verdict import Verdict

Attributes = dict[str, Any]

_OPERATION_OF_MODE = {
    semconv.MODE_OPTIMIZE: semconv.OPERATION_INVOKE_WORKFLOW,
    semconv.MODE_REVIEW: semconv.OPERATION_INVOKE_WORKFLOW,
    semconv.MODE_GOAL: semconv.OPERATION_INVOKE_AGENT,
    semconv.MODE_AGENT: semconv.OPERATION_INVOKE_AGENT,
}


_RUN_SPENDING = (semconv.RUN_TOKENS_INPUT, semconv.RUN_TOKENS_OUTPUT, semconv.RUN_COST_USD)
_JUDGE_SPENDING = (
    semconv.RUN_JUDGE_TOKENS_INPUT,
    semconv.RUN_JUDGE_TOKENS_OUTPUT,
    semconv.RUN_JUDGE_COST_USD,
)
_ITERATION_SPENDING = (
    semconv.ITERATION_TOKENS_INPUT,
    semconv.ITERATION_TOKENS_OUTPUT,
    semconv.ITERATION_COST_USD,
)


def start_attributes(run: LoopRun) -> Attributes:
    """What a root span carries from its creation, so that samplers can see it."""
    attributes: Attributes = {
        semconv.GEN_AI_OPERATION_NAME: _OPERATION_OF_MODE[run.mode],
        semconv.GEN_AI_AGENT_NAME: run.agent,
        semconv.RUN_MODE: run.mode,
        semconv.RUN_FRAMEWORK: run.framework,
        semconv.RUN_ID: run.id,
    }
    if run.threshold is not None:
        attributes[semconv.RUN_THRESHOLD] = run.threshold
    if run.max_iterations is not None:
        attributes[semconv.RUN_MAX_ITERATIONS] = run.max_iterations
    if run.conversation_id is not None:
        attributes[semconv.GEN_AI_CONVERSATION_ID] = run.conversation_id
    if run.max_wasted_iterations is not None:
        attributes[semconv.RUN_MAX_WASTED_ITERATIONS] = run.max_wasted_iterations
    if run.token_budget is not None:
        attributes[semconv.RUN_TOKEN_BUDGET] = run.token_budget
    if run.resumed:
        attributes[semconv.RUN_RESUMED] = True
    return attributes


def end_attributes(run: LoopRun, verdict: Verdict) -> Attributes:
    """What a root span carries of the run and its health at its end, for a root of our own."""
    attributes: Attributes = {
        semconv.RUN_OUTCOME: verdict.outcome,
        semconv.RUN_SUCCESS: verdict.success,
        semconv.RUN_ITERATIONS: run.iteration_count,
    }
    if run.completion_reason is not None:
        attributes[semconv.RUN_COMPLETION_REASON] = encodable(run.completion_reason)
    if verdict.final_score is not None:
        attributes[semconv.RUN_FINAL_SCORE] = verdict.final_score
    if verdict.best_score is not None:
        attributes[semconv.RUN_BEST_SCORE] = verdict.best_score
        attributes[semconv.RUN_BEST_ITERATION] = verdict.best_iteration
    attributes.update(health_attributes(run, verdict))
    return attributes


def health_attributes(run: LoopRun, verdict: Verdict) -> Attributes:
    """The health of a run: all that a root which somebody else ends is given."""
    health = verdict.health
    attributes: Attributes = {}
    if verdict.decided:
        attributes[semconv.HEALTH_PASSED] = health.success
        attributes[semconv.HEALTH_CONVERGED] = health.converged
    attributes[semconv.HEALTH_DOOM_LOOP_FIRED] = health.doom_loop_fired
    attributes[semconv.HEALTH_ITERATIONS_TO_SUCCESS] = health.iterations_to_success
    attributes[semconv.HEALTH_WASTED_ITERATIONS] = health.wasted_iterations
    attributes[semconv.HEALTH_GUARD_INTERVENTIONS] = health.guard_interventions
    attributes[semconv.HEALTH_TOTAL_DURATION_S] = health.total_duration_s
    attributes[semconv.HEALTH_THRESHOLD] = health.threshold
    deltas = health.score_delta_per_iteration
    if len(deltas) > semconv.MAX_DELTAS or None in deltas:
        deltas = [delta for delta in deltas[-semconv.MAX_DELTAS :] if delta is not None]
    if deltas:
        attributes[semconv.HEALTH_SCORE_DELTA_PER_ITERATION] = tuple(deltas)
    if verdict.reasons:
        attributes[semconv.HEALTH_REASONS] = verdict.reasons
    if verdict.doom_loop_kinds:
        attributes[semconv.HEALTH_DOOM_LOOP_KINDS] = verdict.doom_loop_kinds
    attributes[semconv.HEALTH_REASONING] = health.reasoning
    attributes[semconv.HEALTH_EVIDENCE] = run.evidence
    if run.spending is not None:
        _add_spending(attributes, run.spending, _RUN_SPENDING)
        if verdict.wasted_tokens:
            attributes[semconv.HEALTH_WASTED_TOKENS] = verdict.wasted_tokens
            if verdict.wasted_cost_usd is not None:
                attributes[semconv.HEALTH_WASTED_COST_USD] = verdict.wasted_cost_usd
    if run.judge_spending is not None:
        _add_spending(attributes, run.judge_spending, _JUDGE_SPENDING)
    if verdict.over_token_budget is not None:
        attributes[semconv.HEALTH_OVER_TOKEN_BUDGET] = verdict.over_token_budget
    return attributes


def _add_spending(attributes: Attributes, spending: Spending, names: tuple[str, str, str]) -> None:
    attributes[names[0]] = spending.input_tokens
    attributes[names[1]] = spending.output_tokens
    if spending.cost_usd is not None:
        attributes[names[2]] = spending.cost_usd


def iteration_attributes(
    iteration: IterationState, delta: float | None, findings: int | None, *, threshold_met: bool
) -> Attributes:
    """What an iteration span carries at its end."""
    attributes: Attributes = {}
    if iteration.score is not None:
        attributes[semconv.ITERATION_SCORE] = iteration.score
        attributes[semconv.ITERATION_THRESHOLD_MET] = threshold_met
        if delta is not None:
            attributes[semconv.ITERATION_SCORE_DELTA] = delta
    if findings is not None:
        attributes[semconv.ITERATION_FINDINGS_COUNT] = findings
    if iteration.spending is not None:
        _add_spending(attributes, iteration.spending, _ITERATION_SPENDING)
    return attributes


def evaluation_event(score: float, *, threshold_met: bool) -> Attributes:
    """A ``gen_ai.evaluation.result``."""
    return {
        semconv.GEN_AI_EVALUATION_NAME: semconv.EVALUATION_NAME,
        semconv.GEN_AI_EVALUATION_SCORE_VALUE: score,
        semconv.GEN_AI_EVALUATION_SCORE_LABEL: semconv.LABEL_PASS if threshold_met else semconv.LABEL_FAIL,
    }


def guard_event(event: GuardEvent) -> Attributes:
    """A ``loopeval.guard``."""
    attributes: Attributes = {
        semconv.GUARD_KIND: event.kind,
        semconv.GUARD_DOOM_LOOP: event.doom_loop,
        semconv.GUARD_SOURCE: event.source,
        semconv.GUARD_ACTION: event.action,
    }
    for key, value in (
        (semconv.GUARD_TOOL, event.tool),
        (semconv.GUARD_COUNT, event.count),
        (semconv.GUARD_ITERATION, event.iteration),
        (semconv.GUARD_RULE, event.rule),
    ):
        if value is not None:
            attributes[key] = value
    return attributes
