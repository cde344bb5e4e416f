"""Hostile input: every reader ends, in bounded memory, with spans and errors and nothing else."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources.stored_spans import frame, line, read_all, request, span
from sources.test_jaeger_and_phoenix_json import PHOENIX_ROW, PHOENIX_SPAN, jaeger, jaeger_span

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources import SourceError
from otel_loopeval.sources.files import read_stream

zstd: Any = pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
    reason="zstd is in the sources extra",
)

FINDS = Path(__file__).with_name("finds")

SEEDS: list[bytes] = [
    line(span(1)),
    line(span(1, attributes={"a": (1, "x", None, {"k": b"1"}), "m": {"n": {"o": 1.5}}}), span(2)),
    json.dumps(json.loads(line(span(1))), indent=1).encode(),
    b"[\n" + line(span(1)) + b",\n" + line(span(2)) + b"]",
    json.dumps(jaeger(jaeger_span())).encode(),
    json.dumps(PHOENIX_SPAN).encode(),
    json.dumps(PHOENIX_ROW).encode(),
    request(span(1), span(2)),
    frame(request(span(1))) + frame(request(span(2))),
    frame(zstd.compress(request(span(1)))),
    gzip.compress(line(span(1))),
    zstd.compress(line(span(1))),
]


def survive(data: bytes) -> tuple[list[SpanData], list[str]]:
    """Read some bytes; nothing but a :class:`SourceError` comes out, and it is short."""
    errors: list[SourceError] = []
    spans: list[SpanData] = []
    try:
        spans += read_stream(io.BufferedReader(io.BytesIO(data)), "input", errors.append)  # type: ignore[arg-type]
    except SourceError as error:
        errors.append(error)
    assert all(len(str(error)) < 600 for error in errors)
    assert all(0 < one.trace_id < 2**128 and 0 < one.span_id < 2**64 for one in spans)
    assert all(min(one.start_ns, one.end_ns) >= 0 for one in spans)
    return spans, [str(error) for error in errors]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_bytes(seed: bytes, data: st.DataObject):
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        kind = data.draw(st.sampled_from(["byte", "cut", "remove", "insert", "repeat"]))
        if kind == "byte" and damaged:
            damaged[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del damaged[at:]
        elif kind == "remove":
            del damaged[at : at + data.draw(st.integers(1, 40))]
        elif kind == "insert":
            damaged[at:at] = data.draw(st.binary(max_size=12))
        else:
            damaged[at:at] = damaged[at : at + data.draw(st.integers(1, 200))]
    survive(bytes(damaged))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["resourceSpans", "data", "result", "batches", "trace", "spans", "processes", "context", "attributes"]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), JSON, min_size=1, max_size=4))
def test_documents_with_anything_in_the_known_places(document: dict[str, Any]):
    survive(json.dumps(document).encode())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes):
    survive(data)


@pytest.mark.parametrize("find", sorted(FINDS.glob("*")), ids=lambda path: path.name)
def test_what_fuzzing_has_found(find: Path):
    survive(find.read_bytes())


DEEP = 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"data":' * DEEP + b"1" + b"}" * DEEP,
        b'{"data":' * 500 + b"[]" + b"}" * 500,
        b'{"trace":' * 900 + b"{}" + b"}" * 900,
        b'{"resourceSpans":' + b'[{"scopeSpans":' * DEEP,
        b'{"context":{"trace_id":"' + b"1" * 32 + b'"},"attributes":' + b'{"a":' * DEEP + b"}" * DEEP + b"}",
        b'{"context":{},"attributes":' + b'{"a":' * 900 + b"1" + b"}" * 901,
        b"\x0a" * DEEP,
        b"\x80" * DEEP,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b'"' * DEEP,
        b'{"' * DEEP,
        (b'{"a":"' + b"\\" * DEEP + b'"[\n') * 3,
        (b'{"a":[\n' + b'"' * 5000 + b"\n") * 20,
        b" {[\n" * DEEP + b'{"x"}',
    ],
    ids=range(16),
)
def test_deep_and_unending_nesting(data: bytes):
    spans, _ = survive(data)
    assert spans == []


def test_times_that_are_reversed_are_kept_as_they_are():
    spans, errors = survive(line(span(1, start_ns=10, end_ns=5)))
    assert [(one.start_ns, one.end_ns) for one in spans] == [(10, 5)]
    assert errors == []


# Each in a process of its own, with bounds of a sixteenth and little memory.
BOMBS: dict[str, tuple[str, str]] = {
    "a gzip of one endless line": (
        "gzip.compress(b'{\"a\":\"' + b'x' * (100 << 20), 1)",
        "longer than 67108864",
    ),
    "a zstd of one long line": (
        "zstd.compress(b'{\"a\":\"' + b'x' * (60 << 20))",
        "longer than 4194304 bytes",
    ),
    "a gzip of empty lines": (
        "gzip.compress(b'{}' + b'\\n' * (50 << 20), 1)",
        "1000000 empty lines: what follows",
    ),
    "a frame of zstd that holds more": (
        "frame(zstd.compress(b'{' + b' ' * (500 << 20)))",
        "bytes of zstd that hold more than 4194304",
    ),
    "a frame that says it is long": (
        "frame(b'{' + b' ' * (60 << 20))",
        "longer than 4194304 bytes (62914561)",
    ),
    "a message that is long": (
        "b'\\x0a\\x80\\x80\\x80\\x1e' + bytes(60 << 20)",
        "resource_spans 0: longer than 4194304 bytes (62914560)",
    ),
    "a message of fields that nobody knows": (
        "b'\\x0a\\x00' + b'\\x10\\x01' * (5 << 20)",
        "resource_spans 1: no OTLP protobuf: what follows is left unread",
    ),
    "a document without an end": (
        "b'{\\n' + b'  \"a\": [],\\n' * (2 << 20)",
        "line 1: a JSON document longer than 4194304 bytes",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_defused_in_bounded_memory(bomb: str, tmp_path: Path):
    content, problem = BOMBS[bomb]
    file = tmp_path / "bomb"
    variables = {"PYTHONPATH": str(Path(__file__).parents[1])}
    writer = f"{IMPORTS}\nopen({str(file)!r}, 'wb').write({content})"
    subprocess.run([sys.executable, "-c", writer], env=variables, check=True)
    command = [sys.executable, "-c", READER, str(file)]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    spans, errors = json.loads(result.stdout)
    assert spans == 0
    assert problem in errors[0]


IMPORTS = """
import gzip
from sources.stored_spans import frame
from sources.test_source_robustness import zstd
"""
READER = """
import json, resource, sys
from pathlib import Path
from otel_loopeval.sources import records
from sources.stored_spans import read_all
records.MAX_RECORD, records._MAX_SKIPPED = 4 << 20, 64 << 20
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
spans, errors = read_all(sys.argv[1])
print(json.dumps([len(spans), errors[:3]]))
"""


def test_a_record_as_long_as_may_be_is_read(tmp_path: Path):
    text = "x" * (50 << 20)
    (tmp_path / "a.json").write_bytes(line(span(1, attributes={"text": text})) + b"\n" + line(span(2)))
    spans, errors = read_all(tmp_path / "a.json")
    assert [one.span_id for one in spans] == [1, 2]
    assert spans[0].attributes["text"] == text
    assert errors == []
