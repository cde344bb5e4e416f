"""Keeps the spans of the tests in traces.jsonl, for ``otel-loopeval score``."""

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_loopeval.testing import TraceFile

provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "agent-tests"}))
provider.add_span_processor(SimpleSpanProcessor(TraceFile("traces.jsonl")))
trace.set_tracer_provider(provider)
