"""A stream of bytes → the records in it: lines, whole documents, or frames, each of bounded size.

What the stream holds shows in its first bytes, not in its name:

- JSON lines, as the Collector's file exporter writes them; a record is a line. A document on several lines
  (pretty-printed) is one record too.
- Frames: the Collector's file exporter with ``format: proto``, or with compression in its older versions.
  Four bytes of length, big-endian, then so many bytes of protobuf or JSON, which may be compressed with zstd.
- A bare ``ExportTraceServiceRequest`` or ``TracesData``: a record is one ``ResourceSpans`` of it.
"""

import io
import re
from collections.abc import Iterator
from enum import Enum
from typing import BinaryIO, NamedTuple

from otel_loopeval.sources.compression import bounded_frame, is_zstd

MAX_RECORD = 64 * 2**20
"""A longer record is not read: what one takes in memory, parsed, is at most some twenty times as much."""

_MAX_SKIPPED = 2**30
_MAX_EMPTY_LINES = 1_000_000
_MAX_UNKNOWN = 1_000_000
_LENGTH_BYTES = 4
_HEAD = 512
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPANS_KEY = b'{"resourceSpans"'
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f")
_RESOURCE_SPANS_TAG = 0x0A  # field 1, with a length
# A line that is all of a record never ends so.
_GOES_ON = tuple(mark + end for mark in (b"{", b"[", b",") for end in (b"\n", b"\r\n"))
# Strings with their escapes, so that the brackets in them do not count; one that does not end takes the rest.
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


class Form(Enum):
    """What a record is."""

    JSON = "json"
    REQUEST = "protobuf request"
    RESOURCE_SPANS = "protobuf ResourceSpans"


class Record(NamedTuple):
    """A record, or why there is none.

    Attributes:
        place: Where it is in the stream: ``"line 3"``, ``"frame 2"``.
        form: What it is.
        data: Its bytes, at most :data:`MAX_RECORD`.
        problem: Why it could not be read; empty where it could.
    """

    place: str
    form: Form
    data: bytes = b""
    problem: str = ""


def records(stream: BinaryIO, head: bytes) -> Iterator[Record] | None:
    """The records in a stream; None where it is in none of the forms.

    Args:
        stream: The stream, at its beginning.
        head: What it begins with, up to a few hundred bytes.
    """
    head = head[:_HEAD]
    if not head.strip() or is_text(head):
        return _json_records(stream)
    if len(head) > _LENGTH_BYTES and _is_frame(head):
        return _frames(stream)
    if _SPANS_KEY in head:  # broken lines before good ones
        return _json_records(stream)
    return _fields(stream) if head[0] == _RESOURCE_SPANS_TAG else None


def is_text(head: bytes) -> bool:
    """Whether some bytes begin as JSON does and hold no control characters."""
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return text[:1] in (b"{", b"[") and not any(byte in _CONTROL for byte in head)


def _is_frame(head: bytes) -> bool:
    length = int.from_bytes(head[:_LENGTH_BYTES], "big")
    content = head[_LENGTH_BYTES:]
    begins = content[:1] in (b"{", bytes([_RESOURCE_SPANS_TAG])) or is_zstd(content)
    return begins and 0 < length <= _MAX_SKIPPED and head[0] != _RESOURCE_SPANS_TAG


# --- JSON -----------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    number: int
    data: bytes
    problem: str = ""
    again: bool = False
    """Whether it was in what looked like a document and is none: it begins no other, or this never ends."""


class _Lines:
    """The lines of a stream, with those put back; too long ones are skipped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._number = 0
        self._again = io.BytesIO()

    def next(self) -> _Line | None:
        again = self._again.readline()
        data = again or self._stream.readline(MAX_RECORD + 1)
        if not data:
            return None
        self._number += 1
        if again:
            return _Line(self._number, data, again=True)
        if len(data) <= MAX_RECORD:
            return _Line(self._number, data)
        return _Line(self._number, b"", self._skip_line(data))

    def put_back(self, data: bytes, first: int) -> None:
        """Give some lines once more, from the one numbered ``first`` on."""
        self._again = io.BytesIO(data)
        self._number = first - 1

    def _skip_line(self, data: bytes) -> str:
        skipped = len(data)
        while data and not data.endswith(b"\n"):
            if skipped > _MAX_SKIPPED:
                self._stream = io.BytesIO()
                return f"longer than {_MAX_SKIPPED} bytes: the rest of it, and what follows, is left unread"
            data = self._stream.readline(MAX_RECORD)
            skipped += len(data)
        return f"longer than {MAX_RECORD} bytes"


def _json_records(stream: BinaryIO) -> Iterator[Record]:
    lines = _Lines(stream)
    empty = 0
    while (line := lines.next()) is not None:
        if line.problem:
            yield Record(f"line {line.number}", Form.JSON, problem=line.problem)
            continue
        if line.data.isspace():
            empty += 1
            if empty > _MAX_EMPTY_LINES:
                yield Record(
                    f"line {line.number}",
                    Form.JSON,
                    problem=f"{_MAX_EMPTY_LINES} empty lines: what follows is left unread",
                )
                return
            continue
        if not line.again and line.data.endswith(_GOES_ON) and (depth := _depth(line.data)) > 0:
            record = _document(lines, line, depth)
            yield record
            if record.problem.endswith("unread"):
                return
        else:
            yield Record(f"line {line.number}", Form.JSON, line.data)


def _document(lines: _Lines, first: _Line, depth: int) -> Record:
    """A document that goes on over several lines; if it does not, its first line is all there is of it."""
    place = f"line {first.number}"
    data = bytearray(first.data)
    while depth > 0:
        line = lines.next()
        if line is None:
            return Record(place, Form.JSON, problem="a JSON document that does not end")
        if line.data.startswith(b'{"') and not first.data.startswith(b"["):
            # A line of a document would be indented: this is a record of its own.
            lines.put_back(bytes(data[len(first.data) :]) + line.data, first.number + 1)
            return Record(place, Form.JSON, first.data)
        if line.problem or len(data) + len(line.data) > MAX_RECORD:
            problem = f"a JSON document longer than {MAX_RECORD} bytes: what follows is left unread"
            return Record(place, Form.JSON, problem=problem)
        data += line.data
        depth += _depth(line.data)
    return Record(place, Form.JSON, bytes(data))


def _depth(text: bytes) -> int:
    """How many more brackets open than close."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        first = text[match.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
    return depth


# --- Frames ---------------------------------------------------------------------------------------------


def _frames(stream: BinaryIO) -> Iterator[Record]:
    number = 0
    while prefix := stream.read(_LENGTH_BYTES):
        number += 1
        place = f"frame {number}"
        length = int.from_bytes(prefix, "big")
        if len(prefix) < _LENGTH_BYTES:
            yield Record(place, Form.REQUEST, problem="its length is cut off")
            return
        if length > MAX_RECORD:
            problem = _skip(stream, length)
            yield Record(place, Form.REQUEST, problem=problem)
            if problem.endswith("unread"):
                return
            continue
        data = stream.read(length)
        if len(data) < length:
            yield Record(place, Form.REQUEST, problem=f"ends after {len(data)} of {length} bytes")
            return
        yield _frame(place, data)


def _frame(place: str, data: bytes) -> Record:
    if is_zstd(data):
        try:
            data = bounded_frame(data, MAX_RECORD)
        except ValueError as error:
            return Record(place, Form.REQUEST, problem=str(error))
    return Record(place, Form.JSON if data[:1] == b"{" else Form.REQUEST, data)


def _skip(stream: BinaryIO, length: int) -> str:
    if length > _MAX_SKIPPED:
        return f"longer than {_MAX_SKIPPED} bytes ({length}): what follows is left unread"
    left = length
    while left > 0 and (data := stream.read(min(left, MAX_RECORD))):
        left -= len(data)
    if left:
        return f"ends after {length - left} of {length} bytes"
    return f"longer than {MAX_RECORD} bytes ({length})"


# --- A bare message -------------------------------------------------------------------------------------


def _fields(stream: BinaryIO) -> Iterator[Record]:
    """The fields of one message (https://protobuf.dev/programming-guides/encoding/), one after the other."""
    index = unknown = 0
    while first := stream.read(1):
        place = f"resource_spans {index}"
        tag = _varint(stream, first)
        length = _length(stream, tag)
        if not tag or length is None or unknown > _MAX_UNKNOWN:
            yield Record(place, Form.RESOURCE_SPANS, problem="no OTLP protobuf: what follows is left unread")
            return
        if tag == _RESOURCE_SPANS_TAG and length <= MAX_RECORD:
            data = stream.read(length)
            if len(data) < length:
                problem = f"ends after {len(data)} of {length} bytes"
                yield Record(place, Form.RESOURCE_SPANS, problem=problem)
                return
            yield Record(place, Form.RESOURCE_SPANS, data)
            index += 1
            unknown = 0
            continue
        unknown += 1
        problem = _skip(stream, length)
        if length > MAX_RECORD or problem.startswith("ends"):
            yield Record(place, Form.RESOURCE_SPANS, problem=problem)
            if problem.endswith("unread"):
                return


def _length(stream: BinaryIO, tag: int | None) -> int | None:
    """The length of a field's content; None where its tag is none."""
    wire = None if tag is None or tag <= _MAX_WIRE else tag & _MAX_WIRE
    if wire == _VARINT:
        return None if _varint(stream, stream.read(1)) is None else 0
    if wire == _LENGTH_DELIMITED:
        return _varint(stream, stream.read(1))
    return None if wire is None else _LENGTHS.get(wire)


_VARINT, _LENGTH_DELIMITED, _MAX_WIRE = 0, 2, 7
_LENGTHS = {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10


def _varint(stream: BinaryIO, byte: bytes) -> int | None:
    number = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        if not byte:
            return None
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return number
        byte = stream.read(1)
    return None
