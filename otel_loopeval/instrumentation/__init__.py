"""Instrumentation of loops that know nothing of OpenTelemetry: our own and the frameworks'."""

from otel_loopeval.instrumentation.setup import instrument, is_instrumented, uninstrument

__all__ = ["instrument", "is_instrumented", "uninstrument"]
