"""What the quick reader takes, the strict one reads in the same way; what is usual, the quick one takes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopeval.otlp.files import read_line, read_line_strictly
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData

pytest.importorskip("msgspec", reason="the quick reader is made with msgspec, an extra")

from otel_loopeval.otlp.quick import read_line_quickly

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**63, -(2**63), 2**64 - 1, 2**64, 10**30, 10**400, 2.0, 5.0, 1e19, -0.0]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        [
            "0" * 16,
            "0" * 32,
            "1",
            "-1",
            "+1",
            "1_0",
            " 1",
            "٣",
            "²",
            "null",
            "NaN",
            "Infinity",
            "9" * 19,
            "9" * 20,
            "5.0",
            "1e3",
            "1.5",
            "1e400",
            "-1e2",
            "9007199254740993.0",
            "1.8446744073709551615e19",
            "true",
            "0x12345678901234",
            "12 34567890123456",
            "AP8=",
            "_-8",
            "*",
            "STATUS_CODE_ERROR",
            "\ud800",
        ]
    ),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just({"values": [None]}),
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def any_value(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda v: {"stringValue": v}, st.text(max_size=4)),
        st.builds(lambda v: {"intValue": v}, INTEGERS | INTEGERS.map(str)),
        st.builds(lambda v: {"boolValue": v}, st.booleans()),
        st.builds(lambda v: {"doubleValue": v}, st.floats(allow_nan=False, allow_infinity=False)),
        st.builds(lambda v: {"bytesValue": v}, st.sampled_from(["", "AP8=", "_-8"])),
        st.builds(lambda v: {"arrayValue": {"values": v}}, st.lists(inner, max_size=2)),
        st.builds(lambda v: {"kvlistValue": {"values": v}}, st.lists(pair(inner), max_size=2)),
        st.sampled_from([None, {}, {"stringValue": None}, {"new": 1}]),
        st.just({"stringValue": "a", "intValue": 1}) | st.just({"boolValue": True, "doubleValue": 1}),
    )


def pair(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda k, v: {"key": k, "value": v}, st.text(max_size=2), value)


PAIRS = st.lists(pair(any_value(any_value(st.just({"stringValue": "leaf"})))), max_size=3)
HEX = "0123456789abcdefABCDEF"
TIMES = st.integers(0, 2**64 - 1)
EVENTS = st.fixed_dictionaries(
    {}, optional={"name": st.text(max_size=3), "timeUnixNano": TIMES.map(str), "attributes": PAIRS}
)
SPANS = st.fixed_dictionaries(
    {
        "traceId": st.text(HEX, min_size=32, max_size=32),
        "spanId": st.text(HEX, min_size=16, max_size=16),
        "name": st.text(max_size=4),
        "startTimeUnixNano": TIMES.map(str) | TIMES,
        "endTimeUnixNano": TIMES.map(str),
    },
    optional={
        "parentSpanId": st.text(HEX, min_size=16, max_size=16) | st.sampled_from(["", "0" * 16]),
        "attributes": PAIRS,
        "events": st.lists(EVENTS, max_size=2),
        "status": st.fixed_dictionaries(
            {}, optional={"code": st.integers(0, 3), "message": st.text(max_size=3)}
        ),
        "links": st.just([{"traceId": "0"}]),
    },
)
SCOPES = st.fixed_dictionaries(
    {"spans": st.lists(SPANS, max_size=3)},
    optional={"scope": st.fixed_dictionaries({}, optional={"name": st.text(max_size=3)})},
)
RESOURCES = st.fixed_dictionaries(
    {"scopeSpans": st.lists(SCOPES, max_size=2)},
    optional={"resource": st.fixed_dictionaries({}, optional={"attributes": PAIRS})},
)
DOCUMENTS = st.fixed_dictionaries({"resourceSpans": st.lists(RESOURCES, max_size=2)})


def strictly(line: bytes) -> list[SpanData] | str:
    try:
        return read_line_strictly(line)
    except Misfit as misfit:
        return str(misfit)


def bytes_of(document: Any, *, ascii_only: bool = False) -> bytes:
    return json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def nodes(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside: list[tuple[Any, Any]] = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [place, *(found for key, item in inside for found in nodes(item, (*place, key)))]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, st.booleans(), st.data())
def test_one_odd_thing_anywhere(document: Any, ascii_only: bool, data: st.DataObject):
    place = data.draw(st.sampled_from(nodes(document)))
    line = bytes_of(replaced(document, place, data.draw(ODD)), ascii_only=ascii_only)
    quick = read_line_quickly(line)
    if quick is not None:
        assert repr(quick) == repr(strictly(line))


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, st.data())
def test_a_byte_changed_or_the_end_cut_off(document: Any, data: st.DataObject):
    line = bytearray(bytes_of(document))
    at = data.draw(st.integers(0, len(line) - 1))
    if data.draw(st.booleans()):
        line[at] = data.draw(st.integers(0, 255))
    else:
        del line[at:]
    quick = read_line_quickly(bytes(line))
    if quick is not None:
        assert repr(quick) == repr(strictly(bytes(line)))


USUAL = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"app"}}]},'
    '"scopeSpans":[{"scope":{"name":"lib","version":"1"},"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",'
    '"spanId":"eee19b7ec3c1b174","parentSpanId":"eee19b7ec3c1b173","flags":256,"name":"é","kind":2,'
    '"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"attributes":['
    '{"key":"i","value":{"intValue":"-42"}},{"key":"b","value":{"boolValue":false}},'
    '{"key":"d","value":{"doubleValue":1}},{"key":"n","value":{}},{"key":"z","value":{"doubleValue":"NaN"}},'
    '{"key":"a","value":{"arrayValue":{"values":[{"stringValue":"x"},{"intValue":1},{}]}}},'
    '{"key":"m","value":{"kvlistValue":{"values":[{"key":"y","value":{"bytesValue":"AP8="}}]}}}],'
    '"events":[{"timeUnixNano":"5","name":"e","attributes":[{"key":"x","value":{"boolValue":true}}]}],'
    '"status":{"message":"no","code":2}},{"traceId":"5b8efff798038103d269b633813fc60c",'
    '"spanId":"eee19b7ec3c1b175","parentSpanId":"","status":{}}]}]}]}\n'
).encode()


def test_the_usual_form_is_read_quickly_and_alike():
    quick = read_line_quickly(USUAL)
    assert quick is not None
    assert len(quick) == 2
    assert repr(quick) == repr(strictly(USUAL))
    assert quick[0].resource is quick[1].resource


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"resourceLogs":[]}',
        b"\xef\xbb\xbf" + USUAL,
        USUAL.replace(b'"lib"', b'"\\ud800"'),
        USUAL.replace(b'"kind":2', b'"kind":"\xff"'),
        USUAL.replace(b'"stringValue":"app"', b'"stringValue":"app","boolValue":true'),
        USUAL.replace(b"eee19b7ec3c1b174", b"eee19b7ec3c1b17 "),
        USUAL.replace(b"eee19b7ec3c1b173", b"0xe19b7ec3c1b173"),
        USUAL.replace(b'"code":2', b'"code":"ERROR"'),
        USUAL.replace(b'"-42"', b'"-4_2"'),
        USUAL.replace(b'"doubleValue":1}', b'"doubleValue":1e999}'),
        b'{"resourceSpans":"NULL"}',
        USUAL.replace(b'"scope":{"name":"lib","version":"1"}', b'"scope":"null"'),
        USUAL.replace(b'"status":{}', b'"status":"Null"'),
        USUAL.replace(b'{"key":"n","value":{}}', b'{"key":"n","value":"null"}'),
        USUAL.replace(b'{"intValue":1},{}]', b'{"intValue":1},"null"]'),
        b'{"resourceSpans":' + b"[" * 100_000,
    ],
)
def test_what_is_not_plainly_right_is_left_to_the_strict_reader(line: bytes):
    assert read_line_quickly(line) is None


def test_both_bound_how_deep_values_are_nested():
    def nested(depth: int) -> bytes:
        value: Any = {"stringValue": "x"}
        for _ in range(depth):
            value = {"arrayValue": {"values": [value]}}
        span = {"traceId": "1" * 32, "spanId": "2" * 16, "attributes": [{"key": "a", "value": value}]}
        return bytes_of({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})

    quick = read_line_quickly(nested(30))
    assert quick is not None
    assert quick == read_line_strictly(nested(30))
    assert read_line_quickly(nested(31)) is None
    with pytest.raises(Misfit, match=r"arrayValue: expected values in at most 30 others, got an array$"):
        read_line(nested(31))
