"""Runs while they happen: facts go to the tracker, spans and metrics go out.

A run is an object in the OpenTelemetry context, so that it is found under any sampler and in every task
that the loop starts. The owner of the root sets its health just before it ends: the one public way that
reaches every exporter whatever the order of the processors.
"""

import threading
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry.context import get_current
from opentelemetry.trace import INVALID_SPAN, NoOpTracer

from otel_loopeval import semconv
from otel_loopeval.evaluation.stop import StopLoop
from otel_loopeval.health import LoopHealthResult, guard_event_of
from otel_loopeval.health.wire import as_float, encodable
from otel_loopeval.otel import _sdk, doom, emission
from otel_loopeval.otel.console import print_verdict
from otel_loopeval.otel.errors import guarded, swallow
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.judging import Judging
from otel_loopeval.otel.node import EMPTY_CONTEXT, Node, fails, outcome_of
from otel_loopeval.otel.pipeline import Pipeline, open_spans
from otel_loopeval.runs.dialects.own import root_name
from otel_loopeval.runs.resume import Segment, token_of
from otel_loopeval.runs.run import IterationState, LoopRun
from otel_loopeval.runs.verdict import effective_threshold, effective_token_budget

if TYPE_CHECKING:
    from otel_loopeval.detect import ModelOutput, Observation, ToolCall, UserMessage

_UNKNOWN_HEALTH = LoopHealthResult(0, 0, doom_loop_fired=False, guard_interventions=0, total_duration_s=0.0)

_EVIDENCE = (semconv.EVIDENCE_NONE, semconv.EVIDENCE_ARGUMENTS, semconv.EVIDENCE_FULL)


class Run(Node):
    """A loop run in progress.

    ``loop()`` and :func:`current_run` give it to the program; it is safe to use from any thread.
    """

    __slots__ = (
        "__weakref__",
        "_detector",
        "_weighed",
        "open_iterations",
        "pipeline",
        "recorded_error",
        "scope",
        "state",
        "stopping",
        "subject",
        "tracer",
    )

    def __init__(self, pipeline: Pipeline, state: LoopRun, scope: str = semconv.SCOPE) -> None:
        super().__init__()
        self.state = state
        self.pipeline = pipeline
        self.scope = scope
        self.open_iterations: list[Iteration] = []
        self.stopping: StopLoop | None = None  # what to raise at the next seam
        self.tracer: Any = None
        self._detector: Any = None  # and its lock
        self._weighed: IterationState | None = None  # the iteration of the last tool call
        self.recorded_error = 0  # id of the error that was recorded last: the error itself holds frames
        self.subject: Any = None  # what an instrumentation knows of it: instrumentation.shapes.Driven
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
        return effective_threshold(self.state, self.pipeline.tracker.policy)

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
        return self.pipeline.tracker.look(self.state, time_ns()).health

    @property
    def success(self) -> bool | None:
        """The loop's own verdict. None (the default) means: best score at or above the threshold."""
        return self.state.success

    @success.setter
    def success(self, value: bool | None) -> None:
        self.state.success = None if value is None else bool(value)

    @property
    def iteration(self) -> Iteration | None:
        """The iteration that is going on here, or None."""
        node = get_current().get(_sdk.RUN_KEY)
        if isinstance(node, Judging):
            node = node.iteration
        if isinstance(node, Iteration) and node.run is self:
            return node
        return self.open_iterations[-1] if self.open_iterations else None

    @property
    @guarded("run.resume_token", "")
    def resume_token(self) -> str:
        """What another segment of this run needs to go on with it: ``loop(..., resume=token)``.

        A line of JSON with what the run has done so far (numbers and identifiers, no content) and where
        its root span is. Empty after an error of ours.
        """
        context = None if self.span is None else self.span.get_span_context()
        trace_id, span_id = (0, 0) if context is None else (context.trace_id, context.span_id)
        ended_ns = self.state.active_ns if self.state.closed else time_ns()
        return token_of(self.state, ended_ns, trace_id, span_id)

    def paused(self, reason: str | None = None) -> str:
        """Declare that the run ends now but is not finished: it waits for an approval or a resume.

        Args:
            reason: Why, of low cardinality; it becomes ``loopeval.run.completion_reason``.

        Returns:
            The :attr:`resume_token`, as of now: call this when the last iteration before the pause is over.
        """
        self._declare_paused(reason)
        return self.resume_token

    @guarded("run.paused")
    def _declare_paused(self, reason: str | None) -> None:
        self.state.outcome = semconv.OUTCOME_PAUSED
        self.state.completion_reason = None if reason is None else encodable(str(reason))

    @property
    @guarded("run.over_token_budget", default=None)
    def over_token_budget(self) -> bool | None:
        """Whether the run has used more tokens than its budget; None without a budget."""
        budget = effective_token_budget(self.state, self.pipeline.tracker.policy)
        return None if budget is None else self.state.input_tokens + self.state.output_tokens > budget

    def stop(self, stop: StopLoop | None = None) -> None:
        """Make the loop end at its next seam, by raising ``StopLoop`` there."""
        self.stopping = stop or StopLoop()

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
        if not self.pipeline.options.detectors:
            return None
        if self._detector is None:
            from otel_loopeval.detect import DoomLoopDetector  # noqa: PLC0415 - only runs with steps

            with self.pipeline.tracker.lock:  # tools may end at the same time
                if self._detector is None:
                    self._detector = (DoomLoopDetector(), threading.RLock())
        # The lock keeps the detector's view of the run in one piece; reentrant, since a step may run code.
        detector, lock = self._detector
        with lock:
            observation: Observation = detector.observe(step)
            if hasattr(step, "name"):  # a tool call
                self._weigh(redundant=observation.redundant)
        seen = step.shows
        if _EVIDENCE.index(seen) > _EVIDENCE.index(self.state.evidence):
            self.state.evidence = seen
        if observation.event is not None and observation.event.doom_loop:
            self.record_guard_event(observation.event)
        return observation

    def _weigh(self, *, redundant: bool) -> None:
        """A tool was called: an iteration whose calls all repeat earlier ones is wasted, to an agent."""
        iteration = self.iteration
        state = None if iteration is None else iteration.iteration_state
        if state is not None:
            state.wasted = redundant and (state.wasted or self._weighed is not state)
            self._weighed = state

    # What happens to it ----------------------------------------------------------------------------------

    @property
    def run(self) -> "Run":
        """Itself: every node in the context has its run."""
        return self

    @property
    def iteration_state(self) -> IterationState | None:
        """None: a run is no iteration."""
        return None

    def begin(self, before: Segment | None = None) -> None:
        """Start following the run, and its span.

        Args:
            before: The segment of the run that this one goes on from.
        """
        state = self.state
        try:
            self.tracer = self.pipeline.tracer(self.scope)
            self.enter(
                self.tracer,
                root_name(state.mode, state.agent),
                get_current(),
                emission.start_attributes(state),
                state.started_ns,
                None if before is None else emission.links_to(before.trace_id, before.span_id),
            )
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("run.begin", error)
        try:
            if self.context is None:
                self.enter_without_span(get_current())
            self.pipeline.tracker.start(state)
            self.pipeline.instruments.started(state, self.context or EMPTY_CONTEXT)
            open_spans.drop_closed()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("run.started", error)

    def end(self, error: BaseException | None = None, outcome: str | None = None) -> None:
        """End the run: judge it, put its health on its span, count it.

        Args:
            error: What ended the loop, or None if it left by itself.
            outcome: How it ended, where that does not follow from the error.
        """
        try:
            if self.span_id is not None:
                open_spans.pop(self.span_id, None)
            self.end_iterations(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.end_iterations", problem)
        state, span, context = self.state, self.span or INVALID_SPAN, self.context or EMPTY_CONTEXT
        failed = False
        ended_ns = time_ns()
        verdict = None
        try:
            verdict = self.pipeline.tracker.finish(
                state, ended_ns, outcome=outcome or (None if error is None else outcome_of(error))
            )
            if verdict is None:
                return  # it has ended before: at exit, or in the parent of a forked process
            if self.span_id is not None:
                _sdk.set_clean_attributes(span, emission.end_attributes(state, verdict))
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.judge", problem)
        try:
            failed = fails(error, state)
            if failed and error is not None:
                emission.mark_failed(span, error, record=self.recorded_error != id(error))
                if state.parent is not None and state.parent.owner is not None:
                    state.parent.owner.recorded_error = id(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.mark_failed", problem)
        try:
            span.end(ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.end_span", problem)
        try:
            if verdict is not None:
                error_type = emission.error_type(error) if failed and error is not None else None
                budget = effective_token_budget(state, self.pipeline.tracker.policy)
                self.pipeline.instruments.ended(state, verdict, error_type, context, budget)
                print_verdict(self.pipeline, state, verdict)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("run.count", problem)
        # The context holds the run and the run held the context; the state and the run hold each other.
        self.context = None
        state.owner = None

    def end_iterations(self, error: BaseException | None = None) -> None:
        """End the iterations that are open, innermost first."""
        for iteration in reversed(list(self.open_iterations)):
            iteration.end(error)

    def fill_in_scores(self, scores: list[Any]) -> None:
        """Take the scores of iterations that went by unseen, in order, from the loop's own history."""
        state = self.state
        for number, score in enumerate(scores, start=1):
            if number > len(state.iterations):
                state.begin_iteration(state.active_ns, number)
            iteration = state.iterations[number - 1]
            if iteration.score is None:
                iteration.score = as_float(score)

    def abandon(self) -> None:
        """Let go of everything that keeps other runs alive: the tracker no longer follows this one."""
        for node in (self, *self.open_iterations):
            if node.span_id is not None:
                open_spans.pop(node.span_id, None)

    def disown(self) -> None:
        """After a fork: the run goes on in the parent, and nothing of it is told from here."""
        self.span = INVALID_SPAN
        self.tracer = NoOpTracer()
        for iteration in self.open_iterations:
            iteration.span = INVALID_SPAN
        self.open_iterations = []

    def check_stop(self) -> None:
        """Raise ``StopLoop`` if somebody asked for it: called at the seams of the loop."""
        if self.stopping is not None:
            stop, self.stopping = self.stopping, None
            raise stop

    def _record(self, event: Any) -> None:
        state, iteration = self.state, self.iteration
        if state.closed:
            return
        now_ns = time_ns()
        iteration_state = None if iteration is None else iteration.iteration_state
        guard_event = state.stamp(guard_event_of(event), now_ns, iteration_state)
        with self.pipeline.tracker.lock:
            fired = state.add_guard_event(guard_event)
        context = self.context or EMPTY_CONTEXT
        innermost: Node = self if iteration is None else iteration
        doom.tell(
            self.pipeline, state, guard_event, innermost.span, innermost.context or context, fired=fired
        )
        doom.announce(self.pipeline, state, guard_event, context, fired=fired)
