"""Neutral spans → lines → neutral spans, and what official readers make of our lines."""

import json
import math
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_loopeval.otlp import read_lines, trace_line
from otel_loopeval.runs.spans import SpanData, SpanEvent

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TIMES = st.integers(0, 2**64 - 1)
PLAIN = st.one_of(
    st.none(),
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=6),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=4,
)
ATTRIBUTES = st.dictionaries(TEXTS, VALUES, max_size=3)
EVENTS = st.builds(SpanEvent, name=TEXTS, time_ns=TIMES, attributes=ATTRIBUTES)
SPANS = st.builds(
    SpanData,
    name=TEXTS,
    trace_id=st.integers(1, 2**128 - 1),
    span_id=st.integers(1, 2**64 - 1),
    parent_id=st.none() | st.integers(1, 2**64 - 1),
    start_ns=TIMES,
    end_ns=TIMES,
    attributes=ATTRIBUTES,
    events=st.lists(EVENTS, max_size=2).map(tuple),
    error=st.booleans(),
    scope=TEXTS,
    resource=ATTRIBUTES,
    status_message=TEXTS,
)


def with_value(value: Any) -> SpanData:
    return SpanData(
        name="s", trace_id=1, span_id=2, parent_id=None, start_ns=3, end_ns=4, attributes={"a": value}
    )


@given(st.lists(SPANS, max_size=3))
def test_what_is_written_is_read_back(spans: list[SpanData]):
    line = trace_line(spans)
    assert "\n" not in line
    assert line.isascii()
    found = list(read_lines([line]))
    assert found == spans
    assert repr(found) == repr(spans)  # the types too: 1 == 1.0 == True


@given(st.lists(SPANS, max_size=2))
def test_every_line_is_otlp_to_protobuf(spans: list[SpanData]):
    document = json.loads(trace_line(spans), parse_constant=pytest.fail)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):  # OTLP's own encoding; protobuf has base64
                    span.pop(key, None)
    data = json_format.ParseDict(document, TracesData())
    names = [s.name for r in data.resource_spans for sc in r.scope_spans for s in sc.spans]
    assert names == [span.name for span in spans]


def test_a_line_to_the_letter():
    span = SpanData(
        name="é",
        trace_id=1,
        span_id=2,
        parent_id=3,
        start_ns=4,
        end_ns=5,
        attributes={"i": 1, "d": 1.0, "b": True, "s": "x", "a": ["y"], "n": None},
        events=(SpanEvent("e", 6),),
        error=True,
        scope="lib",
    )
    assert trace_line([span]) == (
        '{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{"name":"lib"},"spans":['
        '{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002",'
        '"parentSpanId":"0000000000000003","name":"\\u00e9","startTimeUnixNano":"4","endTimeUnixNano":"5",'
        '"attributes":[{"key":"i","value":{"intValue":"1"}},{"key":"d","value":{"doubleValue":1.0}},'
        '{"key":"b","value":{"boolValue":true}},{"key":"s","value":{"stringValue":"x"}},'
        '{"key":"a","value":{"arrayValue":{"values":[{"stringValue":"y"}]}}},{"key":"n","value":{}}],'
        '"events":[{"timeUnixNano":"6","name":"e"}],"status":{"code":2}}]}]}]}'
    )


def test_no_spans_are_a_line_too():
    assert trace_line([]) == '{"resourceSpans":[]}'


@pytest.mark.parametrize(
    ("number", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_numbers_that_json_has_no_form_for(number: float, text: str):
    line = trace_line([with_value(number)])
    assert f'{{"doubleValue":"{text}"}}' in line
    (span,) = read_lines([line])
    assert repr(span.attributes["a"]) == repr(number)


def test_half_a_surrogate_pair_is_replaced():
    (span,) = read_lines([trace_line([with_value("\ud800 a\\ud800")])])
    assert span.attributes["a"] == "\ufffd a\\ud800"


def test_values_that_otlp_has_not_name_the_span():
    with pytest.raises(ValueError, match=r"^span 's': an OTLP integer has 64 bits, got 9223372036854775808$"):
        trace_line([with_value(2**63)])
    with pytest.raises(TypeError, match=r"^span 's': OTLP has no value for a object$"):
        trace_line([with_value(object())])
