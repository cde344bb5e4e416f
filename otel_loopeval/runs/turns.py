"""The turns of an agent: what its model said, which tools it called, what they brought, what only repeated.

A turn is a call of the model with the tool calls that it asked for. Spans tell of it in any of these ways,
and often in several at once: a span for the model's call and one for each tool's, or the model's calls alone
with the tool calls and their results in its messages, or tools inside the span of the model. Wrappers tell
the same call again, around it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from otel_loopeval import semconv
from otel_loopeval.detect import DoomLoopDetector, ModelOutput, ToolCall, UserMessage
from otel_loopeval.detect.fingerprint import as_word, is_word
from otel_loopeval.health.drafts import quick
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import Answer, Asked, Message, Score, ToolUse
from otel_loopeval.runs.dialects.values import text_of

if TYPE_CHECKING:
    from otel_loopeval.detect.steps import Step
    from otel_loopeval.health.guards import GuardEvent
    from otel_loopeval.runs.run import IterationState, LoopRun
    from otel_loopeval.runs.spans import SpanData

_EVIDENCE: Final = (
    semconv.EVIDENCE_NONE,
    semconv.EVIDENCE_FINGERPRINT,
    semconv.EVIDENCE_ARGUMENTS,
    semconv.EVIDENCE_FULL,
)
_new_call, _new_output = quick(ToolCall), quick(ModelOutput)
_MAX_ASKED: Final = 256
"""Tool calls of one turn that are waited for."""
_MAX_OPEN: Final = 4_096
"""Open spans of a run that are known to have a call inside."""


class Turn:
    """One turn.

    Attributes:
        number: Its number, from 1; 0 for what comes before the first.
        iteration: The iteration of the run that it is; None where turns are no iterations.
        steps: For each of its tool calls, whether it only repeated the one before.
        echoes: Whether its message only repeated the one before.
    """

    __slots__ = ("echoes", "iteration", "number", "steps")

    def __init__(self, number: int, iteration: "IterationState | None") -> None:
        self.number = number
        self.iteration = iteration
        self.steps: list[bool] = []
        self.echoes = False

    def weigh(self) -> None:
        """Say whether it is wasted: all its steps only repeated earlier ones."""
        if self.iteration is not None:
            self.iteration.wasted = all(self.steps) if self.steps else self.echoes


@dataclass(slots=True)
class _Waiting:
    """A tool call that the model asked for, of which the result is not known."""

    asked: Asked
    turn: Turn
    use: ToolUse | None = None
    start_ns: int | None = None
    end_ns: int | None = None


class _Inside:
    """What is known to be inside an open span."""

    __slots__ = ("facts", "models", "tools")

    def __init__(self) -> None:
        self.facts = 0
        self.models = 0
        self.tools: list[str] = []


_NOTHING_INSIDE: Final = _Inside()
"""Shared: nobody may change it."""


class Turns:
    """What the spans inside a run tell of its turns.

    Args:
        run: The run.
        counts: Whether a turn is an iteration of the run: so it is where somebody else's agent is the run.
        detects: Whether the steps go to a detector here.
        speaks: Whether the model's messages are steps; where the run's owner shows them itself, they are not.

    Attributes:
        count: Turns so far.
        facts: Calls of models and tools so far, wrappers counted once.
        tools: Whether a tool was called or asked for.
        children: When the runs inside it began, in nanoseconds since the epoch.
        inner_outcome: How the last to end of the runs inside it ended; None before.
        inner_evidence: What the detectors could see of that one.
        told: Detected events that a span will tell too, by kind, tool and rule.
    """

    __slots__ = (
        "_detector",
        "_inside",
        "_tool_spans",
        "_user",
        "_waiting",
        "children",
        "count",
        "counts",
        "current",
        "detects",
        "facts",
        "inner_evidence",
        "inner_outcome",
        "run",
        "speaks",
        "told",
        "tools",
    )

    def __init__(self, run: "LoopRun", *, counts: bool, detects: bool, speaks: bool = True) -> None:
        self.run = run
        self.counts = counts
        self.detects = detects
        self.speaks = speaks
        self.count = self.facts = 0
        self.tools = self._tool_spans = self._user = False
        self.children: list[int] = []
        self.inner_outcome: str | None = None
        self.inner_evidence = semconv.EVIDENCE_NONE
        self.told: Counter[tuple[str, str | None, str | None]] = Counter()
        self.current = Turn(0, None)
        self._waiting: list[_Waiting] = []
        self._inside: dict[int, _Inside] = {}
        self._detector: DoomLoopDetector | None = None

    @property
    def loops(self) -> bool:
        """Whether this is an agent at work, and not a call of a model alone."""
        return self.count >= (1 if self._tool_spans else 2) and self.tools

    # Where calls are ------------------------------------------------------------------------------------

    def contains(self, span_id: int) -> int:
        """How many calls are known to be inside an open span."""
        inside = self._inside.get(span_id)
        return 0 if inside is None else inside.facts

    def leave(self, span: "SpanData") -> None:
        """A span that is no call has ended: what is inside it is inside its parent."""
        inside = self._inside.pop(span.span_id, None)
        if inside is not None:
            self._hand_up(span.parent_id, inside)

    def _hand_up(self, parent_id: int | None, inside: _Inside) -> None:
        if parent_id is None:
            return
        around = self._inside.get(parent_id)
        if around is None:
            if len(self._inside) >= _MAX_OPEN:
                return
            around = self._inside[parent_id] = _Inside()
        around.facts += inside.facts
        around.models += inside.models
        around.tools += inside.tools[: _MAX_ASKED - len(around.tools)]

    # What calls bring ------------------------------------------------------------------------------------

    def model_ended(self, span: "SpanData") -> "list[tuple[Step, Turn]]":
        """A call of the model has ended.

        Returns:
            The steps that are complete with it, each with its turn.
        """
        inside = self._inside.pop(span.span_id, None) or _Inside()
        wraps, asked_inside = inside.models > 0, list(inside.tools)
        if not wraps:
            inside.models = 1
            inside.facts += 1
            self.facts += 1
        self._hand_up(span.parent_id, inside)
        message = reading.output_of(span)
        if wraps:
            return self._enrich(span, message)
        steps = self._answers(span)
        if self._user and reading.asks_user(span):
            steps.append((UserMessage(span.start_ns), self.current))
        self.count += 1
        run = self.run
        turn = Turn(self.count, run.begin_iteration(span.start_ns) if self.counts else None)
        moved = min(len(asked_inside), len(self.current.steps))
        if moved:  # the tools were called inside the model's span, and so before its end
            turn.steps = self.current.steps[-moved:]
            del self.current.steps[-moved:]
            self.current.weigh()
            turn.weigh()
        self.current = turn
        self.tools = self.tools or reading.calls_tools(span.attributes)
        self._listen(message, asked_inside)
        steps.append((self._output(span, message), turn))
        return steps

    def tool_ended(self, span: "SpanData") -> "list[tuple[Step, Turn]]":
        """A call of a tool has ended.

        Returns:
            The steps that are complete with it, each with its turn.
        """
        inside = self._inside.pop(span.span_id, None) or _NOTHING_INSIDE
        use = reading.tool_of(span)
        wraps = use.name in inside.tools
        around = _Inside()  # an agent that is called as a tool has models of its own
        around.facts, around.tools = inside.facts + (not wraps), [*inside.tools, use.name or ""]
        self._hand_up(span.parent_id, around)
        if wraps:
            return []
        self.facts += 1
        self.tools = self._tool_spans = True
        self._user = False
        waiting = self._waited_for(use.id, use.name)
        error = reading.error_of(span) or use.error
        turn = self.current if waiting is None else waiting.turn
        if waiting is not None:
            if use.arguments is None:
                use = use._replace(arguments=waiting.asked.arguments)
            if (
                use.result is None
                and error is None
                and semconv.STEP_RESULT_FINGERPRINT not in span.attributes
            ):
                waiting.use, waiting.start_ns, waiting.end_ns = use, span.start_ns, span.end_ns
                return []  # what it brought may be in the next message to the model
            self._waiting.remove(waiting)
        return [(self._tool_call(span, use, error, turn), turn)]

    def end(self) -> "list[tuple[Step, Turn]]":
        """The run ends: the steps that were waiting for their results go without."""
        steps: list[tuple[Step, Turn]] = [
            (_call(waiting, None), waiting.turn) for waiting in self._waiting if waiting.use is not None
        ]
        self._waiting = []
        self._inside = {}
        if self.counts and not self.count:
            for start_ns in self.children:  # an agent that only calls agents: each is a turn
                self.run.begin_iteration(start_ns)
        return steps

    def score(self, score: Score) -> None:
        """Somebody judged the agent's work."""
        if self.current.iteration is not None and score.value is not None:
            self.current.iteration.score = score.value
        if score.passed is not None and self.counts:
            self.run.success = score.passed

    def observe(self, step: "Step", turn: Turn) -> "tuple[GuardEvent, bool] | None":
        """Show a step to the detector.

        Returns:
            The event, if the step completes a doom loop, and whether the doom loop is a new one.
        """
        if not self.detects:
            return None
        if self._detector is None:
            self._detector = DoomLoopDetector()
        observation = self._detector.observe(step)
        self.see(step)
        if isinstance(step, ToolCall):
            turn.steps.append(observation.redundant)
            if len(turn.steps) > _MAX_ASKED:
                turn.steps[:2] = [turn.steps[0] and turn.steps[1]]
            turn.weigh()
        elif isinstance(step, ModelOutput):
            turn.echoes = observation.redundant
            turn.weigh()
        event = observation.event
        if event is None or not event.doom_loop:
            return None
        event = self.run.stamp(event, self.run.active_ns, turn.iteration)
        self.told[event.kind, event.tool, event.rule] += 1
        return event, self.run.add_guard_event(event)

    def see(self, step: "Step") -> None:
        """Note how much of the run's steps can be seen."""
        if self.run.evidence == semconv.EVIDENCE_FULL:
            return
        shows = step.shows
        if shows == semconv.EVIDENCE_NONE:
            return
        if isinstance(step, ToolCall) and _is_word(step.arguments):
            shows = semconv.EVIDENCE_FINGERPRINT
        if _EVIDENCE.index(shows) > _EVIDENCE.index(self.run.evidence):
            self.run.evidence = shows

    def was_told(self, event: "GuardEvent") -> bool:
        """Whether an event that a span tells is one that was detected here: it counts once."""
        key = (event.kind, event.tool, event.rule)
        if event.source != semconv.SOURCE_DETECTOR or not self.told[key]:
            return False
        self.told[key] -= 1
        return True

    # In detail -------------------------------------------------------------------------------------------

    def _enrich(self, span: "SpanData", message: Message | None) -> "list[tuple[Step, Turn]]":
        """A wrapper tells the call again: it may tell what the call inside it did not."""
        turn = self.current
        if message is None or self._waiting or turn.steps or not message.asked:
            return []
        self._listen(message, [])
        return [(self._output(span, message), turn)] if message.text else []

    def _listen(self, message: Message | None, called: list[str]) -> None:
        if self._waiting:
            self._waiting = [waiting for waiting in self._waiting if waiting.use is not None]
        asked = () if message is None else message.asked
        self._user = message is not None and not asked and not self.counts
        for call in asked[:_MAX_ASKED]:
            self.tools = True
            if call.name in called:
                called.remove(call.name)
            else:
                self._waiting.append(_Waiting(call, self.current))

    def _output(self, span: "SpanData", message: Message | None) -> ModelOutput:
        text = message.text if message is not None and self.speaks else None
        return _new_output(text, turn=self.current.number, start_ns=span.start_ns, end_ns=span.end_ns)

    def _answers(self, span: "SpanData") -> "list[tuple[Step, Turn]]":
        """The steps of the turn before, with the results that the model is told now."""
        if not self._waiting:
            return []
        steps: list[tuple[Step, Turn]] = []
        answers = reading.answers_of(span)
        # Where tools have spans, what was asked for and has none was never called.
        waiting = [call for call in self._waiting if call.use is not None or not self._tool_spans or answers]
        for call in waiting:
            answer = _take(answers, call.asked)
            if answer is None and call.use is None and self._tool_spans:
                continue
            if call.use is None:
                call.start_ns, call.end_ns = None, span.start_ns
                self.facts += 1
            steps.append((_call(call, answer), call.turn))
        self._waiting = []
        return steps

    def _waited_for(self, identifier: str | None, name: str | None) -> _Waiting | None:
        if not self._waiting:
            return None
        waiting = [call for call in self._waiting if call.use is None]
        if identifier is not None:
            found = next((call for call in waiting if call.asked.id == identifier), None)
            if found is not None:
                return found
            waiting = [call for call in waiting if call.asked.id is None]
        return next((call for call in waiting if call.asked.name == name), None)

    def _tool_call(self, span: "SpanData", use: ToolUse, error: Any, turn: Turn) -> ToolCall:
        arguments, result = use.arguments, use.result
        if arguments is None:
            told = text_of(span.attributes.get(semconv.STEP_FINGERPRINT))
            brought = text_of(span.attributes.get(semconv.STEP_RESULT_FINGERPRINT))
            if told is not None:
                arguments = as_word(told)
                result = as_word(brought) if brought is not None and result is None else result
        return _new_call(
            use.name or span.name,
            arguments,
            None if error is not None else result,
            error,
            turn=turn.number,
            start_ns=span.start_ns,
            end_ns=span.end_ns,
        )


def _is_word(arguments: Any) -> bool:
    return isinstance(arguments, str) and is_word(arguments)


def _call(waiting: _Waiting, answer: Answer | None) -> ToolCall:
    use = waiting.use
    return _new_call(
        waiting.asked.name if use is None or use.name is None else use.name,
        waiting.asked.arguments if use is None else use.arguments,
        None if answer is None else answer.value,
        None if answer is None else answer.error,
        turn=waiting.turn.number,
        start_ns=waiting.start_ns,
        end_ns=waiting.end_ns,
    )


def _take(answers: list[Answer], asked: Asked) -> Answer | None:
    """The answer to a call, by its id, else by the tool's name, else by order; it is taken out."""
    told = [(answer.id, answer.name) for answer in answers]
    if asked.id is not None and any(identifier == asked.id for identifier, _ in told):
        return answers.pop([identifier for identifier, _ in told].index(asked.id))
    for name in (asked.name, None):
        for position, (identifier, named) in enumerate(told):
            if named == name and (asked.id is None or identifier is None):
                return answers.pop(position)
    return None
