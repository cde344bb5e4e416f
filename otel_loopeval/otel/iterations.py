"""An iteration while it happens."""

import functools
import math
from collections.abc import Callable
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, Span

from otel_loopeval import semconv
from otel_loopeval.otel import _sdk, emission, stepping
from otel_loopeval.otel.errors import swallow, warn_once
from otel_loopeval.otel.judging import Judging
from otel_loopeval.otel.node import EMPTY_CONTEXT, Node, fails, leave
from otel_loopeval.otel.pipeline import open_spans
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.verdict import effective_threshold

if TYPE_CHECKING:
    from otel_loopeval.otel.live import Run

F = TypeVar("F", bound=Callable[..., Any])


class Iteration(Node):
    """One iteration of a run.

    Attributes:
        run: The run, or None outside of any run: then nothing goes out, and the score is only kept.
        output: What the agent answered. Not exported; our detectors look for repetition in it.
        reasoning: The judge's explanation. Exported only with content capture.
        findings: The judge's findings or suggestions; only their number is exported.
    """

    __slots__ = (
        "_number",
        "_previous",
        "_score",
        "findings",
        "iteration_state",
        "open_judgings",
        "output",
        "producing",
        "reasoning",
        "run",
        "scoring",
    )

    def __init__(self, run: "Run | None", number: int | None = None) -> None:
        self.span = self.span_id = self.context = None  # not super().__init__(): the hot path
        self.run = run
        self._number = number
        self._previous: Context | None = None  # what was current before; an iteration ends before its run
        self._score: float | None = None
        self.iteration_state: IterationState | None = None
        self.output: str | None = None
        self.reasoning: str | None = None
        self.findings: Any = None
        self.producing = self.scoring = False
        self.open_judgings: list[Judging] = []

    def __enter__(self) -> "Iteration":  # noqa: PYI034 - Self is not in Python 3.10
        try:
            node: Any = get_current().get(_sdk.RUN_KEY)
            if node is not None:
                self.run = node.run
                self.begin()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("iteration.enter", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run = self.run
        if run is None:
            return
        try:
            self.end(error)
            if error is None and run.stopping is not None:
                run.check_stop()
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.exit", problem)

    async def __aenter__(self) -> "Iteration":  # noqa: PYI034 - as above
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Decorate a function: every call is an iteration of the run that it is called in."""
        return stepping.decorate(function, functools.partial(_begin, self._number))

    def evaluating(self) -> Judging:
        """Follow the judging of this iteration's output: ``with it.evaluating(): it.score = judge(output)``.

        It becomes a span ``evaluate`` under the iteration, and the tokens of the model calls inside it are
        told apart from the agent's. A context manager, ``with`` or ``async with``, for one use.
        """
        return Judging(self)

    @property
    def state(self) -> LoopRun:
        """The state of its run."""
        if self.run is None:
            raise LookupError("an iteration outside of a run has no state")
        return self.run.state

    @property
    def number(self) -> int:
        """Its number, from 1; 0 outside of any run."""
        return 0 if self.iteration_state is None else self.iteration_state.number

    @property
    def score(self) -> float:
        """Its score on the judge's scale; 0.0 as long as it has none, so that comparisons work."""
        state = self.iteration_state
        score = self._score if state is None else state.score
        return 0.0 if score is None else score

    @score.setter
    def score(self, value: Any) -> None:
        try:
            number = float(value)
        except Exception:  # noqa: BLE001 - a score comes from a judge, which may answer anything
            warn_once(
                "otel-loopeval: a score must be a number, got a %s; the iteration counts as not scored",
                type(value).__name__,
            )
            return
        self._score = number if math.isfinite(number) else None
        if self.iteration_state is not None:
            self.iteration_state.score = self._score

    def begin(self) -> None:
        """Start the iteration and its span, unless its run was asked to stop.

        Raises:
            StopLoop: Its run was asked to stop: the beginning of an iteration is a seam of the loop.
        """
        run = self.run
        if run is None:
            return
        if run.stopping is not None:
            run.check_stop()
        if self.iteration_state is not None:  # the object is used again: nothing of the last time stays
            self.__init__(run, self._number)
        try:
            now_ns = time_ns()
            with run.pipeline.tracker.lock:  # parallel iterations get numbers of their own
                state = self.iteration_state = run.state.begin_iteration(now_ns, self._number)
            run.recorded_error = 0  # the loop went on after it: the next error may be at the same address
            run.open_iterations.append(self)
            current = self._previous = get_current()
            # Its parent is where the program is, if that is in the run and in no iteration of it.
            parent = current if current.get(_sdk.RUN_KEY) is run else run.context or current
            self.enter(
                run.tracer, semconv.SPAN_ITERATION, parent, {semconv.ITERATION_NUMBER: state.number}, now_ns
            )
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("iteration.begin", error)
        if self.span is None:
            self.span = INVALID_SPAN

    def end(self, error: BaseException | None = None) -> None:
        """End the iteration: its score goes out, its span ends.

        Args:
            error: What ended it, or None.
        """
        run, span, state = self.run, self.span, self.iteration_state
        if run is None or span is None or state is None:
            return
        if self._previous is not None:
            leave(self, self._previous)
        try:
            if run.open_iterations[-1:] == [self]:
                run.open_iterations.pop()
            elif self in run.open_iterations:
                run.open_iterations.remove(self)
            else:
                return  # it has ended before, with its run
            if self.span_id is not None:
                open_spans.pop(self.span_id, None)
            for judging in reversed(self.open_judgings[:]):
                judging.close(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.close", problem)
        ended_ns = time_ns()
        try:
            run.state.active_ns = ended_ns
            self._tell(run, state, span, ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.tell", problem)
        try:
            if error is not None and fails(error, run.state):
                emission.mark_failed(span, error, record=run.recorded_error != id(error))
                run.recorded_error = id(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.mark_failed", problem)
        try:
            span.end(ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.end_span", problem)
        self.context = None

    def _tell(self, run: "Run", state: IterationState, span: Span, ended_ns: int) -> None:
        pipeline = run.pipeline
        if self.output is not None:
            self._show_output(run, state, ended_ns)
        threshold = effective_threshold(run.state, pipeline.tracker.policy)
        score = state.score
        met = score is not None and score >= threshold
        if self.span_id is not None:
            attributes = emission.iteration_attributes(
                state,
                _delta(run.state, state),
                None if self.findings is None else _count(self.findings),
                threshold_met=met,
            )
            if attributes:
                _sdk.set_clean_attributes(span, attributes)
        if score is not None:
            emission.emit(
                pipeline.options.events,
                span,
                pipeline.logger,
                self.context,
                semconv.EVENT_EVALUATION_RESULT,
                emission.evaluation_event(score, threshold_met=met),
                ended_ns,
                None if self.reasoning is None else (semconv.GEN_AI_EVALUATION_EXPLANATION, self.reasoning),
            )
        if pipeline.options.iteration_metrics:
            ratio = None if score is None or threshold <= 0 else score / threshold
            pipeline.instruments.iteration(
                run.state, (ended_ns - state.started_ns) / 1e9, ratio, self.context or EMPTY_CONTEXT
            )

    def _show_output(self, run: "Run", state: IterationState, ended_ns: int) -> None:
        from otel_loopeval.detect import ModelOutput  # noqa: PLC0415 - only runs with outputs

        run.observe(ModelOutput(self.output, start_ns=state.started_ns, end_ns=ended_ns))


def _begin(number: int | None) -> Iteration:
    """Begin an iteration of the current run, for a decorated function."""
    it = Iteration(None, number)
    it.__enter__()
    return it


def _delta(run: LoopRun, state: IterationState) -> float | None:
    """Change of the score since the iteration before, rounded as the specification has it."""
    iterations = run.iterations
    if state.score is None or len(iterations) < 2:  # noqa: PLR2004 - two make a difference
        return None
    if iterations[-1] is state:
        previous = iterations[-2]
    else:
        position = iterations.index(state)
        if position == 0:
            return None
        previous = iterations[position - 1]
    return None if previous.score is None else round(state.score - previous.score, 4)


def _count(findings: Any) -> int | None:
    try:
        return len(findings)
    except TypeError:
        return None
