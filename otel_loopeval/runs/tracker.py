"""The table of open runs: bounded, and the one place where runs begin and end.

The tracker never reads a clock. Every method that changes the table takes its lock, which protects the
table and the begin/end of each run; nothing of the user's is called while it is held. It is reentrant, since
the collector may close an abandoned generator, and so end its run, on a thread that holds it.
"""

import threading
from collections.abc import Callable
from itertools import islice

from otel_loopeval.runs.resume import Segments
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.usage import Price
from otel_loopeval.runs.verdict import Policy, Verdict, judge

DEFAULT_MAX_RUNS = 20_000
"""Open runs followed at once."""

EVICTED_CAPACITY = "capacity"
EVICTED_IDLE = "idle"

_SECOND_CHANCES = 64
"""How many busy runs an eviction passes over before it takes the oldest after all."""


class Tracker:
    """Follows open runs and judges each when it ends.

    Args:
        policy: What counts as healthy where a run does not say.
        max_runs: Open runs to follow at once; beyond it, the one that has been idle longest goes.
        max_idle_s: Seconds without news after which a run may be evicted; None for no limit, since a
            run may wait for days.
        on_evict: Called with each evicted run and the reason, outside the lock.
        on_finish: Called with each run that ended and its verdict, outside the lock.
        price: Tells what a model call cost; None where nobody knows.
        segments: Runs that have paused; none if None. Trackers of one source share them.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        max_runs: int = DEFAULT_MAX_RUNS,
        max_idle_s: float | None = None,
        on_evict: Callable[[LoopRun, str], None] | None = None,
        on_finish: Callable[[LoopRun, Verdict], None] | None = None,
        price: Price | None = None,
        segments: Segments | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.price = price
        self.segments = segments or Segments()
        self._max_runs = max_runs
        self._max_idle_ns = None if max_idle_s is None else int(max_idle_s * 1e9)
        self._next_sweep_ns = 0
        self._on_evict = on_evict
        self._on_finish = on_finish
        self._open: dict[LoopRun, int] = {}  # run -> its active_ns when last looked at by an eviction
        self.lock = threading.RLock()

    def start(self, run: LoopRun) -> None:
        """Begin to follow a run; evicts the idle ones, and another if there are too many."""
        evicted: LoopRun | None = None
        if self._max_idle_ns is not None and run.started_ns >= self._next_sweep_ns:
            # Often enough for the bound to mean something, seldom enough to cost nothing.
            self._next_sweep_ns = run.started_ns + self._max_idle_ns // 4
            self.evict_idle(run.started_ns)
        with self.lock:
            if len(self._open) >= self._max_runs:
                evicted = self._evict_one()
            self._open[run] = run.started_ns
        if evicted is not None:
            self._evicted(evicted, EVICTED_CAPACITY)

    def finish(self, run: LoopRun, ended_ns: int, *, outcome: str | None = None) -> Verdict | None:
        """End a run and judge it.

        Args:
            run: The run.
            ended_ns: When it ended, in nanoseconds since the epoch.
            outcome: How it ended, if its owner knows; an outcome declared earlier wins.

        Returns:
            The verdict, or None if the run had ended already: a run is judged once.
        """
        with self.lock:
            self._open.pop(run, None)
            if run.closed:
                return None
            run.closed = True
        run.active_ns = ended_ns
        if run.outcome is None:
            run.outcome = outcome
        verdict = judge(run, ended_ns, self.policy)
        if self._on_finish is not None:
            self._on_finish(run, verdict)
        return verdict

    def look(self, run: LoopRun, now_ns: int) -> Verdict:
        """Judge an open run as if it ended now."""
        return judge(run, now_ns, self.policy)

    def open_runs(self) -> list[LoopRun]:
        """The runs that are open, oldest first."""
        # The exit path may find the lock held by a thread that will never run again.
        acquired = self.lock.acquire(timeout=1.0)
        try:
            return list(self._open)
        finally:
            if acquired:
                self.lock.release()

    def evict_idle(self, now_ns: int) -> int:
        """Stop following the runs that have been idle too long.

        Returns:
            How many there were.
        """
        limit = self._max_idle_ns
        if limit is None:
            return 0
        with self.lock:
            idle = [run for run in list(self._open) if now_ns - run.active_ns > limit]
            for run in idle:
                self._open.pop(run, None)
        for run in idle:
            self._evicted(run, EVICTED_IDLE)
        return len(idle)

    def forget(self) -> list[LoopRun]:
        """Drop every run and start with a new lock: what a forked child must do first.

        Returns:
            The runs that were open; they are closed, since the parent goes on with them.
        """
        runs = list(self._open)
        self.lock = threading.RLock()
        self._open = {}
        for run in runs:
            run.closed = True
        return runs

    def _evict_one(self) -> LoopRun:
        """Take out the run that has been idle longest, nearly (the clock algorithm: O(1) amortised).

        The table is in order of arrival. A run that was heard of since it was last looked at goes to the
        back of the queue; the first one that was not goes.
        """
        table = self._open
        for run in list(islice(table, _SECOND_CHANCES)):
            seen = table.pop(run, None)  # None: it has ended meanwhile, on this thread
            if seen is None:
                continue
            if run.active_ns == seen:
                return run
            table[run] = run.active_ns
        run = next(iter(table))
        del table[run]
        return run

    def _evicted(self, run: LoopRun, reason: str) -> None:
        run.evicted = True
        run.parent = None  # or a chain of abandoned runs would keep itself alive
        if self._on_evict is not None:
            self._on_evict(run, reason)
