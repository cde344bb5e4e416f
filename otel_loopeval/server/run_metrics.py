"""Runs that are over, as metrics for Prometheus."""

from typing import Any, Final, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Histogram

from otel_loopeval import semconv
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.server.served import ServedRun

MAX_NAMES: Final = 1_000
"""Agents, and services, that the metrics show; the ones after are ``_other``."""
MAX_FRAMEWORKS: Final = 100
"""Frameworks that they show; the ones after are ``other``."""
MAX_LABEL: Final = 200
"""Characters of each of these; the rest is cut off."""
MAX_KINDS: Final = 2_000
"""Kinds of runs, by service, agent, mode, framework and nesting, that they show; of the ones after, service,
agent and framework are those for others. One takes 9 kB, and half a millisecond of each scrape."""

_ITERATIONS: Final = (1, 2, 3, 5, 8, 13, 25)
_SECONDS: Final = (1, 10, 60, 600, 3_600, 86_400, 604_800)
_RATIO: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25)
_JOB: Final = "job"
"""What Prometheus calls a service: the scrape has to honour it (``honor_labels: true``)."""


def prometheus_name(metric: semconv.Metric) -> str:
    """A metric's name in Prometheus, as OpenTelemetry translates it, without ``_total``."""
    name = metric.name.replace(".", "_")
    unit = {"s": "seconds", "By": "bytes", "USD": "USD"}.get(metric.unit, "")
    return f"{name}_{unit}" if unit else name


def label(name: str) -> str:
    """An attribute's name as a label of Prometheus."""
    return name.replace(".", "_")


_M = TypeVar("_M", Counter, Histogram)


class RunMetrics:
    """Counts runs that are over, under the names that the processes' own metrics have.

    The tenant is no label: it would multiply the series, the processes' own metrics and the rules made of
    them know none, and ``/metrics`` is for whoever runs the server. How much each tenant sends is told by the
    requests that are counted.

    Args:
        registry: Where the metrics go.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._agents: set[str] = set()
        self._services: set[str] = set()
        self._frameworks: set[str] = set()
        self._kinds: set[tuple[str, ...]] = set()
        self._known: dict[tuple[Any, ...], Any] = {}
        base = (
            _JOB,
            *map(
                label,
                (semconv.GEN_AI_AGENT_NAME, semconv.RUN_MODE, semconv.RUN_FRAMEWORK, semconv.RUN_NESTED),
            ),
        )

        def counter(metric: semconv.Metric, *more: str) -> Counter:
            labels = (*base, *map(label, more))
            return Counter(prometheus_name(metric), metric.description, labels, registry=registry)

        def histogram(metric: semconv.Metric, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                prometheus_name(metric), metric.description, base, buckets=buckets, registry=registry
            )

        self._runs = counter(
            semconv.METRIC_RUNS,
            semconv.RUN_OUTCOME,
            semconv.HEALTH_PASSED,
            semconv.HEALTH_CONVERGED,
            semconv.HEALTH_DOOM_LOOP_FIRED,
        )
        guard = (semconv.GUARD_KIND, semconv.GUARD_ACTION)
        self._doom_loops = counter(semconv.METRIC_DOOM_LOOP_FIRED, *guard, semconv.GUARD_SOURCE)
        self._interventions = counter(semconv.METRIC_GUARD_INTERVENTIONS, *guard)
        self._iterations = counter(semconv.METRIC_ITERATIONS)
        self._wasted = counter(semconv.METRIC_ITERATIONS_WASTED)
        self._tokens = counter(semconv.METRIC_TOKENS, semconv.GEN_AI_TOKEN_TYPE)
        self._wasted_tokens = counter(semconv.METRIC_WASTED_TOKENS)
        self._cost = counter(semconv.METRIC_COST)
        self._wasted_cost = counter(semconv.METRIC_WASTED_COST)
        self._budget_exceeded = counter(semconv.METRIC_TOKEN_BUDGET_EXCEEDED)
        self._run_iterations = histogram(semconv.METRIC_RUN_ITERATIONS, _ITERATIONS)
        self._run_duration = histogram(semconv.METRIC_RUN_DURATION, _SECONDS)
        self._run_score_ratio = histogram(semconv.METRIC_RUN_SCORE_RATIO, _RATIO)

    def ended(self, served: ServedRun) -> None:
        """Count a run."""
        run, verdict = served.run, served.verdict
        health = verdict.health
        base = self._kind_of(served)
        self._of(
            self._runs,
            *base,
            verdict.outcome,
            _word(verdict.passed),
            _word(verdict.converged),
            _word(health.doom_loop_fired),
        ).inc()
        if run.guard_events:
            count_of_loops = LoopRun(
                run.agent, started_ns=run.started_ns
            )  # tells which events are of one loop
            for event in run.guard_events:
                self._of(self._interventions, *base, event.kind, event.action).inc()
                if count_of_loops.add_guard_event(event):
                    self._of(self._doom_loops, *base, event.kind, event.action, event.source).inc()
        self._of(self._iterations, *base).inc(max(run.iteration_count - run.carried_iterations, 0))
        if verdict.outcome == semconv.OUTCOME_PAUSED:
            return  # the segment that goes on with it tells of the whole
        self._of(self._run_iterations, *base).observe(run.iteration_count)
        self._of(self._run_duration, *base).observe(health.total_duration_s)
        if verdict.best_score is not None and health.threshold > 0:
            self._of(self._run_score_ratio, *base).observe(max(verdict.best_score / health.threshold, 0.0))
        self._of(self._wasted, *base).inc(health.wasted_iterations)
        if verdict.wasted_tokens:
            self._of(self._wasted_tokens, *base).inc(verdict.wasted_tokens)
        if verdict.wasted_cost_usd:
            self._of(self._wasted_cost, *base).inc(verdict.wasted_cost_usd)
        if verdict.over_token_budget:
            self._of(self._budget_exceeded, *base).inc()
        spent = run.spending
        if spent is not None and run.parent is None:  # a run's tokens are in those of the run around it
            self._of(self._tokens, *base, semconv.TOKEN_INPUT).inc(spent.input_tokens)
            self._of(self._tokens, *base, semconv.TOKEN_OUTPUT).inc(spent.output_tokens)
            if spent.cost_usd is not None:
                self._of(self._cost, *base).inc(max(spent.cost_usd, 0.0))

    def _kind_of(self, served: ServedRun) -> tuple[str, ...]:
        """The labels that every metric of a run has: spans may say what they like, and fill no memory."""
        run = served.run
        nested = _word(run.parent is not None)
        service = _shown(served.service, self._services, MAX_NAMES, semconv.AGENT_OTHER)
        agent = _shown(run.agent, self._agents, MAX_NAMES, semconv.AGENT_OTHER)
        framework = _shown(run.framework, self._frameworks, MAX_FRAMEWORKS, semconv.FRAMEWORK_OTHER)
        kind = (service, agent, run.mode, framework, nested)
        if kind not in self._kinds:
            if len(self._kinds) >= MAX_KINDS:
                return (semconv.AGENT_OTHER, semconv.AGENT_OTHER, run.mode, semconv.FRAMEWORK_OTHER, nested)
            self._kinds.add(kind)
        return kind

    def _of(self, metric: _M, *labels: str) -> _M:
        """A metric with labels: the library looks for it under a lock, and makes text of each label."""
        key = (metric, *labels)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = metric.labels(*labels)
        return cast("_M", found)


def _shown(name: str, shown: set[str], most: int, other: str) -> str:
    name = name[:MAX_LABEL]
    if name not in shown:
        if len(shown) >= most:
            return other
        shown.add(name)
    return name


def _word(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"
