"""Every way to put our processor beside an exporter's: one provider each, told apart by its resource."""

import itertools
import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from otel_loopeval import LoopHealthProcessor, instrument, iteration, loop

if sys.argv[1] == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

MULTI = {"sync": SynchronousMultiSpanProcessor, "concurrent": lambda: ConcurrentMultiSpanProcessor(2)}
EXPORTING = {"simple": SimpleSpanProcessor, "batch": BatchSpanProcessor}


def our_run() -> None:
    """A run of ours, with a span of somebody else's inside it."""
    with loop("ours", threshold=8.0) as run:
        for score in (6.0, 9.0, 7.0):
            with iteration() as it, tracer.start_as_current_span("chat gpt-4o-mini") as span:
                span.set_attribute("gen_ai.operation.name", "chat")
                span.set_attribute("gen_ai.usage.input_tokens", 10)
                span.set_attribute("gen_ai.usage.output_tokens", 5)
                it.score = score
        run.record_guard_event({"type": "repeated_action"})


def foreign_run() -> None:
    """The same run, by a program that emits our names itself."""
    attributes = {"loopeval.run.mode": "optimize", "loopeval.run.threshold": 8.0}
    with tracer.start_as_current_span("evaluation_loop foreign", attributes=attributes) as root:
        for number, score in enumerate((6.0, 9.0, 7.0), start=1):
            with tracer.start_as_current_span(
                "evaluation_loop.iteration", attributes={"loopeval.iteration.number": number}
            ) as span:
                span.set_attribute("loopeval.iteration.score", score)
        root.add_event(
            "loopeval.guard", {"loopeval.guard.kind": "repeated_action", "loopeval.guard.doom_loop": True}
        )


for order, exporting, multi in itertools.product(("before", "after"), EXPORTING, MULTI):
    resource = Resource.create({"combination": f"{order} {exporting} {multi}"})
    provider = TracerProvider(resource=resource, active_span_processor=MULTI[multi]())
    tracer = provider.get_tracer("somebody.else")
    if order == "before":
        provider.add_span_processor(LoopHealthProcessor(console=False))
    provider.add_span_processor(EXPORTING[exporting](OTLPSpanExporter()))
    if order == "after":
        provider.add_span_processor(LoopHealthProcessor(console=False))
    instrument(tracer_provider=provider, console=False)
    our_run()
    foreign_run()
    provider.shutdown()
