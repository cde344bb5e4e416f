"""Records with something wrong in them: what can be read of them is kept."""

import json
from typing import Any

import pytest
from sources.stored_spans import request

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources.documents import spans_of_json, spans_of_request
from otel_loopeval.sources.salvage import Damaged

TRACE = "0000000000000000000000000000000a"
GOOD = {"traceId": TRACE, "spanId": "000000000000000b", "name": "good"}
KEPT = "; all else of it is kept"


def text(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def body(*spans: Any, scope: Any = None, resource: Any = None) -> bytes:
    told = {"scope": scope, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [told]}]}).encode()


def agent(**changes: Any) -> dict[str, Any]:
    """A span that tells of an agent."""
    return {"traceId": TRACE, "spanId": "000000000000000c", "name": "invoke_agent writer", **changes}


def salvaged(data: bytes) -> tuple[list[SpanData], str]:
    """What there is, and what is told."""
    try:
        spans = spans_of_json(data) if data[:1] == b"{" else spans_of_request(data)
    except Damaged as damaged:
        return damaged.spans, str(damaged)
    return spans, ""


def test_a_span_that_tells_keeps_what_can_be_read_of_it_and_the_rest_is_told() -> None:
    one = agent(
        attributes=[3, text("gen_ai.agent.name", "writer"), text("gen_ai.system", 4)],
        events=["x", {"name": "seen"}],
        status={"code": "ODD"},
    )
    spans, told = salvaged(body(GOOD, one, GOOD | {"spanId": "000000000000000d"}))
    assert [(span.span_id, span.name) for span in spans] == [
        (0xB, "good"),
        (0xC, "invoke_agent writer"),
        (0xD, "good"),
    ]
    assert spans[1].attributes == {"gen_ai.agent.name": "writer"}
    assert spans[1].events == (SpanEvent("seen", 0, {}),)
    assert (spans[1].error, spans[1].status_message) == (False, "")
    assert told == (
        "resourceSpans[0].scopeSpans[0].spans[1].status.code: expected a status code (a number, or one of "
        f"STATUS_CODE_UNSET, STATUS_CODE_OK, STATUS_CODE_ERROR), got 'ODD'{KEPT}"
    )


def test_nothing_is_told_of_spans_that_tell_of_nothing() -> None:
    spans, told = salvaged(body(GOOD | {"name": 3, "attributes": [text("a", "b"), {"key": 7}]}, resource=3))
    assert ([(span.span_id, span.name, span.attributes) for span in spans], told) == (
        [(0xB, "", {"a": "b"})],
        "",
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"traceId": "xx"}, "traceId: expected 32 hexadecimal digits, got 'xx'"),
        ({"spanId": None}, "spanId: expected 16 hexadecimal digits, not all zero, got null"),
        ({"parentSpanId": "1"}, "parentSpanId: expected 16 hexadecimal digits, got '1'"),
        ({"startTimeUnixNano": "soon"}, "startTimeUnixNano: expected an integer from 0 to"),
    ],
    ids=str,
)
def test_a_span_without_a_place_loses_itself(changes: dict[str, Any], problem: str) -> None:
    spans, told = salvaged(body(GOOD, GOOD | changes))
    assert [span.span_id for span in spans] == [0xB]
    assert told.startswith(f"resourceSpans[0].scopeSpans[0].spans[1].{problem}")
    assert told.endswith(KEPT)


def test_a_resource_that_cannot_be_read_is_told_where_a_span_in_it_tells() -> None:
    odd = {"attributes": [text("service.name", "shop"), {"key": 3}]}
    for spans in ([GOOD], [GOOD, agent()]):
        found, told = salvaged(body(*spans, resource=odd))
        assert [span.resource for span in found] == [{"service.name": "shop"}] * len(spans)
        problem = f"resourceSpans[0].resource.attributes[1].key: expected a string, got 3{KEPT}"
        assert told == (problem if len(spans) > 1 else "")


def test_lists_lose_what_is_none_of_their_items() -> None:
    document = json.loads(body(GOOD, 5, "six"))
    document["resourceSpans"] += [7, {"scopeSpans": 8}, {"scopeSpans": [9, {"scope": 10, "spans": [GOOD]}]}]
    spans, told = salvaged(json.dumps(document).encode())
    assert [span.span_id for span in spans] == [0xB, 0xB]
    assert told == (
        f"resourceSpans[0].scopeSpans[0].spans[1]: expected an object, got 5, and 5 more like it{KEPT}"
    )


@pytest.mark.parametrize("document", [{"resourceSpans": 3}, {"resourceSpans": [3]}])
def test_a_record_without_a_span_is_none(document: Any) -> None:
    with pytest.raises(Misfit) as caught:
        spans_of_json(json.dumps(document).encode())
    assert not isinstance(caught.value, Damaged)


def of(number: int, name: str = "good", **more: Any) -> SpanData:
    return SpanData(name, 10, number, None, 0, 0, **more)


def test_protobuf_loses_no_more_than_json() -> None:
    told = {"gen_ai.agent.name": "writer", "gen_ai.system": "ODD"}
    data = request(of(1), of(2, "invoke_agent writer", attributes=told), of(3)).replace(b"ODD", b"O\xffD")
    spans, problem = salvaged(data)
    assert [(span.span_id, span.name, span.attributes) for span in spans] == [
        (1, "good", {}),
        (2, "invoke_agent writer", {"gen_ai.agent.name": "writer"}),
        (3, "good", {}),
    ]
    place = "resource_spans[0].scope_spans[0].spans[1]"
    assert problem.startswith(f"{place}: expected an OTLP protobuf Span, got b'")
    assert problem.endswith(KEPT)


def test_nothing_is_told_of_protobuf_spans_that_tell_of_nothing() -> None:
    spans, problem = salvaged(request(of(1, "bad"), of(2)).replace(b"bad", b"b\xffd"))
    assert ([(span.span_id, span.name) for span in spans], problem) == ([(1, ""), (2, "good")], "")


def test_protobuf_spans_without_ids_lose_themselves() -> None:
    data = request(of(1), of(0x0102030405060708))
    # Where the ids are where they belong, nothing is told, as nobody looks into such a span.
    assert salvaged(data.replace(bytes(range(1, 9)), bytes(8)))[1] == ""
    spans, problem = salvaged(data.replace(b"\x12\x08" + bytes(range(1, 9)), b"\x1a\x08" + b"x" * 8))
    assert [span.span_id for span in spans] == [1]
    place = "resource_spans[0].scope_spans[0].spans[1]"
    assert problem == f"{place}.span_id: expected 8 bytes, not all zero, got b''{KEPT}"
