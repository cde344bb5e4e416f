"""Spans and their bytes in the forms that files have them in."""

import base64
import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources import SourceError, open_source

START_NS = 1_767_323_045_123_456_000


def span(number: int = 1, **changes: Any) -> SpanData:
    fields: dict[str, Any] = {
        "name": f"step {number}",
        "trace_id": 0x5B8EFFF798038103D269B633813FC60C,
        "span_id": number,
        "parent_id": 7,
        "start_ns": START_NS + number * 1000,
        "end_ns": START_NS + number * 1000 + 5000,
        "attributes": {"text": "é", "count": 3, "ratio": 0.5, "flag": True},
        "events": (SpanEvent("said", START_NS, {"word": "hi"}),),
        "error": number % 2 == 0,
        "scope": "lib",
        "resource": {"service.name": "app"},
        "status_message": "no" if number % 2 == 0 else "",
    }
    return SpanData(**{**fields, **changes})


def line(*spans: SpanData) -> bytes:
    return trace_line(spans).encode()


def request(*spans: SpanData) -> bytes:
    """A protobuf request, by way of the official library."""
    document = json.loads(trace_line(spans))
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for found in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in found:
                        found[key] = base64.b64encode(bytes.fromhex(found[key])).decode()
    return json_format.ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def read(location: Any) -> list[SpanData]:
    return list(open_source(str(location)))


def read_all(location: Any) -> tuple[list[SpanData], list[str]]:
    """The spans at a location, and the errors of what could not be read."""
    errors: list[SourceError] = []
    spans = list(open_source(str(location), on_error=errors.append))
    return spans, [str(error) for error in errors]
