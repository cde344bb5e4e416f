"""What the store is asked to keep: runs that are over, and spans until it has the runs that they are of.

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
from concurrent.futures import Future
from typing import Final

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.served import RunStore, ServedRun
from otel_loopeval.server.store.unwritten import (
    MAX_BYTES,
    MAX_RUNS,
    TRIED_AGAIN,
    TraceOf,
    Unwritten,
    error_of,
)

MAX_UNTOLD: Final = 100_000
"""Traces that wait for a next hop that takes no verdicts; over that, the oldest is left to the next start."""
PATIENCE_S: Final = 5.0
"""Seconds that the store gets at the end."""
_QUIET_S: Final = 60.0
"""Seconds without failures after which a new one is told of."""
_LOOK_S: Final = 0.05

_log = logging.getLogger("otel_loopeval.serve")


class Keeping:
    """Has runs and spans kept. It belongs to one event loop.

    Args:
        store: Keeps them.
        max_runs: Runs that wait for a store that fails.
        max_bytes: Estimated memory that their spans may take.
        max_untold: Traces that wait for their verdicts to arrive; the spans of more stay in the store, for
            the next process.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        max_runs: int = MAX_RUNS,
        max_bytes: int = MAX_BYTES,
        max_untold: int = MAX_UNTOLD,
    ) -> None:
        self._store = store
        self._runs = Unwritten(
            lambda served: _tried(lambda: store.put_run(served)),
            self._failed,
            max_runs=max_runs,
            max_bytes=max_bytes,
        )
        self._left_at_end = 0
        self._max_untold = max_untold
        self._over: deque[TraceOf] = deque()  # their verdicts may not have arrived
        self._told: deque[TraceOf] = deque()  # their spans go as soon as their runs are in
        self._going: list[tuple[TraceOf, Future[None]]] = []  # their spans are about to go
        self._failed_at = float("-inf")

    @property
    def waiting(self) -> int:
        """Runs that the store did not take so far."""
        return self._runs.waiting

    @property
    def lost(self) -> int:
        """Runs that were given up. Their spans stay in the store, for the next process."""
        return self._runs.lost + self._left_at_end

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
            error = error_of(future)
            if error is not None:
                self._failed(TRIED_AGAIN, error)
            done(error)

        future = _tried(lambda: self._store.put_spans(spans, tenant))
        future.add_done_callback(lambda future: loop.call_soon_threadsafe(stored, future))

    def owes(self, tenant: str, spans: Iterable[SpanData]) -> bool:
        """Whether one of these spans is of a trace that is over, and the store has not all of its runs.

        Whoever sends such a span again was not told that it is safe, and cannot be told so yet.
        """
        runs = self._runs
        return bool(runs) and any(
            runs.failed((tenant, trace_id)) for trace_id in {span.trace_id for span in spans}
        )

    def writes(self, tenant: str, spans: Iterable[SpanData]) -> bool:
        """Whether one of these spans is of a trace whose runs may be on their way into the store.

        What is put after them is done after them: then :meth:`owes` knows what has become of them.
        """
        runs = self._runs
        return bool(runs) and any((tenant, span.trace_id) in runs for span in spans)

    def over(self, served: ServedRun) -> None:
        """A run is over: have it kept."""
        self._runs.add(served)

    def closed(self, tenant: str, trace_id: int) -> None:
        """A trace is over, and all of its runs were handed on."""
        self._over.append((tenant, trace_id))
        if len(self._over) > self._max_untold:
            self._runs.given_up.discard(self._over.popleft())

    # Out ---------------------------------------------------------------------------------------------------

    def tick(self, *, told: bool) -> None:
        """See what the store has taken, try again what it has not, and let the spans go that nobody needs.

        Args:
            told: Whether the next hop has the verdicts of all runs so far.
        """
        self._runs.tick()
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
        while (self._runs or self._told or self._going) and time.monotonic() < until:
            await asyncio.sleep(_LOOK_S)
            self.tick(told=told)
        self._left_at_end = len(self._runs)
        if self._left_at_end:
            _log.error(
                "runs that the store did not take: %d; the next start judges them by their spans in it",
                self._left_at_end,
            )

    def _let_go(self) -> None:
        """Have the spans removed of traces whose runs are in the store, and whose verdicts have arrived."""
        going: list[tuple[TraceOf, Future[None]]] = []
        failed = False
        for trace, future in self._going:
            if not future.done():
                going.append((trace, future))
            elif (error := error_of(future)) is not None:
                self._failed(TRIED_AGAIN, error)
                failed = True
                self._told.append(trace)
        most = 1 if failed else len(self._told)
        for _ in range(len(self._told)):
            trace = self._told.popleft()
            if trace in self._runs or most == 0:
                self._told.append(trace)
            elif trace in self._runs.given_up:
                self._runs.given_up.remove(trace)
            else:
                most -= 1
                tenant, trace_id = trace
                going.append((trace, _tried(lambda: self._store.close_trace(trace_id, tenant))))  # noqa: B023 - called at once
        self._going = going

    def _failed(self, what: str, error: BaseException) -> None:
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
