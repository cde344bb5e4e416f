"""Tool calls: a span each, and a step that the run's detectors are shown as it ends."""

import functools
from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.context import attach, get_current
from opentelemetry.trace import INVALID_SPAN, Span, Status, StatusCode

from otel_loopeval import semconv
from otel_loopeval.detect import ToolCall
from otel_loopeval.evaluation.agents import agent_name
from otel_loopeval.health.wire import as_text
from otel_loopeval.instrumentation import genai, others
from otel_loopeval.instrumentation.model_calls import Turn, current_turn
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.loops import SCOPE
from otel_loopeval.otel import _sdk, emission
from otel_loopeval.otel.errors import guarded, swallow
from otel_loopeval.otel.fingerprints import step_attributes
from otel_loopeval.otel.options import captures_content
from otel_loopeval.otel.pipeline import registry

if TYPE_CHECKING:
    from otel_loopeval.otel.live import Run

_BRIDGE: Final = "tool_call"
"""A call that stands for another tool's, which the agent then calls in the same way."""

_KINDS_OF_ERROR: Final = (
    "timeout",
    "loop_blocked",
    "approval_denied",
    "approval_error",
    "permission_denied",
    "policy_denied",
    "guardrail_denied",
    "circuit_open",
    "tool_pool_exhausted",
)
"""Keys by which a result that reports an error says what kind of error it is."""

_NOTE: Final = "\n\n[loop-guard] "
"""What the package puts before the note that it adds to a result: the tool did not say so."""
_NOTES: Final = ("_loop_guard", "_additional_context")


def patch_tools(module: Any, patches: Patches) -> None:
    """Follow the tool calls of agents."""
    agent = module.Agent
    # Where they are defined: an agent's class may override them, and call them from there.
    for cls in reversed(agent.__mro__):
        if "execute_tool" in cls.__dict__:
            patches.wrap(cls, "execute_tool", functools.partial(_wrap, patches))
        if "execute_tool_async" in cls.__dict__:
            patches.wrap(cls, "execute_tool_async", functools.partial(_wrap_async, patches))


def _wrap(patches: Patches, original: Any) -> Any:
    @functools.wraps(original)
    def execute_tool(self: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.active:
            _stop_if_asked()
        call = _begin(self, original, args, kwargs) if patches.active else None
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if call is not None:
                call.end(error=error)
            raise
        if call is not None:
            call.end(result)
        return result

    return execute_tool


def _wrap_async(patches: Patches, original: Any) -> Any:
    @functools.wraps(original)
    async def execute_tool_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        if patches.active:
            _stop_if_asked()
        call = _begin(self, original, args, kwargs) if patches.active else None
        try:
            result = await original(self, *args, **kwargs)
        except BaseException as error:
            if call is not None:
                call.end(error=error)
            raise
        if call is not None:
            call.end(result)
        return result

    return execute_tool_async


@guarded("praisonai.stop")
def _stop_if_asked() -> None:
    """Raise ``StopLoop`` if somebody asked for it: an agent may call tools for long within one turn."""
    node: Any = get_current().get(_sdk.RUN_KEY)
    if node is not None and node.run is not None and node.run.stopping is not None:
        node.run.check_stop()


def _begin(agent: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_ToolRun | None":
    try:
        name, arguments, call_id = (
            args[position] if position < len(args) else kwargs.get(key)
            for position, key in enumerate(("function_name", "arguments", "tool_call_id"))
        )
        if name == _BRIDGE and getattr(agent, "_tool_search_config", None) is not None:
            return None
        return _ToolRun(
            agent, as_text(name) or "unknown", arguments, as_text(call_id), others.is_recorded(original)
        )
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("praisonai.tool_begin", error)
        return None


class _ToolRun:
    """One call of a tool while it goes on."""

    __slots__ = (
        "_agent",
        "_arguments",
        "_inside",
        "_name",
        "_outer",
        "_pipeline",
        "_run",
        "_span",
        "_started_ns",
        "_turn",
    )

    def __init__(self, agent: Any, name: str, arguments: Any, call_id: str | None, covered: bool) -> None:
        self._started_ns = time_ns()
        outer = self._outer = self._inside = get_current()
        node: Any = outer.get(_sdk.RUN_KEY)
        run: Run | None = None if node is None else node.run
        self._run = None if run is None or run.state.closed else run
        self._agent = agent_name(agent)
        self._name = name
        # The package may change them while it calls the tool.
        self._arguments = (
            dict(cast("Mapping[Any, Any]", arguments)) if isinstance(arguments, Mapping) else arguments
        )
        self._turn: Turn | None = current_turn.get()
        self._span: Span = INVALID_SPAN
        pipeline = self._pipeline = registry.current() if self._run is None else self._run.pipeline
        if not covered and not others.is_suppressed():
            attributes = genai.tool_attributes(name, call_id, self._arguments, content=captures_content())
            self._span = pipeline.tracer(SCOPE).start_span(
                genai.tool_name(name), outer, attributes=attributes, start_time=self._started_ns
            )
            self._inside = _sdk.context_with_span(outer, self._span)
            attach(self._inside)

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        """The call is over. Raises nothing.

        Args:
            result: What the tool returned.
            error: What it raised, or None.
        """
        ended_ns = time_ns()
        try:
            if get_current() is self._inside:
                attach(self._outer)
            # An agent that the tool called has had turns of its own.
            current_turn.set(self._turn)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("praisonai.tool_leave", problem)
        reported = None if error is not None else _reported_error(result)
        try:
            self._end_span(result, error, reported, ended_ns)
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("praisonai.tool_span", problem)
        try:
            run, turn = self._run, self._turn
            if run is None or not (error is None or isinstance(error, Exception)):
                return
            if turn is not None:
                turn.show(run, self._agent)
            failure = reported if error is None else error
            run.observe(
                ToolCall(
                    self._name,
                    self._arguments,
                    None if failure is not None else _said(result),
                    failure,
                    self._agent,
                    None if turn is None else turn.number,
                    self._started_ns,
                    ended_ns,
                )
            )
        except Exception as problem:  # noqa: BLE001 - the guard
            swallow("praisonai.tool_observe", problem)

    def _end_span(self, result: Any, error: BaseException | None, reported: Any, ended_ns: int) -> None:
        span = self._span
        if not span.is_recording():
            return
        try:
            if self._pipeline.options.detectors:
                failure = reported if error is None else error
                said = None if failure is not None else _said(result)
                span.set_attributes(step_attributes(self._name, self._arguments, said, failure))
            if isinstance(error, Exception):
                run = self._run
                emission.mark_failed(span, error, record=run is None or run.recorded_error != id(error))
                if run is not None:
                    run.recorded_error = id(error)
            elif error is None:
                if captures_content():
                    span.set_attribute(semconv.GEN_AI_TOOL_CALL_RESULT, genai.as_json(result))
                if reported is not None:
                    span.set_attribute(semconv.ERROR_TYPE, _kind_of_error(result))
                    span.set_status(Status(StatusCode.ERROR))
        finally:
            span.end(ended_ns)


@guarded("praisonai.tool_result")
def _reported_error(result: Any) -> Any:
    """The error that a result reports, or None: the package hands errors to the model as results."""
    if not isinstance(result, dict):
        return None
    return cast("dict[Any, Any]", result).get("error") or None


def _kind_of_error(result: dict[Any, Any]) -> str:
    return next((kind for kind in _KINDS_OF_ERROR if result.get(kind)), semconv.ERROR_TYPE_OTHER)


def _said(result: Any) -> Any:
    """What a tool returned, without the notes of the package's own guards, which differ from call to call."""
    if isinstance(result, str):
        return result.split(_NOTE, 1)[0]
    if isinstance(result, dict) and any(note in result for note in _NOTES):
        rest = {key: value for key, value in cast("dict[Any, Any]", result).items() if key not in _NOTES}
        return rest["value"] if rest.keys() == {"value"} else rest
    return cast("object", result)
