"""One process of an agent that is spread over several; the first one starts the others."""

import os
import subprocess
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

OTHERS = 7


def main(number: int) -> None:
    """Do the work of one process."""
    provider = TracerProvider(resource=Resource({"service.name": f"service-{number}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("somebody.genai")
    if number:
        parent = extract({"traceparent": os.environ["TRACEPARENT"]})
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 2,
        }
        with (
            provider.get_tracer("flask").start_as_current_span("POST /work", parent),
            tracer.start_as_current_span("chat gpt", attributes=chat),
        ):
            pass
    else:
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "spread"}
        with (
            provider.get_tracer("flask").start_as_current_span("POST /chat"),
            tracer.start_as_current_span("invoke_agent spread", attributes=agent),
        ):
            carrier: dict[str, str] = {}
            inject(carrier)
            for other in range(1, OTHERS + 1):
                environment = {**os.environ, "TRACEPARENT": carrier["traceparent"]}
                subprocess.run([sys.executable, __file__, str(other)], env=environment, check=True)
    provider.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
