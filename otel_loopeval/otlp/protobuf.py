"""OTLP protobuf → neutral spans.

``ExportTraceServiceRequest`` and ``TracesData`` are one message on the wire: ``ResourceSpans`` as field 1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_loopeval.otlp.decoding import SPAN_ID_BYTES, STATUS_ERROR, TRACE_ID_BYTES
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.parts import (
    EventParts,
    ResourceParts,
    parse_event,
    parse_loosely,
    parse_request,
    parse_resource,
    parse_resource_spans,
    parse_span,
)
from otel_loopeval.otlp.spans import make_span
from otel_loopeval.otlp.values import inner_depth
from otel_loopeval.runs.spans import SpanData, SpanEvent

_T = TypeVar("_T")
_PLAIN = frozenset({"string_value", "bool_value", "int_value", "double_value", "bytes_value"})
_SCALARS: Final = frozenset({str, int, bool, float})
_MAX_KNOWN: Final = 10_000
_MAX_KNOWN_BYTES: Final = 128


def read_request(data: bytes) -> list[SpanData]:
    """The spans of one ``ExportTraceServiceRequest`` or ``TracesData``, in order.

    Raises:
        Misfit: It is none.
    """
    spans: list[SpanData] = []
    for index, resource_spans in enumerate(parts_of_request(data)):
        try:
            spans += _resource_spans(resource_spans)
        except Misfit as misfit:  # noqa: PERF203 - the place is only known here
            raise misfit.inside(f"[{index}]").inside("resource_spans") from None
    return spans


def read_tempo_trace(data: bytes) -> list[SpanData]:
    """The spans of Tempo's ``TraceByIDResponse``: a ``TracesData`` as its field 1.

    Raises:
        Misfit: It is none.
    """
    try:
        # On the wire, a message and bytes are the same: this one has bytes as field 1 and nothing else.
        trace = BytesValue.FromString(data).value
    except DecodeError:
        raise Misfit("Tempo's TraceByIDResponse", data) from None
    return read_request(trace)


def read_resource_spans(data: bytes) -> list[SpanData]:
    """The spans of one ``ResourceSpans``, in order.

    Raises:
        Misfit: It is none.
    """
    return _resource_spans(parts_of_resource_spans(data))


def parts_of_request(data: bytes) -> Sequence[ResourceParts]:
    """What each resource has in an ``ExportTraceServiceRequest`` or ``TracesData``, its spans encoded.

    Raises:
        Misfit: It is none.
    """
    try:
        return parse_request(data).resource_spans
    except DecodeError:
        raise Misfit("an OTLP protobuf request of traces", data) from None


def parts_of_resource_spans(data: bytes) -> ResourceParts:
    """The same of one ``ResourceSpans``.

    Raises:
        Misfit: It is none.
    """
    try:
        return parse_resource_spans(data)
    except DecodeError:
        raise Misfit("an OTLP protobuf ResourceSpans", data) from None


def read_span(data: bytes, scope: str, resource: Mapping[str, Any]) -> SpanData:
    """One ``Span``.

    Args:
        data: The message.
        scope: Name of its instrumentation scope.
        resource: Attributes of what emitted it.

    Raises:
        Misfit: It is none.
    """
    try:
        span = parse_span(data)
        status = Status.FromString(b"".join(span.status)) if span.status else _NO_STATUS
        return make_span(
            span.name,
            _required_id(span.trace_id, TRACE_ID_BYTES, "trace_id"),
            _required_id(span.span_id, SPAN_ID_BYTES, "span_id"),
            _id(span.parent_span_id, SPAN_ID_BYTES, "parent_span_id"),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            dict(map(_pair, span.attributes)),
            tuple(map(_event, span.events)) if span.events else (),
            status.code == STATUS_ERROR,
            scope,
            resource,
            status.message,
        )
    except DecodeError:
        raise Misfit("an OTLP protobuf Span", data) from None


def read_resource(data: bytes) -> dict[str, Any]:
    """The attributes of one ``Resource``.

    Raises:
        Misfit: It is none.
    """
    try:
        return _attributes(Resource.FromString(data).attributes)
    except DecodeError:
        raise Misfit("an OTLP protobuf Resource", data) from None


def read_scope_name(data: bytes) -> str:
    """The name of one ``InstrumentationScope``.

    Raises:
        Misfit: It is none.
    """
    try:
        return InstrumentationScope.FromString(data).name
    except DecodeError:
        raise Misfit("an OTLP protobuf InstrumentationScope", data) from None


def read_span_loosely(data: bytes, scope: str, resource: Mapping[str, Any]) -> SpanData:
    """One ``Span`` without the parts that cannot be read.

    Args:
        data: The message.
        scope: Name of its instrumentation scope.
        resource: Attributes of what emitted it.

    Raises:
        Misfit: It is none, or has no ids.
    """
    try:
        span = parse_loosely(data)
    except DecodeError:
        raise Misfit("an OTLP protobuf Span", data) from None
    statuses = _readable([b"".join(span.status)], Status.FromString)
    status = statuses[0] if statuses else _NO_STATUS
    return make_span(
        "".join(_readable([span.name], bytes.decode)),
        _required_id(span.trace_id, TRACE_ID_BYTES, "trace_id"),
        _required_id(span.span_id, SPAN_ID_BYTES, "span_id"),
        _id(span.parent_span_id, SPAN_ID_BYTES, "parent_span_id"),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        dict(_readable(span.attributes, _pair)),
        tuple(_readable(span.events, lambda event: _event(parse_event(event)))),
        status.code == STATUS_ERROR,
        scope,
        resource,
        status.message,
    )


def read_resource_loosely(data: bytes) -> dict[str, Any]:
    """The attributes of one ``Resource``, without those that cannot be read."""
    parsed = _readable([data], parse_resource)
    return dict(_readable(parsed[0].attributes, _pair)) if parsed else {}


def _readable(parts: Iterable[bytes], read: Callable[[bytes], _T]) -> list[_T]:
    found: list[_T] = []
    for part in parts:
        try:
            found.append(read(part))
        except (DecodeError, Misfit, UnicodeDecodeError):  # noqa: PERF203 - each may be wrong
            continue
    return found


_NO_STATUS: Final = Status()


def _resource_spans(found: ResourceParts) -> list[SpanData]:
    resource = read_resource(b"".join(found.resource))
    spans: list[SpanData] = []
    for scope_index, scope_spans in enumerate(found.scope_spans):
        scope = read_scope_name(b"".join(scope_spans.scope))
        for index, span in enumerate(scope_spans.spans):
            try:
                spans.append(read_span(span, scope, resource))
            except Misfit as misfit:  # noqa: PERF203 - the place is only known here
                raise misfit.inside(f"[{index}]").inside(f"scope_spans[{scope_index}].spans") from None
    return spans


def _event(event: EventParts) -> SpanEvent:
    return SpanEvent(event.name, event.time_unix_nano, dict(map(_pair, event.attributes)))


def _id(data: bytes, size: int, field: str) -> int | None:
    if not data:
        return None
    if len(data) != size:
        raise Misfit(f"{size} bytes", data).inside(field)
    return _number(data, "big") or None


def _required_id(data: bytes, size: int, field: str) -> int:
    number = _number(data, "big") if len(data) == size else _id(data, size, field)
    if not number:
        raise Misfit(f"{size} bytes, not all zero", data).inside(field)
    return number


_number: Final = int.from_bytes


class _Known(dict[bytes, tuple[str, Any]]):
    """Attributes that have been read, by their encoding: most come again and again, in span after span."""

    def __missing__(self, data: bytes) -> tuple[str, Any]:
        # Longer ones are content, which does not come again.
        if len(data) > _MAX_KNOWN_BYTES:
            return _read_pair(data)
        found = _read_short_pair(data) or _read_pair(data)
        if found[1].__class__ in _SCALARS:  # containers may be changed by whoever has them
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[data] = found
        return found


_pair: Final = _Known().__getitem__


def _read_short_pair(data: bytes) -> tuple[str, Any] | None:
    """A ``KeyValue`` with a text or a whole number from 0 up, in the usual form; None for any other.

    All lengths in it are of one byte: half of what the general way costs.
    """
    try:
        start = 2 + data[1]
        tag, size, kind, last = data[start : start + 4]
        if data[0] != _KEY or tag != _VALUE or start + 2 + size != len(data):
            return None
        if kind == _TEXT and last == size - 2:
            return intern(data[2:start].decode()), data[start + 4 :].decode()
        if kind == _INT and 1 < size <= _MAX_INT and data[-1] < _MORE:
            number = data[-1]
            for byte in data[-2 : start + 2 : -1]:  # the first has the lowest digits
                if byte < _MORE:
                    return None  # it was the last
                number = number << 7 | byte - _MORE
            return intern(data[2:start].decode()), number
    except (IndexError, ValueError):  # shorter, or no UTF-8: a ValueError as well
        pass
    return None


_KEY: Final = 0x0A
_VALUE: Final = 0x12
_TEXT: Final = 0x0A
_INT: Final = 0x18
_MORE: Final = 0x80
"""In the last byte of a number, and in no other of it, this bit is not set."""
_MAX_INT: Final = 9
"""The tag, and eight bytes of seven digits each: with more, it may be a negative number."""


def _read_pair(data: bytes) -> tuple[str, Any]:
    pair = KeyValue.FromString(data)
    value = pair.value
    return pair.key, _value(value, value.WhichOneof("value"), 0)


def _attributes(pairs: Iterable[KeyValue], depth: int = 0) -> dict[str, Any]:
    return {pair.key: _value(pair.value, pair.value.WhichOneof("value"), depth) for pair in pairs}


def _value(value: AnyValue, kind: str | None, depth: int) -> Any:
    if kind == "string_value":
        return value.string_value
    if kind == "array_value":
        inner = inner_depth(depth)
        return tuple(_value(item, item.WhichOneof("value"), inner) for item in value.array_value.values)
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values, inner_depth(depth))
    # Empty, or of a kind that a later version has added: None.
    return getattr(value, kind) if kind in _PLAIN else None
