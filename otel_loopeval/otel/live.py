"""Runs and iterations while they happen: facts go to the tracker, spans and metrics go out.

A run is an object in the OpenTelemetry context, so that it is found under any sampler and in every task
that the loop starts. The owner of the root sets its health just before it ends: the one public way that
reaches every exporter whatever the order of the processors.
"""

import math
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import INVALID_SPAN, Span

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.health import LoopHealthResult, guard_event_of
from otel_loopeval.otel import _sdk, doom, emission
from otel_loopeval.otel.console import print_verdict
from otel_loopeval.otel.errors import guarded, swallow, warn_once
from otel_loopeval.otel.pipeline import Pipeline, open_spans
from otel_loopeval.runs.dialects.own import root_name
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.verdict import effective_threshold

if TYPE_CHECKING:
    from otel_loopeval.detect import ModelOutput, Observation, ToolCall, UserMessage

_EMPTY = Context()
_UNKNOWN_HEALTH = LoopHealthResult(0, 0, doom_loop_fired=False, guard_interventions=0, total_duration_s=0.0)


class _Node:
    """A run or an iteration in the OpenTelemetry context, with its span.

    ``span`` is None only while the span is being started: that tells the processor, which then sees this
    node in the parent context, that the span is fed by its owner.
    """

    __slots__ = ("_context", "_span_id", "span")

    def __init__(self) -> None:
        self.span: Span | None = None
        self._span_id: int | None = None
        self._context: Context | None = None

    def _enter(
        self, tracer: Any, name: str, parent: Context, attributes: dict[str, Any], start_ns: int
    ) -> None:
        """Start the span and make it and this node current."""
        start_context = _sdk.context_with(parent, _sdk.RUN_KEY, self)
        span = tracer.start_span(name, start_context, attributes=attributes, start_time=start_ns)
        self.span = span
        self._context = _sdk.context_with_span(start_context, span)
        if span.is_recording():
            span_id = self._span_id = span.get_span_context().span_id
            open_spans[span_id] = self  # type: ignore[assignment]
        attach(self._context)


def leave(node: _Node | None, outer: Context) -> None:
    """Make the context current again in which a run or iteration began.

    Whoever made it begin keeps that context and calls this, whatever else may have gone wrong with it. A
    run does not keep it: runs that are begun and abandoned one after the other would keep each other alive.
    No token is detached: a token is refused in another context than it was made in, loudly, and loops may
    end elsewhere than they began. Where the node is not current, nothing is done.
    """
    try:
        current: Any = get_current().get(_sdk.RUN_KEY)
        if node is not None and (current is node or (isinstance(current, Iteration) and current.run is node)):
            attach(outer)
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("leave", error)


class Run(_Node):
    """A loop run in progress.

    ``loop()`` and :func:`current_run` give it to the program; it is safe to use from any thread.
    """

    __slots__ = ("__weakref__", "_detector", "_open", "_pipeline", "_scope", "_stop", "state", "subject")

    def __init__(self, pipeline: Pipeline, state: LoopRun, scope: str = semconv.SCOPE) -> None:
        super().__init__()
        self.state = state
        self._pipeline = pipeline
        self._scope = scope
        self._open: list[Iteration] = []
        self._stop: StopLoop | None = None
        self._detector: Any = None
        self.subject: Any = None  # the loop object that runs, for instrumentations
        state.owner = self

    # What the program may look at and set ------------------------------------------------------------

    @property
    def id(self) -> str:
        """Identifier of the run, unique across processes."""
        return self.state.id

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self.state.agent

    @property
    def mode(self) -> str:
        """``"optimize"``, ``"review"``, ``"goal"`` or ``"agent"``."""
        return self.state.mode

    @property
    @guarded("run.threshold", semconv.DEFAULT_THRESHOLD)
    def threshold(self) -> float:
        """Threshold that the run is judged by, on the judge's scale."""
        return effective_threshold(self.state, self._pipeline.options.policy)

    @property
    def scores(self) -> list[float | None]:
        """Scores so far, one per iteration; None where an iteration has none yet."""
        return [iteration.score for iteration in self.state.iterations]

    @property
    @guarded("run.doom_loop_fired", default=False)
    def doom_loop_fired(self) -> bool:
        """Whether a doom loop has fired in this run or in a run inside it."""
        return self.state.doom_loop_fired

    @property
    @guarded("run.health", _UNKNOWN_HEALTH)
    def health(self) -> LoopHealthResult:
        """The run's health as if it ended now."""
        return self._pipeline.tracker.look(self.state, time_ns()).health

    @property
    def success(self) -> bool | None:
        """The loop's own verdict. None (the default) means: best score at or above the threshold."""
        return self.state.success

    @success.setter
    def success(self, value: bool | None) -> None:
        self.state.success = None if value is None else bool(value)

    @property
    def iteration(self) -> "Iteration | None":
        """The iteration that is going on here, or None."""
        node = get_current().get(_sdk.RUN_KEY)
        if isinstance(node, Iteration) and node.run is self:
            return node
        return self._open[-1] if self._open else None

    def paused(self, reason: str | None = None) -> None:
        """Declare that the run ends now but is not finished: it waits for an approval or a resume.

        Args:
            reason: Why, of low cardinality; it becomes ``loopeval.run.completion_reason``.
        """
        self.state.outcome = semconv.OUTCOME_PAUSED
        self.state.completion_reason = reason

    def stop(self, stop: StopLoop | None = None) -> None:
        """Make the loop end at its next seam, by raising ``StopLoop`` there."""
        self._stop = stop or StopLoop()

    @guarded("run.guard_event")
    def record_guard_event(self, event: Any) -> None:
        """Record that a guard stepped in; see :func:`otel_loopeval.record_guard_event`."""
        self._record(event)

    @guarded("run.observe")
    def observe(self, step: "ToolCall | ModelOutput | UserMessage") -> "Observation | None":
        """Show a step to the run's doom-loop detector.

        Args:
            step: A tool call, a message of the model or of the user.

        Returns:
            What the detector made of it; None if detectors are off, or on an error of ours.
        """
        if not self._pipeline.options.detectors:
            return None
        if self._detector is None:
            from otel_loopeval.detect import DoomLoopDetector  # noqa: PLC0415 - only runs with steps

            self._detector = DoomLoopDetector()
        observation: Observation = self._detector.observe(step)
        if observation.event is not None and observation.event.doom_loop:
            self.record_guard_event(observation.event)
        return observation

    # What happens to it ----------------------------------------------------------------------------------

    @property
    def run(self) -> "Run":
        """Itself: every node in the context has its run."""
        return self

    @property
    def iteration_state(self) -> IterationState | None:
        """None: a run is no iteration."""
        return None

    def begin(self) -> None:
        """Start following the run, and its span."""
        state = self.state
        try:
            tracer = self._pipeline.tracer(self._scope)
            self._enter(
                tracer,
                root_name(state.mode, state.agent),
                get_current(),
                emission.start_attributes(state),
                state.started_ns,
            )
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("run.begin", error)
        if self.span is None:
            self.span = INVALID_SPAN
        try:
            self._pipeline.tracker.start(state)
            self._pipeline.instruments.started(state, self._context or _EMPTY)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("run.started", error)

    def end(self, error: BaseException | None = None, outcome: str | None = None) -> None:
        """End the run: judge it, put its health on its span, count it.

        Args:
            error: What ended the loop, or None if it left by itself.
            outcome: How it ended, where that does not follow from the error.
        """
        recorded = None if self._open else error  # the innermost span records it
        try:
            if self._span_id is not None:
                open_spans.pop(self._span_id, None)
            self.end_iterations(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.end_iterations", problem)
        state, span, context = self.state, self.span or INVALID_SPAN, self._context or _EMPTY
        failed = False
        ended_ns = time_ns()
        verdict = None
        try:
            verdict = self._pipeline.tracker.finish(
                state, ended_ns, outcome=outcome or (None if error is None else outcome_of(error))
            )
            if verdict is None:
                return  # it has ended before: at exit, or in the parent of a forked process
            if span.is_recording():
                span.set_attributes(emission.end_attributes(state, verdict))
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.judge", problem)
        try:
            failed = _fails(error, state)
            if failed and error is not None:
                emission.mark_failed(span, error, record=recorded is not None)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.mark_failed", problem)
        try:
            span.end(ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.end_span", problem)
        try:
            if verdict is not None:
                error_type = emission.error_type(error) if failed and error is not None else None
                self._pipeline.instruments.ended(state, verdict, error_type, context)
                print_verdict(self._pipeline, state, verdict)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.count", problem)
        # The context holds the run and the run held the context; the state and the run hold each other.
        self._context = None
        state.owner = None

    def end_iterations(self, error: BaseException | None = None) -> None:
        """End the iterations that are open, innermost first."""
        for iteration in reversed(list(self._open)):
            iteration.end(error)

    def fill_in_scores(self, scores: list[Any]) -> None:
        """Take the scores of iterations that went by unseen, in order, from the loop's own history."""
        state = self.state
        for number, score in enumerate(scores, start=1):
            if number > len(state.iterations):
                state.begin_iteration(state.active_ns, number)
            iteration = state.iterations[number - 1]
            if iteration.score is None and isinstance(score, (int, float)) and math.isfinite(score):
                iteration.score = float(score)

    def abandon(self) -> None:
        """Let go of everything that keeps other runs alive: the tracker no longer follows this one."""
        if self._span_id is not None:
            open_spans.pop(self._span_id, None)

    def disown(self) -> None:
        """After a fork: the run goes on in the parent, and nothing of it is told from here."""
        self.span = INVALID_SPAN
        for iteration in self._open:
            iteration.span = INVALID_SPAN
        self._open = []

    def check_stop(self) -> None:
        """Raise ``StopLoop`` if somebody asked for it: called at the seams of the loop."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            raise stop

    def _record(self, event: Any) -> None:
        state, iteration = self.state, self.iteration
        if state.closed:
            return
        now_ns = time_ns()
        iteration_state = None if iteration is None else iteration.iteration_state
        guard_event = state.stamp(guard_event_of(event), now_ns, iteration_state)
        with self._pipeline.tracker.lock:
            fired = state.add_guard_event(guard_event)
        span = (self.span if iteration is None else iteration.span) or INVALID_SPAN
        context = self._context or _EMPTY
        if fired or state.interventions <= _GUARD_EVENTS_ON_SPANS:
            emission.emit(
                self._pipeline.options.events,
                span,
                self._pipeline.logger,
                context,
                semconv.EVENT_GUARD,
                emission.guard_event(guard_event),
                guard_event.time_ns or now_ns,
            )
        doom.announce(self._pipeline, state, guard_event, context, fired=fired)


_GUARD_EVENTS_ON_SPANS = 100
"""Guard events of a run that go onto spans: a span keeps 128 events and drops the oldest, among which is
the one that matters. Doom loops that fire are told beyond it."""


class Iteration(_Node):
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
        "output",
        "producing",
        "reasoning",
        "run",
        "scoring",
    )

    def __init__(self, run: Run | None, number: int | None = None) -> None:
        super().__init__()
        self.run = run
        self._number = number
        self._previous: Context | None = None  # what was current before; an iteration ends before its run
        self._score: float | None = None
        self.iteration_state: IterationState | None = None
        self.output: str | None = None
        self.reasoning: str | None = None
        self.findings: Any = None
        self.producing = self.scoring = False

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
        """Start the iteration and its span."""
        run = self.run
        if run is None:
            return
        state = run.state
        try:
            now_ns = time_ns()
            iteration_state = self.iteration_state = state.begin_iteration(now_ns, self._number)
            run._open.append(self)  # noqa: SLF001 - one thing in two classes
            self._previous = get_current()
            self._enter(
                run._pipeline.tracer(run._scope),  # noqa: SLF001
                semconv.SPAN_ITERATION,
                _parent_of_iteration(run),
                {semconv.ITERATION_NUMBER: iteration_state.number},
                now_ns,
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
            if self not in run._open:  # noqa: SLF001
                return  # it has ended before, with its run
            run._open.remove(self)  # noqa: SLF001
            if self._span_id is not None:
                open_spans.pop(self._span_id, None)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.close", problem)
        ended_ns = time_ns()
        try:
            run.state.active_ns = ended_ns
            self._tell(run, state, span, ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.tell", problem)
        try:
            if error is not None and _fails(error, run.state):
                emission.mark_failed(span, error, record=True)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.mark_failed", problem)
        try:
            span.end(ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("iteration.end_span", problem)
        self._context = None

    def _tell(self, run: Run, state: IterationState, span: Span, ended_ns: int) -> None:
        pipeline = run._pipeline  # noqa: SLF001
        if self.output is not None:
            self._show_output(run, state, ended_ns)
        threshold = effective_threshold(run.state, pipeline.options.policy)
        score = state.score
        met = score is not None and score >= threshold
        if span.is_recording():
            attributes = emission.iteration_attributes(
                state, _delta(run.state, state), _count(self.findings), threshold_met=met
            )
            if attributes:
                span.set_attributes(attributes)
        if score is not None:
            emission.emit(
                pipeline.options.events,
                span,
                pipeline.logger,
                self._context,
                semconv.EVENT_EVALUATION_RESULT,
                emission.evaluation_event(score, self.reasoning, threshold_met=met),
                ended_ns,
            )
        if pipeline.options.iteration_metrics:
            ratio = None if score is None or threshold <= 0 else score / threshold
            pipeline.instruments.iteration(
                run.state, (ended_ns - state.started_ns) / 1e9, ratio, self._context or _EMPTY
            )

    def _show_output(self, run: Run, state: IterationState, ended_ns: int) -> None:
        from otel_loopeval.detect import ModelOutput  # noqa: PLC0415 - only runs with outputs

        run.observe(ModelOutput(self.output, start_ns=state.started_ns, end_ns=ended_ns))


def _parent_of_iteration(run: Run) -> Context:
    """What an iteration starts in: where the program is, if that is in the run and in no iteration of it."""
    current = get_current()
    return current if current.get(_sdk.RUN_KEY) is run else run._context or current  # noqa: SLF001


def _fails(error: BaseException | None, run: LoopRun) -> bool:
    """Whether an exception means that the loop failed, as opposed to being stopped, cancelled or paused."""
    return isinstance(error, Exception) and run.outcome != semconv.OUTCOME_PAUSED


def outcome_of(error: BaseException) -> str:
    """The outcome of a run that an exception ended."""
    if isinstance(error, StopLoop):
        return semconv.OUTCOME_STOPPED
    if isinstance(error, Exception):
        return semconv.OUTCOME_FAILED
    # By name, since asyncio and trio have their own and neither need be there.
    if any("Cancel" in kind.__name__ for kind in type(error).__mro__) or isinstance(error, GeneratorExit):
        return semconv.OUTCOME_CANCELLED
    return semconv.OUTCOME_INTERRUPTED


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
    if findings is None:
        return None
    try:
        return len(findings)
    except TypeError:
        return None
