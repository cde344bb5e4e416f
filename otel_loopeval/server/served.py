"""What the receiving side hands on: runs with their verdicts, and what it needs of a store."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from otel_loopeval.runs.reconstruct import Replayed
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.verdict import Verdict


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A run that is over, or of which no more is expected.

    Attributes:
        run: The run.
        verdict: What it amounts to.
        root: The span that is its root; None where that is missing.
        spans: The spans of its trace that tell of agents, models or tools, and those around them.
        trace_id: 128-bit id of its trace.
        service: ``service.name`` of what ran it, empty where unknown.
        environment: ``deployment.environment.name`` of what ran it, empty where unknown.
        complete: Whether nothing of it is missing, as far as one can know.
        closed_ns: When it was closed here, in nanoseconds since the epoch.
        judged_before: Whether a verdict of it came with its spans: it is shown, and neither counted nor told
            of again.
        tenant: Whose token brought its spans; empty where nobody is asked for one.
        version: ``service.version`` of what ran it, empty where unknown.
    """

    run: LoopRun
    verdict: Verdict
    root: SpanData | None
    spans: tuple[SpanData, ...]
    trace_id: int
    service: str
    environment: str
    complete: bool
    closed_ns: int
    judged_before: bool = False
    tenant: str = ""
    version: str = ""

    @property
    def replayed(self) -> Replayed:
        """The run as reports take it."""
        return Replayed(self.run, self.verdict, self.root)


class RunStore(Protocol):
    """What keeps spans of open runs, and runs that are over. Thread-safe; no method blocks."""

    def put_spans(self, spans: Sequence[SpanData], tenant: str = "") -> "Future[None]":
        """Keep spans of a tenant's run that may go on. The future is done once they are safely on disk."""
        ...

    def put_run(self, run: ServedRun) -> "Future[None]":
        """Keep a run that is over."""
        ...

    def close_trace(self, trace_id: int, tenant: str = "") -> "Future[None]":
        """A trace of a tenant is closed: :meth:`open_spans` tells of its spans no more."""
        ...

    def open_spans(self) -> Iterable[tuple[str, SpanData]]:
        """The spans of all traces that are not closed, as after a crash, each with its tenant.

        They come by tenant, then by trace.
        """
        ...

    def closed_traces(self, since_ns: int, most: int) -> list[tuple[str, int]]:
        """Tenant and id of the traces of runs that were closed at a time (nanoseconds) or later.

        They come once each, the latest last; of more than so many, the latest.
        """
        ...

    def close(self, patience_s: float = 20.0) -> bool:
        """Write what is left and close the files, within so many seconds; whether they are closed."""
        ...
