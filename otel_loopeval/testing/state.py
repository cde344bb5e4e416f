"""Undoing what a test did to the state of the process."""

from otel_loopeval.otel import errors
from otel_loopeval.otel.instruments import shown_agents
from otel_loopeval.otel.pipeline import open_spans, registry


def reset() -> None:
    """Undo ``instrument()`` and forget all runs, options and counted errors: as if nothing had been used."""
    from otel_loopeval.instrumentation import uninstrument  # noqa: PLC0415 - as in Capture.instrument

    uninstrument()
    registry.reset()
    open_spans.clear()
    shown_agents.clear()
    errors.reset()
