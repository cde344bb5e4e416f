"""Neutral spans → one line of OTLP/JSON, as the Collector's file exporter writes it."""

import json
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from otel_loopeval.otlp.values import write_attributes
from otel_loopeval.runs.spans import SpanData, SpanEvent

_STATUS_ERROR = 2


def trace_line(spans: Iterable[SpanData]) -> str:
    """The spans as one ``TracesData`` object on one line, in their order, without the line's end.

    The line is strict JSON in ASCII. What a neutral span does not know (its kind and links, the schemas) is
    left out. Neighbours that share one resource mapping share it in the line too.

    Raises:
        ValueError: A value does not fit OTLP's integers; the message names the span and the attribute.
        TypeError: OTLP has no such value; likewise.
    """
    resources = [_resource_spans(list(group)) for _, group in groupby(spans, _resource_identity)]
    # ASCII: any encoding can carry it, and a text may hold half a surrogate pair.
    return json.dumps({"resourceSpans": resources}, separators=(",", ":"), allow_nan=False)


def _resource_identity(span: SpanData) -> int | None:
    # By identity: equal mappings may differ in the types of their values (1 == True).
    return id(span.resource) if span.resource else None


def _resource_spans(spans: list[SpanData]) -> dict[str, Any]:
    scopes = [
        {"scope": {"name": scope}, "spans": [_span(span) for span in group]}
        for scope, group in groupby(spans, attrgetter("scope"))
    ]
    return {"resource": _resource(spans[0]), "scopeSpans": scopes}


def _resource(span: SpanData) -> dict[str, Any]:
    if not span.resource:
        return {}
    try:
        return {"attributes": write_attributes(span.resource)}
    except (TypeError, ValueError) as error:
        raise type(error)(f"resource of span {span.name!r}: {error}") from error


def _span(span: SpanData) -> dict[str, Any]:
    try:
        return _fields(span)
    except (TypeError, ValueError) as error:
        raise type(error)(f"span {span.name!r}: {error}") from error


def _fields(span: SpanData) -> dict[str, Any]:
    fields: dict[str, Any] = {"traceId": f"{span.trace_id:032x}", "spanId": f"{span.span_id:016x}"}
    if span.parent_id is not None:
        fields["parentSpanId"] = f"{span.parent_id:016x}"
    fields["name"] = span.name
    fields["startTimeUnixNano"] = str(span.start_ns)
    fields["endTimeUnixNano"] = str(span.end_ns)
    if span.attributes:
        fields["attributes"] = write_attributes(span.attributes)
    if span.events:
        fields["events"] = [_event(event) for event in span.events]
    status: dict[str, Any] = {"code": _STATUS_ERROR} if span.error else {}
    if span.status_message:
        status["message"] = span.status_message
    fields["status"] = status
    return fields


def _event(event: SpanEvent) -> dict[str, Any]:
    fields: dict[str, Any] = {"timeUnixNano": str(event.time_ns), "name": event.name}
    if event.attributes:
        fields["attributes"] = write_attributes(event.attributes)
    return fields
