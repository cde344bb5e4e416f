"""What it means for a goal to be met."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_loopeval.evaluation import checks


@dataclass(frozen=True, slots=True)
class GoalCriteria:
    """Acceptance criteria of a goal.

    Attributes:
        outcome: What "done" means.
        verification: What evidence shows it.
        constraints: Conditions that must not be violated; any violation means that the goal is not met.

    Raises:
        TypeError: If ``constraints`` is a single string, or another attribute is not a string.
    """

    outcome: str = ""
    verification: str = ""
    constraints: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        checks.text("outcome", self.outcome)
        checks.text("verification", self.verification)
        if isinstance(self.constraints, str):
            raise TypeError(f"constraints must be a list of strings, got {checks.shown(self.constraints)}")

    def lines(self) -> list[str]:
        """The criteria as paragraphs of a prompt; none for what is not given."""
        parts: list[str] = []
        if self.outcome:
            parts.append(f"DEFINITION OF DONE: {self.outcome}")
        if self.verification:
            parts.append(f"VERIFICATION: {self.verification}")
        if self.constraints:
            parts.append("CONSTRAINTS (never violate):\n" + "\n".join(f"- {c}" for c in self.constraints))
        return parts

    def to_dict(self) -> dict[str, Any]:
        """The attributes, in JSON's types."""
        return {
            "outcome": self.outcome,
            "verification": self.verification,
            "constraints": list(self.constraints),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GoalCriteria":
        """Read what :meth:`to_dict` wrote."""
        return cls(
            outcome=data.get("outcome", ""),
            verification=data.get("verification", ""),
            constraints=list(data.get("constraints", ())),
        )
