"""The goal loop: run an agent turn after turn until an independent judge finds its goal met."""

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from otel_loopeval.evaluation import agents, callbacks, calls, checks
from otel_loopeval.evaluation.autonomy import AutonomyResult
from otel_loopeval.evaluation.criteria import GoalCriteria
from otel_loopeval.evaluation.errors import UnreadableVerdictError
from otel_loopeval.evaluation.goal_state import GoalState
from otel_loopeval.evaluation.results import IterationResult
from otel_loopeval.evaluation.state import Ending
from otel_loopeval.evaluation.verdicts import GoalVerdict

_log = logging.getLogger(__name__)
_UNREADABLE: Final = GoalVerdict(met=False, reason="The judge's answer could not be read.", readable=False)
_judge_lock = threading.Lock()  # protects the lazily made judge of every loop


class GoalLoop:
    """Runs an agent until a judge finds its goal met, or the turns run out, which is a pause.

    One loop object may run several times at once: no run leaves anything on it.

    Args:
        agent: A function, or an object with a method such as ``chat``, ``run`` or ``invoke``
            (see :mod:`otel_loopeval.evaluation.agents`).
        goal: What is to be reached.
        criteria: What "reached" means in detail.
        max_turns: Turns to run at most, at least 1.
        judge: Says after each turn whether the goal is met: an object with
            ``gate(output=..., goal=..., criteria=...)`` or ``gate_async``, such as a :class:`Judge`, or a
            function of the output. Either returns a bool or an object with ``met`` and ``reason``. By
            default a :class:`Judge`, made on first use.
        model: Model of the default judge.
        on_iteration: Called after each turn with an :class:`IterationResult` that scores 1 if the goal is
            met, else 0. What it raises is logged and ignored, except for ``BaseException``.
        verbose: Log each turn.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument has a value that is not allowed.
    """

    def __init__(
        self,
        agent: Any,
        goal: str,
        criteria: GoalCriteria | None = None,
        max_turns: int = 20,
        *,
        judge: Any = None,
        model: str = "gpt-4o-mini",
        on_iteration: Callable[[IterationResult], Any] | None = None,
        verbose: bool = False,
    ) -> None:
        agents.check_agent(agent)
        if not checks.text("goal", goal).strip():
            raise ValueError(f"goal must be a non-empty string, got {checks.shown(goal)}")
        if criteria is not None and not isinstance(criteria, GoalCriteria):  # pyright: ignore[reportUnnecessaryIsInstance] # users may have no type checker
            raise TypeError(f"criteria must be a GoalCriteria or None, got {checks.shown(criteria)}")
        if judge is not None and not any(
            callable(method)
            for method in (judge, getattr(judge, "gate", None), getattr(judge, "gate_async", None))
        ):
            raise TypeError(
                f"judge must be a function or have a method gate or gate_async, got {checks.shown(judge)}"
            )
        self.agent = agent
        self.goal = goal
        self.criteria = criteria
        self.max_turns = checks.whole_number("max_turns", max_turns)
        self.model = checks.text("model", model)
        self.on_iteration = checks.optional_callable("on_iteration", on_iteration)
        self.verbose = verbose
        self._judge: Any = judge

    @property
    def judge(self) -> Any:
        """The judge, made on first use."""
        if self._judge is None:
            from otel_loopeval.evaluation.judge import Judge  # noqa: PLC0415  # a function needs no Judge

            with _judge_lock:
                if self._judge is None:
                    self._judge = Judge(model=self.model, temperature=0.0)
        return self._judge

    def run(self, prompt: str) -> AutonomyResult:
        """Run the loop.

        An exception of the agent or the judge reaches the caller as it is, with the result so far in its
        attribute ``partial_result``.

        Args:
            prompt: The task. Each turn's prompt restates it with the goal, its criteria and why it is not
                met yet.

        Returns:
            The last output, and why the loop ended.
        """
        state = GoalState(self.max_turns)
        with Ending(state.partial, state.summary) as ending:
            while state.goes_on:
                number = state.number
                output = self._get_agent_output(prompt, number, state.reason)
                verdict = self._goal_gate(output, number)
                callbacks.notify(self.on_iteration, self._record(state, output, verdict))
        return state.result(stopped=ending.stopped)

    async def run_async(self, prompt: str) -> AutonomyResult:
        """As :meth:`run`, without blocking the event loop."""
        state = GoalState(self.max_turns)
        with Ending(state.partial, state.summary) as ending:
            while state.goes_on:
                number = state.number
                output = await self._get_agent_output_async(prompt, number, state.reason)
                verdict = await self._goal_gate_async(output, number)
                await callbacks.notify_async(self.on_iteration, self._record(state, output, verdict))
        return state.result(stopped=ending.stopped)

    def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
        """Ask the agent; ``feedback`` is why the goal was not met at the turn before."""
        return agents.ask(self.agent, self._turn_prompt(prompt, iteration, feedback))

    async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
        """Async twin of :meth:`_get_agent_output`."""
        return await agents.ask_async(self.agent, self._turn_prompt(prompt, iteration, feedback))

    def _goal_gate(self, output: str, iteration: int) -> GoalVerdict:  # noqa: ARG002  # for instrumentations
        """Judge a turn: an object with ``met`` and ``reason``."""
        try:
            return _verdict(calls.call(self._gate(output, "gate", "gate_async")))
        except UnreadableVerdictError:
            return _UNREADABLE

    async def _goal_gate_async(self, output: str, iteration: int) -> GoalVerdict:  # noqa: ARG002  # as above
        """Async twin of :meth:`_goal_gate`."""
        try:
            return _verdict(await calls.call_async(self._gate(output, "gate_async", "gate")))
        except UnreadableVerdictError:
            return _UNREADABLE

    def _gate(self, output: str, preferred: str, other: str) -> Callable[[], Any]:
        judge = self.judge
        method = getattr(judge, preferred, None) or getattr(judge, other, None)
        if method is None:
            return functools.partial(judge, output)
        return functools.partial(method, output=output, goal=self.goal, criteria=self.criteria)

    def _turn_prompt(self, prompt: str, iteration: int, feedback: str) -> str:
        # Restates everything, since the agent may be a plain function that remembers nothing.
        parts = [prompt, f"GOAL: {self.goal}", *(self.criteria.lines() if self.criteria else ())]
        if iteration > 1:
            parts.append("The goal is not met yet. Keep working until it is.")
            if feedback:
                parts.append(f"Reason it is not met yet: {feedback}")
        return "\n\n".join(parts)

    def _record(self, state: GoalState, output: str, verdict: Any) -> IterationResult:
        iteration = state.record(output, _verdict(verdict))
        if self.verbose:
            met = "met" if verdict.met else "not met"
            _log.info("turn %d of at most %d: goal %s", iteration.iteration, self.max_turns, met)
        return iteration


def _verdict(value: Any) -> GoalVerdict:
    """What a judge returned, as a verdict: a bool, or an object with ``met`` and perhaps ``reason``."""
    if isinstance(value, GoalVerdict):
        return value
    if isinstance(value, bool):
        return GoalVerdict(value)
    met = getattr(value, "met", None)
    if not isinstance(met, bool):
        raise TypeError(f"judge must return a bool or an object with a bool met, got {checks.shown(value)}")
    return GoalVerdict(met, str(getattr(value, "reason", None) or ""))
