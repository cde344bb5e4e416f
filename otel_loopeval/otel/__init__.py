"""The OpenTelemetry edge: spans, metrics and events of runs, and the processor that reads others' spans."""

from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run
from otel_loopeval.otel.loops import current_run, iteration, loop, record_guard_event
from otel_loopeval.otel.processor import LoopHealthProcessor

__all__ = [
    "Iteration",
    "LoopHealthProcessor",
    "Run",
    "current_run",
    "iteration",
    "loop",
    "record_guard_event",
]
