"""The goal loop's decisions, apart from how the agent and the judge are called."""

import time
from datetime import datetime, timezone
from typing import Any, Final

from otel_loopeval.evaluation.autonomy import AutonomyResult
from otel_loopeval.evaluation.results import IterationResult
from otel_loopeval.evaluation.verdicts import GoalVerdict

_MOST_UNREADABLE: Final = 3
_MET: Final = 1.0


class GoalState:
    """One run of a goal loop: told each output and verdict, says whether to go on.

    Args:
        max_turns: Turns that may run.
    """

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._outputs: list[str] = []
        self._verdicts: list[GoalVerdict] = []
        self._started = time.perf_counter()
        self._started_at = datetime.now(timezone.utc).isoformat()

    @property
    def number(self) -> int:
        """Number of the turn that comes next, from 1."""
        return len(self._verdicts) + 1

    @property
    def reason(self) -> str:
        """Why the goal was not met at the last turn; empty before the first."""
        return self._verdicts[-1].reason if self._verdicts else ""

    @property
    def goes_on(self) -> bool:
        """Whether another turn shall run."""
        return not (self._met or self._unreadable) and self.number <= self._max_turns

    def record(self, output: str, verdict: GoalVerdict) -> IterationResult:
        """Take a turn's output and verdict. A met goal scores 1 of 1, any other 0."""
        iteration = IterationResult(
            iteration=self.number,
            output=output,
            score=_MET if verdict.met else 0.0,
            reasoning=verdict.reason,
            metadata={"goal_met": verdict.met},
            threshold=_MET,
        )
        self._outputs.append(output)
        self._verdicts.append(verdict)
        return iteration

    def result(self, *, stopped: bool = False) -> AutonomyResult:
        """The result of a run that came to its end, or was stopped."""
        if stopped:
            return self._result("goal_met" if self._met else "stopped", {"stopped": True})
        if self._met:
            return self._result("goal_met", {})
        paused_by = "unreadable_verdicts" if self._unreadable else "max_turns"
        return self._result("budget_paused", {"paused_by": paused_by})

    def partial(self, error: BaseException) -> AutonomyResult:
        """The result so far, for an exception to carry."""
        return self._result("error", {"partial": True}, type(error).__name__)

    def summary(self) -> str:
        """Counts, never content."""
        return f"goal loop: {len(self._verdicts)} turn(s) completed, goal {'' if self._met else 'not '}met"

    def _result(self, reason: str, metadata: dict[str, Any], error: str | None = None) -> AutonomyResult:
        turns = zip(self._outputs, self._verdicts, strict=True)
        return AutonomyResult(
            success=self._met,
            output=self._outputs[-1] if self._outputs else "",
            completion_reason=reason,
            iterations=len(self._verdicts),
            actions=[
                {"iteration": number, "response": output, "met": verdict.met, "reason": verdict.reason}
                for number, (output, verdict) in enumerate(turns, 1)
            ],
            duration_seconds=time.perf_counter() - self._started,
            error=error,
            started_at=self._started_at,
            metadata=metadata,
        )

    @property
    def _met(self) -> bool:
        return bool(self._verdicts) and self._verdicts[-1].met

    @property
    def _unreadable(self) -> bool:
        last = self._verdicts[-_MOST_UNREADABLE:]
        return len(last) == _MOST_UNREADABLE and not any(verdict.readable for verdict in last)
