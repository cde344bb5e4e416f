"""Keeping the spans of tests in a file, for ``otel-loopeval score``."""

import os
import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_loopeval.otel import errors
from otel_loopeval.otel.processor import neutral_span
from otel_loopeval.otlp import trace_line


class TraceFile(SpanExporter):
    """A span exporter that appends to a file of OTLP/JSON lines, which ``otel-loopeval score`` reads.

    Several processes may append to the same file: each batch is a line of its own. Kinds and links of spans
    are left out, which no verdict depends on.

    Args:
        path: The file; its folder must exist. What is there stays.
    """

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self._path = os.fspath(path)
        self._lock = threading.Lock()  # a write may be split where it is longer than a pipe or disk takes

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append spans. A file that cannot be written to loses them, and fails no test."""
        try:
            line = f"{trace_line(map(neutral_span, spans))}\n".encode()
            with self._lock, open(self._path, "ab", buffering=0) as stream:  # noqa: PTH123 - no Path is made
                stream.write(line)
        except Exception as error:  # noqa: BLE001 - the guard
            errors.swallow("testing.trace_file", error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS
