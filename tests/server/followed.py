"""Traces that are followed without a server around: bodies in, runs out."""

from collections.abc import Iterable
from typing import Any

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.reports.records import record_of
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.traces.following import Following
from otel_loopeval.server.traces.intake import Intake
from otel_loopeval.server.traces.limits import Limits


class Followed:
    """A :class:`Following` with a clock that stands still, and what came out of it."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[ServedRun] = []
        self.closed: list[int] = []
        self.intake = Intake()
        limits = Limits(**{name: options.pop(name) for name in list(options) if name in Limits.__slots__})
        self.following = Following(
            self.intake,
            self.runs.append,
            on_close=lambda _tenant, trace_id: self.closed.append(trace_id),
            clock_ns=lambda: 1,
            limits=limits,
            **options,
        )

    def take(self, *bodies: bytes, now: float = 0.0) -> int:
        """Take bodies; how many spans a store has to keep."""
        return sum(len(self.following.take(self.intake.read(body), now)) for body in bodies)

    def records(self) -> list[dict[str, Any]]:
        return by_span([record_of(run.replayed, run.trace_id).to_dict() for run in self.runs])


def by_span(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: (record["trace_id"], record["span_id"] or ""))


def scored(bodies: Iterable[bytes]) -> list[dict[str, Any]]:
    """What ``score`` finds in the same spans."""
    found: dict[int, list[Any]] = {}
    for body in bodies:
        for span in read_request(body):
            found.setdefault(span.trace_id, []).append(span)
    return by_span(
        record_of(run, trace_id).to_dict()
        for trace_id, spans in found.items()
        for run in replay(spans, Tracker())
    )
