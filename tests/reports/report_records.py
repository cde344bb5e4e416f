"""Runs for reports, made by judging built spans."""

from collections.abc import Iterable
from typing import Any

from otel_loopeval.reports import Gate, GateKeeper, Report, RunRecord, Source, Summary, Writer, record_of
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy
from otel_loopeval.testing import TraceBuilder


def record(
    *scores: float | None,
    agent: str = "writer",
    number: int = 1,
    doom: bool = False,
    tokens: int = 0,
    **root: Any,
) -> RunRecord:
    """One run; ``root`` are attributes of its root, with ``__`` for the dots in their names."""
    builder = TraceBuilder(number)
    events = {1: [builder.guard_event(tool="search", count=3)]} if doom else None
    attributes = {key.replace("__", "."): value for key, value in root.items()}
    if tokens:
        attributes |= {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 0}
    span = builder.run(scores, agent=agent, events=events, attributes=attributes)
    if tokens:
        builder.span("chat m", parent_id=span.span_id, start_ns=span.start_ns + 1, attributes=attributes)
    (replayed,) = replay(builder.spans, Tracker(Policy()))
    return record_of(replayed)


def write(
    writer: Writer, records: Iterable[RunRecord], gate: Gate | None = None, source: Source | None = None
) -> Report:
    """Write a report as ``score`` does."""
    keeper, summary = GateKeeper(gate or Gate()), Summary()
    for one in records:
        summary.add(one)
        writer.run(one, keeper.look(one))
    report = Report(summary, keeper.gate, keeper.tell(summary), source or Source())
    writer.finish(report)
    return report
