"""One OTLP body → the spans that tell of loops, decoded, and the places of all others.

Nearly all spans of a service have nothing to do with agents. They are not decoded: the framing of protobuf is
walked down to each span, the ids are taken from the places where every exporter writes them, and one search
over the whole body finds the bytes that a span of interest has. Whatever is not plainly so is left to the
decoder of the whole, and both give the same (a test holds that).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from otel_loopeval.otlp.files import read_line
from otel_loopeval.otlp.protobuf import read_request, read_resource, read_scope_name, read_span
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.marking import MARKERS, is_marked
from otel_loopeval.runs.spans import SpanData

# Tags of protobuf, each a field's number and "it has a length". The loop for spans has them as literals,
# since a global costs it a twentieth of its time.
_FIELD_1: Final = 0x0A
_FIELD_2: Final = 0x12
_FIELD_3: Final = 0x1A
_IDS_BYTES: Final = 28
_NO_TRACE: Final = bytes(16)
_MAX_CACHED: Final = 1_000
_MAX_CACHED_BYTES: Final = 4096

Find = Callable[[bytes], "list[int]"]


def _make_find() -> Find:
    try:
        from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: PLC0415 - may be missing
    except ImportError:
        return find_plainly
    automaton = BytesAhoCorasick(list(MARKERS), matchkind=MatchKind.LeftmostFirst)
    matches = automaton.find_matches_as_indexes

    def find(body: bytes) -> list[int]:
        return [start for _, start, _ in matches(body)]

    return find


def find_plainly(body: bytes) -> list[int]:
    """Where the markers are in a body, in order: with the standard library alone, ten times slower."""
    found: list[int] = []
    for marker in MARKERS:
        start = body.find(marker)
        while start >= 0:
            found.append(start)
            start = body.find(marker, start + len(marker))
    found.sort()
    return found


class Group:
    """What the undecoded spans of one scope of a body have in common.

    Attributes:
        body: The body.
        resource: The bytes of the resource.
        scope: Name of the instrumentation scope.
    """

    __slots__ = ("body", "resource", "scope")

    def __init__(self, body: bytes, resource: bytes, scope: str) -> None:
        self.body = body
        self.resource = resource
        self.scope = scope


Other = tuple[Group, int, int]
"""A span that is not decoded: what it has in common with others, where it begins in the body, where it ends.
A plain tuple, since there are hundreds of thousands a second."""


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
    others: "dict[bytes, list[Other]]"
    decoded: list[SpanData]
    total: int
    size: int


class _Odd(Exception):  # noqa: N818 - no error yet: the decoder of the whole decides
    """Not plainly right."""


class Intake:
    """Reads bodies. One owner: not thread-safe.

    Args:
        find: Finds the markers in a body; the quickest one there is by default.
    """

    def __init__(self, find: Find | None = None) -> None:
        self._find = find or _make_find()
        self._resources: dict[bytes, dict[str, Any]] = {}
        self._scopes: dict[bytes, str] = {}

    def read(self, body: bytes) -> Batch:
        """The spans of one ``ExportTraceServiceRequest``.

        Raises:
            Misfit: It is none.
        """
        try:
            return self._walk(body)
        except (_Odd, IndexError):
            return _split(read_request(body), len(body))

    def read_json(self, body: bytes) -> Batch:
        """The spans of one body of OTLP/JSON.

        Raises:
            Misfit: It is none.
        """
        return _split(read_line(body), len(body))

    def decode(self, other: Other) -> SpanData:
        """A span that was left undecoded.

        Raises:
            Misfit: It is no span: nobody had looked into it.
        """
        group, start, end = other
        return read_span(group.body[start:end], group.scope, self._resource(group.resource))

    def _walk(self, body: bytes) -> Batch:
        hits = self._find(body)
        hits.append(len(body))  # a last one, so that there always is a next one
        marked: list[SpanData] = []
        others: dict[bytes, list[Other]] = {}
        position, end, count = 0, len(body), 0
        while position < end:
            if body[position] != _FIELD_1:  # resource_spans
                raise _Odd
            start, position = _extent(body, position + 1, end)
            count += self._resource_spans(body, start, position, hits, marked, others)
        return Batch(marked, others, [], count, end)

    def _resource_spans(
        self,
        body: bytes,
        position: int,
        end: int,
        hits: list[int],
        marked: list[SpanData],
        others: dict[bytes, list[Other]],
    ) -> int:
        resource = b""
        count = 0
        started = False
        while position < end:
            tag = body[position]
            start, position = _extent(body, position + 1, end)
            if tag == _FIELD_2:  # scope_spans
                started = True
                count += self._scope_spans(body, start, position, resource, hits, marked, others)
            elif tag == _FIELD_1 and not started and not resource:  # resource
                resource = body[start:position]
            elif tag != _FIELD_3:  # schema_url
                raise _Odd
        return count

    def _scope_spans(  # noqa: C901, PLR0912 - calls in a loop of this heat cost more than they explain
        self,
        body: bytes,
        position: int,
        end: int,
        resource: bytes,
        hits: list[int],
        marked: list[SpanData],
        others: dict[bytes, list[Other]],
    ) -> int:
        scope = ""
        if position < end and body[position] == _FIELD_1:  # scope
            start, position = _extent(body, position + 1, end)
            scope = self._scope(body[start:position])
        everything = is_ai(scope)
        group = Group(body, resource, scope)
        count = 0
        hit = 0
        next_hit = hits[0]
        while next_hit < position:
            hit += 1
            next_hit = hits[hit]
        while position < end:
            # The hot path: this loop is what a span that nobody is interested in costs.
            tag, size = body[position], body[position + 1]
            start = position + 2
            if size >= 0x80:  # noqa: PLR2004 - more bytes of the length follow
                more = body[start]
                if more < 0x80:  # noqa: PLR2004 - it is the last
                    size += (more << 7) - 0x80
                    start += 1
                else:
                    start, position = _extent(body, position + 1, end)
                    size = position - start
            position = start + size
            if position > end:
                raise _Odd
            if tag != 0x12:  # noqa: PLR2004 - spans
                if tag == _FIELD_3:  # schema_url
                    continue
                raise _Odd
            if (
                body[start : start + 2] != b"\x0a\x10"
                or body[start + 18 : start + 20] != b"\x12\x08"
                or size < _IDS_BYTES
            ):
                raise _Odd  # ids of another length, or elsewhere
            count += 1
            if next_hit < position or everything:
                while next_hit < position:
                    hit += 1
                    next_hit = hits[hit]
                marked.append(read_span(body[start:position], scope, self._resource(resource)))
                continue
            trace_id = body[start + 2 : start + 18]
            found = others.get(trace_id)
            if found is None:
                if trace_id == _NO_TRACE:
                    raise _Odd
                others[trace_id] = [(group, start, position)]
            else:
                found.append((group, start, position))
        if hit:
            del hits[:hit]
        return count

    def _resource(self, data: bytes) -> dict[str, Any]:
        """The attributes of a resource: one mapping for all spans of one resource."""
        found = self._resources.get(data)
        if found is None:
            found = read_resource(data)
            _keep(self._resources, data, found)
        return found

    def _scope(self, data: bytes) -> str:
        found = self._scopes.get(data)
        if found is None:
            found = read_scope_name(data)
            _keep(self._scopes, data, found)
        return found


def ids_of(other: Other) -> tuple[bytes, bytes]:
    """The span id and the parent's id of an undecoded span; the latter is empty for a root."""
    group, start, end = other
    body = group.body
    span_id = body[start + 20 : start + 28]
    place = start + 28
    if place < end and body[place] == _FIELD_3:  # trace_state
        _, place = _extent(body, place + 1, end)
    if body[place : place + 2] == b"\x22\x08" and place + 10 <= end:
        parent = body[place + 2 : place + 10]
        return span_id, b"" if parent == b"\0\0\0\0\0\0\0\0" else parent
    return span_id, b""


def _extent(body: bytes, position: int, limit: int) -> tuple[int, int]:
    """Where what has a length begins and ends."""
    size = shift = 0
    while True:
        byte = body[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last
            break
        shift += 7
        if shift > 28:  # noqa: PLR2004 - more than any body has
            raise _Odd
    end = position + size
    if end > limit:
        raise _Odd
    return position, end


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
