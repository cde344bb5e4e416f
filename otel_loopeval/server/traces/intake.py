"""One OTLP body → the spans that tell of loops, decoded, and all others by their traces, as bytes.

Nearly all spans of a service have nothing to do with agents. They are not decoded: a body is taken apart as
far as its spans, one search over those of a scope finds the bytes that a span of interest has, and the ids of
the others are where every exporter writes them. Whatever is not plainly so is left to the decoder of the
whole, and both give the same (a test holds that).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from otel_loopeval.otlp.files import read_line
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.parts import parse_request
from otel_loopeval.otlp.protobuf import read_request, read_resource, read_scope_name, read_span
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.marking import MARKERS, is_marked
from otel_loopeval.runs.spans import SpanData

_IDS_BYTES: Final = 28
"""A span begins with two bytes and its trace id of 16, two bytes and its own id of 8."""
_UPTO_SPAN_ID: Final = 20
_upto_span_id: Final = itemgetter(slice(_UPTO_SPAN_ID))
_NO_TRACE: Final = bytes(16)
_MAX_CACHED: Final = 1_000
_MAX_CACHED_BYTES: Final = 4096

Found = tuple[int, int, int]
"""Number of a marker, where it begins and where it ends."""
Find = Callable[[bytes], "list[Found]"]


def _make_find() -> Find:
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - may be missing
    except ImportError:
        return find_plainly
    return BytesAhoCorasick(list(MARKERS), matchkind=MatchKind.LeftmostFirst).find_matches_as_indexes


def find_plainly(data: bytes) -> list[Found]:
    """Where the markers are, in order: with the standard library alone, ten times slower."""
    found: list[Found] = []
    for number, marker in enumerate(MARKERS):
        start = data.find(marker)
        while start >= 0:
            end = start + len(marker)
            found.append((number, start, end))
            start = data.find(marker, end)
    found.sort(key=itemgetter(1))
    return found


Group = tuple[bytes, str]
"""What undecoded spans have in common: their encoded resource, and the name of their scope."""
Others = tuple[Group, list[bytes]]
"""Encoded spans of one trace, and what they have in common."""


class Batch(NamedTuple):
    """What one body holds.

    Attributes:
        marked: The spans of interest.
        others: The others, by trace id as bytes; in the usual form, not decoded.
        decoded: The others where the body had to be decoded as a whole.
        total: Spans in all.
        size: Bytes of the body.
    """

    marked: list[SpanData]
    others: dict[bytes, list[Others]]
    decoded: list[SpanData]
    total: int
    size: int


class _Odd(Exception):  # noqa: N818 - no error yet: the decoder of the whole decides
    """Not plainly right."""


class Intake:
    """Reads bodies. One owner: not thread-safe.

    Args:
        find: Finds the markers in bytes; the quickest one there is by default.
    """

    def __init__(self, find: Find | None = None) -> None:
        self._find = find or _make_find()
        self._resources: dict[bytes, dict[str, Any]] = {}
        self._scopes: dict[bytes, tuple[str, bool]] = {}

    def read(self, body: bytes) -> Batch:
        """The spans of one ``ExportTraceServiceRequest``.

        Raises:
            Misfit: It is none.
        """
        try:
            return self._take_apart(body)
        except (_Odd, DecodeError, Misfit):
            return _split(read_request(body), len(body))

    def read_json(self, body: bytes) -> Batch:
        """The spans of one body of OTLP/JSON.

        Raises:
            Misfit: It is none.
        """
        return _split(read_line(body), len(body))

    def decode(self, group: Group, data: bytes) -> SpanData:
        """A span that was left undecoded.

        Raises:
            Misfit: It is no span: nobody had looked into it.
        """
        resource, scope = group
        return read_span(data, scope, self._resource(resource))

    def _take_apart(self, body: bytes) -> Batch:
        marked: list[SpanData] = []
        others: dict[bytes, list[Others]] = {}
        count = 0
        find, scopes = self._find, self._scopes
        # The hot path: this is what spans that nobody is interested in cost. Slices, since protobuf has no
        # iterators: without them, each loop ends with an exception inside.
        for resource_spans in parse_request(body).resource_spans[:]:
            parts = resource_spans.resource
            resource = parts[0] if len(parts) == 1 else b"".join(parts)
            for scope_spans in resource_spans.scope_spans[:]:
                spans = scope_spans.spans[:]
                parts = scope_spans.scope
                encoded = parts[0] if len(parts) == 1 else b"".join(parts)
                scope, everything = scopes.get(encoded) or self._scope(encoded)
                count += len(spans)
                if everything:
                    told = self._resource(resource)
                    marked += [read_span(data, scope, told) for data in spans]
                    continue
                found = find(b"".join(spans))
                if found:
                    spans, of_interest = _sort_out(spans, found)
                    told = self._resource(resource)
                    marked += [read_span(data, scope, told) for data in of_interest]
                if not spans:
                    continue
                group = (resource, scope)
                for start, several in _by_trace(spans):
                    trace_id = start[2:18]
                    if start[:2] != b"\x0a\x10" or start[18:] != b"\x12\x08" or trace_id == _NO_TRACE:
                        raise _Odd  # ids of another length, or elsewhere
                    before = others.get(trace_id)
                    if before is None:
                        others[trace_id] = [(group, several)]
                    elif before[-1][0] is group:
                        before[-1][1].extend(several)
                    else:
                        before.append((group, several))
        return Batch(marked, others, [], count, len(body))

    def _resource(self, data: bytes) -> dict[str, Any]:
        """The attributes of a resource: one mapping for all spans of one resource."""
        found = self._resources.get(data)
        if found is None:
            found = read_resource(data)
            _keep(self._resources, data, found)
        return found

    def _scope(self, data: bytes) -> tuple[str, bool]:
        """The name of a scope, and whether all spans of it are of interest."""
        name = read_scope_name(data)
        found = name, is_ai(name)
        _keep(self._scopes, data, found)
        return found


def _by_trace(spans: Sequence[bytes]) -> Sequence[tuple[bytes, list[bytes]]]:
    """Those that follow each other in one trace, with what they begin with.

    Raises:
        _Odd: One has no room for ids.
    """
    start = spans[0][:_UPTO_SPAN_ID]
    if spans[-1].startswith(start):  # perhaps all of them are of one trace: then there is nothing to group
        same = [data for data in spans if data[:_UPTO_SPAN_ID] == start and len(data) >= _IDS_BYTES]
        if len(same) == len(spans):
            return ((start, same),)
    if min(map(len, spans)) < _IDS_BYTES:
        raise _Odd
    return [(start, list(several)) for start, several in groupby(spans, _upto_span_id)]


def _sort_out(spans: Sequence[bytes], found: Iterable[Found]) -> tuple[list[bytes], list[bytes]]:
    """The spans without any of what was found in all of them joined, and those with some."""
    plain: list[bytes] = []
    of_interest: list[bytes] = []
    places = iter(found)
    _, place, _ = next(places)
    end = 0
    for data in spans:
        end += len(data)
        if place >= end:
            plain.append(data)
            continue
        of_interest.append(data)
        while place < end:
            _, place, _ = next(places, _NOWHERE)
    return plain, of_interest


_NOWHERE: Final = (0, 2**63, 2**63)


def ids_of(data: bytes) -> tuple[bytes, bytes]:
    """The span id and the parent's id of an undecoded span; the latter is empty for a root."""
    span_id = data[20:28]
    place = _IDS_BYTES
    if data[place : place + 1] == b"\x1a":  # trace_state
        place = _after(data, place + 1)
    if data[place : place + 2] == b"\x22\x08":
        parent = data[place + 2 : place + 10]
        return span_id, b"" if parent == b"\0\0\0\0\0\0\0\0" else parent
    return span_id, b""


def _after(data: bytes, position: int) -> int:
    """Where that ends which begins with its length."""
    size = shift = 0
    while position < len(data) and shift < 35:  # noqa: PLR2004 - no length is longer
        byte = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last
            break
        shift += 7
    return position + size


def _keep(cache: dict[bytes, Any], key: bytes, value: Any) -> None:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    if len(key) <= _MAX_CACHED_BYTES:
        cache[key] = value


def _split(spans: Iterable[SpanData], size: int) -> Batch:
    marked: list[SpanData] = []
    decoded: list[SpanData] = []
    for span in spans:
        (marked if is_marked(span) else decoded).append(span)
    return Batch(marked, {}, decoded, len(marked) + len(decoded), size)
