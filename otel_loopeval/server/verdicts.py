"""Verdicts as they leave: the ``loopeval.verdict`` span, as OTLP protobuf, and the metrics for Prometheus."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span
from prometheus_client import CollectorRegistry, Counter, Histogram

from otel_loopeval import semconv
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.spelling import end_attributes, guard_event, start_attributes
from otel_loopeval.server.served import ServedRun
from otel_loopeval.version import __version__

MAX_AGENTS: Final = 100
"""Agent names that the metrics of a process show; the ones after are ``_other``."""
MAX_SERVICES: Final = 1_000
"""Services that they show; likewise."""

_ITERATIONS: Final = (1, 2, 3, 5, 8, 13, 25)
_SECONDS: Final = (1, 10, 60, 600, 3_600, 86_400, 604_800)
_RATIO: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25)
_INT64: Final = 2**63
_UINT64_MAX: Final = 2**64 - 1
_JOB: Final = "job"
"""What Prometheus calls a service: the scrape has to honour it (``honor_labels: true``)."""


def verdict_id(served: ServedRun) -> int:
    """The span id of a run's verdict: the same for the same run, so that a backend keeps one of two."""
    root = served.root
    name = served.run.id if root is None else f"{root.span_id:016x}"
    digest = hashlib.blake2b(f"{served.trace_id:032x}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def verdict_request(runs: Iterable[ServedRun]) -> bytes:
    """The verdicts of runs as one ``ExportTraceServiceRequest``."""
    request = ExportTraceServiceRequest()
    by_resource: dict[int, ResourceSpans] = {}
    for served in runs:
        resource = served.root.resource if served.root is not None else served.spans[0].resource
        found = by_resource.get(id(resource))
        if found is None:
            found = by_resource[id(resource)] = request.resource_spans.add()
            found.resource.attributes.extend(_pairs(resource))
            scope = found.scope_spans.add().scope
            scope.name, scope.version = semconv.SCOPE, __version__
        _fill(found.scope_spans[0].spans.add(), served)
    return request.SerializeToString()


def _fill(span: Span, served: ServedRun) -> None:
    run, root = served.run, served.root
    ended_ns = max(run.active_ns, run.started_ns)
    span.trace_id = served.trace_id.to_bytes(16, "big")
    span.span_id = verdict_id(served).to_bytes(8, "big")
    if root is not None:
        span.parent_span_id = root.span_id.to_bytes(8, "big")
    span.name = semconv.SPAN_VERDICT
    span.kind = Span.SPAN_KIND_INTERNAL
    span.start_time_unix_nano = min(run.started_ns, _UINT64_MAX)
    span.end_time_unix_nano = min(ended_ns, _UINT64_MAX)
    told = start_attributes(run) | end_attributes(run, served.verdict)
    # The operation says what a span is, and this one is no run: whoever reads it shall not count it as one.
    del told[semconv.GEN_AI_OPERATION_NAME]
    span.attributes.extend(_pairs(told))
    for event in run.guard_events:
        added = span.events.add(name=semconv.EVENT_GUARD)
        added.time_unix_nano = event.time_ns or ended_ns
        added.attributes.extend(_pairs(guard_event(event)))


def _pairs(attributes: Mapping[str, Any]) -> Iterable[KeyValue]:
    for key, value in attributes.items():
        pair = KeyValue(key=key)
        _set(pair.value, value)
        yield pair


def _set(target: AnyValue, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = max(min(value, _INT64 - 1), -_INT64)
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value.encode("utf-8", "replace").decode()
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, Mapping):
        target.kvlist_value.values.extend(_pairs(value))  # type: ignore[reportUnknownArgumentType]  # any
    elif isinstance(value, (list, tuple)):
        for item in value:  # type: ignore[reportUnknownVariableType]  # of anything
            _set(target.array_value.values.add(), item)


def prometheus_name(metric: semconv.Metric) -> str:
    """A metric's name in Prometheus, as OpenTelemetry translates it, without ``_total``."""
    name = metric.name.replace(".", "_")
    unit = {"s": "seconds", "By": "bytes", "USD": "USD"}.get(metric.unit, "")
    return f"{name}_{unit}" if unit else name


def label(name: str) -> str:
    """An attribute's name as a label of Prometheus."""
    return name.replace(".", "_")


class RunMetrics:
    """Counts runs that are over, under the names that the processes' own metrics have.

    Args:
        registry: Where the metrics go.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._agents: set[str] = set()
        self._services: set[str] = set()
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
        base = (
            _shown(served.service, self._services, MAX_SERVICES),
            _shown(run.agent, self._agents, MAX_AGENTS),
            run.mode,
            run.framework,
            _word(run.parent is not None),
        )
        self._runs.labels(
            *base,
            verdict.outcome,
            _word(verdict.passed),
            _word(verdict.converged),
            _word(health.doom_loop_fired),
        ).inc()
        count_of_loops = LoopRun(run.agent, started_ns=run.started_ns)  # tells which events are of one loop
        for event in run.guard_events:
            self._interventions.labels(*base, event.kind, event.action).inc()
            if count_of_loops.add_guard_event(event):
                self._doom_loops.labels(*base, event.kind, event.action, event.source).inc()
        self._iterations.labels(*base).inc(max(run.iteration_count - run.carried_iterations, 0))
        if verdict.outcome == semconv.OUTCOME_PAUSED:
            return  # the segment that goes on with it tells of the whole
        self._run_iterations.labels(*base).observe(run.iteration_count)
        self._run_duration.labels(*base).observe(health.total_duration_s)
        if verdict.best_score is not None and health.threshold > 0:
            self._run_score_ratio.labels(*base).observe(max(verdict.best_score / health.threshold, 0.0))
        self._wasted.labels(*base).inc(health.wasted_iterations)
        if verdict.wasted_tokens:
            self._wasted_tokens.labels(*base).inc(verdict.wasted_tokens)
        if verdict.wasted_cost_usd:
            self._wasted_cost.labels(*base).inc(verdict.wasted_cost_usd)
        if verdict.over_token_budget:
            self._budget_exceeded.labels(*base).inc()
        spent = run.spending
        if spent is not None and run.parent is None:  # a run's tokens are in those of the run around it
            self._tokens.labels(*base, semconv.TOKEN_INPUT).inc(spent.input_tokens)
            self._tokens.labels(*base, semconv.TOKEN_OUTPUT).inc(spent.output_tokens)
            if spent.cost_usd is not None:
                self._cost.labels(*base).inc(max(spent.cost_usd, 0.0))


def _shown(name: str, shown: set[str], most: int) -> str:
    if name not in shown:
        if len(shown) >= most:
            return semconv.AGENT_OTHER
        shown.add(name)
    return name


def _word(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"
