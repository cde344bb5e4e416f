"""Jaeger's own JSON → neutral spans.

It is what the query service answers at ``/api/traces`` and what the user interface saves: traces of spans
and of the processes that they ran in. How OpenTelemetry is told in it:
https://opentelemetry.io/docs/specs/otel/trace/sdk_exporters/jaeger/.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import (
    read_array,
    read_bytes,
    read_double,
    read_field,
    read_int,
    read_items,
    read_object,
    read_text,
    read_time,
)
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources.typed import typed

_NS_PER_US = 1000
_HEX = frozenset("0123456789abcdefABCDEF")
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16
_SCOPES = ("otel.scope.name", "otel.library.name")
_STATUS, _STATUS_TEXT, _ERROR = "otel.status_code", "otel.status_description", "error"
_TOLD_OTHERWISE = frozenset({*_SCOPES, _STATUS, _STATUS_TEXT, _ERROR, "span.kind"})


def is_trace(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a trace of Jaeger's."""
    return "processes" in document and "spans" in document


def read_trace(document: Mapping[str, Any]) -> list[SpanData]:
    """The spans of a trace, in order.

    Raises:
        Misfit: It is no trace of Jaeger's.
    """
    trace = dict(document)
    resources = read_field(trace, "processes", _resources)
    return read_field(trace, "spans", lambda spans: read_items(spans, partial(_span, resources=resources)))


def _resources(value: Any) -> dict[str, dict[str, Any]]:
    processes = {} if value is None else read_object(value)
    return {key: read_field(processes, key, _resource) for key in processes}


def _resource(value: Any) -> dict[str, Any]:
    process = read_object(value)
    service = read_field(process, "serviceName", read_text)
    tags = read_field(process, "tags", _tags)
    return {semconv.SERVICE_NAME: service, **tags} if service else tags


def _span(value: Any, resources: Mapping[str, Mapping[str, Any]]) -> SpanData:
    span = read_object(value)
    tags = read_field(span, "tags", _tags)
    trace_id = read_field(span, "traceID", lambda text: _id(text, _TRACE_DIGITS))
    start_us = read_field(span, "startTime", read_time)
    process = read_field(span, "processID", read_text)
    scope, message = (tags.get(name) for name in (*_SCOPES[:1], _STATUS_TEXT))
    return SpanData(
        name=read_field(span, "operationName", read_text),
        trace_id=trace_id,
        span_id=read_field(span, "spanID", lambda text: _id(text, _SPAN_DIGITS)),
        parent_id=_parent(span, trace_id),
        start_ns=start_us * _NS_PER_US,
        end_ns=(start_us + read_field(span, "duration", read_time)) * _NS_PER_US,
        attributes={key: tag for key, tag in tags.items() if key not in _TOLD_OTHERWISE},
        events=tuple(read_field(span, "logs", lambda logs: read_items(logs, _event))),
        error=tags.get(_STATUS) == "ERROR" or tags.get(_ERROR) in (True, "true"),
        scope=str(scope or tags.get(_SCOPES[1]) or ""),
        resource=resources[process] if process in resources else read_field(span, "process", _own_resource),
        status_message=message if isinstance(message, str) else "",
    )


def _own_resource(value: Any) -> dict[str, Any]:
    return {} if value is None else _resource(value)


def _id(text: Any, digits: int) -> int:
    # Leading zeros are left out by some versions, and old trace ids have 64 bits.
    if not isinstance(text, str) or not 0 < len(text) <= digits or not _HEX.issuperset(text):
        raise Misfit(f"up to {digits} hexadecimal digits", text)
    number = int(text, 16)
    if not number:
        raise Misfit(f"up to {digits} hexadecimal digits, not all zero", text)
    return number


def _parent(span: dict[str, Any], trace_id: int) -> int | None:
    references = read_field(span, "references", lambda value: read_items(value, _reference))
    for child_of, trace, parent in references:
        if child_of and trace == trace_id:
            return parent
    return read_field(span, "parentSpanID", lambda text: _id(text, _SPAN_DIGITS) if text else None)


def _reference(value: Any) -> tuple[bool, int, int]:
    reference = read_object(value)
    return (
        read_field(reference, "refType", read_text) == "CHILD_OF",
        read_field(reference, "traceID", lambda text: _id(text, _TRACE_DIGITS)),
        read_field(reference, "spanID", lambda text: _id(text, _SPAN_DIGITS)),
    )


def _event(value: Any) -> SpanEvent:
    log = read_object(value)
    fields = read_field(log, "fields", _tags)
    name = fields.pop("event", "")
    time_us = read_field(log, "timestamp", read_time)
    return SpanEvent(name if isinstance(name, str) else str(name), time_us * _NS_PER_US, fields)


def _tags(value: Any) -> dict[str, Any]:
    return dict(read_items(read_array(value), _tag))


def _tag(value: Any) -> tuple[str, Any]:
    tag = read_object(value)
    key = read_field(tag, "key", read_text)
    kind = read_field(tag, "type", read_text)
    return key, read_field(tag, "value", lambda found: _tag_value(key, kind, found))


def _tag_value(key: str, kind: str, value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    if value is None:
        return None
    if kind == "bool":
        if value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool):
            raise Misfit("true or false", value)
        return value
    if kind == "int64":
        return read_int(value)
    if kind == "float64":
        return read_double(value)
    if kind == "binary":
        return read_bytes(value)
    if isinstance(value, str):
        return typed(key, value)  # Jaeger has no lists: they are texts
    if isinstance(value, bool | int | float):
        return value
    raise Misfit("a string, a number, true or false", value)
