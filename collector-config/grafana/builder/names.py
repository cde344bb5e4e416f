"""Names of metrics and labels as Prometheus has them.

The Collector turns dots into underscores, adds the unit unless it is an annotation (``{run}``), and ends
counters in ``_total`` (https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
"""

from typing import Final

from otel_loopeval import semconv

_UNITS: Final = {"s": "_seconds", "USD": "_USD"}
"""Units that become part of a name. ``1`` does for gauges only, and none of ours has it."""


def label(attribute: str) -> str:
    """An attribute as a label."""
    return attribute.replace(".", "_")


def _base(metric: semconv.Metric) -> str:
    return label(metric.name) + _UNITS.get(metric.unit, "")


def _counter(metric: semconv.Metric) -> str:
    return f"{_base(metric)}_total"


SERVICE: Final = label(semconv.SERVICE_NAME)
VERSION: Final = label(semconv.SERVICE_VERSION)
ENVIRONMENT: Final = label(semconv.DEPLOYMENT_ENVIRONMENT_NAME)
AGENT: Final = label(semconv.GEN_AI_AGENT_NAME)
OUTCOME: Final = label(semconv.RUN_OUTCOME)
PASSED: Final = label(semconv.HEALTH_PASSED)
KIND: Final = label(semconv.GUARD_KIND)
ACTION: Final = label(semconv.GUARD_ACTION)
TOKEN_TYPE: Final = label(semconv.GEN_AI_TOKEN_TYPE)
REASON: Final = label(semconv.REASON)

RUNS_STARTED: Final = _counter(semconv.METRIC_RUNS_STARTED)
RUNS: Final = _counter(semconv.METRIC_RUNS)
DOOM_LOOPS: Final = _counter(semconv.METRIC_DOOM_LOOP_FIRED)
INTERVENTIONS: Final = _counter(semconv.METRIC_GUARD_INTERVENTIONS)
ITERATIONS: Final = _counter(semconv.METRIC_ITERATIONS)
WASTED_ITERATIONS: Final = _counter(semconv.METRIC_ITERATIONS_WASTED)
TOKENS: Final = _counter(semconv.METRIC_TOKENS)
WASTED_TOKENS: Final = _counter(semconv.METRIC_WASTED_TOKENS)
JUDGE_TOKENS: Final = _counter(semconv.METRIC_JUDGE_TOKENS)
COST: Final = _counter(semconv.METRIC_COST)
JUDGE_COST: Final = _counter(semconv.METRIC_JUDGE_COST)
WASTED_COST: Final = _counter(semconv.METRIC_WASTED_COST)
BUDGET_EXCEEDED: Final = _counter(semconv.METRIC_TOKEN_BUDGET_EXCEEDED)
EVICTED_RUNS: Final = _counter(semconv.METRIC_TRACKER_EVICTED_RUNS)
LATE_SPANS: Final = _counter(semconv.METRIC_TRACKER_LATE_SPANS)
ERRORS: Final = _counter(semconv.METRIC_TRACKER_ERRORS)

OPEN_RUNS: Final = _base(semconv.METRIC_RUN_OPEN)
IDLE_MAX: Final = _base(semconv.METRIC_RUN_IDLE_MAX)

# Histograms, without _bucket, _sum and _count.
RUN_ITERATIONS: Final = _base(semconv.METRIC_RUN_ITERATIONS)
RUN_DURATION: Final = _base(semconv.METRIC_RUN_DURATION)
RUN_SCORE_RATIO: Final = _base(semconv.METRIC_RUN_SCORE_RATIO)
RUN_BUDGET_RATIO: Final = _base(semconv.METRIC_RUN_TOKEN_BUDGET_RATIO)
ITERATION_DURATION: Final = _base(semconv.METRIC_ITERATION_DURATION)
ITERATION_SCORE_RATIO: Final = _base(semconv.METRIC_ITERATION_SCORE_RATIO)

# Recording rules (prometheus/rules/recording.yml), by service, environment and agent.
HEALTH_RATIO_1H: Final = "loopeval:health:ratio1h"
WASTED_RATIO_1H: Final = "loopeval:iterations_wasted:ratio1h"
RECORDED: Final = {
    RUNS: "loopeval:runs:increase5m",
    RUNS_STARTED: "loopeval:runs_started:increase5m",
    ITERATIONS: "loopeval:iterations:increase5m",
    WASTED_ITERATIONS: "loopeval:iterations_wasted:increase5m",
    TOKENS: "loopeval:tokens:increase5m",
    WASTED_TOKENS: "loopeval:wasted_tokens:increase5m",
    COST: "loopeval:cost_usd:increase5m",
    WASTED_COST: "loopeval:wasted_cost_usd:increase5m",
    DOOM_LOOPS: "loopeval:doom_loop_fired:increase5m",
}
"""What a counter grew in five minutes."""
