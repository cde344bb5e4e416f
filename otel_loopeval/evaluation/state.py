"""The loop's decisions, apart from how the agent and the judge are called.

:class:`LoopState` holds one run: it is told each output and verdict, and says whether to go on, with which
feedback. :class:`Ending` is the one place that handles what ends a run early, for every kind of loop.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from otel_loopeval.evaluation.results import EvaluationLoopResult, IterationResult, best_of
from otel_loopeval.evaluation.stop import is_stop


class LoopState:
    """One run of an evaluation loop.

    Args:
        threshold: Score at which an iteration is good enough.
        max_iterations: Iterations that may run.
        mode: ``"optimize"`` or ``"review"``.
    """

    def __init__(self, threshold: float, max_iterations: int, mode: str) -> None:
        self._threshold = threshold
        self._max_iterations = max_iterations
        self._mode = mode
        self._iterations: list[IterationResult] = []
        self._started = time.perf_counter()
        self.feedback = ""

    @property
    def number(self) -> int:
        """Number of the iteration that comes next, from 1."""
        return len(self._iterations) + 1

    @property
    def goes_on(self) -> bool:
        """Whether another iteration shall run."""
        if self.number > self._max_iterations:
            return False
        met = bool(self._iterations) and self._iterations[-1].score >= self._threshold
        return not (met and self._mode == "optimize")

    def record(self, output: str, verdict: Any) -> IterationResult:
        """Take an iteration's output and its verdict (``score``, ``reasoning``, ``suggestions``)."""
        iteration = IterationResult(
            iteration=self.number,
            output=output,
            score=usable_score(getattr(verdict, "score", None)),
            reasoning=str(getattr(verdict, "reasoning", None) or ""),
            findings=_texts(getattr(verdict, "suggestions", None)),
            threshold=self._threshold,
        )
        self._iterations.append(iteration)
        self.feedback = iteration.reasoning
        if iteration.findings:
            self.feedback += "\nSuggestions:\n" + "\n".join(f"- {finding}" for finding in iteration.findings)
        return iteration

    def result(self, **metadata: Any) -> EvaluationLoopResult:
        """The result so far."""
        best = best_of(self._iterations)
        return EvaluationLoopResult(
            iterations=list(self._iterations),
            success=best is not None and best.score >= self._threshold,
            total_duration_seconds=time.perf_counter() - self._started,
            threshold=self._threshold,
            mode=self._mode,
            metadata=metadata,
            best=best,
        )

    def partial(self, _error: BaseException) -> EvaluationLoopResult:
        """The result so far, for an exception to carry."""
        return self.result(partial=True)

    def summary(self) -> str:
        """Counts and scores, never content."""
        scores = ", ".join(f"{it.score:g}" for it in self._iterations)
        return f"evaluation loop: {len(self._iterations)} iteration(s) completed, scores [{scores}]"


class Ending(AbstractContextManager["Ending"]):
    """Catches StopLoop, and lets every other exception pass with the partial result on it.

    Args:
        partial: Makes the result so far, given the exception that ends the run.
        summary: Makes a line of counts and scores for the exception's notes.

    Attributes:
        stopped: Whether StopLoop ended the block.
    """

    def __init__(self, partial: Callable[[BaseException], Any], summary: Callable[[], str]) -> None:
        self._partial = partial
        self._summary = summary
        self.stopped = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if is_stop(error):
            self.stopped = True
            return True
        if error is not None:
            _attach(error, self._partial(error), self._summary())
        return False


def usable_score(value: Any) -> float:
    """A judge's score as a finite float, else NaN, which no threshold is at or below."""
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return score if math.isfinite(score) else math.nan


def _texts(value: Any) -> list[str]:
    if not value:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _attach(error: BaseException, partial: Any, note: str) -> None:
    # Exceptions may have slots, or refuse attributes; the exception matters more than what we add to it.
    try:
        error.partial_result = partial  # pyright: ignore[reportAttributeAccessIssue] # ours to add
        notes: list[str] = getattr(error, "__notes__", [])
        if note not in notes:
            error.__notes__ = [*notes, note]  # pyright: ignore[reportAttributeAccessIssue] # as add_note(), on 3.10 too
    except Exception:  # noqa: BLE001, S110  # see above
        pass
