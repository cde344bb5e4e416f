"""What a loop class looks like to its instrumentation, and what is known of a run that it drives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.live import Run


class Call(NamedTuple):
    """A call of a method of a loop class.

    Attributes:
        method: Name of the method.
        args: Its positional arguments, without ``self``.
        kwargs: Its keyword arguments.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, wherever the caller put it; ``default`` where it gave none."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


class Driven:
    """What an instrumentation knows of a run, besides its telemetry. Dropped as the run ends.

    Attributes:
        loop: The loop object that runs.
        call: The call that began the run.
        verdicts: Number, output and verdict of each iteration that was judged, in order, for a partial
            result. The loop itself holds the same objects as long.
        output: The last answer of the agent, whatever its type.
        error: The last error that the agent raised into the loop, where loops catch errors.
        progress: What else a loop tells as it goes, by name.
    """

    __slots__ = ("call", "error", "loop", "output", "progress", "verdicts")

    def __init__(self, loop: Any, call: Call) -> None:
        self.loop = loop
        self.call = call
        self.verdicts: list[tuple[int, Any, Any]] = []
        self.output: Any = None
        self.error: Exception | None = None
        self.progress: dict[str, Any] = {}


def driven(run: Run | None) -> Driven | None:
    """What an instrumentation knows of a run; None for a run that none drives, and for one that has ended."""
    known = None if run is None else run.subject
    return known if isinstance(known, Driven) else None


def read_verdict(it: Iteration, verdict: Any) -> None:
    """Read a judge's verdict: an object with ``score``, ``reasoning`` and ``suggestions``."""
    score = getattr(verdict, "score", None)
    if score is not None:
        it.score = score
    reasoning = getattr(verdict, "reasoning", None)
    it.reasoning = reasoning if isinstance(reasoning, str) else None
    it.findings = getattr(verdict, "suggestions", None) or ()


def read_answer(it: Iteration, answer: Any) -> None:
    """Take an agent's answer for the detectors, if it is a text."""
    it.output = answer if isinstance(answer, str) else None


def keep_answer(it: Iteration, answer: Any) -> None:
    """The same, and keep it for a partial result."""
    read_answer(it, answer)
    known = driven(it.run)
    if known is not None:
        known.output = answer


def read_loop_result(run: Run, result: Any) -> str | None:
    """Read an ``EvaluationLoopResult``: its own verdict, and the scores that the seams did not see.

    Returns:
        The outcome, if the result tells one.
    """
    success = getattr(result, "success", None)
    if success is not None:
        run.success = bool(success)
    run.fill_in_scores(list(getattr(result, "score_history", None) or ()))
    metadata = getattr(result, "metadata", None)
    if isinstance(metadata, dict) and metadata.get("stopped") is True:  # type: ignore[reportUnknownMemberType]  # any dict
        return semconv.OUTCOME_STOPPED
    return None


def _nothing(*_: Any) -> None:
    return None


def _always(_loop: Any) -> bool:
    return True


def read_number(call: Call) -> int | None:
    """The number of an iteration, from a call that asks the agent as ``(prompt, iteration, ...)``."""
    number = call.argument(1, "iteration")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a loop class looks like to us. By default, like an ``EvaluationLoop``, ours or PraisonAI's.

    Attributes:
        begin: Begins a run for a loop object that is about to run, given the call.
        finish: Takes what the loop's result says, just before the run ends, and returns the outcome if the
            result tells one.
        failure: The error that a result tells of, or None, where a loop catches errors.
        partial: The result so far of a run that ``StopLoop`` ends, or None where there is none to build.
        answer: Takes an agent's answer into the iteration.
        number: The number of the iteration that a call begins, or None for the next one.
        score: Reads a verdict into the iteration.
        judge_failure: How a judge failed that returned this verdict without an exception, or None.
        judges: Whether a call of a scoring method judges anything, given the loop object.
        runs: Names of the methods that run the loop.
        turns: Names of methods that are called as an iteration begins, before the agent is asked. Where a
            class has one, asking the agent begins none.
        asks: Names of the methods that ask the agent.
        scores: Names of the methods that return a verdict on an output.
        notes: Methods whose calls tell something, each with what takes it, given the run and the call.
        coroutines: Names of methods that are asynchronous though their names do not end in ``_async``.
    """

    begin: Callable[[Any, Call], Run]
    finish: Callable[[Run, Any], str | None] = read_loop_result
    failure: Callable[[Run, Any], BaseException | None] = _nothing
    partial: Callable[[Run, StopLoop], Any] = _nothing
    answer: Callable[[Iteration, Any], None] = read_answer
    number: Callable[[Call], int | None] = read_number
    score: Callable[[Iteration, Any], None] = read_verdict
    judge_failure: Callable[[Any], str | None] = _nothing
    judges: Callable[[Any], bool] = _always
    runs: tuple[str, ...] = ("run", "run_async")
    turns: tuple[str, ...] = ()
    asks: tuple[str, ...] = ("_get_agent_output", "_get_agent_output_async")
    scores: tuple[str, ...] = ("_score", "_score_async")
    notes: Mapping[str, Callable[[Run, Call], None]] = field(default_factory=dict[str, Any])
    coroutines: frozenset[str] = frozenset()
