"""Who is told of every run of this process that ended, whatever it reports to: the helpers for tests."""

from collections.abc import Callable

from otel_loopeval.otel import errors
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.verdict import Policy, Verdict

Watcher = Callable[[LoopRun, Verdict, Policy], object]
"""Called with a run that has ended, its verdict, and what counted as healthy where the run did not say."""

watchers: list[Watcher] = []
"""Empty but in tests: a run that ends looks no further."""


@errors.guarded("watching.tell")
def tell(run: LoopRun, verdict: Verdict, policy: Policy) -> None:
    """Tell the watchers of a run."""
    for watcher in watchers:
        watcher(run, verdict, policy)
