"""Telemetry in memory, read as plain dictionaries."""

import itertools
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Sampler

from otel_loopeval import semconv
from otel_loopeval.otel.processor import neutral_span
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.testing.state import reset

_generators = itertools.count(1)
_SHIFT = 40  # ids of one generator; the bits above tell generators apart, since spans meet in one table


class CountingIds(IdGenerator):
    """Ids that count up, and that no other generator of the process gives out."""

    def __init__(self) -> None:
        self._base = next(_generators) << _SHIFT
        self._spans = itertools.count(self._base + 1)
        self._traces = itertools.count(self._base + 1)

    def generate_span_id(self) -> int:
        """The next span id."""
        return next(self._spans)

    def generate_trace_id(self) -> int:
        """The next trace id."""
        return next(self._traces)

    def shown(self, number: int) -> int:
        """An id as it is shown: from 1 if it is one of these, as it is if not."""
        return number - self._base if number >> _SHIFT == self._base >> _SHIFT else number


class SpanStore(SpanExporter):
    """A span exporter that keeps what it is given.

    Attributes:
        spans: The spans, in the order in which they came.
    """

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep spans."""
        with self._lock:
            self.spans.extend(spans)
        return SpanExportResult.SUCCESS

    def clear(self) -> None:
        """Forget the spans so far."""
        with self._lock:
            self.spans.clear()


class Capture:
    """Tracer, meter and logger providers of their own that keep everything in memory.

    As a context manager it undoes :meth:`instrument` and forgets open runs at its end.

    Args:
        sampler: Sampler of the tracer provider; always on if None.
        ids: Its id generator; counting ids if None.
        exporting: Whether finished spans reach :attr:`exporter`. Without it, add a processor for it to
            :attr:`tracer_provider` yourself, where the order or kind of processors matters.
        active_span_processor: The tracer provider's multi-processor, synchronous if None.

    Attributes:
        tracer_provider: For ``instrument(tracer_provider=...)``.
        meter_provider: For ``instrument(meter_provider=...)``.
        logger_provider: For ``instrument(logger_provider=...)``.
        exporter: Keeps the finished spans.
    """

    def __init__(
        self,
        *,
        sampler: Sampler | None = None,
        ids: IdGenerator | None = None,
        exporting: bool = True,
        active_span_processor: Any = None,
    ) -> None:
        resource = Resource({})
        self._ids = ids or CountingIds()
        self.exporter = SpanStore()
        self.tracer_provider = TracerProvider(
            sampler=sampler,
            resource=resource,
            id_generator=self._ids,
            active_span_processor=active_span_processor,
            shutdown_on_exit=False,
        )
        if exporting:
            self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._logs = InMemoryLogRecordExporter()
        self.logger_provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))

    @property
    def providers(self) -> dict[str, Any]:
        """The providers as arguments of ``instrument()``."""
        return {
            "tracer_provider": self.tracer_provider,
            "meter_provider": self.meter_provider,
            "logger_provider": self.logger_provider,
        }

    def instrument(self, **options: Any) -> None:
        """Call ``otel_loopeval.instrument()`` with these providers and the options given."""
        from otel_loopeval.instrumentation import instrument  # noqa: PLC0415 - a test may do without

        instrument(**self.providers, **options)

    def __enter__(self) -> "Capture":  # noqa: PYI034 - Self is new in 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reset()
        self.shutdown()

    def shutdown(self) -> None:
        """Shut the providers down."""
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()
        self.logger_provider.shutdown()

    def clear(self) -> None:
        """Forget the spans and log records so far. Metrics go on counting: they are cumulative."""
        self.tracer_provider.force_flush()
        self.exporter.clear()
        self._logs.clear()

    # Spans ---------------------------------------------------------------------------------------------

    @property
    def finished_spans(self) -> list[ReadableSpan]:
        """The finished spans as they are, in the order in which they ended."""
        self.tracer_provider.force_flush()
        return list(self.exporter.spans)

    def neutral_spans(self) -> list[SpanData]:
        """The finished spans as the core sees them, for replay."""
        return [neutral_span(span) for span in self.finished_spans]

    def spans(self, name: str | None = None) -> list[dict[str, Any]]:
        """The finished spans as dictionaries, in the order in which they started.

        Args:
            name: Only those of this name, or whose name's first word it is.

        Returns:
            Dictionaries with ``name``, ``id``, ``parent_id`` (None for a root), ``trace_id``, ``kind``,
            ``status``, ``description`` (of the status, or None), ``attributes``, ``events`` (each with
            ``name`` and ``attributes``) and ``scope``.
        """
        spans = sorted(self.finished_spans, key=lambda span: (span.start_time or 0, _id(span)))
        run_ids: dict[str, str] = {}
        shown = [self._span(span, run_ids) for span in spans]
        return [span for span in shown if name is None or name in (span["name"], span["name"].split(" ")[0])]

    def span(self, name: str | None = None) -> dict[str, Any]:
        """The one finished span of this name, as :meth:`spans` gives it.

        Raises:
            LookupError: There are none or several.
        """
        spans = self.spans(name)
        if len(spans) != 1:
            raise LookupError(
                f"{len(spans)} spans are called {name!r} among {[s['name'] for s in self.spans()]}"
            )
        return spans[0]

    def tree(self) -> list[dict[str, Any]]:
        """The roots as :meth:`spans` gives them, each with its ``children``."""
        spans = self.spans()
        by_id = {span["id"]: span for span in spans}
        roots: list[dict[str, Any]] = []
        for span in spans:
            span["children"] = []
            parent = by_id.get(span["parent_id"])
            (roots if parent is None else parent["children"]).append(span)
        return roots

    def outline(self) -> str:
        """The names of the spans, one a line, inner ones indented by two spaces."""
        lines: list[str] = []

        def walk(spans: list[dict[str, Any]], depth: int) -> None:
            for span in spans:
                lines.append("  " * depth + span["name"])
                walk(span["children"], depth + 1)

        walk(self.tree(), 0)
        return "\n".join(lines)

    def _span(self, span: ReadableSpan, run_ids: dict[str, str]) -> dict[str, Any]:
        context, parent, scope = span.get_span_context(), span.parent, span.instrumentation_scope
        attributes = _plain(span.attributes)
        run_id = attributes.get(semconv.RUN_ID)
        if run_id is not None:
            attributes[semconv.RUN_ID] = run_ids.setdefault(run_id, f"run-{len(run_ids) + 1}")
        if semconv.HEALTH_TOTAL_DURATION_S in attributes:
            attributes[semconv.HEALTH_TOTAL_DURATION_S] = 0.0
        return {
            "name": span.name,
            "id": None if context is None else self._shown(context.span_id),
            "parent_id": None if parent is None else self._shown(parent.span_id),
            "trace_id": None if context is None else self._shown(context.trace_id),
            "kind": span.kind.name,
            "status": span.status.status_code.name,
            "description": span.status.description,
            "attributes": attributes,
            "events": [{"name": event.name, "attributes": _plain(event.attributes)} for event in span.events],
            "scope": None if scope is None else scope.name,
        }

    def _shown(self, number: int) -> int:
        return self._ids.shown(number) if isinstance(self._ids, CountingIds) else number

    # Metrics ---------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Every metric with a point, by name.

        Returns:
            Dictionaries with ``unit``, ``description``, ``type`` (``Sum``, ``Gauge`` or ``Histogram``) and
            ``points``. A point has ``attributes``, ``exemplars`` (each with ``value``, ``trace_id``,
            ``span_id``; those since the last reading) and either ``value`` or ``count``, ``sum``,
            ``bounds`` and ``buckets``.
        """
        data = cast("Any", self._reader.get_metrics_data())  # its type is partly unknown
        found: dict[str, dict[str, Any]] = {}
        if data is None:
            return found
        for resource_metrics in data.resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    points = [self._point(point) for point in metric.data.data_points]
                    entry = found.setdefault(
                        metric.name,
                        {
                            "unit": metric.unit,
                            "description": metric.description,
                            "type": type(metric.data).__name__,
                            "points": [],
                        },
                    )
                    entry["points"].extend(points)
        return found

    def points(
        self, metric: str | semconv.Metric, attributes: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The points of a metric that carry these attributes and perhaps others; see :meth:`metrics`."""
        name = metric if isinstance(metric, str) else metric.name
        wanted = (attributes or {}).items()
        points = self.metrics().get(name, {"points": []})["points"]
        return [point for point in points if wanted <= point["attributes"].items()]

    def value(self, metric: str | semconv.Metric, attributes: Mapping[str, Any] | None = None) -> float:
        """The sum of a metric over the points that carry these attributes; of a histogram, its count."""
        return sum(point.get("value", point.get("count", 0)) for point in self.points(metric, attributes))

    def _point(self, point: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "attributes": _plain(point.attributes),
            "exemplars": [
                {
                    "value": exemplar.value,
                    "trace_id": None if exemplar.trace_id is None else self._shown(exemplar.trace_id),
                    "span_id": None if exemplar.span_id is None else self._shown(exemplar.span_id),
                }
                for exemplar in point.exemplars
            ],
        }
        if hasattr(point, "bucket_counts"):
            shown.update(
                count=point.count,
                sum=point.sum,
                bounds=list(point.explicit_bounds),
                buckets=list(point.bucket_counts),
            )
        else:
            shown["value"] = point.value
        return shown

    # Log events ------------------------------------------------------------------------------------------

    def logs(self, event_name: str | None = None) -> list[dict[str, Any]]:
        """The log records, in order: ``event_name``, ``attributes``, ``body``, ``trace_id``, ``span_id``."""
        records = [data.log_record for data in self._logs.get_finished_logs()]
        return [
            {
                "event_name": record.event_name,
                "attributes": _plain(record.attributes),
                "body": record.body,
                "trace_id": self._shown(record.trace_id or 0),
                "span_id": self._shown(record.span_id or 0),
            }
            for record in records
            if event_name is None or record.event_name == event_name
        ]


def _id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.span_id


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Attributes in the types of JSON: sequences as lists."""
    return {
        key: [*value] if isinstance(value, (tuple, list)) else value
        for key, value in (attributes or {}).items()
    }
