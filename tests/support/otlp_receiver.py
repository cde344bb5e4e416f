"""An OTLP receiver as a process of its own: gRPC and HTTP/protobuf, for traces, metrics and logs.

Run as ``python otlp_receiver.py [GRPC_PORT]`` it prints ``{"grpc": port, "http": port}`` and serves what
arrived as JSON lines at ``GET /received`` of the HTTP port. :mod:`support.otlp` starts it and reads those
lines.

Attribute values keep their OTLP type: ``true``, ``1``, ``1.0`` and ``"1"`` stay apart in JSON. Ids are hex.
"""

import gzip
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

Line = dict[str, Any]


def value_of(any_value: Any) -> Any:
    """An OTLP value as a JSON value of the same type."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in any_value.array_value.values]
    if kind == "kvlist_value":
        return {"kvlist": attributes_of(any_value.kvlist_value.values)}
    if kind == "bytes_value":
        return {"bytes": any_value.bytes_value.hex()}
    return None if kind is None else getattr(any_value, kind)


def attributes_of(pairs: Iterable[Any]) -> dict[str, Any]:
    """Attributes by key."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def _origin(resource: Any, scope: Any) -> Line:
    return {
        "resource": attributes_of(resource.attributes),
        "scope": scope.name,
        "scope_version": scope.version,
        "scope_attributes": attributes_of(scope.attributes),
    }


def spans_of(request: Any) -> Iterator[Line]:
    """The spans of an ExportTraceServiceRequest."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield {
                    "signal": "span",
                    **_origin(resource_spans.resource, scope_spans.scope),
                    "name": span.name,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent_id": span.parent_span_id.hex() or None,
                    "kind": span.kind,
                    "start_ns": span.start_time_unix_nano,
                    "end_ns": span.end_time_unix_nano,
                    "attributes": attributes_of(span.attributes),
                    "dropped_attributes": span.dropped_attributes_count,
                    "events": [
                        {
                            "name": event.name,
                            "time_ns": event.time_unix_nano,
                            "attributes": attributes_of(event.attributes),
                        }
                        for event in span.events
                    ],
                    "status": span.status.code,
                    "status_message": span.status.message,
                }


def points_of(request: Any) -> Iterator[Line]:
    """The data points of an ExportMetricsServiceRequest, one a line."""
    for resource_metrics in request.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    yield {
                        "signal": "metric",
                        **_origin(resource_metrics.resource, scope_metrics.scope),
                        "name": metric.name,
                        "unit": metric.unit,
                        "description": metric.description,
                        "kind": kind,
                        "temporality": getattr(data, "aggregation_temporality", 0),
                        "monotonic": getattr(data, "is_monotonic", False),
                        "attributes": attributes_of(point.attributes),
                        "time_ns": point.time_unix_nano,
                        **_measured(kind, point),
                        "exemplars": [
                            {
                                "trace_id": exemplar.trace_id.hex(),
                                "span_id": exemplar.span_id.hex(),
                                "value": _number(exemplar),
                            }
                            for exemplar in point.exemplars
                        ],
                    }


def _measured(kind: str, point: Any) -> Line:
    if kind != "histogram":
        return {"value": _number(point)}
    return {
        "count": point.count,
        "sum": point.sum,
        "bounds": list(point.explicit_bounds),
        "buckets": list(point.bucket_counts),
    }


def _number(point: Any) -> int | float | None:
    kind = point.WhichOneof("value")
    return None if kind is None else getattr(point, kind)


def records_of(request: Any) -> Iterator[Line]:
    """The log records of an ExportLogsServiceRequest."""
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield {
                    "signal": "log",
                    **_origin(resource_logs.resource, scope_logs.scope),
                    "event_name": record.event_name,
                    "body": value_of(record.body),
                    "trace_id": record.trace_id.hex() or None,
                    "span_id": record.span_id.hex() or None,
                    "time_ns": record.time_unix_nano,
                    "attributes": attributes_of(record.attributes),
                }


class Store:
    """Lines that arrived, in order."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._lock = threading.Lock()  # protects the list

    def add(self, protocol: str, lines: Iterable[Line]) -> None:
        """Keep lines, with the protocol that they came over."""
        arrived = [{"protocol": protocol, **line} for line in lines]
        with self._lock:
            self._lines.extend(arrived)

    def dump(self) -> bytes:
        """Everything as JSON lines."""
        with self._lock:
            return "".join(json.dumps(line) + "\n" for line in self._lines).encode()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._lines.clear()


_SIGNALS = {
    "/v1/traces": (
        spans_of,
        trace_service_pb2.ExportTraceServiceRequest,
        trace_service_pb2.ExportTraceServiceResponse,
    ),
    "/v1/metrics": (
        points_of,
        metrics_service_pb2.ExportMetricsServiceRequest,
        metrics_service_pb2.ExportMetricsServiceResponse,
    ),
    "/v1/logs": (
        records_of,
        logs_service_pb2.ExportLogsServiceRequest,
        logs_service_pb2.ExportLogsServiceResponse,
    ),
}


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
        pass

    def do_GET(self) -> None:
        if self.path == "/received":
            self._send(200, "application/jsonl", self.store.dump())
        else:
            self._send(404, "text/plain", b"only /received can be read\n")

    def do_DELETE(self) -> None:
        self.store.clear()
        self._send(200, "text/plain", b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        signal = _SIGNALS.get(self.path)
        content_type = self.headers.get("Content-Type")
        if signal is None or content_type != "application/x-protobuf":
            self._send(415 if signal else 404, "text/plain", b"OTLP over HTTP is protobuf at /v1/...\n")
            return
        lines_of, request_type, response_type = signal
        zipped = self.headers.get("Content-Encoding") == "gzip"
        request = request_type.FromString(gzip.decompress(body) if zipped else body)
        self.store.add("http/protobuf+gzip" if zipped else "http/protobuf", lines_of(request))
        self._send(200, "application/x-protobuf", response_type().SerializeToString())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _servicer(base: type, store: Store, lines_of: Any, response_type: Any) -> Any:
    def export(_self: Any, request: Any, _context: Any) -> Any:
        store.add("grpc", lines_of(request))
        return response_type()

    return type("Servicer", (base,), {"Export": export})()


def serve(wanted_port: int = 0) -> None:
    """Serve until standard input ends, so that no receiver outlives the test that started it."""
    store = Store()
    grpc_server = grpc.server(ThreadPoolExecutor(4))
    for path, base, register in (
        (
            "/v1/traces",
            trace_service_pb2_grpc.TraceServiceServicer,
            trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        ),
        (
            "/v1/metrics",
            metrics_service_pb2_grpc.MetricsServiceServicer,
            metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
        ),
        (
            "/v1/logs",
            logs_service_pb2_grpc.LogsServiceServicer,
            logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
        ),
    ):
        lines_of, _, response_type = _SIGNALS[path]
        register(_servicer(base, store, lines_of, response_type), grpc_server)
    grpc_port = grpc_server.add_insecure_port(f"127.0.0.1:{wanted_port}")
    grpc_server.start()
    handler = type("Handler", (_HttpHandler,), {"store": store})
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http_server.daemon_threads = True
    threading.Thread(target=http_server.serve_forever, args=(0.05,), daemon=True).start()
    print(json.dumps({"grpc": grpc_port, "http": http_server.server_address[1]}), flush=True)
    sys.stdin.read()
    grpc_server.stop(grace=None)
    http_server.shutdown()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
