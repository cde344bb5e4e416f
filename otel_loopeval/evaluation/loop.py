"""The evaluation loop: run an agent, score its answer, feed the verdict back, until it is good enough."""

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from otel_loopeval.evaluation import agents, callbacks, calls, checks
from otel_loopeval.evaluation.results import EvaluationLoopResult, IterationResult
from otel_loopeval.evaluation.state import Ending, LoopState

_log = logging.getLogger(__name__)
_MODES: Final = ("optimize", "review")
# Protects the lazily made judge of every loop; a lock on the loop would make it impossible to copy.
_judge_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A numeric metric's result in the shape of a judge's."""

    score: float
    reasoning: str
    suggestions: list[str] = field(default_factory=list[str])


class EvaluationLoop:
    """Runs an agent until a judge or a metric finds its answer good enough.

    One loop object may run several times at once, in threads and in tasks: no run leaves anything on it.

    Args:
        agent: A function, or an object with a method such as ``chat``, ``run`` or ``invoke``
            (see :mod:`otel_loopeval.evaluation.agents`).
        criteria: What the judge looks for. Empty means overall quality, and is usual with ``metric``.
        threshold: Score at which an answer is good enough, on the judge's scale (1 to 10) or the metric's.
        max_iterations: Iterations to run at most, at least 1.
        mode: ``"optimize"`` stops at the first score at or above the threshold, ``"review"`` runs all
            iterations.
        judge: Any object with ``run(output=..., criteria=...)`` or ``run_async``, returning an object with
            ``score``, ``reasoning`` and ``suggestions``. By default a :class:`Judge`, made on first use.
        on_iteration: Called after each iteration with its :class:`IterationResult`. What it raises is
            logged and ignored, except for ``BaseException``.
        verbose: Log each iteration and print a summary at the end.
        model: Model of the default judge.
        metric: Scores an answer instead of the judge: ``metric(output) -> number``. NaN and infinities
            count as 0.0.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument has a value that is not allowed.
    """

    def __init__(
        self,
        agent: Any,
        criteria: str,
        threshold: float = 8.0,
        max_iterations: int = 5,
        mode: str = "optimize",
        judge: Any = None,
        on_iteration: Callable[[IterationResult], Any] | None = None,
        verbose: bool = False,
        model: str = "gpt-4o-mini",
        metric: Callable[[str], Any] | None = None,
    ) -> None:
        agents.check_agent(agent)
        if mode not in _MODES:
            raise ValueError(f"mode must be 'optimize' or 'review', got {checks.shown(mode)}")
        if judge is not None and not any(callable(getattr(judge, n, None)) for n in ("run", "run_async")):
            raise TypeError(f"judge must have a method run or run_async, got {checks.shown(judge)}")
        self.agent = agent
        self.criteria = checks.text("criteria", criteria)
        self.threshold = checks.finite_number("threshold", threshold)
        self.max_iterations = checks.whole_number("max_iterations", max_iterations)
        self.mode = mode
        self.on_iteration = checks.optional_callable("on_iteration", on_iteration)
        self.verbose = verbose
        self.model = checks.text("model", model)
        self.metric = checks.optional_callable("metric", metric)
        self._judge: Any = judge

    @property
    def judge(self) -> Any:
        """The judge, made on first use."""
        if self._judge is None:
            from otel_loopeval.evaluation.judge import Judge  # noqa: PLC0415  # a metric needs no judge

            with _judge_lock:
                if self._judge is None:
                    self._judge = Judge(criteria=self.criteria, model=self.model)
        return self._judge

    def run(self, prompt: str) -> EvaluationLoopResult:
        """Run the loop.

        An exception of the agent, the judge or the metric reaches the caller as it is, with the result so
        far in its attribute ``partial_result``.

        Args:
            prompt: What to ask the agent. From the second iteration on the last verdict is appended.

        Returns:
            All iterations and the best one.
        """
        state = self._begin()
        with Ending(state.partial, state.summary) as ending:
            while state.goes_on:
                output = self._get_agent_output(prompt, state.number, state.feedback)
                verdict = self._score(output)
                callbacks.notify(self.on_iteration, self._record(state, output, verdict))
        return self._end(state, ending)

    async def run_async(self, prompt: str) -> EvaluationLoopResult:
        """As :meth:`run`, without blocking the event loop.

        Async agents, judges, metrics and callbacks are awaited; sync ones run in a worker thread, in a
        copy of this task's context. A cancelled run leaves a sync part running to its end, since Python
        cannot interrupt a thread. (Outside the task, Python 3.10 shows a new ``CancelledError``; the one with
        ``partial_result`` is its ``__context__``.)
        """
        state = self._begin()
        with Ending(state.partial, state.summary) as ending:
            while state.goes_on:
                output = await self._get_agent_output_async(prompt, state.number, state.feedback)
                verdict = await self._score_async(output)
                await callbacks.notify_async(self.on_iteration, self._record(state, output, verdict))
        return self._end(state, ending)

    def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
        """Ask the agent; ``feedback`` is the verdict on the iteration before."""
        return agents.ask(self.agent, with_feedback(prompt, iteration, feedback))

    async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
        """Async twin of :meth:`_get_agent_output`."""
        return await agents.ask_async(self.agent, with_feedback(prompt, iteration, feedback))

    def _score(self, output: str) -> Any:
        """Score an output: an object with ``score``, ``reasoning`` and ``suggestions``."""
        if self.metric is not None:
            return _metric_score(calls.call(self.metric, output))
        judge = self.judge
        method = getattr(judge, "run", None) or judge.run_async
        return calls.call(method, output=output, criteria=self.criteria)

    async def _score_async(self, output: str) -> Any:
        """Async twin of :meth:`_score`."""
        if self.metric is not None:
            return _metric_score(await calls.call_async(self.metric, output))
        judge = self.judge
        method = getattr(judge, "run_async", None) or judge.run
        return await calls.call_async(method, output=output, criteria=self.criteria)

    def _begin(self) -> LoopState:
        return LoopState(self.threshold, self.max_iterations, self.mode)

    def _record(self, state: LoopState, output: str, verdict: Any) -> IterationResult:
        iteration = state.record(output, verdict)
        if self.verbose:
            number, most = iteration.iteration, self.max_iterations
            _log.info("iteration %d of at most %d: score %g", number, most, iteration.score)
        return iteration

    def _end(self, state: LoopState, ending: Ending) -> EvaluationLoopResult:
        result = state.result(stopped=True) if ending.stopped else state.result()
        if self.verbose:
            result.print_summary()
        return result


def with_feedback(prompt: str, iteration: int, feedback: str) -> str:
    """The prompt of an iteration: from the second on, with the verdict on the one before."""
    if iteration == 1 or not feedback:
        return prompt
    return f"{prompt}\n\nPrevious feedback to address:\n{feedback}"


def _metric_score(value: Any) -> MetricScore:
    score = checks.metric_score(value)
    if not math.isfinite(score):
        _log.warning("metric returned %r, which counts as 0.0", score)
        score = 0.0
    return MetricScore(score=score, reasoning=f"numeric metric: {score:g}")
