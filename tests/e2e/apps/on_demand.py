"""Runs as many loops as it is told to, some of them doom loops, and ends, or waits for one more.

Variables: RUNS, DOOM (how many of them), THEN_WAIT_FOR (a file; once it is there, one doom loop more).
"""

import os
import time
from pathlib import Path

from otel_loopeval import iteration, loop


def run(*, doomed: bool) -> None:
    """One run of two iterations."""
    with loop("writer", threshold=8.0, max_iterations=5) as current:
        for score in (6.0, 8.5):
            with iteration() as it:
                it.score = score
        if doomed:
            current.record_guard_event({"type": "doom_loop", "action": "halt"})


runs, doomed = int(os.environ.get("RUNS", "1")), int(os.environ.get("DOOM", "0"))
for number in range(runs):
    run(doomed=number < doomed)
awaited = os.environ.get("THEN_WAIT_FOR")
if awaited:
    while not Path(awaited).exists():
        time.sleep(0.1)
    run(doomed=True)
