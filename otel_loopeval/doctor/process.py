"""Checks of the telemetry that is set up in this process, as an app in its place would find it."""

import re
from collections.abc import Iterator
from typing import Any

from opentelemetry import metrics, trace

from otel_loopeval import semconv
from otel_loopeval.doctor.findings import BAD, GOOD, NOTE, WARNING, Finding
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.options import captures_content
from otel_loopeval.otel.processor import LoopHealthProcessor

_UNNAMED = "unknown_service"


def check_traces() -> Iterator[Finding]:
    """The tracer provider: is there one, do we see its spans, do they go anywhere?"""
    provider: Any = trace.get_tracer_provider()
    if not hasattr(provider, "add_span_processor"):
        yield Finding(
            BAD,
            "tracer provider",
            "no SDK is set up: spans go nowhere",
            "Run the app with opentelemetry-instrument, or set a TracerProvider before instrument().",
        )
        return
    processors = _sdk.processors_of(provider)
    if any(isinstance(processor, LoopHealthProcessor) for processor in processors):
        yield Finding(GOOD, "processor", "LoopHealthProcessor is attached to the tracer provider")
    else:
        yield Finding(
            BAD,
            "processor",
            "LoopHealthProcessor is not attached: runs that others trace are not judged",
            "Call otel_loopeval.instrument() after the provider is set, or use opentelemetry-instrument.",
        )
    exporters = [name for name in map(_exporter_of, processors) if name]
    if exporters:
        yield Finding(GOOD, "span exporter", ", ".join(exporters))
    else:
        yield Finding(
            BAD,
            "span exporter",
            "there is none: spans are made and dropped",
            "Set OTEL_TRACES_EXPORTER=otlp.",
        )
    yield _sampler(provider)
    yield from _resource(dict(provider.resource.attributes))


def check_metrics() -> Iterator[Finding]:
    """The meter provider: alerts are made of metrics."""
    provider: Any = metrics.get_meter_provider()
    if hasattr(provider, "force_flush") and hasattr(provider, "shutdown"):
        yield Finding(GOOD, "meter provider", "an SDK is set up for metrics")
    else:
        yield Finding(
            WARNING,
            "meter provider",
            "no SDK is set up for metrics: there is nothing to alert on",
            "Set OTEL_METRICS_EXPORTER=otlp, or a MeterProvider before instrument().",
        )


def check_content() -> Iterator[Finding]:
    """Whether content leaves the process."""
    if captures_content() or captures_content(on_logs=True):
        yield Finding(
            NOTE, "content", f"prompts and answers leave the process ({semconv.ENV_CAPTURE_CONTENT} is set)"
        )
    else:
        yield Finding(GOOD, "content", "no prompts or answers leave the process")


def _exporter_of(processor: Any) -> str:
    exporter = getattr(processor, "span_exporter", None)
    return "" if exporter is None else type(exporter).__name__


def _sampler(provider: Any) -> Finding:
    description = str(provider.sampler.get_description())
    of_roots = re.search(r"root:([^,]*)", description)  # of a sampler that asks the parent first
    if of_roots is not None:
        description = of_roots[1]
    if "AlwaysOff" in description:
        text = "no run will be seen in the traces (counts and alerts stay exact)"
        return Finding(WARNING, "sampler", f"{description}: {text}", "Unset OTEL_TRACES_SAMPLER.")
    if "TraceIdRatio" in description:
        text = "runs that are not sampled have no trace (counts and alerts of our own loops stay exact)"
        return Finding(NOTE, "sampler", f"{description}: {text}")
    return Finding(GOOD, "sampler", description)


def _resource(attributes: dict[str, Any]) -> Iterator[Finding]:
    service = str(attributes.get(semconv.SERVICE_NAME, _UNNAMED))
    if service.startswith(_UNNAMED):
        yield Finding(
            WARNING,
            semconv.SERVICE_NAME,
            "is not set: you would look for unknown_service",
            "Set OTEL_SERVICE_NAME.",
        )
    else:
        yield Finding(GOOD, semconv.SERVICE_NAME, service)
    if not attributes.get("service.instance.id"):
        yield Finding(
            WARNING,
            "service.instance.id",
            "is not set: the counters of several processes of one service overwrite each other",
            "Upgrade opentelemetry-sdk to 1.44, or set it in OTEL_RESOURCE_ATTRIBUTES for each process.",
        )
    else:
        yield Finding(GOOD, "service.instance.id", "each process has its own counters")
