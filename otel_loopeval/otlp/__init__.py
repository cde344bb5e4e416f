"""OTLP ⇄ neutral spans: what an OpenTelemetry Collector writes and sends."""

from otel_loopeval.otlp.encoding import trace_line
from otel_loopeval.otlp.files import read_file, read_lines
from otel_loopeval.otlp.misfit import OtlpError

__all__ = ["OtlpError", "read_file", "read_lines", "trace_line"]
