"""Spans of the SDK as lines of OTLP/JSON, and files that are written whole or not at all."""

import json
import os
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode

from otel_loopeval.cli.errors import CommandError
from otel_loopeval.cli.files import check_writable, write_whole
from otel_loopeval.cli.sdk_lines import trace_lines
from otel_loopeval.otlp import read_lines


def test_a_line_for_each_trace_with_everything_that_the_sdk_sends():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "é"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("lib", "1.2")
    with tracer.start_as_current_span("outer", kind=SpanKind.CLIENT) as outer:
        outer.set_attributes({"text": "x", "many": [1, 2], "flag": True, "ratio": 0.5, "whole": 3})
        outer.add_event("noted", {"n": 1}, timestamp=123)
        with tracer.start_as_current_span("inner") as inner:
            inner.set_status(StatusCode.ERROR, "it broke")
    with tracer.start_as_current_span("other", links=[Link(outer.get_span_context())]) as other:
        pass

    lines = trace_lines(exporter.get_finished_spans())

    assert len(lines) == 2
    first = json.loads(lines[0])["resourceSpans"][0]
    assert {"key": "service.name", "value": {"stringValue": "é"}} in first["resource"]["attributes"]
    assert first["scopeSpans"][0]["scope"] == {"name": "lib", "version": "1.2"}
    by_name = {span["name"]: span for span in first["scopeSpans"][0]["spans"]}
    assert by_name["outer"]["kind"] == 3
    assert by_name["inner"]["status"] == {"code": 2, "message": "it broke"}
    assert by_name["outer"]["spanId"] == f"{outer.get_span_context().span_id:016x}"
    (link,) = json.loads(lines[1])["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"]
    assert link["traceId"] == f"{outer.get_span_context().trace_id:032x}"
    assert link["spanId"] == f"{outer.get_span_context().span_id:016x}"

    read = {span.name: span for span in read_lines(lines)}
    assert list(read) == ["inner", "outer", "other"]
    assert read["outer"].attributes == {"text": "x", "many": (1, 2), "flag": True, "ratio": 0.5, "whole": 3}
    assert [(e.name, e.time_ns, e.attributes) for e in read["outer"].events] == [("noted", 123, {"n": 1})]
    assert (read["inner"].error, read["outer"].error) == (True, False)
    assert read["inner"].parent_id == read["outer"].span_id == outer.get_span_context().span_id
    assert read["other"].trace_id == other.get_span_context().trace_id
    assert read["other"].parent_id is None
    assert read["outer"].scope == "lib"


def test_no_spans_are_no_lines():
    assert trace_lines([]) == []


def test_a_file_is_replaced_whole(tmp_path: Path):
    file = tmp_path / "out.jsonl"
    file.write_text("what was there before")
    check_writable(file)
    write_whole(file, "é\n")
    assert file.read_bytes() == "é\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    check_writable(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_was_there_stays_if_writing_fails(tmp_path: Path):
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    with pytest.raises(CommandError, match="surrogates not allowed"):
        write_whole(file, "\ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_is_written_to(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(pipe)
        write_whole(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("missing/out.jsonl", "No such file or directory", "No such file or directory"),
        ("file/out.jsonl", "Not a directory", "Not a directory"),
        ("folder", "it is a folder", "Is a directory"),
        ("nul\0byte", "embedded null", "embedded null"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work_and_after(
    name: str, before: str, after: str, tmp_path: Path
):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandError, match=f"cannot write .*: .*{before}"):
        check_writable(tmp_path / name)
    with pytest.raises(CommandError, match=f"cannot write .*: .*{after}"):
        write_whole(tmp_path / name, "x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CommandError, match="Permission denied"):
            check_writable(tmp_path / "out.jsonl")
    finally:
        tmp_path.chmod(0o700)
