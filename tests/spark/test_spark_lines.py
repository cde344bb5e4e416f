"""Lines of OTLP/JSON of which most spans stay as they are."""

import json
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")
pytest.importorskip("pyarrow", reason="the extra [spark] is not installed")

from spark.fleet import Fleet, exported

from otel_loopeval.otlp import trace_line
from otel_loopeval.otlp.files import read_line
from otel_loopeval.spark.lines import line_of, split_line
from otel_loopeval.spark.packing import Packer, unpack

TRACE, SPAN = "0000000000000000000000000000000a", "000000000000000b"


def span(**changes: Any) -> dict[str, Any]:
    return {"traceId": TRACE, "spanId": SPAN, "name": "work", **changes}


def line(*spans: Any, scope: str = "app") -> bytes:
    told = {"scope": {"name": scope}, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"scopeSpans": [told]}]}).encode()


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def counts(data: bytes) -> tuple[int, int] | None:
    found = split_line(data)
    if found is None:
        return None
    marked, undecoded = found
    return len(marked), sum(len(spans) for trace in undecoded for _, _, spans in trace.parts)


def test_both_ways_give_the_same_spans() -> None:
    for body in exported(list(Fleet(seed=11, loops=0.4).traces(60)), per_body=300):
        data = trace_line(body).encode()
        found = split_line(data)
        assert found is not None
        marked, undecoded = found
        spans = [*marked]
        for trace in undecoded:
            packer = Packer()
            packer.add_undecoded(trace)
            (pack,) = packer.take()
            spans += unpack(pack.trace_id, [pack.payload], 1000)[0]
            assert (pack.spans, pack.telling) == (sum(len(several) for _, _, several in trace.parts), False)
        assert sorted(spans, key=lambda one: one.span_id) == sorted(
            read_line(data), key=lambda one: one.span_id
        )


@pytest.mark.parametrize(
    ("one", "scope"),
    [
        (span(name="evaluation_loop writer"), "app"),
        (span(name="evaluate"), "app"),
        (span(name="work"), "openinference.instrumentation.langchain"),
        (span(attributes=[text("gen_ai.system", "x")]), "app"),
        (span(events=[{"name": "loopeval.guard"}]), "app"),
    ],
    ids=str,
)
def test_what_may_tell_of_a_loop_is_decoded(one: dict[str, Any], scope: str) -> None:
    assert counts(line(one, scope=scope)) == (1, 0)
    assert counts(line(span(), one, scope=scope)) == ((2, 0) if scope != "app" else (1, 1))


@pytest.mark.parametrize("name", [r"gen\u005fai.x", r"\u0067en_ai.x", r"gen_ai\u002ex", r"gen_ai\u002Ex"])
def test_escapes_hide_nothing(name: str) -> None:
    data = line(span(attributes=[text("NAME", "x")]), span()).replace(b"NAME", name.encode())
    assert counts(data) == (1, 1)


def test_escapes_of_other_things_are_no_reason_to_look() -> None:
    assert counts(line(span(name="a\u2028b")).replace(b"work", rb"a\u003cb\u0026c")) == (0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"traceId": "0" * 32},
        {"traceId": "0a"},
        {"traceId": TRACE + " "},
        {"spanId": "0" * 16},
        {"spanId": "xx"},
        {"spanId": None},
        {"parentSpanId": "1"},
        {"startTimeUnixNano": "-1"},
        {"endTimeUnixNano": "soon"},
    ],
    ids=str,
)
def test_what_is_not_plainly_right_is_left_to_the_reader_of_whole_lines(changes: dict[str, Any]) -> None:
    assert counts(line(span())) == (0, 1)
    assert split_line(line(span(), span(**changes))) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no json",
        b"{}",
        b"[]",
        b'{"resourceSpans":3}',
        line(span())[:-3],
        line("span"),
        line(span()) + b"x",
    ],
)
def test_other_lines_are_left_alone(data: bytes) -> None:
    assert split_line(data) is None


def test_text_that_is_no_utf8_is_left_to_the_reader_of_whole_lines() -> None:
    assert split_line(line(span(name="NAME")).replace(b"NAME", b"\xff")) is None
    assert counts(line(span(name="NAME")).replace(b"NAME", "é".encode())) == (0, 1)


@pytest.mark.parametrize(
    ("parent", "rooted"),
    [
        ({}, True),
        ({"parentSpanId": ""}, True),
        ({"parentSpanId": "0" * 16}, True),
        ({"parentSpanId": SPAN}, False),
    ],
    ids=str,
)
def test_roots_have_no_parent(parent: dict[str, Any], rooted: bool) -> None:
    found = split_line(line(span(**parent)))
    assert found is not None
    ((trace,), marked) = (found[1], found[0])
    assert (trace.rooted, marked, trace.trace_id) == (rooted, [], bytes(15) + b"\x0a")


def test_a_trace_of_several_scopes_is_one() -> None:
    document = json.loads(line(span(), span(spanId="c" * 16)))
    (resource_spans,) = document["resourceSpans"]
    resource_spans["scopeSpans"].append({"scope": None, "spans": [span(spanId="d" * 16)]})
    resource_spans["scopeSpans"].append({"spans": None})
    found = split_line(json.dumps(document).encode())
    assert found is not None
    ((trace,), _) = (found[1], found[0])
    assert [(scope, len(spans)) for scope, _, spans in trace.parts] == [("app", 2), ("", 1)]
    assert [one.span_id for part in trace.parts for one in read_line(line_of(part))] == [
        0xB,
        0xCCCCCCCCCCCCCCCC,
        0xDDDDDDDDDDDDDDDD,
    ]


def test_an_undecoded_span_loses_only_what_cannot_be_read() -> None:
    odd = span(spanId="c" * 16, attributes=[3, text("key", "value")])
    found = split_line(line(span(), odd, span(spanId="d" * 16)))
    assert found is not None
    packer = Packer()
    packer.add_undecoded(found[1][0])
    (pack,) = packer.take()
    back, _ = unpack(pack.trace_id, [pack.payload], 10)
    assert [(one.span_id, one.attributes) for one in back] == [
        (0xB, {}),
        (0xCCCCCCCCCCCCCCCC, {"key": "value"}),
        (0xDDDDDDDDDDDDDDDD, {}),
    ]
