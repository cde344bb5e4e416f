"""Spans on their way through a cluster: those of one trace that were read together are one row.

A row a trace and not a row a span, since what a shuffle costs is mostly rows; MessagePack, since state may
outlive the process that wrote it and must not be able to run code. What no verdict is made of is left out.
The rest is compressed, since spans of one trace repeat each other: half a microsecond a span makes a tenth of
it, and it is copied a dozen times on its way through the JVM, its state and its shuffle.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

import msgspec

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.protobuf import (
    read_resource,
    read_resource_loosely,
    read_span,
    read_span_loosely,
)
from otel_loopeval.otlp.spans import make_span
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.own import AGENT_PREFIXES, NAME_PREFIXES
from otel_loopeval.runs.dialects.reading import MARKS
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources.documents import spans_of_json
from otel_loopeval.sources.salvage import Damaged
from otel_loopeval.spark.lines import Part, Undecoded, line_of

_LOG: Final = logging.getLogger("otel_loopeval.spark")
_PLAIN: Final = (
    "browser.",
    "client.",
    "cloud.",
    "code.",
    "container.",
    "db.",
    "faas.",
    "host.",
    "http.",
    "k8s.",
    "messaging.",
    "net.",
    "network.",
    "os.",
    "peer.",
    "process.",
    "rpc.",
    "server.",
    "source.",
    "destination.",
    "telemetry.",
    "tls.",
    "url.",
    "user_agent.",
)
"""Namespaces of the general conventions (https://opentelemetry.io/docs/specs/semconv/registry/attributes/)
of which no dialect reads a name."""
_MARKS: Final = frozenset(MARKS)
_NAMES: Final = AGENT_PREFIXES + NAME_PREFIXES
_MAX_REMEMBERED: Final = 10_000
_INT64: Final = range(-(2**63), 2**64)  # what MessagePack can say


class Pack(NamedTuple):
    """Spans of one trace.

    Attributes:
        trace_id: Its id, 16 bytes.
        telling: Whether a span among them tells of an agent or a loop: a trace without one has no run.
        rooted: Whether the trace's root is among them.
        spans: How many they are.
        payload: The spans, for :func:`unpack`.
    """

    trace_id: bytes
    telling: bool
    rooted: bool
    spans: int
    payload: bytes


class _Remembered(dict[str, bool]):
    """A question about a text, asked once of each; bounded, since anything may be in a span."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, text: str) -> bool:
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        answer = self[text] = self._ask(text)
        return answer


def _is_kept(key: str) -> bool:
    return not key.startswith(_PLAIN)


_keeps: Final = _Remembered(_is_kept)
_ai: Final = _Remembered(is_ai)


def tells(span: SpanData) -> bool:
    """Whether a span tells of an agent or a loop, or may do so."""
    return not _MARKS.isdisjoint(span.attributes) or _ai[span.scope] or span.name.startswith(_NAMES)


class _Packing:
    __slots__ = ("count", "encoded", "resources", "rooted", "spans", "telling")

    def __init__(self) -> None:
        self.count = 0
        self.encoded: list[Part] = []
        self.resources: dict[int, tuple[int, Mapping[str, Any]]] = {}  # the mapping keeps its id its own
        self.spans: list[Any] = []
        self.telling = False
        self.rooted = False


class Packer:
    """Puts spans of many traces into packs. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[int, _Packing] = {}
        self.held = 0

    def add(self, span: SpanData) -> None:
        """Take a span."""
        packing = self._open.get(span.trace_id)
        if packing is None:
            packing = self._open[span.trace_id] = _Packing()
        attributes = span.attributes
        if tells(span):
            packing.telling = True
        elif attributes:
            keeps = _keeps
            attributes = {key: value for key, value in attributes.items() if keeps[key]}
        if span.parent_id is None:
            packing.rooted = True
        resources = packing.resources
        resource = resources.get(id(span.resource))
        if resource is None:
            resource = resources[id(span.resource)] = (len(resources), span.resource)
        packing.spans.append(
            (
                span.name,
                span.span_id,
                span.parent_id,
                span.start_ns,
                span.end_ns,
                attributes,
                [(event.name, event.time_ns, event.attributes) for event in span.events],
                span.error,
                span.scope,
                resource[0],
                span.status_message,
            )
        )
        self.held += 1

    def add_undecoded(self, spans: Undecoded) -> None:
        """Take spans of one trace that nobody has decoded: most will never be."""
        number = int.from_bytes(spans.trace_id, "big")
        packing = self._open.get(number)
        if packing is None:
            packing = self._open[number] = _Packing()
        packing.encoded += spans.parts
        packing.rooted = packing.rooted or spans.rooted
        count = sum([len(several) for _, _, several in spans.parts])
        packing.count += count
        self.held += count

    def take(self) -> Iterator[Pack]:
        """The packs so far; the packer is empty then."""
        packings, self._open, self.held = self._open, {}, 0
        for trace_id, packing in packings.items():
            resources = [resource for _, resource in packing.resources.values()]
            content = (resources, packing.spans, packing.encoded)
            yield Pack(
                trace_id.to_bytes(16, "big"),
                packing.telling,
                packing.rooted,
                len(packing.spans) + packing.count,
                _compressed(_encoded(content)),
            )


def unpack(trace_id: bytes, payloads: Iterable[bytes], limit: int) -> tuple[list[SpanData], bool]:
    """The spans of a trace, each once, as they first came; its last version counts.

    Args:
        trace_id: Id of the trace, 16 bytes.
        payloads: Its packs, in order.
        limit: Spans to keep.

    Returns:
        The spans, and whether there are more: then one more than the limit is kept.
    """
    number = int.from_bytes(trace_id, "big")
    found: dict[int, SpanData] = {}
    for span in _spans(number, payloads):
        found[span.span_id] = span
        if len(found) > limit:
            return list(found.values()), True
    return list(found.values()), False


def _spans(number: int, payloads: Iterable[bytes]) -> Iterator[SpanData]:
    known: dict[bytes, dict[str, Any]] = {}
    for payload in payloads:
        resources, spans, encoded = _DECODER.decode(_decompressed(payload))
        for name, span_id, parent_id, start, end, attributes, events, error, scope, index, message in spans:
            yield make_span(
                name,
                number,
                span_id,
                parent_id,
                start,
                end,
                _whole(attributes) if attributes else attributes,
                tuple([SpanEvent(event[0], event[1], _whole(event[2])) for event in events]),
                error,
                scope,
                resources[index],
                message,
            )
        for part in encoded:
            yield from _read(part, known)


def _read(part: Part, known: dict[bytes, dict[str, Any]]) -> Iterator[SpanData]:
    """Spans that are decoded now, as whoever reads all of them would have: without what cannot be read."""
    scope, encoded, several = part
    if several[0].startswith(b"{"):
        try:
            yield from spans_of_json(line_of(part))
        except Damaged as damaged:
            yield from damaged.spans
        except Misfit as misfit:
            if len(several) == 1:
                _LOG.warning("skipped a span: %s", misfit)
                return
            for data in several:
                yield from _read((scope, encoded, [data]), known)
        return
    resource = known.get(encoded)
    if resource is None:
        resource = known[encoded] = _resource(encoded)
    for data in several:
        try:
            yield read_span(data, scope, resource)
        except Misfit:  # noqa: PERF203 - each may be wrong
            yield from _loosely(data, scope, resource)


def _resource(data: bytes) -> dict[str, Any]:
    try:
        return read_resource(data)
    except Misfit:
        return read_resource_loosely(data)


def _loosely(data: bytes, scope: str, resource: dict[str, Any]) -> Iterator[SpanData]:
    try:
        yield read_span_loosely(data, scope, resource)
    except Misfit as misfit:
        _LOG.warning("skipped a span: %s", misfit)


_Event = tuple[str, int, dict[str, Any]]
_Span = tuple[str, int, int | None, int, int, dict[str, Any], list[_Event], bool, str, int, str]
_DECODER: Final = msgspec.msgpack.Decoder(tuple[list[dict[str, Any]], list[_Span], list[Part]])
_ENCODER: Final = msgspec.msgpack.Encoder()


def _encoded(content: Any) -> bytes:
    try:
        return _ENCODER.encode(content)
    except (OverflowError, UnicodeEncodeError):  # stores with JSON may hold what OTLP cannot
        return _ENCODER.encode(_sayable(content))


_LENGTH: Final = 4


def _compressed(data: bytes) -> bytes:
    """Its length, and LZ4 without a frame of its own."""
    return len(data).to_bytes(_LENGTH, "big") + _codec().compress(data, asbytes=True)


def _decompressed(payload: bytes) -> bytes:
    size = int.from_bytes(payload[:_LENGTH], "big")
    return _codec().decompress(payload[_LENGTH:], size, asbytes=True)


@cache
def _codec() -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra  # type: ignore[import]

    return cast("Any", pa).Codec("lz4_raw")


def _sayable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {_sayable(key): _sayable(item) for key, item in pairs}
    if isinstance(value, (list, tuple)):
        return [_sayable(item) for item in cast("list[Any]", value)]
    if isinstance(value, int) and value not in _INT64:
        return float(value)
    return value


def _whole(attributes: dict[str, Any]) -> dict[str, Any]:
    """Lists become the tuples that they were."""
    for key, value in attributes.items():
        if type(value) is list or type(value) is dict:
            attributes[key] = _value(value)
    return attributes


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_value(item) for item in cast("list[Any]", value)])
    if isinstance(value, dict):
        return {key: _value(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
