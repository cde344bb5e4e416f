"""What a report tells of one run."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health.wire import as_text
from otel_loopeval.runs.reconstruct import Replayed

SCHEMA_VERSION: Final = 1
"""Version of the JSON shape. Fields may be added under the same version; it rises when one goes or changes
its meaning."""

MAX_SCORES: Final = 128
"""Scores that a record keeps: the last ones, as many as the root span keeps deltas."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run, as JSON reports tell it: the fields are the keys. None is unknown, and null in JSON.

    Attributes:
        id: Its identifier: ``loopeval.run.id``, or else the id of its root span, or else of its trace.
        trace_id: Id of its trace, 32 hexadecimal digits; None where it is not known.
        span_id: Id of its root span, 16 hexadecimal digits; None where that is missing.
        agent: Name of the agent.
        service: Name of the service that ran it.
        conversation_id: Conversation that it belongs to.
        mode: One of ``semconv.MODES``.
        framework: What ran the loop.
        nested: Whether it was inside another run.
        started: When it began, in ISO 8601, UTC.
        duration_s: Wall-clock duration in seconds.
        outcome: How it ended, one of ``semconv.OUTCOMES``.
        completion_reason: The framework's own word for why it ended.
        passed: The verdict: whether it is healthy; None where the outcome allows no verdict.
        converged: Whether it reached its threshold or goal; None likewise.
        reasons: Why it is unhealthy, of ``semconv.REASON_*``.
        reasoning: The verdict in a sentence, generated from numbers and never from content.
        threshold: Threshold that the verdict used.
        iterations: Iterations that ran.
        max_iterations: Iterations that it might run.
        max_wasted_iterations: Wasted iterations that it tolerates, where it brings a limit of its own.
        iterations_to_success: The iteration that first met the threshold, else all.
        wasted_iterations: Iterations after the threshold was met (agent runs: that only repeated others).
        scores: Scores of the iterations, the last 128; None for one without a score.
        final_score: Score of the last scored iteration.
        best_score: Highest score.
        best_iteration: Number of the iteration with the highest score.
        doom_loop_fired: Whether a doom loop fired, in it or in a run inside it.
        doom_loop_kinds: Kinds of the doom loops that fired in it.
        guard_interventions: Guard events.
        evidence: What the detectors could see, one of ``semconv.EVIDENCE_*``.
        input_tokens: Input tokens of its model calls, runs inside it included, judges not.
        output_tokens: Output tokens, likewise.
        judge_tokens: Input plus output tokens of its judges.
        wasted_tokens: Tokens of the wasted iterations.
        over_token_budget: Whether it used more tokens than its budget; None without a budget.
        cost_usd: What its model calls cost.
        wasted_cost_usd: What the wasted iterations cost.
    """

    id: str
    trace_id: str | None
    span_id: str | None
    agent: str
    service: str | None
    conversation_id: str | None
    mode: str
    framework: str
    nested: bool
    started: str
    duration_s: float | None
    outcome: str
    completion_reason: str | None
    passed: bool | None
    converged: bool | None
    reasons: tuple[str, ...]
    reasoning: str
    threshold: float | None
    iterations: int
    max_iterations: int | None
    max_wasted_iterations: int | None
    iterations_to_success: int
    wasted_iterations: int
    scores: tuple[float | None, ...]
    final_score: float | None
    best_score: float | None
    best_iteration: int | None
    doom_loop_fired: bool
    doom_loop_kinds: tuple[str, ...]
    guard_interventions: int
    evidence: str
    input_tokens: int | None
    output_tokens: int | None
    judge_tokens: int | None
    wasted_tokens: int | None
    over_token_budget: bool | None
    cost_usd: float | None
    wasted_cost_usd: float | None

    @property
    def tokens(self) -> int | None:
        """Input plus output tokens, or None where they are unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def to_dict(self) -> dict[str, Any]:
        """The fields, in the types of strict JSON."""
        # Not dataclasses.asdict(), which copies each value and takes thirty times as long.
        return dict(zip(_FIELDS, _values(self), strict=True))


_FIELDS: Final = tuple(RunRecord.__dataclass_fields__)
_values = attrgetter(*_FIELDS)


def record_of(replayed: Replayed, trace_id: int | None = None) -> RunRecord:
    """What a report tells of a run.

    Args:
        replayed: The run, its verdict and its root.
        trace_id: Id of its trace, where the root that would tell it may be missing.
    """
    run, verdict, root = replayed
    health = verdict.health
    if root is not None:
        trace_id = root.trace_id
    spent, judged = run.spending, run.judge_spending
    return RunRecord(
        id=_id(replayed, trace_id),
        trace_id=None if trace_id is None else f"{trace_id:032x}",
        span_id=None if root is None else f"{root.span_id:016x}",
        agent=run.agent,
        service=None if root is None else as_text(root.resource.get(semconv.SERVICE_NAME)),
        conversation_id=run.conversation_id,
        mode=run.mode,
        framework=run.framework,
        nested=run.parent is not None,
        started=_iso(run.started_ns),
        duration_s=_finite(health.total_duration_s),
        outcome=verdict.outcome,
        completion_reason=as_text(run.completion_reason),
        passed=verdict.passed,
        converged=verdict.converged,
        reasons=verdict.reasons,
        reasoning=health.reasoning,
        threshold=_finite(health.threshold),
        iterations=run.iteration_count,
        max_iterations=run.max_iterations,
        max_wasted_iterations=run.max_wasted_iterations,
        iterations_to_success=health.iterations_to_success,
        wasted_iterations=health.wasted_iterations,
        scores=tuple(_finite(iteration.score) for iteration in run.iterations[-MAX_SCORES:]),
        final_score=_finite(verdict.final_score),
        best_score=_finite(verdict.best_score),
        best_iteration=verdict.best_iteration,
        doom_loop_fired=health.doom_loop_fired,
        doom_loop_kinds=verdict.doom_loop_kinds,
        guard_interventions=health.guard_interventions,
        evidence=run.evidence,
        input_tokens=None if spent is None else spent.input_tokens,
        output_tokens=None if spent is None else spent.output_tokens,
        judge_tokens=None if judged is None else judged.tokens,
        wasted_tokens=verdict.wasted_tokens,
        over_token_budget=verdict.over_token_budget,
        cost_usd=None if spent is None else _finite(spent.cost_usd),
        wasted_cost_usd=_finite(verdict.wasted_cost_usd),
    )


def _id(replayed: Replayed, trace_id: int | None) -> str:
    """An id that is the same each time the same spans are read: the run's own is random if none was told."""
    root = replayed.root
    if root is not None:
        return as_text(root.attributes.get(semconv.RUN_ID)) or f"{root.span_id:016x}"
    return replayed.run.id if trace_id is None else f"{trace_id:032x}"


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _iso(time_ns: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=time_ns // 1000)
    except OverflowError:  # beyond the year 9999: the spans are broken
        moment = datetime.max.replace(tzinfo=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
