"""Lines of OTLP/JSON in the usual form → neutral spans, quickly.

msgspec checks the shape while it parses, takes integers from strings where only integers may be, and what it
cannot check is checked here. Whatever is not plainly right is left to the strict reader, which knows odd but
valid forms and says what is wrong with the others; where this reader takes a line, both give the same spans.
Fields that nobody reads are not looked into.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from otel_loopeval.otlp.decoding import SPAN_ID_BYTES, STATUS_CODES, STATUS_ERROR, TRACE_ID_BYTES
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.spans import make_span
from otel_loopeval.otlp.values import inner_depth, read_bytes, read_double
from otel_loopeval.runs.spans import SpanData, SpanEvent

_TRACE_DIGITS, _SPAN_DIGITS = 2 * TRACE_ID_BYTES, 2 * SPAN_ID_BYTES
_UINT64_MAX = 2**64 - 1
_UNSET = msgspec.UNSET
_NO_PARENT = "0" * _SPAN_DIGITS
_from_hex, _from_bytes = bytes.fromhex, int.from_bytes


class _Odd(Exception):  # noqa: N818 - no error yet: the strict reader decides
    """Not plainly right."""


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Time = Annotated[int, msgspec.Meta(ge=0)]  # the most that it may be is more than can be said here


# gc=False: none of these can be in a cycle, and the garbage collector would look at millions of them.
# UNSET and not None where texts may not be: "null" in quotes would be taken for it.
class _Array(msgspec.Struct, gc=False, rename="camel"):
    values: "list[_Value] | msgspec.UnsetType" = msgspec.UNSET


class _Map(msgspec.Struct, gc=False, rename="camel"):
    values: "list[_Pair] | msgspec.UnsetType" = msgspec.UNSET


class _Value(msgspec.Struct, gc=False, rename="camel"):
    string_value: str | None = None
    int_value: _Int64 | msgspec.UnsetType = msgspec.UNSET
    bool_value: bool | int | str | None = None  # bool alone would be taken from 1 and "true"
    double_value: float | str | None = None
    array_value: _Array | msgspec.UnsetType = msgspec.UNSET
    kvlist_value: _Map | msgspec.UnsetType = msgspec.UNSET
    bytes_value: str | None = None


class _Pair(msgspec.Struct, gc=False, rename="camel"):
    key: str
    value: _Value | msgspec.UnsetType = msgspec.UNSET


class _Event(msgspec.Struct, gc=False, rename="camel"):
    time_unix_nano: _Time = 0
    name: str | None = None
    attributes: list[_Pair] | msgspec.UnsetType = msgspec.UNSET


class _Status(msgspec.Struct, gc=False, rename="camel"):
    code: int | str | None = None
    message: str | None = None


class _Span(msgspec.Struct, gc=False, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    name: str | None = None
    start_time_unix_nano: _Time = 0
    end_time_unix_nano: _Time = 0
    attributes: list[_Pair] | msgspec.UnsetType = msgspec.UNSET
    events: list[_Event] | msgspec.UnsetType = msgspec.UNSET
    status: _Status | msgspec.UnsetType = msgspec.UNSET


class _Scope(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None


class _ScopeSpans(msgspec.Struct, gc=False, rename="camel"):
    scope: _Scope | msgspec.UnsetType = msgspec.UNSET
    spans: list[_Span] | msgspec.UnsetType = msgspec.UNSET


class _Resource(msgspec.Struct, gc=False, rename="camel"):
    attributes: list[_Pair] | msgspec.UnsetType = msgspec.UNSET


class _ResourceSpans(msgspec.Struct, gc=False, rename="camel"):
    resource: _Resource | msgspec.UnsetType = msgspec.UNSET
    scope_spans: list[_ScopeSpans] | msgspec.UnsetType = msgspec.UNSET


class _Traces(msgspec.Struct, gc=False, rename="camel"):
    resource_spans: list[_ResourceSpans]


_DECODER = msgspec.json.Decoder(_Traces, strict=False)


def read_line_quickly(line: bytes) -> list[SpanData] | None:
    """The spans of one line, in order; None where the strict reader has to look at it."""
    try:
        if not line.isascii():
            line.decode()  # the parser looks into no text that it skips
        return _spans(_DECODER.decode(line))
    except (ValueError, msgspec.MsgspecError, RecursionError, _Odd, Misfit):  # ValueErrors too since 0.21
        return None


def _spans(traces: _Traces) -> list[SpanData]:
    spans: list[SpanData] = []
    # Trace and parent ids come again and again.
    known: dict[str | None, int | None] = {None: None, "": None}
    for resource_spans in traces.resource_spans:
        resource = resource_spans.resource
        shared = _attributes(resource.attributes) if resource and resource.attributes else {}
        for scope_spans in resource_spans.scope_spans or ():
            scope = scope_spans.scope
            _add(spans, scope_spans.spans or (), (scope.name or "") if scope else "", shared, known)
    return spans


def _add(
    spans: list[SpanData],
    found: Iterable[_Span],
    scope: str,
    resource: Mapping[str, Any],
    known: dict[str | None, int | None],
) -> None:
    for span in found:
        parent_text = span.parent_span_id
        status, attributes, events = span.status, span.attributes, span.events
        error, message = False, ""
        if status:
            code = status.code
            error = code is not None and code != 0 and _is_error(code)
            message = status.message or ""
        start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        if start_ns > _UINT64_MAX or end_ns > _UINT64_MAX:
            raise _Odd
        spans.append(
            make_span(
                span.name or "",
                known.get(span.trace_id) or _trace_id(span.trace_id, known),
                _id(span.span_id, _SPAN_DIGITS),
                known[parent_text] if parent_text in known else _parent_id(parent_text, known),
                start_ns,
                end_ns,
                _attributes(attributes) if attributes else {},
                tuple(map(_event, events)) if events else (),
                error,
                scope,
                resource,
                message,
            )
        )


def _id(text: str, digits: int) -> int:
    data = _from_hex(text)  # it skips spaces: hence both lengths
    number = _from_bytes(data, "big")
    if len(text) != digits or len(data) * 2 != digits or not number:
        raise _Odd
    return number


def _trace_id(text: str, known: dict[str | None, int | None]) -> int:
    known[text] = number = _id(text, _TRACE_DIGITS)
    return number


def _parent_id(text: str | None, known: dict[str | None, int | None]) -> int | None:
    if text == _NO_PARENT:
        known[text] = None
        return None
    known[text] = number = _id(text or "", _SPAN_DIGITS)
    return number


def _event(event: _Event) -> SpanEvent:
    if event.time_unix_nano > _UINT64_MAX:
        raise _Odd
    return SpanEvent(event.name or "", event.time_unix_nano, _attributes(event.attributes or ()))


def _is_error(code: int | str) -> bool:
    if type(code) is str:
        if code not in STATUS_CODES:
            raise _Odd
        return STATUS_CODES[code] == STATUS_ERROR
    return code == STATUS_ERROR


def _attributes(pairs: Iterable[_Pair], depth: int = 0) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        if value is _UNSET:
            attributes[pair.key] = None
            continue
        text, number = value.string_value, value.int_value
        flag, real = value.bool_value, value.double_value
        if (
            value.array_value is not _UNSET
            or value.kvlist_value is not _UNSET
            or value.bytes_value is not None
        ):
            attributes[pair.key] = _value(value, depth)
        elif text is not None:
            if number is not _UNSET or flag is not None or real is not None:
                raise _Odd
            attributes[pair.key] = text
        elif number is not _UNSET:
            if flag is not None or real is not None:
                raise _Odd
            attributes[pair.key] = number
        elif real is None:
            if flag is not None and type(flag) is not bool:
                raise _Odd
            attributes[pair.key] = flag
        elif flag is not None:
            raise _Odd
        else:
            attributes[pair.key] = real if type(real) is float else read_double(real)
    return attributes


def _value(value: _Value, depth: int) -> Any:
    given = [kind for kind in msgspec.structs.astuple(value) if kind is not None and kind is not _UNSET]
    if len(given) > 1 or (value.bool_value is not None and type(value.bool_value) is not bool):
        raise _Odd
    if value.double_value is not None:
        return read_double(value.double_value)
    if value.bytes_value is not None:
        return read_bytes(value.bytes_value)
    if value.array_value is not _UNSET:
        inner = inner_depth(depth)
        return tuple([_value(item, inner) for item in value.array_value.values or ()])
    if value.kvlist_value is not _UNSET:
        return _attributes(value.kvlist_value.values or (), inner_depth(depth))
    return given[0] if given else None
