"""Instrumentation of loops that know nothing of OpenTelemetry: our own and the frameworks'."""

from otel_loopeval.instrumentation.setup import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]
