"""Runs that are over, as metrics for Prometheus."""

import time
from collections import OrderedDict
from typing import Any, Final, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Histogram

from otel_loopeval import semconv
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.usage import Spending
from otel_loopeval.server.served import ServedRun

MAX_LABEL: Final = 200
"""Characters of a name from outside; the rest is cut off."""
MAX_KINDS: Final = 2_000
"""Kinds of runs, by service, version, environment, agent, mode, framework and nesting, that the metrics show.
One takes 10 kB, and half a millisecond of each scrape."""
_QUIET_S: Final = 3_600.0
"""After so many seconds without a run, a kind makes room for another one. The rules take a series that comes
back after that for a new one."""

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


class _Kind:
    """The series of one kind of runs.

    Attributes:
        last: When such a run was counted, in seconds of a steady clock.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.last = 0.0
        self._labels = labels
        self._since = str(time.time_ns() // 1_000_000)
        self._children: dict[tuple[Any, ...], Any] = {}

    def of(self, metric: _M, *more: str) -> _M:
        """The series of a metric: the library looks for it under a lock, and makes text of each label."""
        found = self._children.get((metric, *more))
        if found is None:
            found = self._children[(metric, *more)] = metric.labels(*self._labels, *more)
        return cast("_M", found)

    def event(self, metric: Counter, *more: str) -> Counter:
        """The series of a metric that alerts: when its count began tells one from zero from one as before."""
        return self.of(metric, *more, self._since)

    def remove(self) -> None:
        """Show the series no longer."""
        for metric, *more in self._children:
            metric.remove(*self._labels, *more)


class RunMetrics:
    """Counts runs that are over, under the names and labels that the processes' own metrics have.

    The tenant is no label: it would multiply the series, the processes' own metrics and the rules made of
    them know none, and ``/metrics`` is for whoever runs the server. How much each tenant sends is told by the
    requests that are counted.

    Args:
        registry: Where the metrics go.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._kinds: OrderedDict[tuple[str, ...], _Kind] = (
            OrderedDict()
        )  # the one without runs for longest first
        resource = (semconv.SERVICE_NAME, semconv.SERVICE_VERSION, semconv.DEPLOYMENT_ENVIRONMENT_NAME)
        run = (semconv.GEN_AI_AGENT_NAME, semconv.RUN_MODE, semconv.RUN_FRAMEWORK, semconv.RUN_NESTED)
        base = (_JOB, *map(label, (*resource, *run)))

        def counter(metric: semconv.Metric, *more: str) -> Counter:
            labels = (*base, *map(label, more))
            return Counter(prometheus_name(metric), metric.description, labels, registry=registry)

        def histogram(metric: semconv.Metric, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                prometheus_name(metric), metric.description, base, buckets=buckets, registry=registry
            )

        self._runs_started = counter(semconv.METRIC_RUNS_STARTED)
        self._runs = counter(
            semconv.METRIC_RUNS,
            semconv.RUN_OUTCOME,
            semconv.HEALTH_PASSED,
            semconv.HEALTH_CONVERGED,
            semconv.HEALTH_DOOM_LOOP_FIRED,
        )
        guard = (semconv.GUARD_KIND, semconv.GUARD_ACTION)
        self._doom_loops = counter(
            semconv.METRIC_DOOM_LOOP_FIRED, *guard, semconv.GUARD_SOURCE, semconv.SINCE
        )
        self._interventions = counter(semconv.METRIC_GUARD_INTERVENTIONS, *guard)
        self._iterations = counter(semconv.METRIC_ITERATIONS)
        self._wasted = counter(semconv.METRIC_ITERATIONS_WASTED)
        self._tokens = counter(semconv.METRIC_TOKENS, semconv.GEN_AI_TOKEN_TYPE)
        self._judge_tokens = counter(semconv.METRIC_JUDGE_TOKENS, semconv.GEN_AI_TOKEN_TYPE)
        self._wasted_tokens = counter(semconv.METRIC_WASTED_TOKENS)
        self._cost = counter(semconv.METRIC_COST)
        self._judge_cost = counter(semconv.METRIC_JUDGE_COST)
        self._wasted_cost = counter(semconv.METRIC_WASTED_COST)
        self._budget_exceeded = counter(semconv.METRIC_TOKEN_BUDGET_EXCEEDED, semconv.SINCE)
        self._run_iterations = histogram(semconv.METRIC_RUN_ITERATIONS, _ITERATIONS)
        self._run_duration = histogram(semconv.METRIC_RUN_DURATION, _SECONDS)
        self._run_score_ratio = histogram(semconv.METRIC_RUN_SCORE_RATIO, _RATIO)

    def ended(self, served: ServedRun) -> None:
        """Count a run."""
        run, verdict = served.run, served.verdict
        health = verdict.health
        kind = self._kind_of(served)
        where = _exemplar(served)
        kind.of(self._runs_started).inc(1, where)
        kind.of(
            self._runs,
            verdict.outcome,
            _word(verdict.passed),
            _word(verdict.converged),
            _word(health.doom_loop_fired),
        ).inc(1, where)
        if len(run.guard_events) > run.carried_guard_events:
            self._count_guard_events(kind, run, where)
        kind.of(self._iterations).inc(max(run.iteration_count - run.carried_iterations, 0), where)
        if run.parent is None:  # what a run spends is in what the run around it spends
            self._count_spending(kind, run, where)
        if verdict.outcome == semconv.OUTCOME_PAUSED:
            return  # the segment that goes on with it tells of the whole
        kind.of(self._run_iterations).observe(run.iteration_count, where)
        kind.of(self._run_duration).observe(health.total_duration_s, where)
        if verdict.best_score is not None and health.threshold > 0:
            kind.of(self._run_score_ratio).observe(max(verdict.best_score / health.threshold, 0.0), where)
        kind.of(self._wasted).inc(health.wasted_iterations, where if health.wasted_iterations else None)
        if verdict.wasted_tokens:
            kind.of(self._wasted_tokens).inc(verdict.wasted_tokens, where)
        if verdict.wasted_cost_usd:
            kind.of(self._wasted_cost).inc(verdict.wasted_cost_usd, where)
        if verdict.over_token_budget:
            kind.event(self._budget_exceeded).inc(1, where)

    def _count_guard_events(self, kind: _Kind, run: LoopRun, where: dict[str, str]) -> None:
        count_of_loops = LoopRun(run.agent, started_ns=run.started_ns)  # tells which events are of one loop
        for position, event in enumerate(run.guard_events):
            fired = count_of_loops.add_guard_event(event)
            if position < run.carried_guard_events:
                continue  # counted when its own segment ended
            kind.of(self._interventions, event.kind, event.action).inc(1, where)
            if fired:
                kind.event(self._doom_loops, event.kind, event.action, event.source).inc(1, where)

    def _count_spending(self, kind: _Kind, run: LoopRun, where: dict[str, str]) -> None:
        """Count what this segment spent: who goes on with the run may be another server, or nobody."""
        for spent, carried, tokens, cost in (
            (run.spending, run.carried_spending, self._tokens, self._cost),
            (run.judge_spending, run.carried_judge_spending, self._judge_tokens, self._judge_cost),
        ):
            if spent is None:
                continue
            before = carried or Spending()
            kind.of(tokens, semconv.TOKEN_INPUT).inc(spent.input_tokens - before.input_tokens, where)
            kind.of(tokens, semconv.TOKEN_OUTPUT).inc(spent.output_tokens - before.output_tokens, where)
            # Whether a segment before had a call without a price is no reason to pass over this one's cost.
            cost_usd = max(spent.known_cost_usd - before.known_cost_usd, 0.0)
            if cost_usd or not spent.unpriced:
                kind.of(cost).inc(cost_usd, where)

    def _kind_of(self, served: ServedRun) -> _Kind:
        """The series of such runs. Spans may say what they like, and fill no memory."""
        run = served.run
        service = served.service[:MAX_LABEL]
        labels = (
            service,
            service,
            served.version[:MAX_LABEL],
            served.environment[:MAX_LABEL],
            run.agent[:MAX_LABEL],
            run.mode,
            run.framework[:MAX_LABEL],
            _word(run.parent is not None),
        )
        now = time.monotonic()
        kind = self._kinds.get(labels)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS and not self._make_room(now):
                other = semconv.AGENT_OTHER
                labels = (other, other, "", "", other, run.mode, semconv.FRAMEWORK_OTHER, labels[-1])
                kind = self._kinds.get(labels)
            if kind is None:  # those for others are a few more
                kind = self._kinds[labels] = _Kind(labels)
        kind.last = now
        self._kinds.move_to_end(labels)
        return kind

    def _make_room(self, now: float) -> bool:
        labels, kind = next(iter(self._kinds.items()))
        if now - kind.last < _QUIET_S:
            return False
        del self._kinds[labels]
        kind.remove()
        return True


def _exemplar(served: ServedRun) -> dict[str, str]:
    """What leads from a series to a run: the trace and the root's span."""
    where = {"trace_id": f"{served.trace_id:032x}"}
    if served.root is not None:
        where["span_id"] = f"{served.root.span_id:016x}"
    return where


def _word(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"
