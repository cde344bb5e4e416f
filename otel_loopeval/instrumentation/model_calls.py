"""A model call while it goes on: its span, its tokens, and what the detectors are shown of it.

The tokens of a call inside a run are read off the answer and given to the run at once, whoever records the
span and whatever a sampler makes of it. So that nobody counts them again, spans that others start inside the
call find a stand-in of the span around it as their parent: it has the same identity, and tells the processor
to look away. What is around the call and reports the same usage later is noted as counted.
"""

import inspect
import threading
from contextvars import ContextVar
from itertools import count
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import attach, get_current
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, get_current_span

from otel_loopeval.detect import ModelOutput
from otel_loopeval.instrumentation import genai
from otel_loopeval.instrumentation.answers import Answer, field
from otel_loopeval.instrumentation.streams import watched
from otel_loopeval.otel import _sdk, emission
from otel_loopeval.otel.errors import swallow
from otel_loopeval.otel.options import captures_content
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.otel.spending import count_span
from otel_loopeval.runs.usage import seller

if TYPE_CHECKING:
    from otel_loopeval.otel.live import Run

OURS: Final = "ours"
THEIRS: Final = "theirs"
LATER: Final = "later"
"""Who records a call: we do, somebody else does, or that is seen when it has been made."""

ENDING: Final = "otel-loopeval-stream"
"""Name of the threads that end calls whose streams became garbage at a bad moment."""
_LOCKING: Final = ("opentelemetry.", "otel_loopeval.runs.", "otel_loopeval.detect.")

_numbers = count(1)


class Turn:
    """A message of the model, and the tool calls that it asked for.

    Attributes:
        number: Tells turns apart, in this process.
        text: The message; None where there was none or nobody looks.
        start_ns: When the model was called, in nanoseconds since the epoch.
        end_ns: When it had answered, or None while it has not.
        shown: Whether the detectors have been shown it.
    """

    __slots__ = ("end_ns", "number", "shown", "start_ns", "text")

    def __init__(self, start_ns: int) -> None:
        self.number = next(_numbers)
        self.text: str | None = None
        self.start_ns = start_ns
        self.end_ns: int | None = None
        self.shown = False

    def show(self, run: "Run", agent: str | None) -> None:
        """Show the message to the run's detectors, once."""
        if not self.shown:
            self.shown = True
            run.observe(ModelOutput(self.text or None, agent, self.number, self.start_ns, self.end_ns))


current_turn: ContextVar[Turn | None] = ContextVar("otel_loopeval_turn", default=None)
"""The model's last message here: tool calls that follow belong to it."""

current_call: ContextVar["ModelCall | None"] = ContextVar("otel_loopeval_model_call", default=None)
"""The model call that is being made here."""


class ModelCall:
    """One call of a model.

    Args:
        request: What the model is asked.
        scope: Instrumentation scope of the span.
        recorder: Who records it, :data:`OURS`, :data:`THEIRS` or :data:`LATER`.
        shields: Whether others must not write on our span, which they find as the current one.

    Attributes:
        covered: Whether somebody else has been seen to record it.
        parent: Where spans of others belong that hear of the call afterwards: the stand-in, or None.
    """

    __slots__ = (
        "_answer",
        "_ended",
        "_inside",
        "_node",
        "_outer",
        "_pipeline",
        "_recorder",
        "_request",
        "_run",
        "_scope",
        "_span",
        "_started_ns",
        "_token",
        "_turn",
        "_wraps",
        "covered",
        "parent",
    )

    def __init__(self, request: genai.Request, scope: str, recorder: str, *, shields: bool = False) -> None:
        self._ended = True  # for __del__, until there is something to end
        self._request = request
        self._scope = scope
        self._recorder = recorder
        self.covered = recorder == THEIRS
        self._started_ns = time_ns()
        outer = self._outer = get_current()
        node: Any = outer.get(_sdk.RUN_KEY)
        run: Run | None = None if node is None else node.run
        if run is not None and run.state.closed:
            node = run = None
        self._node: Any = node
        self._run = run
        self._pipeline = registry.current() if run is None else run.pipeline
        self._answer = Answer(keeps_text=run is not None or captures_content())
        self._span: Span = INVALID_SPAN
        around = get_current_span(outer)
        # What is around the call may report its usage again, but for the owner's own spans.
        around_id = around.get_span_context().span_id if around.is_recording() else 0
        self._wraps = None if run is None or around_id in (0, self._node.span_id) else around_id
        self.parent: Span | None = None
        inside = outer
        if recorder == OURS:
            self._start_span()
            inside = _sdk.context_with_span(outer, self._span)
            if shields:
                inside = _sdk.context_with_span(outer, _sdk.StandIn(self._span.get_span_context()))
        elif run is not None:
            self.parent = _sdk.StandIn(around.get_span_context())
            inside = _sdk.context_with_span(outer, self.parent)
        self._turn: Turn | None = None
        if run is None or not self._node.judging:
            self._turn = Turn(self._started_ns)
            current_turn.set(self._turn)
        self._token = current_call.get()
        current_call.set(self)
        self._inside = inside
        attach(inside)
        self._ended = False

    def answered(self, response: Any, *, streamed: bool) -> Any:
        """The model has answered, or begun to. Raises nothing.

        Args:
            response: What the SDK returned.
            streamed: Whether a stream was asked for.

        Returns:
            What the program gets: the response, or a stream that passes it on and is watched.
        """
        self._leave()
        try:
            if streamed and _is_stream(response):
                return watched(response, self)
            self._answer.add(response)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("model_call.answered", error)
        self.end()
        return response

    def failed(self, error: BaseException) -> None:
        """The call raised. Raises nothing."""
        self._leave()
        self.end(error)

    def add(self, chunk: Any) -> None:
        """A stream went on. Raises nothing."""
        try:
            self._answer.add(chunk)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("model_call.chunk", error)

    def end(self, error: BaseException | None = None) -> None:
        """The call is over: once, whatever is told later. Raises nothing."""
        if self._ended:
            return
        self._ended = True
        ended_ns = time_ns()
        answer, run = self._answer, self._run
        try:
            if answer.usage is not None:
                answer.usage = answer.usage._replace(
                    model=answer.usage.model or answer.model or self._request.model,
                    provider=seller(self._request.provider, self._request.address),
                )
            self._end_span(error, ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("model_call.end_span", problem)
        try:
            if run is not None and answer.usage is not None:
                self._spend(run, ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("model_call.spend", problem)
        try:
            turn = self._turn
            if turn is not None:
                turn.end_ns = ended_ns
                turn.text = answer.text if answer.keeps_text else None
                # An iteration shows its answer itself; a message with tool calls is shown with the first.
                if run is not None and self._node is run and error is None and not answer.calls:
                    turn.show(run, run.agent)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("model_call.show", problem)

    def __del__(self) -> None:  # a stream that nobody read to its end, or closed
        try:
            if getattr(self, "_ended", True):  # it has none where it was never made
                return
            if _may_hold_a_lock():  # garbage is collected at any moment
                threading.Thread(target=self.end, name=ENDING).start()
            else:
                self.end()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("model_call.given_up", error)

    def _leave(self) -> None:
        """Make current again what was so before; not where the call ended elsewhere than it began."""
        try:
            if get_current() is self._inside:
                attach(self._outer)
            if current_call.get() is self:
                current_call.set(self._token)
            self._token = None
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("model_call.leave", error)

    def _start_span(self) -> None:
        request = self._request
        # A run counts the tokens itself: the processor need not look at the span.
        parent = self._outer if self._run is None else _sdk.context_with(self._outer, _sdk.RUN_KEY, _sdk.FED)
        self._span = self._pipeline.tracer(self._scope).start_span(
            genai.chat_name(request),
            parent,
            kind=SpanKind.CLIENT,
            attributes=genai.request_attributes(request, content=captures_content()),
            start_time=self._started_ns,
        )

    def _end_span(self, error: BaseException | None, ended_ns: int) -> None:
        if self._recorder == LATER and not self.covered:
            self._start_span()
        span = self._span
        if not span.is_recording():
            return
        try:
            span.set_attributes(genai.answer_attributes(self._answer, content=captures_content()))
            if isinstance(error, Exception):
                run = self._run
                emission.mark_failed(span, error, record=run is None or run.recorded_error != id(error))
                if run is not None:
                    run.recorded_error = id(error)
        finally:
            span.end(ended_ns)

    def _spend(self, run: "Run", ended_ns: int) -> None:
        if run.state.closed:
            run.pipeline.instruments.late_span(run.state)
            return
        span = get_current_span(self._outer) if self._span is INVALID_SPAN else self._span
        context = _sdk.context_with_span(self._outer, span)
        count_span(run.pipeline, self._node, 0, self._wraps, self._answer.usage, ended_ns, context)


def _may_hold_a_lock() -> bool:
    """Whether this thread is inside of what holds locks which the end of a span takes."""
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_LOCKING):
            return True
        frame = frame.f_back
    return False


def _is_stream(response: Any) -> bool:
    """Whether a response is a stream, and not a whole answer after all."""
    if field(response, "choices") is not None or field(response, "output") is not None:
        return False
    return hasattr(response, "__iter__") or hasattr(response, "__aiter__")
