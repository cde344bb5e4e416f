"""What an evaluation loop returns."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, cast

PASSING_SCORE = 7.0
"""Score at which an iteration passes where the loop's threshold is not known (praisonaiagents' number)."""


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


def jsonable(value: Any) -> Any:
    """The value in strict JSON's types: non-finite floats become None, unknown objects their ``str``."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {str(key): jsonable(item) for key, item in entries.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in cast("list[Any]", value)]
    return str(value)


def to_strict_json(value: Any) -> str:
    """Indented JSON that every parser accepts."""
    return json.dumps(jsonable(value), indent=2, allow_nan=False)


def _shown(score: float) -> str:
    return f"{score:.4g}" if math.isfinite(score) else "no score"


def _rank(score: float) -> float:
    return score if math.isfinite(score) else -math.inf


@dataclass(frozen=True, slots=True)
class IterationResult:
    """One iteration of a loop.

    Attributes:
        iteration: Its number, from 1.
        output: The agent's answer.
        score: The judge's or metric's score; NaN where the judge gave none that can be used.
        reasoning: The judge's explanation.
        findings: The judge's suggestions.
        timestamp: When it ended, ISO 8601 in UTC.
        metadata: Anything else.
        threshold: The loop's threshold, where it is known.
    """

    iteration: int
    output: str
    score: float
    reasoning: str = ""
    findings: list[str] = field(default_factory=list[str])
    timestamp: str = field(default_factory=_now)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    threshold: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the score is at or above the loop's threshold (7.0 where that is not known)."""
        return self.score >= (PASSING_SCORE if self.threshold is None else self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """All fields and ``passed``, in strict JSON's types."""
        return jsonable(
            {
                "iteration": self.iteration,
                "output": self.output,
                "score": self.score,
                "reasoning": self.reasoning,
                "findings": self.findings,
                "timestamp": self.timestamp,
                "passed": self.passed,
                "threshold": self.threshold,
                "metadata": self.metadata,
            }
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "IterationResult":
        """Read what :meth:`to_dict` wrote; a null score becomes NaN."""
        score = data.get("score")
        return cls(
            iteration=data["iteration"],
            output=data.get("output", ""),
            score=math.nan if score is None else float(score),
            reasoning=data.get("reasoning", ""),
            findings=list(data.get("findings", ())),
            timestamp=data.get("timestamp", ""),
            metadata=dict(data.get("metadata", {})),
            threshold=data.get("threshold"),
        )


def best_of(iterations: list[IterationResult]) -> IterationResult | None:
    """The iteration with the highest score, the first one on ties; a missing score is the lowest."""
    return max(iterations, key=lambda it: _rank(it.score)) if iterations else None


class Referable:
    """Base of slotted results that others may refer to weakly, as guard events are kept by result."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class EvaluationLoopResult(Referable):
    """A whole run of a loop.

    Attributes:
        iterations: The iterations in order.
        success: Whether the best score is at or above the threshold.
        total_duration_seconds: Duration of the run on a monotonic clock, in seconds.
        threshold: The threshold used.
        mode: ``"optimize"`` or ``"review"``.
        metadata: Anything else; ``"stopped": True`` if :class:`StopLoop` ended the run, ``"partial": True``
            on the result that an exception carries.
        best: The iteration with the highest score, the first one on ties.
    """

    iterations: list[IterationResult] = field(default_factory=list[IterationResult])
    success: bool = False
    total_duration_seconds: float = 0.0
    threshold: float = 8.0
    mode: str = "optimize"
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    best: IterationResult | None = None

    @property
    def best_iteration(self) -> IterationResult | None:
        """The iteration with the highest score; None if there is no iteration."""
        return self.best if self.best is not None else best_of(self.iterations)

    @property
    def best_score(self) -> float:
        """The highest score; 0.0 without iterations."""
        best = self.best_iteration
        return 0.0 if best is None else best.score

    @property
    def best_output(self) -> str:
        """The output with the highest score; empty without iterations."""
        best = self.best_iteration
        return "" if best is None else best.output

    @property
    def final_score(self) -> float:
        """The last iteration's score; 0.0 without iterations."""
        return self.iterations[-1].score if self.iterations else 0.0

    @property
    def final_output(self) -> str:
        """The last iteration's output; empty without iterations."""
        return self.iterations[-1].output if self.iterations else ""

    @property
    def score_history(self) -> list[float]:
        """The scores in order."""
        return [it.score for it in self.iterations]

    @property
    def accumulated_findings(self) -> list[str]:
        """The findings of all iterations in order."""
        return [finding for it in self.iterations for finding in it.findings]

    @property
    def num_iterations(self) -> int:
        """How many iterations completed."""
        return len(self.iterations)

    def to_dict(self) -> dict[str, Any]:
        """The result and what is derived from it, in strict JSON's types."""
        return jsonable(
            {
                "success": self.success,
                "final_score": self.final_score,
                "best_score": self.best_score,
                "best_output": self.best_output,
                "score_history": self.score_history,
                "final_output": self.final_output,
                "accumulated_findings": self.accumulated_findings,
                "num_iterations": self.num_iterations,
                "total_duration_seconds": self.total_duration_seconds,
                "threshold": self.threshold,
                "mode": self.mode,
                "iterations": [it.to_dict() for it in self.iterations],
                "metadata": self.metadata,
            }
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EvaluationLoopResult":
        """Read what :meth:`to_dict` wrote."""
        iterations = [IterationResult.from_dict(entry) for entry in data.get("iterations", ())]
        return cls(
            iterations=iterations,
            success=data.get("success", False),
            total_duration_seconds=data.get("total_duration_seconds", 0.0),
            threshold=data.get("threshold", 8.0),
            mode=data.get("mode", "optimize"),
            metadata=dict(data.get("metadata", {})),
            best=best_of(iterations),
        )

    def to_json(self) -> str:
        """:meth:`to_dict` as strict JSON."""
        return to_strict_json(self.to_dict())

    @property
    def final_report(self) -> str:
        """A Markdown report of the run."""
        lines = [
            "# Evaluation Loop Report",
            "",
            f"- **Status**: {'success' if self.success else 'failed'}",
            f"- **Final score**: {_shown(self.final_score)}",
            f"- **Best score**: {_shown(self.best_score)}",
            f"- **Threshold**: {self.threshold:g}",
            f"- **Iterations**: {self.num_iterations}",
            f"- **Duration**: {self.total_duration_seconds:.2f} s",
            f"- **Mode**: {self.mode}",
            "",
            "## Score history",
            "",
            "| iteration | score | threshold met |",
            "|---|---|---|",
        ]
        lines += [
            f"| {it.iteration} | {_shown(it.score)} | {'yes' if it.score >= self.threshold else 'no'} |"
            for it in self.iterations
        ]
        lines += ["", "## Iterations"]
        for it in self.iterations:
            lines += ["", f"### Iteration {it.iteration}", "", f"**Score**: {_shown(it.score)}"]
            if it.reasoning:
                lines += ["", f"**Reasoning**: {it.reasoning}"]
            if it.findings:
                lines += ["", "**Findings**:", "", *(f"- {finding}" for finding in it.findings)]
        if self.accumulated_findings:
            lines += ["", "## All findings", "", *(f"- {finding}" for finding in self.accumulated_findings)]
        return "\n".join(lines) + "\n"

    def print_summary(self) -> None:
        """Print a table of the result."""
        from rich.console import Console  # noqa: PLC0415  # only those who print pay for it
        from rich.table import Table  # noqa: PLC0415  # as above

        table = Table(title="Evaluation loop")
        table.add_column("Metric", style="cyan")
        table.add_column("Value", style="green" if self.success else "red")
        table.add_row("Status", "success" if self.success else "failed")
        table.add_row("Final score", _shown(self.final_score))
        table.add_row("Best score", _shown(self.best_score))
        table.add_row("Threshold", f"{self.threshold:g}")
        table.add_row("Iterations", str(self.num_iterations))
        table.add_row("Duration", f"{self.total_duration_seconds:.2f} s")
        table.add_row("Mode", self.mode)
        table.add_row("Score history", " → ".join(_shown(score) for score in self.score_history))
        Console().print(table)
