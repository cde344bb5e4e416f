"""Files in every form, whatever they are called; and what is said about those that are none."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sources.stored_spans import frame, line, read, read_all, request, span

from otel_loopeval.sources import SourceError, open_source, records

zstd: Any = pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
    reason="zstd is in the sources extra",
)

SPANS = [span(number) for number in range(1, 8)]
LINES = b"".join(line(one) + b"\n" for one in SPANS)
REQUESTS = [request(*SPANS[:3]), request(*SPANS[3:])]
FRAMES = b"".join(map(frame, REQUESTS))
PRETTY = json.dumps(json.loads(line(*SPANS)), indent=2).encode()

FORMS: dict[str, bytes] = {
    "lines": LINES,
    "lines without the last end": LINES.rstrip(),
    "lines with a byte order mark and carriage returns": b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n"),
    "a pretty-printed document": PRETTY,
    "a pretty-printed document without indentation": json.dumps(json.loads(line(*SPANS)), indent=0).encode(),
    "several pretty-printed documents": b"\n".join(
        json.dumps(json.loads(line(one)), indent=4).encode() for one in SPANS
    ),
    "an array of documents": b"[" + b",".join(line(one) for one in SPANS) + b"]",
    "an array with a document a line": b"[\n" + b",\n".join(line(one) for one in SPANS) + b"\n]\n",
    "gzip": gzip.compress(LINES),
    "gzip of several members": gzip.compress(LINES[:300]) + gzip.compress(LINES[300:]),
    "zstd": zstd.compress(LINES),
    "zstd of several frames": zstd.compress(LINES[:300]) + zstd.compress(LINES[300:]),
    "zstd after a frame without data": b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstd.compress(LINES),
    "a protobuf request": request(*SPANS),
    "protobuf requests in a row": b"".join(REQUESTS),
    "gzip of a protobuf request": gzip.compress(request(*SPANS)),
    "frames of protobuf": FRAMES,
    "zstd of frames of protobuf": zstd.compress(FRAMES),
    "frames of zstd of protobuf": b"".join(frame(zstd.compress(data)) for data in REQUESTS),
    "frames of JSON": b"".join(frame(line(one)) for one in SPANS),
    "frames of zstd of JSON": b"".join(frame(zstd.compress(line(one))) for one in SPANS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_spans(form: str, tmp_path: Path):
    file = tmp_path / "whatever.txt"
    file.write_bytes(FORMS[form])
    assert read(file) == SPANS


@pytest.mark.parametrize("form", ["lines", "gzip", "frames of protobuf", "zstd"])
def test_standard_input(form: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FORMS[form])))
    assert read("-") == SPANS


def test_an_empty_file_holds_nothing(tmp_path: Path):
    (tmp_path / "empty.json").touch()
    assert read(tmp_path / "empty.json") == []
    (tmp_path / "blank.json").write_bytes(b"\n  \n")
    assert read(tmp_path / "blank.json") == []


def test_spans_of_one_resource_share_it(tmp_path: Path):
    (tmp_path / "a.json").write_bytes(line(*[span(n, resource=SPANS[0].resource) for n in (1, 2)]))
    (tmp_path / "a.pb").write_bytes(request(*[span(n, resource=SPANS[0].resource) for n in (1, 2)]))
    for name in ("a.json", "a.pb"):
        first, second = read(tmp_path / name)
        assert first.resource is second.resource


def test_a_directory_is_searched_for_traces_by_name(tmp_path: Path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    for number, name in enumerate(
        ["b/2.jsonl.gz", "a.json", "c.PB", "notes.md", "b/.x.json", ".hidden/y.json", "d.ndjson.zst"], start=1
    ):
        (tmp_path / name).write_bytes(line(span(number)))
    assert [one.span_id for one in read(tmp_path)] == [2, 1, 3, 7]


def test_a_glob(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for number, name in enumerate(["trace-2.log", "trace-1.log", "in/trace-3.log", "other.log"]):
        (tmp_path / name).write_bytes(line(span(number + 1)))
    assert [one.span_id for one in read(tmp_path / "trace-*.log")] == [2, 1]
    assert [one.span_id for one in read(tmp_path / "**" / "trace-*.log")] == [3, 2, 1]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path):
    (tmp_path / "[1].json").write_bytes(line(span()))
    assert read(tmp_path / "[1].json") == [span()]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("none.json", "none.json: no such file or directory"),
        ("*.nothing", "*.nothing: no file matches"),
        ("empty", "empty: no file of traces in this directory (.bin, .binpb,"),
        ("image.png", "image.png: neither JSON nor OTLP protobuf (nor either with gzip or zstd)"),
        ("nul\0.json", "nul\0.json: "),
    ],
)
def test_what_is_said_about_a_location_that_is_none(
    location: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    errors: list[SourceError] = []
    for on_error in (None, errors.append):
        with pytest.raises(SourceError) as caught:
            list(open_source(location, on_error=on_error))
        assert str(caught.value).startswith(problem)
        assert caught.value.place == ""
    assert errors == []


def with_id(data: bytes, span_id: bytes) -> bytes:
    message = ExportTraceServiceRequest.FromString(data)
    message.resource_spans[0].scope_spans[0].spans[0].span_id = span_id
    return message.SerializeToString()


PARTS: list[tuple[str, bytes, list[int], list[str]]] = [
    (
        "a broken line",
        line(span(1)) + b'\n{"resourceSpans":[{"sco\n' + line(span(3)),
        [1, 3],
        ["line 2: expected one JSON object per line (Unterminated string starting at at column 20), got "],
    ),
    (
        "a line cut off where a document might go on",
        line(span(1)) + b'\n{"resourceSpans":[\n' + line(span(3)) + b"\n" + line(span(4)),
        [1, 3, 4],
        ["line 2: expected one JSON object per line"],
    ),
    (
        "a document that does not end",
        line(span(1)) + b"\n" + PRETTY[:-3],
        [1],
        ["line 2: a JSON document that does not end"],
    ),
    (
        "a fault in a document",
        PRETTY.replace(b'"key": "flag"', b"key: 1", 1),
        [],
        ["line 1: expected JSON (Expecting property name enclosed in double quotes at its line "],
    ),
    (
        "a span without an id",
        line(span(1)) + b"\n" + line(span(2)).replace(b"0000000000000002", b"0000000000000000"),
        [1],
        ["line 2: resourceSpans[0].scopeSpans[0].spans[0].spanId: expected 16 hexadecimal digits, not all"],
    ),
    (
        "another kind of document",
        b'{"a":1}\n',
        [],
        ["line 1: expected an object of OTLP, Jaeger or Phoenix JSON, got an object"],
    ),
    ("no document", b"[1]", [], ["line 1: [0]: expected an object of OTLP, Jaeger or Phoenix JSON, got 1"]),
    (
        "a frame that is none",
        frame(request(span(1))) + frame(b"\x0a\xff\xff") + frame(request(span(3))),
        [1, 3],
        ["frame 2: expected an OTLP protobuf request of traces, got b'\\n\\xff\\xff'"],
    ),
    (
        "a frame that is cut off",
        FRAMES[:-5],
        [1, 2, 3],
        [f"frame 2: ends after {len(REQUESTS[1]) - 5} of {len(REQUESTS[1])} bytes"],
    ),
    ("a length that is cut off", FRAMES + b"\0\0", [1, 2, 3, 4, 5, 6, 7], ["frame 3: its length is cut off"]),
    (
        "a length beyond reason",
        frame(request(span(1))) + b"\xff\xff\xff\xffabc",
        [1],
        ["frame 2: longer than 1073741824 bytes (4294967295): what follows is left unread"],
    ),
    (
        "a request that is cut off",
        request(*[span(n) for n in (1, 2)]) + request(span(3))[:-5],
        [1, 2],
        ["resource_spans 2: ends after "],
    ),
    (
        "a span of a request with half an id",
        request(span(1)) + with_id(request(span(2)), b"\0\0\0\2"),
        [1],
        ["resource_spans 1: scope_spans[0].spans[0].span_id: expected 8 bytes, got b'\\x00\\x00\\x00\\x02'"],
    ),
    ("zstd that is cut off", zstd.compress(LINES)[:-20], [], ["its beginning: broken compression: "]),
    (
        "a frame of zstd that is cut off",
        frame(zstd.compress(REQUESTS[0])[:-5]) + frame(REQUESTS[1]),
        [4, 5, 6, 7],
        ["frame 1: zstd that is cut off"],
    ),
]


@pytest.mark.parametrize(
    ("data", "found", "problems"), [part[1:] for part in PARTS], ids=[p[0] for p in PARTS]
)
def test_a_broken_part_loses_only_itself(data: bytes, found: list[int], problems: list[str], tmp_path: Path):
    file = tmp_path / "traces"
    file.write_bytes(data)
    spans, errors = read_all(file)
    assert [one.span_id for one in spans] == found
    assert len(errors) == len(problems)
    for error, problem in zip(errors, problems, strict=True):
        assert error.startswith(f"{file}, {problem}")
        assert len(error) < 400
    with pytest.raises(SourceError) as caught:
        read(file)
    assert str(caught.value) == errors[0]


def test_gzip_that_is_cut_off_keeps_what_was_whole(tmp_path: Path):
    data = gzip.compress(b"".join(line(span(n)) + b"\n" for n in range(1, 20_000)), 1)
    (tmp_path / "a.gz").write_bytes(data[: len(data) // 2])
    spans, errors = read_all(tmp_path / "a.gz")
    assert [one.span_id for one in spans] == list(range(1, len(spans) + 1))
    assert len(spans) > 5_000
    (error,) = errors
    assert error.startswith(
        f"{tmp_path / 'a.gz'}, after line {len(spans)}: broken compression: Compressed file"
    )
    assert error.endswith("; what follows is left unread")


def test_one_file_of_several_that_cannot_be_read_is_a_part(tmp_path: Path):
    (tmp_path / "1.json").write_bytes(b"\x00\x01nothing")
    (tmp_path / "2.json").write_bytes(line(span(2)))
    spans, errors = read_all(tmp_path)
    assert [one.span_id for one in spans] == [2]
    assert errors == [f"{tmp_path / '1.json'}: neither JSON nor OTLP protobuf (nor either with gzip or zstd)"]
    with pytest.raises(SourceError, match=r"1\.json: neither JSON"):
        read(tmp_path)


def test_other_signals_hold_no_spans(tmp_path: Path):
    (tmp_path / "a.json").write_bytes(
        b'{"resourceLogs":[]}\n' + line(span(1)) + b'\n{"resourceMetrics":[]}\n{}'
    )
    assert read_all(tmp_path / "a.json") == ([span(1)], [])


def test_progress_is_told_in_bytes_of_the_files(tmp_path: Path):
    data = line(*[span(n) for n in range(1, 5_000)]) + b"\n"
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(data)
    told: list[tuple[int, int | None]] = []
    spans = open_source(str(tmp_path), on_progress=lambda done, total: told.append((done, total)))
    assert sum(1 for _ in spans) == 2 * 4_999
    assert told == sorted(told)
    assert told[-1] == (2 * len(data), 2 * len(data))
    assert 2 < len(told) <= 2 + 2 * len(data) // 2**20


def test_lines_longer_than_the_bound_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(records, "MAX_RECORD", 2_000)
    long = line(*[span(n) for n in range(1, 9)])
    (tmp_path / "a.json").write_bytes(line(span(1)) + b"\n" + long + b"\n" + line(span(3)) + b"\n" + long)
    spans, errors = read_all(tmp_path / "a.json")
    assert [one.span_id for one in spans] == [1, 3]
    assert [error.rpartition(", ")[2] for error in errors] == [
        "line 2: longer than 2000 bytes",
        "line 4: longer than 2000 bytes",
    ]
