"""One ``TracesData`` object (``ExportTraceServiceRequest`` is the same) → neutral spans."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

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

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
STATUS_ERROR = 2
STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": STATUS_ERROR}
_OTHER_SIGNALS = ("resourceLogs", "resourceMetrics", "resourceProfiles")


class Emitter(NamedTuple):
    """What the spans of one list have in common.

    Attributes:
        resource: Attributes of what emitted them.
        scope: Name of the instrumentation scope.
    """

    resource: Mapping[str, Any]
    scope: str


class Status(NamedTuple):
    """How a span ended.

    Attributes:
        error: Whether in an error.
        message: What is said of it.
    """

    error: bool
    message: str


def read_traces(document: Any) -> list[SpanData]:
    """The spans of one parsed line, in order.

    Raises:
        Misfit: It is no OTLP/JSON traces.
    """
    data = read_object(document)
    if "resourceSpans" not in data:
        if is_other_signal(data):
            return []
        raise Misfit("an object with resourceSpans", document)
    return _flat(read_field(data, "resourceSpans", lambda value: read_items(value, _resource_spans)))


def is_other_signal(document: Mapping[str, Any]) -> bool:
    """Whether it is empty or of another signal: a collector may write all of them into one file."""
    return not document or any(signal in document for signal in _OTHER_SIGNALS)


def _resource_spans(value: Any) -> list[SpanData]:
    resource_spans = read_object(value)
    resource = read_field(resource_spans, "resource", read_resource)
    return _flat(
        read_field(
            resource_spans,
            "scopeSpans",
            lambda scopes: read_items(scopes, lambda scope: _scope_spans(scope, resource)),
        )
    )


def _scope_spans(value: Any, resource: Mapping[str, Any]) -> list[SpanData]:
    scope_spans = read_object(value)
    emitter = Emitter(resource, read_field(scope_spans, "scope", read_scope_name))
    return read_field(
        scope_spans, "spans", lambda spans: read_items(spans, lambda span: read_span(span, emitter))
    )


def _flat(lists: list[list[SpanData]]) -> list[SpanData]:
    return list(chain.from_iterable(lists))


def read_resource(value: Any) -> dict[str, Any]:
    """The attributes of a resource."""
    return {} if value is None else read_field(read_object(value), "attributes", read_attributes)


def read_scope_name(value: Any) -> str:
    """The name of an instrumentation scope."""
    return "" if value is None else read_field(read_object(value), "name", read_text)


def read_span(value: Any, emitter: Emitter) -> SpanData:
    """A span, whole.

    Raises:
        Misfit: Something in it is not right.
    """
    span = read_object(value)
    status = read_field(span, "status", read_status)
    return SpanData(
        name=read_field(span, "name", read_text),
        trace_id=read_field(span, "traceId", lambda text: read_required_id(text, TRACE_ID_BYTES)),
        span_id=read_field(span, "spanId", lambda text: read_required_id(text, SPAN_ID_BYTES)),
        parent_id=read_field(span, "parentSpanId", lambda text: read_id(text, SPAN_ID_BYTES)),
        start_ns=read_field(span, "startTimeUnixNano", read_time),
        end_ns=read_field(span, "endTimeUnixNano", read_time),
        attributes=read_field(span, "attributes", read_attributes),
        events=tuple(read_field(span, "events", lambda events: read_items(events, read_event))),
        error=status.error,
        scope=emitter.scope,
        resource=emitter.resource,
        status_message=status.message,
    )


def read_event(value: Any) -> SpanEvent:
    """An event of a span."""
    event = read_object(value)
    return SpanEvent(
        name=read_field(event, "name", read_text),
        time_ns=read_field(event, "timeUnixNano", read_time),
        attributes=read_field(event, "attributes", read_attributes),
    )


def read_status(value: Any) -> Status:
    """The status of a span."""
    if value is None:
        return Status(error=False, message="")
    status = read_object(value)
    return Status(
        error=read_field(status, "code", _status_code) == STATUS_ERROR,
        message=read_field(status, "message", read_text),
    )


def _status_code(value: Any) -> int:
    code = 0 if value is None else STATUS_CODES.get(value, value) if isinstance(value, str) else value
    if isinstance(code, float) and code.is_integer():
        return int(code)
    if not isinstance(code, int) or isinstance(code, bool):
        raise Misfit(f"a status code (a number, or one of {', '.join(STATUS_CODES)})", value)
    return code
