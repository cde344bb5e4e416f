"""The health of the loops that a test runs."""

import threading
from dataclasses import replace
from types import TracebackType
from typing import Final

from otel_loopeval.otel import watching
from otel_loopeval.otel.options import Options
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.reports import RunRecord, outline, record_of, words
from otel_loopeval.runs.reconstruct import Replayed
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.verdict import Policy, Verdict, judge
from otel_loopeval.semconv import REASON_DOOM_LOOP

_MOST: Final = 10_000
"""Runs of one test that are kept."""
_SHOWN: Final = 5
"""Unhealthy runs that a message shows whole."""


class LoopHealth:
    """Sees every loop that ends while it is open, whatever it reports to. A context manager.

    Loops of ``loop()``, of ``EvaluationLoop`` and of the supported frameworks are seen with or without an
    OpenTelemetry SDK, and under any sampler. Agents that only somebody else's spans tell of are seen where
    those spans go to an SDK tracer provider that this package watches, as it does after ``instrument()``.
    If the program has not called ``instrument()``, it is called for the time being.

    Attributes:
        runs: The runs that ended, those inside other runs left out, in the order in which they ended.
        nested_runs: The runs inside them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the list: loops may end on any thread
        self._ended: list[tuple[LoopRun, Verdict, Policy]] = []
        self._instruments = False

    def __enter__(self) -> "LoopHealth":  # noqa: PYI034 - Self is new in 3.11
        from otel_loopeval.instrumentation import instrument, is_instrumented  # noqa: PLC0415 - see testing.state

        if not is_instrumented():
            instrument()
            self._instruments = True
        watching.watchers.append(self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from otel_loopeval.instrumentation import uninstrument  # noqa: PLC0415

        watching.watchers.remove(self._watch)
        if self._instruments:
            self._instruments = False
            uninstrument()
            # Loops of ours are seen by their backend without instrument(), as they were before.
            registry.configure(Options.of({}))

    def _watch(self, run: LoopRun, verdict: Verdict, policy: Policy) -> None:
        with self._lock:
            if len(self._ended) < _MOST:
                self._ended.append((run, verdict, policy))

    @property
    def runs(self) -> list[RunRecord]:
        """See the class."""
        return [record_of(run) for run in self._judged({}) if run.run.parent is None]

    @property
    def nested_runs(self) -> list[RunRecord]:
        """See the class."""
        return [record_of(run) for run in self._judged({}) if run.run.parent is not None]

    def clear(self) -> None:
        """Forget the runs so far."""
        with self._lock:
            self._ended.clear()

    def problem(
        self,
        *,
        min_runs: int = 1,
        allow_doom_loops: bool = False,
        agent: str | None = None,
        threshold: float | None = None,
        max_wasted_iterations: int | None = None,
        token_budget: int | None = None,
    ) -> str | None:
        """What is wrong with the loops that have ended.

        Args:
            min_runs: How many runs with a verdict there must be.
            allow_doom_loops: Whether a doom loop alone makes no run unhealthy.
            agent: Look at the runs of this agent only.
            threshold: Threshold of runs that bring none; that of ``instrument()`` if None.
            max_wasted_iterations: Wasted iterations allowed in runs that bring no limit; likewise.
            token_budget: Tokens that runs without a budget may use; likewise.

        Returns:
            None if nothing is; else the unhealthy runs with their verdicts, as text of several lines.

        Raises:
            TypeError: An option is of the wrong type.
        """
        _check_options(min_runs, allow_doom_loops, agent, threshold, max_wasted_iterations, token_budget)
        given = {
            name: value
            for name, value in (
                ("threshold", threshold),
                ("max_wasted_iterations", max_wasted_iterations),
                ("token_budget", token_budget),
            )
            if value is not None
        }
        judged = self._judged(given)
        asked = [r for r in judged if r.run.parent is None and agent in (None, r.run.agent)]
        decided = [run for run in asked if run.verdict.decided]
        allowed = {REASON_DOOM_LOOP} if allow_doom_loops else set[str]()
        bad = [r for r in decided if not r.verdict.passed and set(r.verdict.reasons) - allowed]
        lines: list[str] = []
        if len(decided) < min_runs:
            lines.append(_too_few(asked, len(decided), min_runs, agent))
        if bad:
            lines.append(f"{len(bad)} of {words.count(len(decided), 'loop')} unhealthy")
            lines += [outline(run, judged) for run in bad[:_SHOWN]]
            if len(bad) > _SHOWN:
                lines.append(f"... and {len(bad) - _SHOWN} more")
        return "\n".join(lines) or None

    def _judged(self, given: dict[str, float | int]) -> list[Replayed]:
        with self._lock:
            ended = list(self._ended)
        return [
            Replayed(run, _judge_again(run, verdict, policy, given) if given else verdict, None)
            for run, verdict, policy in ended
        ]


def _judge_again(run: LoopRun, verdict: Verdict, policy: Policy, given: dict[str, float | int]) -> Verdict:
    ended_ns = run.started_ns + int(verdict.health.total_duration_s * 1e9)
    return judge(run, ended_ns, replace(policy, **given))  # pyright: ignore[reportArgumentType] - checked


def _too_few(asked: list[Replayed], decided: int, wanted: int, agent: str | None) -> str:
    whose = "" if agent is None else f" of agent {agent!r}"
    found = f"{decided} ended with a verdict" if decided else "none ended"
    undecided = sorted({run.verdict.outcome for run in asked if not run.verdict.decided})
    if undecided:
        found = f"{decided} ended with a verdict, {len(asked) - decided} without one ({', '.join(undecided)})"
    return f"expected at least {words.count(wanted, 'loop')}{whose}, {found}"


def _check_options(
    min_runs: object,
    allow_doom_loops: object,
    agent: object,
    threshold: object,
    max_wasted_iterations: object,
    token_budget: object,
) -> None:
    for name, value, allowed in (
        ("min_runs", min_runs, (int,)),
        ("allow_doom_loops", allow_doom_loops, (bool,)),
        ("agent", agent, (str, type(None))),
        ("threshold", threshold, (int, float, type(None))),
        ("max_wasted_iterations", max_wasted_iterations, (int, type(None))),
        ("token_budget", token_budget, (int, type(None))),
    ):
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            named = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            raise TypeError(f"{name}={value!r} must be {named}")
