"""Spans of the OpenTelemetry SDK → lines of OTLP/JSON, as the Collector's file exporter writes them."""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_IDS = ("traceId", "spanId", "parentSpanId")


def trace_lines(spans: Iterable["ReadableSpan"]) -> list[str]:
    """One line for each trace, in the order in which the traces first appear, without line ends.

    Everything that the SDK sends over the network is in them: resource, scopes, kinds, links, statuses.
    """
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        context = span.get_span_context()
        traces.setdefault(0 if context is None else context.trace_id, []).append(span)
    return [_line(trace) for trace in traces.values()]


def _line(spans: Sequence["ReadableSpan"]) -> str:
    # Importing protobuf is slow, and only those who export pay for it.
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # noqa: PLC0415

    data = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource_spans in data["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                _with_hexadecimal_ids(span)
                for link in span.get("links", ()):
                    _with_hexadecimal_ids(link)
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _with_hexadecimal_ids(fields: dict[str, Any]) -> None:
    """OTLP has ids in hexadecimal, where protobuf's JSON has base64."""
    for key in _IDS:
        if key in fields:
            fields[key] = base64.b64decode(fields[key]).hex()
