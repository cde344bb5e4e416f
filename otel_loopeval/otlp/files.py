"""Lines of OTLP/JSON, from a file or anywhere → neutral spans."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from otel_loopeval.otlp.decoding import read_traces
from otel_loopeval.otlp.misfit import Misfit, OtlpError
from otel_loopeval.runs.spans import SpanData

try:
    from otel_loopeval.otlp.quick import read_line_quickly
except ImportError:  # msgspec is an extra

    def read_line_quickly(line: bytes) -> list[SpanData] | None:
        """Leaves every line to the strict reader."""
        del line
        return None


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_file(
    path: "str | os.PathLike[str]", *, on_error: Callable[[OtlpError], object] | None = None
) -> Iterator[SpanData]:
    """The spans in a file of OTLP/JSON lines, such as the Collector's file exporter writes.

    Args:
        path: The file, in UTF-8.
        on_error: Called with the error of each line that cannot be read, which then loses only itself. By
            default the first such line raises.

    Raises:
        OtlpError: A line cannot be read, and ``on_error`` is not given.
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as stream:
        yield from read_lines(stream, source=os.fspath(path), on_error=on_error)


def read_lines(
    lines: Iterable[str | bytes],
    *,
    source: str = "input",
    on_error: Callable[[OtlpError], object] | None = None,
) -> Iterator[SpanData]:
    """The spans in lines of OTLP/JSON.

    Each line is one ``TracesData`` or ``ExportTraceServiceRequest``. Empty lines and those of other signals
    hold no spans; unknown fields are ignored. A line gives all its spans or none.

    Args:
        lines: The lines, with or without their ends; bytes are UTF-8.
        source: What the lines come from, for error messages.
        on_error: Called with the error of each line that cannot be read, which then loses only itself. By
            default the first such line raises.

    Raises:
        OtlpError: A line cannot be read, and ``on_error`` is not given.
    """
    for number, line in enumerate(lines, start=1):
        try:
            spans = read_line(line)
        except Misfit as misfit:
            error = OtlpError(source, number, str(misfit))
            if on_error is None:
                raise error from None
            on_error(error)
            continue
        yield from spans


def read_line(line: str | bytes) -> list[SpanData]:
    """The spans in one line of OTLP/JSON, in order.

    Raises:
        Misfit: The line is no OTLP/JSON traces.
    """
    if isinstance(line, bytes):
        spans = read_line_quickly(line)
        if spans is not None:
            return spans
    return read_line_strictly(line)


def read_line_strictly(line: str | bytes) -> list[SpanData]:
    """As :func:`read_line`, with the standard library alone.

    Raises:
        Misfit: The line is no OTLP/JSON traces.
    """
    text = as_text(line)
    if not text or text.isspace():
        return []
    try:
        return read_traces(parse_json(text))
    except RecursionError:
        raise Misfit("values that are nested less deeply", text) from None


def as_text(line: str | bytes) -> str:
    """A line as text, from UTF-8, without a byte order mark.

    Raises:
        Misfit: It is no UTF-8.
    """
    if isinstance(line, bytes):
        try:
            line = line.removeprefix(_BYTE_ORDER_MARK).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Misfit("UTF-8 text", line[error.start : error.end]) from None
    return line


def parse_json(line: str) -> Any:
    """A JSON document, in which every text is whole characters.

    Raises:
        Misfit: It is no JSON.
        RecursionError: It is nested too deeply.
    """
    line = line.rstrip()
    try:
        document = json.loads(line, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if error.lineno > 1:  # a document on several lines
            what = f"JSON ({error.msg} at its line {error.lineno}, column {error.colno})"
        else:
            what = f"one JSON object per line ({error.msg} at column {error.colno})"
        raise Misfit(what, line.strip()) from None
    except ValueError as error:  # a number with thousands of digits
        raise Misfit(f"JSON ({error})", line.strip()) from None
    if "\\ud" in line or "\\uD" in line:
        # Escapes may spell half a surrogate pair, which no text can hold and no stream can write.
        document = json.loads(_whole_characters(json.dumps(document, ensure_ascii=False)))
    return document


def _no_constant(name: str) -> Any:
    raise Misfit(f'JSON numbers (or the text "{name}")', name)


def _whole_characters(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
