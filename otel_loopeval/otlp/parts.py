"""OTLP protobuf with its inner messages left as bytes, for those who look into few of them.

A protobuf library parses in C, but each field of a message that somebody looks at becomes an object of
Python. On the wire, a message and bytes are the same; so what is mostly passed over, or has been seen before,
is declared as bytes here. What may come once is declared as repeated: the parts joined are the whole, as
protobuf wants it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.trace.v1 import trace_pb2


class ScopeParts(Protocol):
    """A ``ScopeSpans``: encoded ``InstrumentationScope`` and ``Span`` messages."""

    @property
    def scope(self) -> Sequence[bytes]:
        """The scope, mostly in one part."""
        ...

    @property
    def spans(self) -> Sequence[bytes]:
        """The spans."""
        ...


class ResourceParts(Protocol):
    """A ``ResourceSpans``: an encoded ``Resource``, and the scopes in parts."""

    @property
    def resource(self) -> Sequence[bytes]:
        """The resource, mostly in one part."""
        ...

    @property
    def scope_spans(self) -> Sequence[ScopeParts]:
        """What each scope has."""
        ...


class AttributesParts(Protocol):
    """A ``Resource``: its attributes are encoded ``KeyValue`` messages."""

    attributes: Sequence[bytes]


class RequestParts(Protocol):
    """An ``ExportTraceServiceRequest`` or ``TracesData``."""

    @property
    def resource_spans(self) -> Sequence[ResourceParts]:
        """What each resource has."""
        ...


class EventParts(Protocol):
    """An event of a span, with encoded attributes."""

    name: str
    time_unix_nano: int
    attributes: Sequence[bytes]


class SpanParts(Protocol):
    """A ``Span``: its attributes are encoded ``KeyValue`` messages, its status is an encoded ``Status``."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    attributes: Sequence[bytes]
    events: Sequence[EventParts]
    status: Sequence[bytes]


class LooseSpanParts(Protocol):
    """A ``Span`` of which nothing is looked into: texts and events are bytes, too."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: bytes
    start_time_unix_nano: int
    end_time_unix_nano: int
    attributes: Sequence[bytes]
    events: Sequence[bytes]
    status: Sequence[bytes]


_PACKAGE: Final = "otel_loopeval.parts"
_TYPES: Final = {
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "string": FieldDescriptorProto.TYPE_STRING,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
}
_Fields = Iterable[tuple[str, int, str]]
_MESSAGES: Final[dict[str, _Fields]] = {
    "Request": [("resource_spans", 1, "repeated .ResourceSpans")],
    "ResourceSpans": [
        ("resource", 1, "repeated bytes"),
        ("scope_spans", 2, "repeated .ScopeSpans"),
        ("schema_url", 3, "string"),
    ],
    "ScopeSpans": [
        ("scope", 1, "repeated bytes"),
        ("spans", 2, "repeated bytes"),
        ("schema_url", 3, "string"),
    ],
    "Resource": [("attributes", 1, "repeated bytes")],
    "Span": [
        ("trace_id", 1, "bytes"),
        ("span_id", 2, "bytes"),
        ("trace_state", 3, "string"),
        ("parent_span_id", 4, "bytes"),
        ("name", 5, "string"),
        ("kind", 6, "int32"),  # an enum, on the wire
        ("start_time_unix_nano", 7, "fixed64"),
        ("end_time_unix_nano", 8, "fixed64"),
        ("attributes", 9, "repeated bytes"),
        ("events", 11, "repeated .Event"),
        # Nobody reads links, but what is wrong in one is wrong in the span.
        ("links", 13, f"repeated .{trace_pb2.Span.Link.DESCRIPTOR.full_name}"),
        ("status", 15, "repeated bytes"),
    ],
    "LooseSpan": [
        ("trace_id", 1, "bytes"),
        ("span_id", 2, "bytes"),
        ("parent_span_id", 4, "bytes"),
        ("name", 5, "bytes"),
        ("start_time_unix_nano", 7, "fixed64"),
        ("end_time_unix_nano", 8, "fixed64"),
        ("attributes", 9, "repeated bytes"),
        ("events", 11, "repeated bytes"),
        ("status", 15, "repeated bytes"),
    ],
    "Event": [("time_unix_nano", 1, "fixed64"), ("name", 2, "string"), ("attributes", 3, "repeated bytes")],
}


def _declare() -> dict[str, Any]:
    file = FileDescriptorProto(name=f"{_PACKAGE.replace('.', '/')}.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(trace_pb2.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, what in fields:
            label, _, kind = what.rpartition(" ")
            added = message.field.add(
                name=field,
                number=number,
                label=FieldDescriptorProto.LABEL_REPEATED if label else FieldDescriptorProto.LABEL_OPTIONAL,
                type=_TYPES.get(kind, FieldDescriptorProto.TYPE_MESSAGE),
            )
            if kind not in _TYPES:
                added.type_name = f".{_PACKAGE}{kind}" if kind[1:] in _MESSAGES else kind
    pool = cast("Any", descriptor_pool.Default())  # that of the messages that these refer to
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES: Final = _declare()

parse_request: Final[Callable[[bytes], RequestParts]] = _CLASSES["Request"].FromString
"""Parses an ``ExportTraceServiceRequest`` or ``TracesData``; raises ``DecodeError``."""
parse_resource_spans: Final[Callable[[bytes], ResourceParts]] = _CLASSES["ResourceSpans"].FromString
"""Parses a ``ResourceSpans``; raises ``DecodeError``."""
parse_resource: Final[Callable[[bytes], AttributesParts]] = _CLASSES["Resource"].FromString
"""Parses a ``Resource``; raises ``DecodeError``."""
parse_event: Final[Callable[[bytes], EventParts]] = _CLASSES["Event"].FromString
"""Parses an ``Event``; raises ``DecodeError``."""
parse_loosely: Final[Callable[[bytes], LooseSpanParts]] = _CLASSES["LooseSpan"].FromString
"""Parses a ``Span`` as far as its parts; raises ``DecodeError``."""
parse_span: Final[Callable[[bytes], SpanParts]] = _CLASSES["Span"].FromString
"""Parses a ``Span``; raises ``DecodeError``."""


class Encodable(Protocol):
    """A message that is to be sent."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name for it
        """The message as bytes."""
        ...


Build = Callable[..., Encodable]
"""Makes a message of its fields, where inner messages are encoded ones."""

build_request: Final[Build] = _CLASSES["Request"]
build_resource_spans: Final[Build] = _CLASSES["ResourceSpans"]
build_resource: Final[Build] = _CLASSES["Resource"]
build_scope_spans: Final[Build] = _CLASSES["ScopeSpans"]
build_span: Final[Build] = _CLASSES["Span"]
build_event: Final[Build] = _CLASSES["Event"]
