"""What we read from OTLP protobuf: the same as from JSON, and what we say about messages that are none."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
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
