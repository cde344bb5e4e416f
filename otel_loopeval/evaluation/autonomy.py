"""What a goal loop returns."""

from dataclasses import asdict, dataclass, field
from typing import Any

from otel_loopeval.evaluation.results import Referable, jsonable, to_strict_json


@dataclass(frozen=True, slots=True)
class AutonomyResult(Referable):
    """A whole run of a goal loop. ``str(result)`` is its output.

    Attributes:
        success: Whether the goal was met.
        output: The last output.
        completion_reason: ``"goal_met"``; ``"budget_paused"`` if the turns ran out or the judge could not
            be read; ``"stopped"`` if :class:`StopLoop` ended the run; ``"error"`` on the result that an
            exception carries.
        iterations: Turns that completed.
        stage: Stage of the run; one word, for parity with praisonaiagents.
        actions: One entry a turn: ``iteration``, ``response``, ``met`` and ``reason``.
        duration_seconds: Duration of the run on a monotonic clock, in seconds.
        error: Class of the exception that ended the run, on the result that it carries.
        started_at: When it began, ISO 8601 in UTC.
        metadata: Anything else; ``"stopped": True`` or ``"partial": True`` as in
            :class:`EvaluationLoopResult`, and ``"paused_by"``: ``"max_turns"`` or ``"unreadable_verdicts"``.
    """

    success: bool
    output: str = ""
    completion_reason: str = "goal_met"
    iterations: int = 0
    stage: str = "direct"
    actions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    duration_seconds: float = 0.0
    error: str | None = None
    started_at: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.output

    def to_dict(self) -> dict[str, Any]:
        """The attributes, in strict JSON's types."""
        return jsonable(asdict(self))

    def to_json(self) -> str:
        """:meth:`to_dict` as strict JSON."""
        return to_strict_json(self.to_dict())
