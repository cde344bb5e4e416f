"""All checks in order, in a process whose telemetry is set up as the app's would be."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from opentelemetry import trace

from otel_loopeval import semconv
from otel_loopeval.doctor import environment, process, round_trip
from otel_loopeval.doctor.findings import Finding


class Wishes(NamedTuple):
    """What the user asked for.

    Attributes:
        send: Whether to send a test run.
        jaeger: Base URL of Jaeger's query API, to read the test run back; None not to.
        prometheus: Base URL of Prometheus, likewise.
        timeout_s: Seconds that the test run has to arrive.
    """

    send: bool = True
    jaeger: str | None = None
    prometheus: str | None = None
    timeout_s: float = 30.0


def examine(wishes: Wishes) -> Iterator[Finding]:
    """Examine the set-up.

    Args:
        wishes: What the user asked for.
    """
    yield from environment.check_packages()
    yield from environment.check_frameworks()
    yield from environment.check_variables()
    yield from process.check_traces()
    yield from process.check_metrics()
    yield from process.check_content()
    if not wishes.send:
        return
    for signal in ("traces", "metrics"):
        endpoint = _endpoint(signal)
        if endpoint is not None:
            yield round_trip.check_endpoint(signal, endpoint)
    trace_id, _, findings = round_trip.send_test_run()
    yield from findings
    yield from round_trip.check_backends(
        wishes.jaeger, wishes.prometheus, trace_id, _service(), wishes.timeout_s
    )


def _endpoint(signal: str) -> str | None:
    """Where OTLP goes, as the exporters of the SDK read it; None where it goes nowhere."""
    exporters = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").lower()
    if "otlp" not in exporters:
        return None
    given = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    named = next((os.environ[name] for name in given if os.environ.get(name, "").strip()), None)
    if named is not None:
        return named
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    return "http://localhost:4318" if protocol.startswith("http") else "http://localhost:4317"


def _service() -> str:
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    return "" if resource is None else str(resource.attributes.get(semconv.SERVICE_NAME, ""))
