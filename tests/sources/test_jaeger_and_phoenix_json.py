"""Jaeger's, Phoenix's and Tempo's own JSON, as their interfaces answer it and as they are saved from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from sources.stored_spans import read, read_all

from otel_loopeval.runs.spans import SpanData, SpanEvent

TRACE_ID = "5b8efff798038103d269b633813fc60c"


def tag(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"key": key, "type": kind, "value": value}


def jaeger_span(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "traceID": TRACE_ID,
        "spanID": "eee19b7ec3c1b174",
        "operationName": "chat",
        "references": [{"refType": "CHILD_OF", "traceID": TRACE_ID, "spanID": "eee19b7ec3c1b173"}],
        "startTime": 1767323045123456,
        "duration": 1500,
        "tags": [tag("otel.scope.name", "string", "lib"), tag("span.kind", "string", "internal")],
        "logs": [],
        "processID": "p1",
        "warnings": None,
    }
    return {**fields, **changes}


def jaeger(*spans: Any) -> dict[str, Any]:
    process = {"serviceName": "app", "tags": [tag("host", "string", "h")]}
    trace = {"traceID": TRACE_ID, "spans": list(spans), "processes": {"p1": process}, "warnings": None}
    return {"data": [trace], "total": 0, "limit": 0, "offset": 0, "errors": None}


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def read_jaeger(path: Path, **changes: Any) -> SpanData:
    (found,) = read(write(path / "a.json", jaeger(jaeger_span(**changes))))
    return found


def test_a_trace_as_jaeger_answers_it(tmp_path: Path):
    tags = [
        tag("otel.scope.name", "string", "lib"),
        tag("otel.status_code", "string", "ERROR"),
        tag("otel.status_description", "string", "no"),
        tag("error", "bool", True),
        tag("span.kind", "string", "internal"),
        tag("text", "string", "5"),
        tag("flag", "bool", False),
        tag("count", "int64", 3),
        tag("big", "int64", "9223372036854775807"),
        tag("ratio", "float64", 0.5),
        tag("data", "binary", "AP8="),
        tag("loopeval.health.reasons", "string", '["doom_loop"]'),
    ]
    log = {"timestamp": 1767323045123457, "fields": [tag("event", "string", "said"), tag("n", "int64", 1)]}
    assert read_jaeger(tmp_path, tags=tags, logs=[log]) == SpanData(
        name="chat",
        trace_id=int(TRACE_ID, 16),
        span_id=0xEEE19B7EC3C1B174,
        parent_id=0xEEE19B7EC3C1B173,
        start_ns=1767323045123456000,
        end_ns=1767323045124956000,
        attributes={
            "text": "5",
            "flag": False,
            "count": 3,
            "big": 2**63 - 1,
            "ratio": 0.5,
            "data": b"\x00\xff",
            "loopeval.health.reasons": ("doom_loop",),
        },
        events=(SpanEvent("said", 1767323045123457000, {"n": 1}),),
        error=True,
        scope="lib",
        resource={"service.name": "app", "host": "h"},
        status_message="no",
    )


REFERENCES: list[tuple[Any, int | None]] = [
    ([], None),
    (None, None),
    ([{"refType": "FOLLOWS_FROM", "traceID": TRACE_ID, "spanID": "1"}], None),
    ([{"refType": "CHILD_OF", "traceID": "1", "spanID": "2"}], None),
    (
        [
            {"refType": "FOLLOWS_FROM", "traceID": TRACE_ID, "spanID": "1"},
            {"refType": "CHILD_OF", "traceID": TRACE_ID, "spanID": "2"},
        ],
        2,
    ),
]


@pytest.mark.parametrize(("references", "parent"), REFERENCES)
def test_the_parent_is_the_one_it_is_a_child_of_in_its_trace(
    references: Any, parent: int | None, tmp_path: Path
):
    assert read_jaeger(tmp_path, references=references).parent_id == parent


def test_short_ids_of_old_versions(tmp_path: Path):
    found = read_jaeger(tmp_path, traceID="8efff798038103d", spanID="a", references=[], parentSpanID="b")
    assert (found.trace_id, found.span_id, found.parent_id) == (0x8EFFF798038103D, 10, 11)


def test_a_trace_alone_and_several_traces(tmp_path: Path):
    trace = jaeger(jaeger_span())["data"][0]
    assert len(read(write(tmp_path / "a.json", trace))) == 1
    assert len(read(write(tmp_path / "b.json", {"data": [trace, trace]}))) == 2
    assert read(write(tmp_path / "c.json", {"data": []})) == []
    assert read(write(tmp_path / "d.json", {"data": None, "errors": None})) == []


JAEGER_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"traceID": "xyz"}, "traceID: expected up to 32 hexadecimal digits, got 'xyz'"),
    ({"spanID": "0"}, "spanID: expected up to 16 hexadecimal digits, not all zero, got '0'"),
    ({"startTime": -1}, "startTime: expected an integer from 0 to 18446744073709551615, got -1"),
    ({"tags": [tag("a", "int64", "x")]}, "tags[0].value: expected an integer from -9223372036854775808 to"),
    ({"tags": [tag("a", "bool", 1)]}, "tags[0].value: expected true or false, got 1"),
    ({"tags": [tag("a", "string", {})]}, "tags[0].value: expected a string, a number, true or false, got an"),
    ({"references": [{}]}, "references[0].traceID: expected up to 32 hexadecimal digits, got null"),
    ({"logs": [{"fields": {}}]}, "logs[0].fields: expected an array, got an object"),
]


@pytest.mark.parametrize(("changes", "problem"), JAEGER_PROBLEMS)
def test_what_is_said_about_a_span_that_is_none(changes: dict[str, Any], problem: str, tmp_path: Path):
    file = write(tmp_path / "a.json", jaeger(jaeger_span(), jaeger_span(**changes)))
    spans, errors = read_all(file)
    assert spans == []
    assert len(errors) == 1
    assert errors[0].startswith(f"{file}, line 1: data[0].spans[1].{problem}")


PHOENIX_SPAN: dict[str, Any] = {
    "id": "U3BhbjoyMzg=",
    "name": "root",
    "context": {"trace_id": TRACE_ID, "span_id": "ec4dc3f298e9f0cf"},
    "span_kind": "AGENT",
    "parent_id": None,
    "start_time": "2026-01-02T03:04:05.123456+00:00",
    "end_time": "2026-01-02T04:04:06.5+01:00",
    "status_code": "ERROR",
    "status_message": "no",
    "attributes": {"n": 3, "l": ["a"], "llm.input_messages.0.message.role": "user", "none": None},
    "events": [{"name": "ev", "timestamp": "2026-01-02T03:04:05Z", "attributes": {"k": 1}}],
}
PHOENIX_READ = SpanData(
    name="root",
    trace_id=int(TRACE_ID, 16),
    span_id=0xEC4DC3F298E9F0CF,
    parent_id=None,
    start_ns=1767323045123456000,
    end_ns=1767323046500000000,
    attributes={
        "n": 3,
        "l": ("a",),
        "llm.input_messages.0.message.role": "user",
        "openinference.span.kind": "AGENT",
    },
    events=(SpanEvent("ev", 1767323045000000000, {"k": 1}),),
    error=True,
    status_message="no",
)
# Nested as the client's data frame has it; integers are floats where a column has gaps.
PHOENIX_ROW: dict[str, Any] = {
    **{key: value for key, value in PHOENIX_SPAN.items() if key not in ("context", "attributes", "id")},
    "context.trace_id": TRACE_ID,
    "context.span_id": "ec4dc3f298e9f0cf",
    "attributes.n": 3.0,
    "attributes.l": ["a"],
    "attributes.llm.input_messages": [{"message": {"role": "user"}}],
    "attributes.none": None,
}


@pytest.mark.parametrize(
    "document",
    [
        PHOENIX_SPAN,
        [PHOENIX_SPAN],
        {"data": [PHOENIX_SPAN], "next_cursor": None},
        {"traceId": TRACE_ID, "spans": [PHOENIX_SPAN]},
        PHOENIX_ROW,
        [PHOENIX_ROW],
    ],
    ids=["span", "array", "page of the interface", "trace", "row", "rows"],
)
def test_a_span_in_each_of_phoenixs_forms(document: Any, tmp_path: Path):
    assert read(write(tmp_path / "a.json", document)) == [PHOENIX_READ]


TIMES: list[tuple[Any, int]] = [
    (1767323045123, 1767323045123000000),
    (1767323045123.0, 1767323045123000000),
    ("2026-01-02T03:04:05", 1767323045000000000),
    ("2026-01-02 03:04:05.1", 1767323045100000000),
    ("2026-01-02T03:04:05.123456789Z", 1767323045123456789),
    ("2026-01-02T03:04:05.123+05:30", 1767303245123000000),
]


@pytest.mark.parametrize(("written", "ns"), TIMES)
def test_times_of_phoenix(written: Any, ns: int, tmp_path: Path):
    (found,) = read(write(tmp_path / "a.json", {**PHOENIX_ROW, "start_time": written}))
    assert found.start_ns == ns


@pytest.mark.parametrize(
    "written", ["yesterday", "2026-13-02T03:04:05", "1960-01-02T03:04:05", -1, 1e30, True, []]
)
def test_times_that_are_none(written: Any, tmp_path: Path):
    file = write(tmp_path / "a.json", {**PHOENIX_ROW, "start_time": written})
    spans, errors = read_all(file)
    assert spans == []
    assert errors[0].startswith(
        f"{file}, line 1: start_time: expected a time in ISO 8601 or in milliseconds, from 1970 on, got "
    )


def test_a_trace_of_tempos_with_ids_in_base64(tmp_path: Path):
    span = {"traceId": "W47/95gDgQPSabYzgT/GDA==", "spanId": "7uGbfsPBsXQ=", "name": "x"}
    batches = [{"resource": {}, "scopeSpans": [{"scope": {"name": "lib"}, "spans": [span]}]}]
    expected = [
        SpanData(
            name="x",
            trace_id=int(TRACE_ID, 16),
            span_id=0xEEE19B7EC3C1B174,
            parent_id=None,
            start_ns=0,
            end_ns=0,
            scope="lib",
        )
    ]
    assert read(write(tmp_path / "a.json", {"batches": batches})) == expected
    assert read(write(tmp_path / "b.json", {"trace": {"resourceSpans": batches}})) == expected
