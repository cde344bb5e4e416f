r"""For tests of programs that use this package: telemetry in memory, read as plain dictionaries.

    with Capture() as capture:
        capture.instrument()
        my_agent_loop()
        assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration"
        assert capture.value("loopeval.runs") == 1

What differs from one execution to the next is made the same in one place, :meth:`Capture.spans`: ids count
from 1, run ids become ``run-1`` and so on, and durations become 0.
"""

from otel_loopeval.testing.building import FixedClock, TraceBuilder
from otel_loopeval.testing.capture import Capture, CountingIds, SpanStore
from otel_loopeval.testing.health import LoopHealth
from otel_loopeval.testing.state import reset
from otel_loopeval.testing.trace_file import TraceFile

__all__ = [
    "Capture",
    "CountingIds",
    "FixedClock",
    "LoopHealth",
    "SpanStore",
    "TraceBuilder",
    "TraceFile",
    "reset",
]
