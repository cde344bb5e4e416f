"""What we read from lines of OTLP/JSON, and what we say about lines that are none."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from otel_loopeval.otlp import OtlpError, read_file, read_lines
from otel_loopeval.runs.spans import SpanData, SpanEvent

TRACE_ID = "5b8efff798038103d269b633813fc60c"
SPAN_ID = "eee19b7ec3c1b174"


def span(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"traceId": TRACE_ID, "spanId": SPAN_ID, "name": "work"}
    return {**fields, **changes}


def line_of(*spans: Any) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def read_one(**changes: Any) -> SpanData:
    (found,) = read_lines([line_of(span(**changes))])
    return found


def read_value(value: Any) -> Any:
    return read_one(attributes=[{"key": "a", "value": value}]).attributes["a"]


def problem_with(line: str | bytes) -> str:
    with pytest.raises(OtlpError) as caught:
        list(read_lines([line], source="traces.jsonl"))
    return str(caught.value)


def test_a_line_as_the_collector_writes_it():
    line = (
        '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.app"}}]},'
        '"scopeSpans":[{"scope":{"name":"my.library","version":"1.0.0"},"spans":[{"traceId":'
        '"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","parentSpanId":"eee19b7ec3c1b173",'
        '"flags":256,"name":"I am a span","kind":2,"startTimeUnixNano":"1544712660000000000",'
        '"endTimeUnixNano":"1544712661000000000","attributes":[{"key":"n","value":{"intValue":"42"}}],'
        '"events":[{"timeUnixNano":"1544712660500000000","name":"e","attributes":[{"key":"x","value":'
        '{"boolValue":true}}],"droppedAttributesCount":1}],"status":{"message":"no","code":2}}]}],'
        '"schemaUrl":"https://opentelemetry.io/schemas/1.30.0"}]}\n'
    )
    assert list(read_lines([line])) == [
        SpanData(
            name="I am a span",
            trace_id=0x5B8EFFF798038103D269B633813FC60C,
            span_id=0xEEE19B7EC3C1B174,
            parent_id=0xEEE19B7EC3C1B173,
            start_ns=1544712660000000000,
            end_ns=1544712661000000000,
            attributes={"n": 42},
            events=(SpanEvent("e", 1544712660500000000, {"x": True}),),
            error=True,
            scope="my.library",
            resource={"service.name": "my.app"},
            status_message="no",
        )
    ]


VALUES: list[tuple[Any, Any]] = [
    ({"stringValue": "text"}, "text"),
    ({"stringValue": ""}, ""),
    ({"boolValue": False}, False),
    ({"intValue": "-9223372036854775808"}, -9223372036854775808),
    ({"intValue": 7}, 7),
    ({"intValue": 7.0}, 7),
    ({"intValue": "7.0"}, 7),
    ({"intValue": "-7e2"}, -700),
    ({"doubleValue": 2.5}, 2.5),
    ({"doubleValue": 3}, 3.0),
    ({"doubleValue": "Infinity"}, math.inf),
    ({"doubleValue": "-Infinity"}, -math.inf),
    ({"bytesValue": "AP8="}, b"\x00\xff"),
    ({"bytesValue": "_-8"}, b"\xff\xef"),
    ({"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "1"}, {}]}}, ("a", 1, None)),
    ({"arrayValue": {}}, ()),
    ({"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {"values": []}}}]}}, {"k": ()}),
    ({"kvlistValue": {}}, {}),
    ({}, None),
    (None, None),
    ({"stringValue": None}, None),
    ({"valueOfTheFuture": 1}, None),
    (
        {"stringValue": "half \ud83d of a pair, a whole \U0001f600"},
        "half \ufffd of a pair, a whole \U0001f600",
    ),
]


@pytest.mark.parametrize(
    ("value", "expected"),
    VALUES,
)
def test_values(value: Any, expected: Any):
    found = read_value(value)
    assert found == expected
    assert type(found) is type(expected)


def test_not_a_number_is_read_as_such():
    assert math.isnan(read_value({"doubleValue": "NaN"}))


STATUSES: list[tuple[Any, bool]] = [
    (None, False),
    ({}, False),
    ({"code": 0}, False),
    ({"code": 1}, False),
    ({"code": 2}, True),
    ({"code": "STATUS_CODE_ERROR"}, True),
    ({"code": "STATUS_CODE_OK"}, False),
    ({"code": 17}, False),
    ({"code": 2.0}, True),
]


@pytest.mark.parametrize(
    ("status", "expected"),
    STATUSES,
)
def test_status(status: Any, expected: bool):
    assert read_one(status=status).error is expected


def test_what_is_absent_has_protobufs_defaults():
    (found,) = read_lines([line_of({"traceId": TRACE_ID, "spanId": SPAN_ID})])
    assert found == SpanData(
        name="", trace_id=int(TRACE_ID, 16), span_id=int(SPAN_ID, 16), parent_id=None, start_ns=0, end_ns=0
    )


@pytest.mark.parametrize("parent", [None, "", "0000000000000000"])
def test_a_root_has_no_parent_however_that_is_spelled(parent: Any):
    assert read_one(parentSpanId=parent).parent_id is None


def test_ids_in_upper_case_and_times_as_numbers():
    found = read_one(traceId=TRACE_ID.upper(), startTimeUnixNano=5, endTimeUnixNano=18446744073709551615)
    assert (found.trace_id, found.start_ns, found.end_ns) == (int(TRACE_ID, 16), 5, 18446744073709551615)


def test_unknown_fields_are_ignored_at_every_level():
    document: dict[str, Any] = {
        "new": 1,
        "resourceSpans": [
            {
                "new": {},
                "scopeSpans": [{"new": [], "scope": {"name": "s", "new": 1}, "spans": [span(new=None)]}],
            }
        ],
    }
    (found,) = read_lines([json.dumps(document)])
    assert (found.name, found.scope) == ("work", "s")


def test_spans_keep_their_order_and_the_last_of_a_repeated_key_wins():
    attributes = [{"key": "a", "value": {"intValue": 1}}, {"key": "a", "value": {"intValue": 2}}]
    found = list(
        read_lines([line_of(span(name="x"), span(name="y", attributes=attributes)), line_of(span(name="z"))])
    )
    assert [s.name for s in found] == ["x", "y", "z"]
    assert found[1].attributes == {"a": 2}


@pytest.mark.parametrize(
    "line", ["", " \t\r\n", "{}", '{"resourceLogs":[]}', '{"resourceMetrics":[]}', '{"resourceSpans":null}']
)
def test_lines_without_spans(line: str):
    assert list(read_lines([line])) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "expected one JSON object per line (Expecting value at column 1), got 'nonsense'"),
        ('{"resourceSpans":', "expected one JSON object per line (Expecting value at column 18)"),
        (b'{"a":"\xff"}', "expected UTF-8 text, got b'\\xff'"),
        ("[1]", "expected an object, got an array"),
        ("{", "expected one JSON object per line"),
        ('{"spans":[]}', "expected an object with resourceSpans, got an object"),
        ('{"resourceSpans":{}}', "resourceSpans: expected an array, got an object"),
        ('{"resourceSpans":[7]}', "resourceSpans[0]: expected an object, got 7"),
        ('{"resourceSpans":[{"scopeSpans":[{},{"scope":[]}]}]}', "scopeSpans[1].scope: expected an object"),
        ('{"a": NaN}', "expected JSON numbers (or the text \"NaN\"), got 'NaN'"),
        ('{"a": ' + "9" * 5000 + "}", "expected JSON"),
        (
            '{"resourceSpans":' + "[" * 100_000 + "]" * 100_000 + "}",
            "expected values that are nested less deeply",
        ),
    ],
)
def test_what_is_said_about_a_line_that_is_none(line: str | bytes, problem: str):
    message = problem_with(line)
    assert message.startswith("traces.jsonl, line 1: ")
    assert problem in message
    assert len(message) < 300


PLACE = "traces.jsonl, line 1: resourceSpans[0].scopeSpans[0].spans[0]"


SPAN_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"traceId": "xyz"}, "traceId: expected 32 hexadecimal digits, got 'xyz'"),
    ({"traceId": None}, "traceId: expected 32 hexadecimal digits, not all zero, got null"),
    ({"traceId": "0" * 32}, "traceId: expected 32 hexadecimal digits, not all zero, got '0000"),
    ({"traceId": "W47/95gDgQPSabYzgT/GDA=="}, "traceId: expected 32 hexadecimal digits, got 'W47/"),
    ({"traceId": "+" + "0" * 30 + "1"}, "traceId: expected 32 hexadecimal digits"),
    ({"spanId": 12}, "spanId: expected 16 hexadecimal digits, got 12"),
    ({"parentSpanId": "00"}, "parentSpanId: expected 16 hexadecimal digits, got '00'"),
    ({"name": 5}, "name: expected a string, got 5"),
    (
        {"startTimeUnixNano": "-1"},
        "startTimeUnixNano: expected an integer from 0 to 18446744073709551615",
    ),
    ({"startTimeUnixNano": "1_0"}, "startTimeUnixNano: expected an integer"),
    ({"startTimeUnixNano": "٣"}, "startTimeUnixNano: expected an integer"),
    (
        {"endTimeUnixNano": 1.5},
        "endTimeUnixNano: expected an integer from 0 to 18446744073709551615, got 1.5",
    ),
    (
        {"endTimeUnixNano": True},
        "endTimeUnixNano: expected an integer from 0 to 18446744073709551615, got true",
    ),
    ({"attributes": {"a": 1}}, "attributes: expected an array, got an object"),
    ({"attributes": [{"value": {}}]}, "attributes[0].key: expected a string, got null"),
    ({"attributes": [{"key": "a", "value": 1}]}, "attributes[0].value: expected an object, got 1"),
    (
        {"status": {"code": "ERROR"}},
        "status.code: expected a status code (a number, or one of STATUS_CODE_UNSET",
    ),
    ({"status": {"code": 1.5}}, "status.code: expected a status code"),
    ({"status": "OK"}, "status: expected an object, got 'OK'"),
    ({"events": [{}, {"timeUnixNano": "x"}]}, "events[1].timeUnixNano: expected an integer"),
]


@pytest.mark.parametrize(
    ("changes", "problem"),
    SPAN_PROBLEMS,
)
def test_what_is_said_about_a_span_that_is_none(changes: Any, problem: str):
    assert problem_with(line_of(span(**changes))).startswith(f"{PLACE}.{problem}")


VALUE_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"stringValue": 1}, ".stringValue: expected a string, got 1"),
    ({"boolValue": "true"}, ".boolValue: expected true or false, got 'true'"),
    ({"intValue": "9223372036854775808"}, ".intValue: expected an integer from -9223372036854775808 to"),
    ({"intValue": "x" * 1000}, ".intValue: expected an integer"),
    ({"intValue": "7.5"}, ".intValue: expected an integer"),
    ({"intValue": "1e400"}, ".intValue: expected an integer"),
    ({"intValue": "7."}, ".intValue: expected an integer"),
    (
        {"doubleValue": "1.5"},
        '.doubleValue: expected a number, "NaN", "Infinity" or "-Infinity", got \'1.5\'',
    ),
    ({"doubleValue": 10**400}, ".doubleValue: expected a number"),
    ({"bytesValue": "*"}, ".bytesValue: expected base64, got '*'"),
    ({"arrayValue": []}, ".arrayValue: expected an object, got an array"),
    (
        {"arrayValue": {"values": [{}, {"intValue": []}]}},
        ".arrayValue.values[1].intValue: expected an integer",
    ),
    (
        {"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": 0}}]}},
        ".kvlistValue.values[0].value.boolValue: expected true or false, got 0",
    ),
    (
        {"stringValue": "a", "intValue": 1},
        ": expected one kind of value, not both stringValue and intValue, got an object",
    ),
]


@pytest.mark.parametrize(
    ("value", "problem"),
    VALUE_PROBLEMS,
)
def test_what_is_said_about_a_value_that_is_none(value: Any, problem: str):
    message = problem_with(line_of(span(attributes=[{"key": "a", "value": value}])))
    assert message.startswith(f"{PLACE}.attributes[0].value{problem}")


def test_a_bad_line_loses_only_itself_when_told_so():
    bad_span = line_of(span(name="lost with its line"), span(spanId="?"))
    lines = [line_of(span(name="first")), "nonsense", bad_span, line_of(span(name="last"))]
    errors: list[OtlpError] = []
    assert [s.name for s in read_lines(lines, source="f", on_error=errors.append)] == ["first", "last"]
    assert [(e.source, e.line) for e in errors] == [("f", 2), ("f", 3)]
    assert errors[1].problem.startswith("resourceSpans[0].scopeSpans[0].spans[1].spanId: expected 16")


def test_a_file_with_a_byte_order_mark_empty_lines_and_no_final_newline(tmp_path: Path):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + line_of(span(name="é")).encode() + b"\r\n\n" + line_of(span()).encode()
    )
    assert [s.name for s in read_file(file)] == ["é", "work"]


def test_the_error_names_the_file_and_the_line(tmp_path: Path):
    file = tmp_path / "traces.jsonl"
    file.write_text(f"{line_of(span())}\n\noops\n")
    with pytest.raises(OtlpError) as caught:
        list(read_file(file))
    assert str(caught.value).startswith(f"{file}, line 3: expected one JSON object per line")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        list(read_file(tmp_path / "none.jsonl"))
