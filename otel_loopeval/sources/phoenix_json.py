"""Phoenix's spans in JSON → neutral spans.

Three forms of one span: as the REST API has it (``context`` is an object, attributes are flat), as the
command line saves it (the same, in a trace), and a row of the client's data frame written as JSON records
(column names are paths: ``context.trace_id``, ``attributes.llm.model_name``; times are ISO 8601 or
milliseconds).
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import (
    read_field,
    read_id,
    read_items,
    read_object,
    read_required_id,
    read_text,
)
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources.flat import flat_attributes, flatten

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_EXACT = 2**53
_UINT64_MAX = 2**64 - 1
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.(\d{1,20}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ATTRIBUTES = "attributes."


def is_span(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a span of Phoenix's."""
    return "context.trace_id" in document or isinstance(document.get("context"), dict)


def read_span(document: Mapping[str, Any], resource: Mapping[str, Any] | None = None) -> SpanData:
    """A span.

    Args:
        document: As Phoenix has it.
        resource: What emitted it, where that is known: Phoenix keeps none.

    Raises:
        Misfit: It is no span of Phoenix's.
    """
    span = dict(document)
    attributes = read_field(span, "attributes", flat_attributes)
    for column in span:
        if column.startswith(_ATTRIBUTES):
            read_field(span, column, partial(_column, into=attributes, key=column.removeprefix(_ATTRIBUTES)))
    kind = read_field(span, "span_kind", read_text)
    if kind and kind != "UNKNOWN":
        attributes.setdefault(semconv.OPENINFERENCE_SPAN_KIND, kind)
    start_ns = read_field(span, "start_time", read_moment)
    return SpanData(
        name=read_field(span, "name", read_text),
        trace_id=_in_context(span, "trace_id", lambda text: read_required_id(text, _TRACE_ID_BYTES)),
        span_id=_in_context(span, "span_id", lambda text: read_required_id(text, _SPAN_ID_BYTES)),
        parent_id=read_field(span, "parent_id", lambda text: read_id(text, _SPAN_ID_BYTES)),
        start_ns=start_ns,
        end_ns=read_field(span, "end_time", read_moment) or start_ns,
        attributes=attributes,
        events=tuple(read_field(span, "events", lambda events: read_items(events, _event))),
        error=read_field(span, "status_code", read_text) == "ERROR",
        resource={} if resource is None else resource,
        status_message=read_field(span, "status_message", read_text),
    )


def _column(value: Any, into: dict[str, Any], key: str) -> None:
    """Add a column of a data frame, in which integers are floats wherever some span has none."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    flatten(int(value) if whole else value, into, key)


def _in_context(span: dict[str, Any], name: str, read: Callable[[Any], int]) -> int:
    flat = f"context.{name}"
    if flat in span:
        return read_field(span, flat, read)
    return read_field(span, "context", lambda context: read_field(read_object(context), name, read))


def read_moment(value: Any) -> int:
    """A time in ISO 8601 (UTC where it says nothing else) or in milliseconds; 0 where there is none.

    Returns:
        Nanoseconds since the epoch.

    Raises:
        Misfit: It is none, or one before the epoch.
    """
    moment = 0
    if isinstance(value, str) and value:
        moment = _from_iso(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        moment = round(value * 1000) * 1000  # a float of them is good for microseconds
    elif value is not None and value != "":
        moment = -1
    if not 0 <= moment <= _UINT64_MAX:
        raise Misfit("a time in ISO 8601 or in milliseconds, from 1970 on", value)
    return moment


def _from_iso(text: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        return -1
    date, fraction, zone = match.groups()
    try:
        # fromisoformat() knows "Z" and fractions of any length from Python 3.11 on only.
        moment = datetime.fromisoformat(date.replace(" ", "T") + (zone or "+00:00").replace("Z", "+00:00"))
    except ValueError:
        return -1
    whole = moment - _EPOCH
    seconds = whole.days * 86_400 + whole.seconds
    return seconds * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))


def _event(value: Any) -> SpanEvent:
    event = read_object(value)
    return SpanEvent(
        name=read_field(event, "name", read_text),
        time_ns=read_field(event, "timestamp", read_moment),
        attributes=read_field(event, "attributes", flat_attributes),
    )
