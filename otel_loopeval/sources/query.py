"""Which traces are wanted."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.runs.spans import SpanData


@dataclass(frozen=True, slots=True)
class Query:
    """Which traces are wanted; by default all of them.

    A server is asked for no more than this. A file gives all its spans, since only a whole trace shows
    whether it is wanted (its root, which says when it began, is written last): whoever puts traces together
    asks :meth:`selects`, which holds for servers too.

    Attributes:
        service: Name of a service (the resource's ``service.name``) that took part.
        since: The trace began at this time or later, in nanoseconds since the epoch.
        until: The trace began before this time, in nanoseconds since the epoch.
        limit: At most so many traces, of a server the newest. Of files it is for whoever puts the traces
            together, too.
        agent: Name of an agent. It narrows nothing here: which runs are the agent's is known when they have
            been put together.
    """

    service: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    agent: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit}")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError(f"since must be before until, got {self.since} and {self.until}")

    def selects(self, trace: Collection[SpanData]) -> bool:
        """Whether a trace is wanted, by its service and by when it began.

        Args:
            trace: The spans of one trace, in any order.
        """
        if not trace:
            return False
        began = min(span.start_ns for span in trace)
        if (self.since is not None and began < self.since) or (
            self.until is not None and began >= self.until
        ):
            return False
        return self.service is None or any(_service(span) == self.service for span in trace)


def _service(span: SpanData) -> Any:
    return span.resource.get(semconv.SERVICE_NAME)
