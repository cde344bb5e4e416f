"""Runs on their way into the store, and spans until the store has the runs that they are of.

The spans of a trace are in the store from when they came in, so that a kill takes nothing along that was
acknowledged. They go once the runs of their trace are in the store and the next hop has the verdicts: until
then, the next process finds the spans, and judges them again. A run that the store does not take, since the
disk is full or somebody else holds the file, waits and is tried again.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Final

from otel_loopeval.runs.sizes import size_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.served import RunStore, ServedRun
from otel_loopeval.server.store_schema import UnkeepableError

MAX_RUNS: Final = 10_000
"""Runs that wait for a store that fails; over that, the oldest is given up."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Estimated memory that their spans may take."""
_AT_ONCE: Final = 1_000
"""Runs that are tried again together, once one of them was taken."""
_QUIET_S: Final = 60.0
"""Seconds without failures after which a new one is told of."""
PATIENCE_S: Final = 5.0
"""Seconds that the store gets at the end."""
_LOOK_S: Final = 0.05

_log = logging.getLogger("otel_loopeval.serve")

_Trace = tuple[str, int]
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
    def trace(self) -> _Trace:
        return self.served.tenant, self.served.trace_id


class Keeping:
    """Has runs and spans kept. It belongs to one event loop.

    Args:
        store: Keeps them.
        max_runs: Runs that wait for a store that fails.
        max_bytes: Estimated memory that their spans may take.

    Attributes:
        lost: Runs that were given up. Their spans stay in the store, for the next process.
    """

    def __init__(self, store: RunStore, *, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self.lost = 0
        self._store = store
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._queue: deque[_Entry] = deque()  # the oldest first
        self._stuck = False  # whether some wait to be tried again
        self._stuck_bytes = 0
        self._overflows = False
        self._left: dict[_Trace, int] = {}  # how many runs of a trace are in the queue
        self._given_up: set[_Trace] = set()
        self._over: list[_Trace] = []  # their verdicts may not have arrived
        self._told: deque[_Trace] = deque()  # their spans go as soon as their runs are in
        self._going: list[tuple[_Trace, Future[None]]] = []  # their spans are about to go
        self._failed_at = float("-inf")

    @property
    def waiting(self) -> int:
        """Runs that the store did not take so far."""
        return len(self._queue) if self._stuck else 0

    # In ----------------------------------------------------------------------------------------------------

    def keep(
        self, spans: Sequence[SpanData], tenant: str, done: Callable[[BaseException | None], object]
    ) -> None:
        """Keep spans of traces that are followed.

        Args:
            spans: The spans.
            tenant: Whose they are.
            done: Called on this loop once they are safe, with None, or with what went wrong.
        """
        loop = asyncio.get_running_loop()

        def stored(future: "Future[None]") -> None:
            error = _error_of(future)
            if error is not None:
                self._failed(error)
            done(error)

        future = _tried(lambda: self._store.put_spans(spans, tenant))
        future.add_done_callback(lambda future: loop.call_soon_threadsafe(stored, future))

    def owes(self, tenant: str, spans: Iterable[SpanData]) -> bool:
        """Whether one of these spans is of a trace that is over, and the store has not all of its runs.

        Whoever sends such a span again was not told that it is safe, and cannot be told so yet.
        """
        return self._stuck and any((tenant, span.trace_id) in self._left for span in spans)

    def over(self, served: ServedRun) -> None:
        """A run is over: have it kept."""
        entry = _Entry(served)
        self._left[entry.trace] = self._left.get(entry.trace, 0) + 1
        if self._stuck:
            self._wait(entry, self._queue[-1] if self._queue else None)
            self._queue.append(entry)
            self._bound()
        else:
            self._queue.append(entry)
            self._put(entry)

    def closed(self, tenant: str, trace_id: int) -> None:
        """A trace is over, and all of its runs were handed on."""
        self._over.append((tenant, trace_id))

    # Out ---------------------------------------------------------------------------------------------------

    def tick(self, *, told: bool) -> None:
        """See what the store has taken, try again what it has not, and let the spans go that nobody needs.

        Args:
            told: Whether the next hop has the verdicts of all runs so far.
        """
        failed = self._settle()
        if self._stuck and all(entry.future is None for entry in self._queue):
            # After a failure one is enough to find out whether the store works again.
            for entry in list(self._queue)[: 1 if failed else _AT_ONCE]:
                self._put(entry)
        if told:
            self._told.extend(self._over)
            self._over.clear()
        self._let_go()

    async def finish(self, *, told: bool, patience_s: float = PATIENCE_S) -> None:
        """Nothing more will come: have all of it written, as far as time allows.

        Args:
            told: Whether the next hop has the verdicts of all runs.
            patience_s: Seconds that it may take.
        """
        until = time.monotonic() + patience_s
        self.tick(told=told)
        while (self._queue or self._told or self._going) and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)
            self.tick(told=told)
        if self._queue:
            _log.error(
                "%d runs are not in the store: the next start judges them again from the spans that it has",
                len(self._queue),
            )
            self.lost += len(self._queue)

    def _put(self, entry: _Entry) -> None:
        entry.future = _tried(lambda: self._store.put_run(entry.served))

    def _settle(self) -> bool:
        """Forget the runs that the store has; whether it failed."""
        failed = False
        kept: deque[_Entry] = deque()
        for entry in self._queue:
            if entry.future is None or not entry.future.done():
                kept.append(entry)
                continue
            error = _error_of(entry.future)
            if error is None:
                self._gone(entry)
            elif isinstance(error, UnkeepableError):
                self._say("the store failed: %s; what it can never take is given up", error)
                self._give_up(entry)
            else:
                self._failed(error)
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
        self._given_up.add(entry.trace)
        self._gone(entry)

    def _gone(self, entry: _Entry) -> None:
        """A run is in the queue no longer."""
        self._stuck_bytes -= entry.size
        left = self._left[entry.trace] - 1
        if left:
            self._left[entry.trace] = left
        else:
            del self._left[entry.trace]

    def _let_go(self) -> None:
        """Have the spans removed of traces whose runs are in the store, and whose verdicts have arrived."""
        going: list[tuple[_Trace, Future[None]]] = []
        failed = False
        for trace, future in self._going:
            if not future.done():
                going.append((trace, future))
            elif (error := _error_of(future)) is not None:
                self._failed(error)
                failed = True
                self._told.append(trace)
        most = 1 if failed else len(self._told)
        for _ in range(len(self._told)):
            trace = self._told.popleft()
            if trace in self._left or most == 0:
                self._told.append(trace)
            elif trace in self._given_up:
                self._given_up.remove(trace)
            else:
                most -= 1
                tenant, trace_id = trace
                going.append((trace, _tried(lambda: self._store.close_trace(trace_id, tenant))))  # noqa: B023 - called at once
        self._going = going

    def _failed(self, error: BaseException) -> None:
        self._say("the store failed: %s; what it does not take waits, and is tried again", error)

    def _say(self, what: str, error: BaseException) -> None:
        """Say that the store fails: once, however long it does."""
        now = time.monotonic()
        if now - self._failed_at > _QUIET_S:
            _log.error(what, error)
        self._failed_at = now


def _tried(put: "Callable[[], Future[None]]") -> "Future[None]":
    """A future in any case: whatever is wrong with a disk."""
    try:
        return put()
    except Exception as error:  # noqa: BLE001 - told as the future's
        failed: Future[None] = Future()
        failed.set_exception(error)
        return failed


def _error_of(future: "Future[None]") -> BaseException | None:
    try:
        return future.exception(0)
    except CancelledError as error:
        return error
