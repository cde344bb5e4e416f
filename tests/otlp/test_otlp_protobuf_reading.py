"""What we read from OTLP protobuf: the same as from JSON, and what we say about messages that are none."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from otlp.test_otlp_json_round_trip import SPANS
from sources.stored_spans import request

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.protobuf import read_request, read_resource_spans
from otel_loopeval.runs.spans import SpanData


@settings(max_examples=60, deadline=None)
@given(st.lists(SPANS, max_size=3))
def test_a_message_holds_what_the_same_json_holds(spans: list[SpanData]):
    found = read_request(request(*spans))
    assert found == spans
    assert repr(found) == repr(spans)


def with_span(span: Span) -> bytes:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.append(span)
    return message.SerializeToString()


def nested(depth: int) -> AnyValue:
    value = AnyValue(string_value="x")
    for _ in range(depth):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    return value


PLACE = "resource_spans[0].scope_spans[0].spans[0]"
IDS: dict[str, Any] = {"trace_id": b"\x01" * 16, "span_id": b"\x02" * 8}
PROBLEMS: list[tuple[Span, str]] = [
    (Span(), f"{PLACE}.trace_id: expected 16 bytes, not all zero, got b''"),
    (Span(trace_id=b"\x01" * 15), f"{PLACE}.trace_id: expected 16 bytes, got b'\\x01"),
    (Span(trace_id=b"\x01" * 16, span_id=bytes(8)), f"{PLACE}.span_id: expected 8 bytes, not all zero, got"),
    (Span(**IDS, parent_span_id=b"\x01" * 9), f"{PLACE}.parent_span_id: expected 8 bytes, got b'\\x01"),
]


@pytest.mark.parametrize(("span", "problem"), PROBLEMS)
def test_what_is_said_about_a_span_that_is_none(span: Span, problem: str):
    with pytest.raises(Misfit) as caught:
        read_request(with_span(span))
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\xff" * 20, b"nonsense"])
def test_what_is_no_message(data: bytes):
    with pytest.raises(Misfit, match=r"^expected an OTLP protobuf request of traces, got b'"):
        read_request(data)
    with pytest.raises(Misfit, match=r"^expected an OTLP protobuf ResourceSpans, got b'"):
        read_resource_spans(data)


def test_a_parent_of_zeros_is_none_and_times_may_be_the_largest():
    span = Span(**IDS, parent_span_id=bytes(8), end_time_unix_nano=2**64 - 1)
    (found,) = read_request(with_span(span))
    assert (found.parent_id, found.start_ns, found.end_ns) == (None, 0, 2**64 - 1)


def test_how_deep_values_are_nested_is_bounded():
    span = Span(**IDS)
    span.attributes.add(key="a").value.CopyFrom(nested(30))
    (found,) = read_request(with_span(span))
    value = found.attributes["a"]
    for _ in range(30):
        (value,) = value
    assert value == "x"
    span.attributes[0].value.CopyFrom(nested(31))
    with pytest.raises(Misfit, match="expected values in at most 30 others"):
        read_request(with_span(span))


def field(number: int, data: bytes) -> bytes:
    """A field of protobuf that has a length."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def test_what_comes_once_may_come_in_parts():
    """As protobuf merges them: a reader that takes the last one alone would lose the others."""
    span = Span(**IDS, name="a").SerializeToString()
    span += field(15, field(2, b"it broke")) + field(15, b"\x18\x02")  # a status: its message, its code
    resource = field(1, field(1, field(1, b"k") + field(2, field(1, b"v"))))
    scope = field(1, field(1, b"the scope")) + field(1, field(2, b"1.0"))
    (found,) = read_request(field(1, resource + field(1, b"") + field(2, scope + field(2, span))))
    assert (found.error, found.status_message) == (True, "it broke")
    assert (found.resource, found.scope) == ({"k": "v"}, "the scope")


def test_containers_are_those_of_one_span():
    span = Span(**IDS)
    span.attributes.add(key="a").value.kvlist_value.values.add(key="b").value.int_value = 1
    first, second = (read_request(with_span(span))[0].attributes["a"] for _ in range(2))
    assert first == second == {"b": 1}
    assert first is not second


SHORT = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(max_codepoint=127), max_size=128),
    st.integers(-3, 2**15),
    st.sampled_from(
        [127, 128, 16383, 16384, 2**63 - 1, -(2**63), True, False, 0.0, 1.5, b"", b"bytes", None]
    ),
)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=10) | st.sampled_from(["k" * 126, "k" * 127, "k" * 128]), SHORT, max_size=4
    )
)
def test_short_attributes_are_those_of_protobuf(told: dict[str, Any]):
    span = Span(**IDS)
    for key, value in told.items():
        added = span.attributes.add(key=key).value
        if value is not None:
            kind = {str: "string", int: "int", bool: "bool", float: "double", bytes: "bytes"}[type(value)]
            setattr(added, f"{kind}_value", value)
    for _ in range(2):  # read, and remembered
        (found,) = read_request(with_span(span))
        assert found.attributes == told
        assert [type(value) for value in found.attributes.values()] == [
            type(value) for value in told.values()
        ]


@settings(max_examples=1_000, deadline=None)
@given(st.binary(max_size=12) | st.builds(lambda rest: b"\x0a\x01k\x12" + rest, st.binary(max_size=8)))
@example(b"\x0a\x01k\x12\x04\x18\x05\x08\x07")  # a number, and another field of the value
@example(b"\x0a\x01k\x12\x04\x18\x85\x80\x00")  # longer than it had to be
@example(b"\x0a\x01k\x12\x03\x18\x85\x85")  # without an end
@example(b"\x0a\x01k\x12\x03\x0a\x01\xff")  # no UTF-8
@example(b"\x0a\x01\xff\x12\x02\x18\x01")
@example(b"\x0a\x01k\x12\x05\x0a\x01a\x18\x01")  # a text, and then a number: the last counts
def test_any_bytes_for_an_attribute_are_what_protobuf_takes_them_for(data: bytes):
    body = field(1, field(2, field(2, Span(**IDS).SerializeToString() + field(9, data))))
    try:
        pair = (
            ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans[0].attributes[0]
        )
    except DecodeError:
        with pytest.raises(Misfit):
            read_request(body)
        return
    (found,) = read_request(body)
    kind = pair.value.WhichOneof("value")
    assert list(found.attributes) == [pair.key]
    if kind in ("string_value", "int_value", "bool_value", "double_value", "bytes_value"):
        assert repr(found.attributes[pair.key]) == repr(getattr(pair.value, kind))


WHOLE = Span(**IDS, name="name", trace_state="a=b", kind=Span.SPAN_KIND_CLIENT, flags=1)
WHOLE.attributes.add(key="text").value.string_value = "some text"
WHOLE.attributes.add(key="list").value.array_value.values.add().double_value = 1.5
WHOLE.events.add(name="event", time_unix_nano=5).attributes.add(key="b").value.bool_value = True
WHOLE.links.add(trace_id=b"\x01" * 16, trace_state="c=d").attributes.add(key="c").value.int_value = 7
WHOLE.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="message"))
ENCODED = with_span(WHOLE)


@settings(max_examples=600, deadline=None)
@given(st.integers(0, len(ENCODED)), st.integers(0, 3), st.binary(max_size=4))
def test_what_protobuf_itself_refuses_is_refused(start: int, cut: int, instead: bytes):
    body = ENCODED[:start] + instead + ENCODED[start + cut :]
    try:
        request_of_all = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        with pytest.raises(Misfit):
            read_request(body)
        return
    names = [
        span.name
        for resource_spans in request_of_all.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]
    try:
        spans = read_request(body)
    except Misfit as misfit:
        problem = str(misfit)
    else:
        assert [span.name for span in spans] == names
        return
    assert "_id: expected" in problem  # all else is right
