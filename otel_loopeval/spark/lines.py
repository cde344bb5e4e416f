"""Lines of OTLP/JSON → the spans that tell of loops, decoded, and all others as they are.

What :mod:`otel_loopeval.server.traces.intake` is for protobuf: nearly all spans have nothing to do with
agents, and are not looked into beyond their ids. Whatever is not plainly right is left to the reader of whole
lines.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from otel_loopeval.otlp.files import read_line
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.marking import JSON_MARKERS
from otel_loopeval.runs.spans import SpanData

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_SPAN_DIGITS: Final = {2 * _SPAN_BYTES}
_NO_TRACE: Final = bytes(_TRACE_BYTES)
_NO_SPAN: Final = "0" * 2 * _SPAN_BYTES
_ESCAPE: Final = rb"\u00"
_ESCAPES: Final = re.compile(rb"\\u00(?:2[eE]|[4-7])")
"""Of what is in markers: a text with these may hold one that no search finds. Others are usual: Go escapes
what HTML would."""

Part = tuple[str, bytes, list[bytes]]
"""Spans of one trace and one scope that are not decoded: name of the scope, resource, spans. Resource and
spans are each an OTLP message in protobuf, or an object in JSON. A plain tuple, since there are about as many
as spans."""


class Undecoded(NamedTuple):
    """Spans of one trace that are not decoded.

    Attributes:
        trace_id: Its id, 16 bytes.
        parts: The spans.
        rooted: Whether the trace's root is among them.
    """

    trace_id: bytes
    parts: list[Part]
    rooted: bool


class _Odd(Exception):  # noqa: N818 - no error yet: the reader of whole lines decides
    """Not plainly right."""


_from_hex: Final = bytes.fromhex
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


# gc=False: none of these can be in a cycle, and the garbage collector would look at millions of them.
class _Ids(msgspec.Struct, gc=False, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    start_time_unix_nano: _Time = 0
    end_time_unix_nano: _Time = 0


class _Scope(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None


class _ScopeSpans(msgspec.Struct, gc=False, rename="camel"):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] | None = None


class _ResourceSpans(msgspec.Struct, gc=False, rename="camel"):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_ScopeSpans] | None = None


class _Traces(msgspec.Struct, gc=False, rename="camel"):
    resource_spans: list[_ResourceSpans]


_TRACES: Final = msgspec.json.Decoder(_Traces)
_IDS: Final = msgspec.json.Decoder(_Ids, strict=False)


def _make_may_tell() -> Callable[[bytes], object]:
    """Tells whether bytes hold a marker, or what may hide one."""
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - may be missing
    except ImportError:
        return re.compile(b"|".join((*map(re.escape, JSON_MARKERS), _ESCAPES.pattern))).search
    automaton = BytesAhoCorasick([*JSON_MARKERS, _ESCAPE], matchkind=MatchKind.LeftmostFirst)
    find, escape = automaton.find_matches_as_indexes, len(JSON_MARKERS)

    def may_tell(data: bytes) -> bool:
        return any(number != escape or _ESCAPES.match(data, start) for number, start, _ in find(data))

    return may_tell


_may_tell: Final = _make_may_tell()


def split_line(line: bytes) -> tuple[list[SpanData], list[Undecoded]] | None:
    """The spans of one line: those that may tell of loops, and the others, undecoded.

    Returns:
        None where the line is not plainly right: the reader of whole lines has to look at it.
    """
    try:
        if not line.isascii():
            line.decode()  # the parser looks into no text that it skips
        return _split(line)
    except (ValueError, msgspec.MsgspecError, RecursionError, _Odd, Misfit):  # ValueErrors too since 0.21
        return None


def _split(line: bytes) -> tuple[list[SpanData], list[Undecoded]]:
    marked: list[SpanData] = []
    others: dict[str, list[Part]] = {}
    rooted: set[str] = set()
    for resource_spans in _TRACES.decode(line).resource_spans:
        resource = bytes(resource_spans.resource)
        for scope_spans in resource_spans.scope_spans or ():
            scope = (scope_spans.scope.name or "") if scope_spans.scope is not None else ""
            spans = [bytes(raw) for raw in scope_spans.spans or ()]
            telling: list[bytes] = []
            if is_ai(scope):
                spans, telling = telling, spans
            elif _may_tell(b"".join(spans)):  # hardly ever
                telling += filter(_may_tell, spans)
                spans = [data for data in spans if not _may_tell(data)]
            if telling:
                marked += read_line(line_of((scope, resource, telling)))
            if spans:
                _sort(spans, scope, resource, others, rooted)
    return marked, [Undecoded(_trace_id(text), parts, text in rooted) for text, parts in others.items()]


def _sort(
    spans: list[bytes], scope: str, resource: bytes, others: dict[str, list[Part]], rooted: set[str]
) -> None:
    """Put spans of one scope to those of their traces."""
    # The hot path: this is what spans that nobody is interested in cost.
    found = list(map(_IDS.decode, spans))
    span_ids = [ids.span_id for ids in found]
    parents = [ids.parent_span_id or _NO_SPAN for ids in found]
    if set(map(len, span_ids)) != _SPAN_DIGITS or set(map(len, parents)) != _SPAN_DIGITS:
        raise _Odd
    if len(_from_hex("".join(span_ids))) != _SPAN_BYTES * len(spans) or _NO_SPAN in span_ids:
        raise _Odd  # it skips spaces
    if len(_from_hex("".join(parents))) != _SPAN_BYTES * len(spans):
        raise _Odd
    if _NO_SPAN in parents:
        rooted.update(ids.trace_id for ids, parent in zip(found, parents, strict=True) if parent == _NO_SPAN)
    for ids, data in zip(found, spans, strict=True):
        parts = others.get(ids.trace_id)
        if parts is None:
            others[ids.trace_id] = [(scope, resource, [data])]
            continue
        last = parts[-1]
        if last[1] is resource and last[0] is scope:
            last[2].append(data)
        else:
            parts.append((scope, resource, [data]))


def line_of(part: Part) -> bytes:
    """Undecoded spans as a line of their own."""
    scope, resource, spans = part
    name, objects = msgspec.json.encode(scope), b",".join(spans)
    return b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":{"name":%b},"spans":[%b]}]}]}' % (
        resource,
        name,
        objects,
    )


def _trace_id(text: str) -> bytes:
    data = _from_hex(text)  # it skips spaces: hence both lengths
    if len(data) != _TRACE_BYTES or len(text) != 2 * _TRACE_BYTES or data == _NO_TRACE:
        raise _Odd
    return data
