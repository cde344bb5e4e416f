"""What a form of report is: a writer of runs as they come, and of the sums at the end."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from otel_loopeval.reports.gate import Gate, Outcome
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.summary import Summary


class Source(NamedTuple):
    """What the runs were read from.

    Attributes:
        spans: Spans read.
        traces: Traces put together from them.
        cut_traces: Traces of which spans are missing, since they would not fit; their runs are incomplete.
        late_spans: Spans that came when their trace had been closed, and were not counted.
        errors: Lines and other parts that could not be read.
    """

    spans: int = 0
    traces: int = 0
    cut_traces: int = 0
    late_spans: int = 0
    errors: int = 0


class Report(NamedTuple):
    """What is told when all runs have been.

    Attributes:
        summary: Sums over the runs.
        gate: What was to fail.
        outcome: What did.
        source: What they were read from.
    """

    summary: Summary
    gate: Gate
    outcome: Outcome
    source: Source


class Writer(Protocol):
    """Writes one report, in bounded memory however many runs there are."""

    def run(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """Take a run, and the conditions of the gate on which it fails."""
        ...

    def finish(self, report: Report) -> None:
        """Write what is left."""
        ...


def sums(report: Report) -> Mapping[str, Any]:
    """The part of a report that is not runs, in the types of strict JSON."""
    return {
        "gate": {
            "passed": report.outcome.passed,
            "fail_on": sorted(report.gate.fail_on),
            "failures": [failure._asdict() for failure in report.outcome.failures],
            "notes": list(report.outcome.notes),
        },
        "source": report.source._asdict(),
        "summary": report.summary.to_dict(),
        "agents": [totals.to_dict() for totals in report.summary.agents],
    }
