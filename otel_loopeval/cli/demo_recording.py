"""The demo's own OpenTelemetry set-up: nothing global is touched, and everything is kept."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final, final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopeval import semconv
from otel_loopeval.cli.errors import EXIT_USAGE, CommandError
from otel_loopeval.cli.sdk_lines import trace_lines
from otel_loopeval.cli.sending import Destination, MetricSender
from otel_loopeval.cli.stored_runs import StoredRuns
from otel_loopeval.instrumentation import instrument, uninstrument
from otel_loopeval.otlp import read_lines

_SERVICE: Final = "otel-loopeval-demo"


@final
class Recording:
    """Records the spans and metrics of the loops that run inside it. A context manager.

    Args:
        metrics_to: Where the metrics are to be sent; None to keep none.

    Attributes:
        metric_sender: Sends the metrics; None where they have nowhere to go.

    Raises:
        CommandError: The environment keeps the SDK from recording, or the metrics from being sent.
    """

    def __init__(self, metrics_to: Destination | None) -> None:
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            raise CommandError("OTEL_SDK_DISABLED is set: unset it to see anything", EXIT_USAGE)
        self.metric_sender = None if metrics_to is None else _metric_sender(metrics_to)
        self._resource = _resource()
        self._exporter = InMemorySpanExporter()

    def __enter__(self) -> "Recording":
        # The demo shows the same to everyone, whatever the environment says about sampling and options.
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        readers = [] if self.metric_sender is None else [self.metric_sender.reader]
        meter_provider = MeterProvider(readers, self._resource, shutdown_on_exit=False)
        instrument(
            tracer_provider=self._provider,
            meter_provider=meter_provider,
            max_wasted_iterations=0,
            events="span",
            detectors=True,
            console=False,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        uninstrument()
        self._provider.shutdown()

    @property
    def service(self) -> str:
        """Name of the service that the spans belong to."""
        return str(self._resource.attributes[SERVICE_NAME])

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in that order."""
        return self._exporter.get_finished_spans()

    @property
    def lines(self) -> list[str]:
        """The spans as lines of OTLP/JSON, one a trace."""
        return trace_lines(self.spans)

    def runs(self) -> StoredRuns:
        """The runs, read back from the lines: what is shown is what was exported."""
        return StoredRuns(read_lines(self.lines))

    def last_verdict(self) -> bool | None:
        """Whether the run that ended last is healthy, as its root span says."""
        for span in reversed(self.spans):
            passed = (span.attributes or {}).get(semconv.HEALTH_PASSED)
            if isinstance(passed, bool):
                return passed
        return None


def _metric_sender(metrics_to: Destination) -> MetricSender:
    try:
        return MetricSender(metrics_to)
    except Exception as error:
        raise CommandError(f"cannot send metrics to {metrics_to}: {error}", EXIT_USAGE) from error


def _resource() -> Resource:
    """The resource of the environment, with a service name of ours where it gives none."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: _SERVICE}))
    return resource
