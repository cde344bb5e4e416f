"""What reports say of runs, in words, for whatever form it is written in."""

from typing import Final

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.summary import AgentTotals

_REASONS: Final = {
    semconv.REASON_NOT_CONVERGED: "did not converge",
    semconv.REASON_WASTED_ITERATIONS: "wasted iterations",
    semconv.REASON_DOOM_LOOP: "doom loop",
    semconv.REASON_OVER_TOKEN_BUDGET: "over the token budget",
}
_REACHED: Final = {semconv.MODE_GOAL: "goal met", semconv.MODE_AGENT: "completed"}


def verdict(passed: bool | None) -> str:
    """Healthy, unhealthy, or neither."""
    return "no verdict" if passed is None else "healthy" if passed else "unhealthy"


def why(record: RunRecord) -> str:
    """The reasons of a run's verdict in a few words; without control characters only if the run has none."""
    if record.passed is None:
        return record.outcome
    if not record.reasons:
        return f"{_REACHED.get(record.mode, 'converged')} in {record.iterations_to_success}"
    parts: list[str] = []
    for reason in record.reasons:
        text = _REASONS.get(reason, reason)
        if reason == semconv.REASON_WASTED_ITERATIONS:
            text = count(record.wasted_iterations, "wasted iteration")
        elif reason == semconv.REASON_DOOM_LOOP and record.doom_loop_kinds:
            text = f"{text} ({', '.join(record.doom_loop_kinds)})"
        parts.append(text)
    return ", ".join(parts)


def guard_event(event: GuardEvent) -> str:
    """A guard event in a line; its reason, which is content, is left out."""
    what = f"{'doom loop' if event.doom_loop else 'guard'}: {event.kind}"
    if event.tool is not None:
        what += f" of {event.tool}"
    if event.count is not None:
        what += f", {event.count} times"
    rule = "" if event.rule is None else f", rule {event.rule}"
    return f"{what} ({event.source}{rule})"


def count(number: int, thing: str) -> str:
    """A number of things."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(rate: float | None) -> str:
    """A rate from 0 to 1 as a percentage; empty where it is unknown."""
    return "" if rate is None else f"{rate:.0%}" if rate in (0, 1) else f"{rate:.1%}"


def headline(total: AgentTotals, nested: AgentTotals) -> str:
    """What there was, in a line."""
    parts = [count(total.runs, "run"), f"{total.healthy:,} healthy", f"{total.unhealthy:,} unhealthy"]
    if total.runs > total.judged:
        parts.append(f"{total.runs - total.judged:,} without a verdict")
    if total.doom_loops:
        parts.append(f"{total.doom_loops:,} with a doom loop")
    if nested.runs:
        parts.append(f"{nested.runs:,} more inside them ({nested.unhealthy:,} unhealthy)")
    return ", ".join(parts)
