"""Runs that are not in the store yet: in their order, tried again where the store fails, and bounded."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Final

from otel_loopeval.runs.sizes import size_of
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.schema import UnkeepableError

MAX_RUNS: Final = 10_000
"""Runs that wait for a store that fails; over that, the oldest is given up."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Estimated memory that their spans may take."""
TRIED_AGAIN: Final = "the store failed: %s; what it does not take waits, and is tried again"
"""What is said of a failure."""
_AT_ONCE: Final = 1_000
"""Runs that are tried again together, once one of them was taken."""

_log = logging.getLogger("otel_loopeval.serve")

TraceOf = tuple[str, int]
"""Tenant and id of a trace."""


class _Entry:
    """A run that is not in the store yet.

    Attributes:
        served: The run.
        future: Done when the store has it or has failed; None while it waits to be tried again.
        size: Estimated memory of its spans; 0 before it had to wait, or if the run before has the same ones.
    """

    __slots__ = ("future", "served", "size")

    def __init__(self, served: ServedRun) -> None:
        self.served = served
        self.future: Future[None] | None = None
        self.size = 0

    @property
    def trace(self) -> TraceOf:
        return self.served.tenant, self.served.trace_id

    @property
    def failed(self) -> bool:
        """Whether the store did not take it, whether somebody has seen that or not."""
        future = self.future
        return future is None or (future.done() and error_of(future) is not None)


class Unwritten:
    """Runs that are not in the store yet, the oldest first. One owner: not thread-safe.

    Args:
        put: Has a run written.
        failed: Told what is to be said of a failure, and what failed.
        max_runs: Runs that wait for a store that fails.
        max_bytes: Estimated memory that their spans may take.

    Attributes:
        lost: Runs that were given up.
        given_up: Traces that such runs are of.
    """

    def __init__(
        self,
        put: "Callable[[ServedRun], Future[None]]",
        failed: Callable[[str, BaseException], object],
        *,
        max_runs: int,
        max_bytes: int,
    ) -> None:
        self.lost = 0
        self.given_up: set[TraceOf] = set()
        self._put = put
        self._failed = failed
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._queue: deque[_Entry] = deque()
        self._of_trace: dict[TraceOf, set[_Entry]] = {}
        self._stuck = False  # whether some wait to be tried again
        self._stuck_bytes = 0
        self._overflows = False

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, trace: TraceOf) -> bool:
        """Whether a run of a trace is among them."""
        return trace in self._of_trace

    def failed(self, trace: TraceOf) -> bool:
        """Whether the store did not take a run of a trace: known as soon as the store says so."""
        entries = self._of_trace.get(trace, ())
        return bool(entries) and (self._stuck or any(entry.failed for entry in entries))

    @property
    def waiting(self) -> int:
        """Runs that the store did not take so far; 0 if it is only at it."""
        return len(self._queue) if self._stuck else 0

    def add(self, served: ServedRun) -> None:
        """Have a run written, after those that wait."""
        entry = _Entry(served)
        self._of_trace.setdefault(entry.trace, set()).add(entry)
        if self._stuck:
            self._wait(entry, self._queue[-1] if self._queue else None)
            self._queue.append(entry)
            self._bound()
        else:
            self._queue.append(entry)
            entry.future = self._put(served)

    def tick(self) -> None:
        """See what the store has taken, and try again what it has not."""
        failed = self._settle()
        if self._stuck and all(entry.future is None for entry in self._queue):
            # After a failure one is enough to find out whether the store works again.
            for entry in list(self._queue)[: 1 if failed else _AT_ONCE]:
                entry.future = self._put(entry.served)

    def _settle(self) -> bool:
        """Forget the runs that the store has; whether it failed."""
        failed = False
        kept: deque[_Entry] = deque()
        for entry in self._queue:
            if entry.future is None or not entry.future.done():
                kept.append(entry)
                continue
            error = error_of(entry.future)
            if error is None:
                self._gone(entry)
            elif isinstance(error, UnkeepableError):
                self._failed("the store failed: %s; what it can never take is given up", error)
                self._give_up(entry)
            else:
                self._failed(TRIED_AGAIN, error)
                failed = True
                self._wait(entry, kept[-1] if kept else None)
                kept.append(entry)
        self._queue = kept
        self._bound()
        was_stuck, self._stuck = self._stuck, any(entry.future is None for entry in self._queue)
        if was_stuck and not self._stuck:
            self._overflows = False
            _log.warning("the store takes runs again, and those that waited are on their way into it")
        return failed

    def _wait(self, entry: _Entry, before: _Entry | None) -> None:
        entry.future = None
        if not entry.size and (before is None or before.served.spans is not entry.served.spans):
            entry.size = sum(map(size_of, entry.served.spans))
            self._stuck_bytes += entry.size

    def _bound(self) -> None:
        while len(self._queue) > self._max_runs or self._stuck_bytes > self._max_bytes:
            oldest = next((at for at, entry in enumerate(self._queue) if entry.future is None), None)
            if oldest is None:
                return
            if not self._overflows:
                self._overflows = True
                _log.error("more runs wait for the store than there is room for: the oldest are given up")
            self._give_up(self._queue[oldest])
            del self._queue[oldest]

    def _give_up(self, entry: _Entry) -> None:
        self.lost += 1
        self.given_up.add(entry.trace)
        self._gone(entry)

    def _gone(self, entry: _Entry) -> None:
        """A run is among them no longer."""
        self._stuck_bytes -= entry.size
        entries = self._of_trace[entry.trace]
        entries.remove(entry)
        if not entries:
            del self._of_trace[entry.trace]


def error_of(future: "Future[None]") -> BaseException | None:
    """What went wrong, of a future that is done."""
    try:
        return future.exception(0)
    except CancelledError as error:
        return error
