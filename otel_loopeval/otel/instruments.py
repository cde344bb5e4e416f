"""The metrics: public-API instruments, and the attributes that they carry.

At most eight buckets a histogram and a hundred agent names a process, so that one agent stays under 70
series in Prometheus.
"""

from collections.abc import Callable, Iterable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from otel_loopeval import semconv
from otel_loopeval.otel import errors

if TYPE_CHECKING:
    from otel_loopeval.health.guards import GuardEvent
    from otel_loopeval.runs.run import LoopRun
    from otel_loopeval.runs.usage import Spent
    from otel_loopeval.runs.verdict import Verdict

MAX_AGENTS = 100
"""Agent names that a process shows on metrics; the ones after are ``_other``."""

shown_agents: set[str] = set()
"""Agent names on the metrics of this process so far: its series outlive a change of options."""

Attributes = dict[str, Any]
Observe = Callable[[CallbackOptions], Iterable[Observation]]

_ITERATIONS = (1, 2, 3, 5, 8, 13, 25)
_SECONDS = (1, 10, 60, 600, 3_600, 86_400, 604_800)
_BUDGET_RATIO = (0.5, 1.0, 2.0, 5.0)
_RATIO = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25)


class Instruments:
    """Records what runs do.

    Every method is called with the context of the run's root span, so that exemplars point at it.

    Args:
        meter: Makes the instruments.
        open_runs: The runs that are open, for the gauges.
        iteration_metrics: Whether to make the per-iteration histograms.
        shown: Attribute sets of runs so far, to go on with: a meter keeps the callbacks of the observable
            instruments that it made first, and those must see the runs that come later.
    """

    def __init__(
        self,
        meter: Meter,
        open_runs: "Callable[[], Sequence[LoopRun]]",
        *,
        iteration_metrics: bool,
        shown: "dict[tuple[str, str, str, bool], Attributes] | None" = None,
    ) -> None:
        self._open_runs = open_runs
        self._base = {} if shown is None else shown

        def counter(metric: semconv.Metric) -> Counter:
            return meter.create_counter(metric.name, metric.unit, metric.description)

        def histogram(metric: semconv.Metric, boundaries: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=boundaries,
            )

        self._runs_started = counter(semconv.METRIC_RUNS_STARTED)
        self._runs = counter(semconv.METRIC_RUNS)
        self._doom_loops = counter(semconv.METRIC_DOOM_LOOP_FIRED)
        self._interventions = counter(semconv.METRIC_GUARD_INTERVENTIONS)
        self._iterations = counter(semconv.METRIC_ITERATIONS)
        self._wasted = counter(semconv.METRIC_ITERATIONS_WASTED)
        self._tokens = counter(semconv.METRIC_TOKENS)
        self._wasted_tokens = counter(semconv.METRIC_WASTED_TOKENS)
        self._judge_tokens = counter(semconv.METRIC_JUDGE_TOKENS)
        self._cost = counter(semconv.METRIC_COST)
        self._judge_cost = counter(semconv.METRIC_JUDGE_COST)
        self._wasted_cost = counter(semconv.METRIC_WASTED_COST)
        self._budget_exceeded = counter(semconv.METRIC_TOKEN_BUDGET_EXCEEDED)
        self._run_token_budget_ratio = histogram(semconv.METRIC_RUN_TOKEN_BUDGET_RATIO, _BUDGET_RATIO)
        self._evicted = counter(semconv.METRIC_TRACKER_EVICTED_RUNS)
        self._late_spans = counter(semconv.METRIC_TRACKER_LATE_SPANS)
        self._run_iterations = histogram(semconv.METRIC_RUN_ITERATIONS, _ITERATIONS)
        self._run_duration = histogram(semconv.METRIC_RUN_DURATION, _SECONDS)
        self._run_score_ratio = histogram(semconv.METRIC_RUN_SCORE_RATIO, _RATIO)
        self._iteration_duration: Histogram | None = None
        self._iteration_score_ratio: Histogram | None = None
        if iteration_metrics:
            self._iteration_duration = histogram(semconv.METRIC_ITERATION_DURATION, _SECONDS)
            self._iteration_score_ratio = histogram(semconv.METRIC_ITERATION_SCORE_RATIO, _RATIO)

        # Observed when metrics are collected, so that they cost a run nothing.
        for create, metric, observe in (
            (meter.create_observable_up_down_counter, semconv.METRIC_RUN_OPEN, self._observe_open),
            (meter.create_observable_gauge, semconv.METRIC_RUN_IDLE_MAX, self._observe_idle),
            (meter.create_observable_counter, semconv.METRIC_TRACKER_ERRORS, _observe_errors),
        ):
            create(metric.name, [_guarded(observe)], metric.unit, metric.description)

    def started(self, run: "LoopRun", context: Context) -> None:
        """A run began."""
        self._runs_started.add(1, self._attributes(run), context)

    def ended(
        self,
        run: "LoopRun",
        verdict: "Verdict",
        error_type: str | None,
        context: Context,
        token_budget: int | None = None,
    ) -> None:
        """A run ended; ``token_budget`` is what it was judged by, if it had any."""
        base = self._attributes(run)
        attributes = dict(base)
        attributes[semconv.RUN_OUTCOME] = verdict.outcome
        if verdict.decided:
            attributes[semconv.HEALTH_PASSED] = verdict.health.success
            attributes[semconv.HEALTH_CONVERGED] = verdict.health.converged
        attributes[semconv.HEALTH_DOOM_LOOP_FIRED] = verdict.health.doom_loop_fired
        if error_type is not None:
            attributes[semconv.ERROR_TYPE] = error_type
        self._runs.add(1, attributes, context)
        count = run.iteration_count
        if count > run.carried_iterations:
            self._iterations.add(count - run.carried_iterations, base, context)
        if verdict.outcome == semconv.OUTCOME_PAUSED:
            return  # the segment that goes on with the run, or gives it up, tells of the whole
        self._run_iterations.record(count, base, context)
        self._run_duration.record(verdict.health.total_duration_s, base, context)
        if verdict.best_score is not None and verdict.health.threshold > 0:
            # Histograms take no negative values; a score below zero is as bad as one of zero.
            self._run_score_ratio.record(
                max(verdict.best_score / verdict.health.threshold, 0.0), base, context
            )
        if verdict.health.wasted_iterations:
            self._wasted.add(verdict.health.wasted_iterations, base, context)
        if verdict.wasted_tokens:
            self._wasted_tokens.add(verdict.wasted_tokens, base, context)
        if verdict.wasted_cost_usd:
            self._wasted_cost.add(verdict.wasted_cost_usd, base, context)
        if token_budget:
            self._run_token_budget_ratio.record(
                (run.input_tokens + run.output_tokens) / token_budget, base, context
            )

    def guard_event(
        self, run: "LoopRun | None", event: "GuardEvent", context: Context, *, fired: bool
    ) -> None:
        """A guard stepped in; ``fired`` if it is a doom loop that had not fired before."""
        attributes = {} if run is None else dict(self._attributes(run))
        attributes[semconv.GUARD_KIND] = event.kind
        attributes[semconv.GUARD_ACTION] = event.action
        self._interventions.add(1, attributes, context)
        if fired:
            # Another dictionary: older SDKs keep the one that they were given.
            self._doom_loops.add(1, {**attributes, semconv.GUARD_SOURCE: event.source}, context)

    def spent(self, run: "LoopRun", spent: "Spent", context: Context) -> None:
        """A model call inside a run ended."""
        base = self._attributes(run)
        tokens, cost = (self._judge_tokens, self._judge_cost) if spent.judging else (self._tokens, self._cost)
        for token_type, count in (
            (semconv.TOKEN_INPUT, spent.usage.input_tokens),
            (semconv.TOKEN_OUTPUT, spent.usage.output_tokens),
        ):
            if count:
                tokens.add(count, {**base, semconv.GEN_AI_TOKEN_TYPE: token_type}, context)
        if spent.cost_usd:
            cost.add(spent.cost_usd, base, context)

    def over_budget(self, run: "LoopRun", context: Context) -> None:
        """A run went over its token budget."""
        self._budget_exceeded.add(1, self._attributes(run), context)

    def iteration(
        self, run: "LoopRun", duration_s: float, score_ratio: float | None, context: Context
    ) -> None:
        """An iteration ended."""
        if self._iteration_duration is None:
            return
        base = self._attributes(run)
        self._iteration_duration.record(duration_s, base, context)
        if score_ratio is not None and self._iteration_score_ratio is not None:
            self._iteration_score_ratio.record(max(score_ratio, 0.0), base, context)

    def evicted(self, reason: str) -> None:
        """A run is no longer followed."""
        self._evicted.add(1, {semconv.REASON: reason})

    def late_span(self, run: "LoopRun") -> None:
        """A span of a run ended after its root."""
        self._late_spans.add(1, self._attributes(run))

    def _attributes(self, run: "LoopRun") -> Attributes:
        """The attributes that every metric of a run carries. Shared: copy before changing."""
        key = (run.agent, run.mode, run.framework, run.parent is not None)
        attributes = self._base.get(key)
        if attributes is None:
            agent = run.agent
            if agent not in shown_agents:
                if len(shown_agents) < MAX_AGENTS:
                    shown_agents.add(agent)
                else:
                    agent = semconv.AGENT_OTHER
            attributes = {
                semconv.GEN_AI_AGENT_NAME: agent,
                semconv.RUN_MODE: run.mode,
                semconv.RUN_FRAMEWORK: run.framework,
                semconv.RUN_NESTED: run.parent is not None,
            }
            if len(self._base) < 10 * MAX_AGENTS:
                self._base[key] = attributes
        return attributes

    def _observe_open(self, _options: CallbackOptions) -> Iterable[Observation]:
        return self._observe_runs(lambda total, _run: total + 1)

    def _observe_idle(self, _options: CallbackOptions) -> Iterable[Observation]:
        now = time_ns()
        return self._observe_runs(lambda longest, run: max(longest, (now - run.active_ns) / 1e9))

    def _observe_runs(self, fold: "Callable[[float, LoopRun], float]") -> Iterable[Observation]:
        """Fold the open runs of each attribute set into a number, from 0.

        Agents without open runs are told too, or their last value would stand for ever.
        """
        values = {tuple(attributes.items()): 0.0 for attributes in list(self._base.values())}
        for run in self._open_runs():
            key = tuple(self._attributes(run).items())
            values[key] = fold(values.get(key, 0.0), run)
        return [Observation(value, dict(key)) for key, value in values.items()]


def _observe_errors(_options: CallbackOptions) -> Iterable[Observation]:
    return [Observation(count, {semconv.REASON: place}) for place, count in list(errors.counts.items())]


def _guarded(observe: Observe) -> Observe:
    def observe_safely(options: CallbackOptions) -> Iterable[Observation]:
        try:
            return observe(options)
        except Exception as error:  # noqa: BLE001 - the guard
            errors.swallow("instruments.observe", error)
            return ()

    return observe_safely
