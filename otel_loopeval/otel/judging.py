"""A judge at work on an iteration's output."""

from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, NoOpTracer, Status, StatusCode

from otel_loopeval import semconv
from otel_loopeval.otel import _sdk, emission
from otel_loopeval.otel.errors import swallow
from otel_loopeval.otel.node import Node, fails, leave
from otel_loopeval.otel.pipeline import open_spans

if TYPE_CHECKING:
    from otel_loopeval.otel.iterations import Iteration
    from otel_loopeval.otel.live import Run
    from otel_loopeval.runs.run import IterationState, LoopRun


class Judging(Node):
    """The time in which an iteration's output is judged, as a span ``evaluate`` under the iteration.

    It is current while it lasts, so that the model calls of a judge are its children, and their tokens are
    told apart from the agent's own. A context manager, ``with`` or ``async with``; it may be entered in
    another thread than its iteration.

    Attributes:
        iteration: The iteration that is judged. Outside of any run nothing goes out.
        run: Its run, or None.
    """

    __slots__ = ("_outer", "iteration", "run")

    judging = True

    def __init__(self, iteration: "Iteration") -> None:
        self.span = self.span_id = self.context = None  # not super().__init__(): the hot path
        self.iteration = iteration
        self.run: Run | None = iteration.run
        self._outer: Context | None = None

    def __enter__(self) -> "Judging":  # noqa: PYI034 - Self is not in Python 3.10
        try:
            self.begin()
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("judging.enter", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.end(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("judging.exit", problem)

    async def __aenter__(self) -> "Judging":  # noqa: PYI034 - as above
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    @property
    def state(self) -> "LoopRun":
        """The state of its run."""
        return self.iteration.state

    @property
    def iteration_state(self) -> "IterationState | None":
        """The state of its iteration."""
        return self.iteration.iteration_state

    def begin(self) -> None:
        """Start the span and make it current."""
        try:
            iteration = self.iteration
            run = self.run = iteration.run
            if run is None or iteration.iteration_state is None or run.state.closed:
                self.run = None
                return
            current = self._outer = get_current()
            node: Any = current.get(_sdk.RUN_KEY)
            # Its parent is where the program is, if that is in the iteration.
            inside = node is iteration or (isinstance(node, Judging) and node.iteration is iteration)
            parent = current if inside else iteration.context or current
            iteration.open_judgings.append(self)
            self.enter(
                run.tracer,
                semconv.SPAN_EVALUATE,
                parent,
                {semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_EVALUATE},
                time_ns(),
            )
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("judging.begin", error)
            if self.span is None:
                self.span = INVALID_SPAN

    def end(self, error: BaseException | None = None) -> None:
        """End the span, and make current again what was so before.

        Args:
            error: What the judge raised, or None.
        """
        outer = self._outer
        if outer is not None:
            self._outer = None
            leave(self, outer)
            self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """End the span, once: an iteration that ends, at the end of the process for one, has its judges end.

        Args:
            error: What ended it, or None.
        """
        run, span = self.run, self.span
        try:
            self.iteration.open_judgings.remove(self)
            if self.span_id is not None:
                open_spans.pop(self.span_id, None)
        except ValueError:
            return  # it has ended before
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("judging.close", problem)
        if run is None or span is None or (self.span_id is not None and isinstance(run.tracer, NoOpTracer)):
            return  # in a forked child: the parent has the span, and ends it
        try:
            if error is not None and fails(error, run.state):
                emission.mark_failed(span, error, record=run.recorded_error != id(error))
                run.recorded_error = id(error)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("judging.mark_failed", problem)
        try:
            span.end()
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("judging.end_span", problem)
        self.context = None

    def failed(self, error_type: str) -> None:
        """Mark the span where the judge failed without an exception.

        Args:
            error_type: How, of low cardinality.
        """
        try:
            if self.span is not None:
                self.span.set_attribute(semconv.ERROR_TYPE, error_type)
                self.span.set_status(Status(StatusCode.ERROR))
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("judging.failed", problem)
