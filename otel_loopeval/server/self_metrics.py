"""What the server tells of itself, for Prometheus: read from its counts when somebody asks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from otel_loopeval import semconv
from otel_loopeval.server.core import Core
from otel_loopeval.server.run_metrics import label, prometheus_name


class SelfMetrics(Collector):
    """The server's own metrics.

    Args:
        core: The server.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        core = self._core
        counts = core.following.counts
        yield _counter(semconv.METRIC_SERVE_SPANS, counts.spans)
        yield _counter(semconv.METRIC_SERVE_MARKED_SPANS, counts.marked)
        yield _counter(semconv.METRIC_SERVE_ALREADY_JUDGED, counts.judged_before)
        yield _counter(semconv.METRIC_SERVE_VERDICTS_LOST, core.telling.lost)
        keeping = core.keeping
        yield _gauge(semconv.METRIC_SERVE_RUNS_WAITING, 0 if keeping is None else keeping.waiting)
        yield _counter(semconv.METRIC_SERVE_RUNS_LOST, 0 if keeping is None else keeping.lost)
        yield _gauge(semconv.METRIC_SERVE_TRACES_OPEN, core.following.open_traces)
        yield _gauge(semconv.METRIC_SERVE_HELD, core.following.held_bytes)
        dropped = _labelled(semconv.METRIC_SERVE_DROPPED, semconv.REASON)
        for reason in ("late", "repeated", "forgotten", "unreadable"):
            dropped.add_metric([reason], getattr(counts, reason))
        yield dropped
        closed = _labelled(semconv.METRIC_SERVE_TRACES_CLOSED, semconv.REASON)
        for reason, count in list(counts.closed.items()):
            closed.add_metric([reason], count)
        yield closed
        requests = _labelled(
            semconv.METRIC_SERVE_REQUESTS, semconv.SERVE_SIGNAL, semconv.SERVE_STATUS, semconv.SERVE_TENANT
        )
        for (signal, status, tenant), count in list(core.requests.items()):
            requests.add_metric([signal, str(status), tenant], count)
        yield requests


def _counter(metric: semconv.Metric, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(prometheus_name(metric), metric.description, value=value)


def _gauge(metric: semconv.Metric, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(prometheus_name(metric), metric.description, value=value)


def _labelled(metric: semconv.Metric, *attributes: str) -> CounterMetricFamily:
    return CounterMetricFamily(prometheus_name(metric), metric.description, labels=[*map(label, attributes)])
