"""Sums over many runs, by agent, in bounded memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.reports.records import RunRecord

MAX_AGENTS: Final = 10_000
"""Agents that are told apart; runs of later ones count as ``_other``."""


@dataclass(slots=True)
class AgentTotals:
    """Sums over the runs of one agent; nested runs have sums of their own.

    Attributes:
        agent: Name of the agent.
        nested: Whether these are the runs inside other runs.
        runs: Runs.
        healthy: Runs with a good verdict.
        unhealthy: Runs with a bad one; the others have none (paused, cancelled, interrupted, incomplete).
        converged: Runs that converged.
        doom_loops: Runs in which a doom loop fired.
        over_budget: Runs that used more tokens than their budget.
        iterations: Iterations.
        wasted_iterations: Wasted ones among them.
        runs_with_tokens: Runs whose tokens are known.
        tokens: Input plus output tokens of those.
        wasted_tokens: Tokens of wasted iterations.
        runs_with_cost: Runs whose cost is known.
        cost_usd: What those cost.
    """

    agent: str
    nested: bool = False
    runs: int = 0
    healthy: int = 0
    unhealthy: int = 0
    converged: int = 0
    doom_loops: int = 0
    over_budget: int = 0
    iterations: int = 0
    wasted_iterations: int = 0
    runs_with_tokens: int = 0
    tokens: int = 0
    wasted_tokens: int = 0
    runs_with_cost: int = 0
    cost_usd: float = 0.0

    def add(self, record: RunRecord) -> None:
        """Count a run."""
        self.runs += 1
        self.healthy += record.passed is True
        self.unhealthy += record.passed is False
        self.converged += record.converged is True
        self.doom_loops += record.doom_loop_fired
        self.over_budget += record.over_token_budget is True
        self.iterations += record.iterations
        self.wasted_iterations += record.wasted_iterations
        if record.tokens is not None:
            self.runs_with_tokens += 1
            self.tokens += record.tokens
        self.wasted_tokens += record.wasted_tokens or 0
        if record.cost_usd is not None:
            self.runs_with_cost += 1
            self.cost_usd += record.cost_usd

    def merge(self, other: "AgentTotals") -> None:
        """Add the sums of another agent."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def judged(self) -> int:
        """Runs with a verdict."""
        return self.healthy + self.unhealthy

    @property
    def health_rate(self) -> float | None:
        """Healthy runs among those with a verdict, from 0 to 1; None without any."""
        return _share(self.healthy, self.judged)

    @property
    def doom_loop_rate(self) -> float | None:
        """Runs with a doom loop among all runs, from 0 to 1; None without any."""
        return _share(self.doom_loops, self.runs)

    @property
    def waste_rate(self) -> float | None:
        """Wasted iterations among all iterations, from 0 to 1; None without any."""
        return _share(self.wasted_iterations, self.iterations)

    @property
    def tokens_per_run(self) -> float | None:
        """Tokens of a run on average, of those whose tokens are known; None without any."""
        return _share(self.tokens, self.runs_with_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The sums and rates, in the types of strict JSON; None is unknown."""
        return {
            "agent": self.agent,
            "nested": self.nested,
            **{name: getattr(self, name) for name in _SUMS},
            "tokens": self.tokens if self.runs_with_tokens else None,
            "wasted_tokens": self.wasted_tokens if self.runs_with_tokens else None,
            "cost_usd": self.cost_usd if self.runs_with_cost else None,
            **{name: getattr(self, name) for name in RATES},
        }


_SUMS: Final = tuple(name for name in AgentTotals.__dataclass_fields__ if name not in ("agent", "nested"))
RATES: Final = ("health_rate", "doom_loop_rate", "waste_rate", "tokens_per_run")
"""The rates by which an agent is compared with what it was."""


class Summary:
    """Sums over the runs of any number of agents; runs inside other runs are counted apart."""

    def __init__(self) -> None:
        self._agents: dict[tuple[str, bool], AgentTotals] = {}

    def add(self, record: RunRecord) -> None:
        """Count a run."""
        key = (record.agent, record.nested)
        totals = self._agents.get(key)
        if totals is None:
            if len(self._agents) >= MAX_AGENTS:
                key = (semconv.AGENT_OTHER, record.nested)
            totals = self._agents.setdefault(key, AgentTotals(*key))
        totals.add(record)

    @property
    def agents(self) -> list[AgentTotals]:
        """The sums by agent and by whether nested: by name, nested ones last."""
        return sorted(self._agents.values(), key=lambda totals: (totals.nested, totals.agent))

    def total(self, *, nested: bool = False) -> AgentTotals:
        """The sums over all agents, of the runs that are nested or of those that are not."""
        total = AgentTotals("", nested)
        for totals in self._of(nested=nested):
            total.merge(totals)
        return total

    def _of(self, *, nested: bool) -> Iterable[AgentTotals]:
        return (totals for totals in self._agents.values() if totals.nested == nested)

    def to_dict(self) -> dict[str, Any]:
        """The sums over all agents, for those not nested and for those nested, without their names."""
        shown = {"runs": self.total().to_dict(), "nested_runs": self.total(nested=True).to_dict()}
        for totals in shown.values():
            del totals["agent"], totals["nested"]
        return shown


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
