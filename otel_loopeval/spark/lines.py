"""Lines of OTLP/JSON → the spans that tell of loops, decoded, and all others as they are.

What :mod:`otel_loopeval.server.intake` is for protobuf: nearly all spans have nothing to do with agents, and
are not looked into beyond their ids. Whatever is not plainly right is left to the reader of whole lines.
"""

import json
import re
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from otel_loopeval import semconv
from otel_loopeval.otlp.files import read_line
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.marking import MARKERS
from otel_loopeval.runs.spans import SpanData

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_NO_TRACE, _NO_SPAN = bytes(_TRACE_BYTES), bytes(_SPAN_BYTES)
_NO_PARENT: Final = frozenset({"", "0" * 2 * _SPAN_BYTES})
_MARKERS: Final = tuple(marker for marker in MARKERS if marker.decode().isprintable())
_EVALUATION: Final = json.dumps(semconv.SPAN_EVALUATE).encode()
"""The marker that is spelled differently in protobuf. Not searched for with the others: words that begin with
what is everywhere make the search slow."""
_ESCAPE: Final = rb"\u00"
_ESCAPES: Final = re.compile(rb"\\u00(?:2[eE]|[4-7])")
"""Of what is in markers: a text with these may hold one that no search finds. Others are usual: Go escapes
what HTML would."""


class Part(NamedTuple):
    """Spans of one trace and one scope that are not decoded.

    Attributes:
        scope: Name of the instrumentation scope.
        resource: The resource, encoded as the spans are.
        spans: The spans, each an OTLP message in protobuf, or an object in JSON.
    """

    scope: str
    resource: bytes
    spans: list[bytes]


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


def _make_find() -> Callable[[bytes], object]:
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - may be missing
    except ImportError:
        return re.compile(b"|".join(map(re.escape, _MARKERS))).search
    automaton = BytesAhoCorasick(list(_MARKERS), matchkind=MatchKind.LeftmostFirst)
    return automaton.find_matches_as_indexes


_find: Final = _make_find()


def _has_escape(data: bytes) -> bool:
    return _ESCAPE in data and _ESCAPES.search(data) is not None


def _has_evaluation(data: bytes) -> bool:
    return _EVALUATION in data


def split_line(line: bytes) -> tuple[list[SpanData], list[Undecoded]] | None:
    """The spans of one line: those that may tell of loops, and the others, undecoded.

    Returns:
        None where the line is not plainly right: the reader of whole lines has to look at it.
    """
    try:
        if not line.isascii():
            line.decode()  # the parser looks into no text that it skips
        return _split(line)
    except (ValueError, RecursionError, _Odd, Misfit):  # msgspec's errors are ValueErrors too
        return None


def _split(line: bytes) -> tuple[list[SpanData], list[Undecoded]]:
    # Asked of the whole line first: most have none of the rarer ones, and many none at all.
    asked = [find for find in (_find, _has_evaluation, _has_escape) if find(line)]
    first, more = (asked[0], asked[1:]) if asked else (None, [])
    marked: list[SpanData] = []
    others: dict[str, list[Part]] = {}
    rooted: set[str] = set()
    for resource_spans in _TRACES.decode(line).resource_spans:
        resource = bytes(resource_spans.resource)
        for scope_spans in resource_spans.scope_spans or ():
            scope = (scope_spans.scope.name or "") if scope_spans.scope is not None else ""
            everything = is_ai(scope)
            telling: list[bytes] = []
            found: dict[str, list[bytes]] = {}
            for raw in scope_spans.spans or ():
                data = bytes(raw)
                if (
                    everything
                    or (first is not None and first(data))
                    or (more and any(find(data) for find in more))
                ):
                    telling.append(data)
                    continue
                # The hot path: this is what a span that nobody is interested in costs.
                ids = _IDS.decode(data)
                span_id = _from_hex(ids.span_id)
                if len(span_id) != _SPAN_BYTES or span_id == _NO_SPAN:
                    raise _Odd
                parent = ids.parent_span_id
                if parent is None or parent in _NO_PARENT:
                    rooted.add(ids.trace_id)
                elif len(_from_hex(parent)) != _SPAN_BYTES:
                    raise _Odd
                spans = found.get(ids.trace_id)
                if spans is None:
                    spans = found[ids.trace_id] = []
                    others.setdefault(ids.trace_id, []).append(Part(scope, resource, spans))
                spans.append(data)
            if telling:
                marked += read_line(line_of(Part(scope, resource, telling)))
    return marked, [Undecoded(_trace_id(text), parts, text in rooted) for text, parts in others.items()]


def line_of(part: Part) -> bytes:
    """Undecoded spans as a line of their own."""
    return b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":{"name":%b},"spans":[%b]}]}]}' % (
        part.resource,
        msgspec.json.encode(part.scope),
        b",".join(part.spans),
    )


def _trace_id(text: str) -> bytes:
    data = _from_hex(text)  # it skips spaces: hence both lengths
    if len(data) != _TRACE_BYTES or len(text) != 2 * _TRACE_BYTES or data == _NO_TRACE:
        raise _Odd
    return data
