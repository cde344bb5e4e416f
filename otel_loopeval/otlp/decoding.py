"""One ``TracesData`` object (``ExportTraceServiceRequest`` is the same) → neutral spans."""

from itertools import chain
from typing import Any

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import (
    read_attributes,
    read_field,
    read_id,
    read_items,
    read_object,
    read_required_id,
    read_text,
    read_time,
)
from otel_loopeval.runs.spans import SpanData, SpanEvent

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_STATUS_ERROR = 2
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": _STATUS_ERROR}
_OTHER_SIGNALS = ("resourceLogs", "resourceMetrics", "resourceProfiles")


def read_traces(document: Any) -> list[SpanData]:
    """The spans of one parsed line, in order.

    Raises:
        Misfit: It is no OTLP/JSON traces.
    """
    data = read_object(document)
    if "resourceSpans" not in data:
        # A collector may write all its signals into one file.
        if not data or any(signal in data for signal in _OTHER_SIGNALS):
            return []
        raise Misfit("an object with resourceSpans", document)
    return _flat(read_field(data, "resourceSpans", lambda value: read_items(value, _resource_spans)))


def _resource_spans(value: Any) -> list[SpanData]:
    return _flat(
        read_field(read_object(value), "scopeSpans", lambda scopes: read_items(scopes, _scope_spans))
    )


def _scope_spans(value: Any) -> list[SpanData]:
    scope_spans = read_object(value)
    scope = read_field(scope_spans, "scope", _scope_name)
    return read_field(scope_spans, "spans", lambda spans: read_items(spans, lambda span: _span(span, scope)))


def _flat(lists: list[list[SpanData]]) -> list[SpanData]:
    return list(chain.from_iterable(lists))


def _scope_name(value: Any) -> str:
    return "" if value is None else read_field(read_object(value), "name", read_text)


def _span(value: Any, scope: str) -> SpanData:
    span = read_object(value)
    return SpanData(
        name=read_field(span, "name", read_text),
        trace_id=read_field(span, "traceId", lambda text: read_required_id(text, _TRACE_ID_BYTES)),
        span_id=read_field(span, "spanId", lambda text: read_required_id(text, _SPAN_ID_BYTES)),
        parent_id=read_field(span, "parentSpanId", lambda text: read_id(text, _SPAN_ID_BYTES)),
        start_ns=read_field(span, "startTimeUnixNano", read_time),
        end_ns=read_field(span, "endTimeUnixNano", read_time),
        attributes=read_field(span, "attributes", read_attributes),
        events=tuple(read_field(span, "events", lambda events: read_items(events, _event))),
        error=read_field(span, "status", _is_error),
        scope=scope,
    )


def _event(value: Any) -> SpanEvent:
    event = read_object(value)
    return SpanEvent(
        name=read_field(event, "name", read_text),
        time_ns=read_field(event, "timeUnixNano", read_time),
        attributes=read_field(event, "attributes", read_attributes),
    )


def _is_error(value: Any) -> bool:
    return value is not None and read_field(read_object(value), "code", _status_code) == _STATUS_ERROR


def _status_code(value: Any) -> int:
    code = 0 if value is None else _STATUS_CODES.get(value, value) if isinstance(value, str) else value
    if not isinstance(code, int) or isinstance(code, bool):
        raise Misfit(f"a status code (a number, or one of {', '.join(_STATUS_CODES)})", value)
    return code
