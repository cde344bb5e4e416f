"""The gate: when a set of runs fails a build."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.reports.baseline import Baseline, BaselineRule, Regression
from otel_loopeval.reports.records import RunRecord
from otel_loopeval.reports.summary import Summary

UNHEALTHY: Final = "unhealthy"
DOOM_LOOP: Final = "doom_loop"
WASTE: Final = "waste"
BUDGET: Final = "budget"
NO_RUNS: Final = "no_runs"
CONDITIONS: Final = (UNHEALTHY, DOOM_LOOP, WASTE, BUDGET, NO_RUNS)
"""What a gate may fail on."""

DOOM_LOOP_RATE: Final = "doom_loop_rate"
BASELINE: Final = "baseline"

_EXAMPLES: Final = 5
_SAID: Final = {
    UNHEALTHY: "unhealthy",
    DOOM_LOOP: "with a doom loop",
    WASTE: "with more wasted iterations than allowed",
    BUDGET: "over the token budget",
}
_RATES_SAID: Final = {
    "health_rate": "health rate fell",
    "doom_loop_rate": "doom-loop rate rose",
    "waste_rate": "wasted iterations rose",
    "tokens_per_run": "tokens per run rose",
}


@dataclass(frozen=True, slots=True)
class Gate:
    """What fails, of the runs that are not inside others.

    Attributes:
        fail_on: Of :data:`CONDITIONS`: ``unhealthy`` (a run with a bad verdict), ``doom_loop`` (a run in
            which, or in a run inside it, one fired), ``waste`` (a run with more wasted iterations than it may
            have), ``budget`` (a run over its token budget), ``no_runs`` (no run with a verdict).
        max_wasted_iterations: Wasted iterations that a run may have that brings no limit of its own; None for
            none, but any number in runs of agents, whose turns may repeat for good reason.
        max_doom_loop_rate: Share of runs that may have a doom loop, from 0 to 1; None for no limit.
        baseline: An earlier report, to be no worse than; None for none.
        baseline_rule: When a run is worse.
    """

    fail_on: frozenset[str] = frozenset({UNHEALTHY, NO_RUNS})
    max_wasted_iterations: int | None = None
    max_doom_loop_rate: float | None = None
    baseline: Baseline | None = None
    baseline_rule: BaselineRule = field(default_factory=BaselineRule)

    def fails(self, record: RunRecord) -> tuple[str, ...]:
        """The conditions on which a run fails, in the order of :data:`CONDITIONS`.

        One inside another run fails none: the outer run answers for it. Without a verdict a run is not
        unhealthy, but what it did counts: a doom loop, waste, tokens.
        """
        if record.nested:
            return ()
        met = {
            UNHEALTHY: record.passed is False,
            DOOM_LOOP: record.doom_loop_fired,
            WASTE: self._is_wasteful(record),
            BUDGET: record.over_token_budget is True,
        }
        return tuple(condition for condition, is_met in met.items() if is_met and condition in self.fail_on)

    def _is_wasteful(self, record: RunRecord) -> bool:
        allowed = record.max_wasted_iterations
        if allowed is None:
            allowed = self.max_wasted_iterations
        if allowed is None:
            return record.mode != semconv.MODE_AGENT and record.wasted_iterations > 0
        return record.wasted_iterations > allowed


class Failure(NamedTuple):
    """Why the gate failed.

    Attributes:
        rule: One of :data:`CONDITIONS`, ``doom_loop_rate`` or ``baseline``.
        message: In a sentence.
        agent: The agent concerned, or None for all.
    """

    rule: str
    message: str
    agent: str | None = None


class Outcome(NamedTuple):
    """What became of the gate.

    Attributes:
        failures: Why it failed; empty if it passed.
        notes: What it could not look at.
    """

    failures: tuple[Failure, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return not self.failures


class GateKeeper:
    """Looks at runs one after another, and tells at the end.

    Args:
        gate: What fails.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def look(self, record: RunRecord) -> tuple[str, ...]:
        """Take a run.

        Returns:
            The conditions on which it fails.
        """
        failed = self.gate.fails(record)
        for condition in failed:
            self._counts[condition] = self._counts.get(condition, 0) + 1
            examples = self._examples.setdefault(condition, [])
            if len(examples) < _EXAMPLES:
                examples.append(f"{record.agent} {record.id}")
        return failed

    def tell(self, summary: Summary) -> Outcome:
        """What became of the gate.

        Args:
            summary: The sums over the same runs.
        """
        gate = self.gate
        failures = [self._of_runs(name) for name in CONDITIONS if name in self._counts]
        notes: list[str] = []
        total = summary.total()
        if NO_RUNS in gate.fail_on and not total.judged:
            inside = summary.total(nested=True).runs
            found = f"{total.runs} found, none with a verdict" if total.runs else "none found"
            if inside:
                found += f", and {inside} inside other runs"
            failures.append(Failure(NO_RUNS, f"no runs to judge: {found}"))
        rate, most = total.doom_loop_rate, gate.max_doom_loop_rate
        if most is not None and rate is not None and rate > most:
            had = f"{total.doom_loops} of {total.runs} runs had a doom loop"
            failures.append(Failure(DOOM_LOOP_RATE, f"{had}: {rate:.1%}, allowed {most:.1%}"))
        if gate.baseline is not None:
            regressions, notes = gate.baseline.compare(summary.agents, gate.baseline_rule)
            failures.extend(map(_of_regression, regressions))
        return Outcome(tuple(failures), tuple(notes))

    def _of_runs(self, condition: str) -> Failure:
        count, examples = self._counts[condition], self._examples[condition]
        named = ", ".join(examples) if count <= len(examples) else f"{', '.join(examples)}, ..."
        runs = "run" if count == 1 else "runs"
        return Failure(condition, f"{count} {runs} {_SAID[condition]}: {named}")


def _of_regression(regression: Regression) -> Failure:
    agent, rate, before, now = regression
    changed = f"{_RATES_SAID[rate]}, {_shown(rate, before)} to {_shown(rate, now)}"
    return Failure(BASELINE, f"{agent}: {changed}", agent)


def _shown(rate: str, value: float) -> str:
    return f"{value:,.0f}" if rate == "tokens_per_run" else f"{value:.1%}"


def conditions(names: Iterable[str]) -> frozenset[str]:
    """Check names of conditions.

    Raises:
        ValueError: One is none; the message lists what is allowed.
    """
    found = frozenset(names)
    for name in sorted(found - set(CONDITIONS)):
        raise ValueError(f"{name!r} is no condition: allowed are {', '.join(CONDITIONS)}")
    return found
