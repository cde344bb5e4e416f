"""The demo with an endpoint configured: what arrives there, and what is said if nothing does."""

import socket
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from command_line import http_receiver, run_command
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from otel_loopeval.cli.errors import CommandError
from otel_loopeval.cli.sending import Destination, destination_of

NAMES = [
    *["evaluate", "evaluation_loop.iteration"] * 3,
    "evaluation_loop writer",
    *["evaluation_loop.iteration"] * 6,
    "evaluation_loop polisher",
    *["evaluation_loop.iteration"] * 4,
    "evaluation_loop researcher",
]


def span_names(request: Any) -> list[str]:
    spans = [span for r in request.resource_spans for s in r.scope_spans for span in s.spans]
    return [span.name for span in sorted(spans, key=lambda span: span.end_time_unix_nano)]


def metric_values(request: Any, name: str) -> dict[str, int]:
    """Values of a counter by agent."""
    values: dict[str, int] = {}
    for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
        if metric.name == name:
            for point in metric.sum.data_points:
                agent = next(a.value.string_value for a in point.attributes if a.key == "gen_ai.agent.name")
                values[agent] = values.get(agent, 0) + point.as_int
    return values


def unused_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_traces_and_metrics_over_http(tmp_path: Path):
    with http_receiver() as receiver:
        outcome = run_command(
            "demo",
            cwd=tmp_path,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_SERVICE_NAME": "mine",
            },
        )
    assert (outcome.status, outcome.err) == (0, "")
    assert f"Sent 3 traces, 19 spans, to {receiver.endpoint} over HTTP, as service mine.\n" in outcome.out
    assert f"Sent the metrics to {receiver.endpoint} over HTTP.\n" in outcome.out
    assert "loopeval.health.passed = false" in outcome.out
    assert list(tmp_path.iterdir()) == []
    (traces,) = receiver.bodies("/v1/traces")
    assert span_names(trace_service_pb2.ExportTraceServiceRequest.FromString(traces)) == NAMES
    (metrics,) = receiver.bodies("/v1/metrics")
    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(metrics)
    assert metric_values(request, "loopeval.runs") == {"writer": 1, "polisher": 1, "researcher": 1}
    assert metric_values(request, "loopeval.doom_loop.fired") == {"researcher": 1}
    assert metric_values(request, "loopeval.iterations") == {"writer": 3, "polisher": 6, "researcher": 4}


def test_traces_and_metrics_over_grpc_which_is_the_default(tmp_path: Path):
    received: list[Any] = []

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
            received.append(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
            received.append(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_traces: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_metrics: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
    add_traces(Traces(), server)
    add_metrics(Metrics(), server)
    endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        outcome = run_command("demo", cwd=tmp_path, env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    finally:
        server.stop(None).wait()
    assert (outcome.status, outcome.err) == (0, "")
    assert f"to {endpoint} over gRPC, as service otel-loopeval-demo.\n" in outcome.out
    traces, metrics = received
    assert span_names(traces) == NAMES
    assert metric_values(metrics, "loopeval.runs.started") == {"writer": 1, "polisher": 1, "researcher": 1}


def test_a_traces_endpoint_alone_gets_traces_alone_and_a_file_if_asked_for(tmp_path: Path):
    with http_receiver() as receiver:
        outcome = run_command(
            "demo",
            "--output",
            "copy.jsonl",
            cwd=tmp_path,
            env={
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.endpoint}/custom/path",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
        )
    assert (outcome.status, outcome.err) == (0, "")
    assert [path for path, _ in receiver.requests] == ["/custom/path"]
    assert "Sent the metrics" not in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["copy.jsonl"]


def test_an_endpoint_that_takes_no_metrics_is_no_failure(tmp_path: Path):
    with http_receiver(metrics=404) as receiver:
        outcome = run_command(
            "demo",
            cwd=tmp_path,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            },
        )
    assert (outcome.status, outcome.err) == (0, "")
    assert f"The metrics were not accepted at {receiver.endpoint} over HTTP: " in outcome.out
    assert "404" in outcome.out


def test_an_endpoint_that_refuses_the_traces_is_status_1(tmp_path: Path):
    with http_receiver(traces=401) as receiver:
        outcome = run_command(
            "demo",
            cwd=tmp_path,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            },
        )
    assert outcome.status == 1
    assert outcome.err.startswith(
        f"otel-loopeval: the traces did not arrive at {receiver.endpoint} over HTTP: "
    )
    assert "401" in outcome.err
    assert [path for path, _ in receiver.requests] == ["/v1/traces"]
    assert "✘ unhealthy" in outcome.out  # what was seen was still shown


@pytest.mark.parametrize(("protocol", "name"), [("grpc", "gRPC"), ("http/protobuf", "HTTP")])
def test_an_endpoint_that_is_down_is_status_1(protocol: str, name: str, tmp_path: Path):
    endpoint = unused_endpoint()
    outcome = run_command(
        "demo",
        cwd=tmp_path,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol},
    )
    assert outcome.status == 1
    assert outcome.err == (
        f"otel-loopeval: the traces did not arrive at {endpoint} over {name}: Connection refused\n"
        "Start a receiver there, or unset OTEL_EXPORTER_OTLP_ENDPOINT to have them written to a file.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_protocol_that_we_do_not_speak_is_said_before_anything_runs(tmp_path: Path):
    outcome = run_command(
        "demo",
        cwd=tmp_path,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    )
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "otel-loopeval: OTEL_EXPORTER_OTLP_PROTOCOL must be 'grpc' or 'http/protobuf', got 'http/json'\n"
    )


def test_a_setting_that_the_exporter_cannot_take_is_said_before_anything_runs(tmp_path: Path):
    outcome = run_command(
        "demo",
        cwd=tmp_path,
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
    )
    assert outcome.status == 2
    assert outcome.err == (
        "otel-loopeval: cannot send metrics to http://127.0.0.1:1 over gRPC: "
        "could not convert string to float: 'soon'\n"
    )


GENERAL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
DESTINATIONS: list[tuple[dict[str, str], str, Destination | None]] = [
    ({}, "TRACES", None),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "  "}, "TRACES", None),
    (GENERAL, "TRACES", Destination("http://collector:4317", "grpc", 2.0)),
    (GENERAL, "METRICS", Destination("http://collector:4317", "grpc", 2.0)),
    ({**GENERAL, "OTEL_METRICS_EXPORTER": "none"}, "METRICS", None),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1"}, "METRICS", None),
    (
        {
            **GENERAL,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:4318/x",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "9",
        },
        "TRACES",
        Destination("http://t:4318/x", "http/protobuf", None),
    ),
    (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"},
        "TRACES",
        Destination("http://c:4318", "http/protobuf", 2.0),
    ),
    (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "TRACES",
        Destination("http://c:4318", "grpc", 2.0),
    ),
    (
        {
            **GENERAL,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "HTTP/protobuf",
        },
        "TRACES",
        Destination("http://collector:4317", "http/protobuf", 2.0),
    ),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:port"}, "TRACES", Destination("http://c:port", "grpc", 2.0)),
]


@pytest.mark.parametrize(("environment", "signal", "expected"), DESTINATIONS)
def test_where_a_signal_goes(environment: dict[str, str], signal: str, expected: Destination | None):
    assert destination_of(signal, environment) == expected


def test_an_unknown_protocol_names_what_is_allowed():
    with pytest.raises(CommandError, match="must be 'grpc' or 'http/protobuf', got 'carrier pigeon'"):
        destination_of("TRACES", {**GENERAL, "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier pigeon"})
