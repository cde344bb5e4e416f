"""``detect_tool_loop`` in both its bindings: the agent's, and that of the loop-detection plugin's hook."""

import functools
from collections.abc import Hashable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.health import GuardEvent, guard_event_of
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.guards.alarms import Alarms
from otel_loopeval.instrumentation.praisonai.guards.overhearing import (
    Findings,
    argument,
    overhearing,
    report,
    watching,
)
from otel_loopeval.instrumentation.praisonai.guards.permissions import call_key
from otel_loopeval.otel.errors import guarded

_PING_PONG: Final = "ping_pong"
_PING_PONG_MISSED: Final = "ping_pong_missed"
_DETECTORS: Final = ("generic_repeat", "poll_no_progress")

_alarms: Final = Alarms()
_plugin_alarms: Final = Alarms()

_asking: ContextVar[int] = ContextVar("otel_loopeval_asking_agent", default=0)
"""Id of the history that an agent is about to have looked at: it decides what becomes of the verdict."""

_undecided: ContextVar[tuple[Any, GuardEvent] | None] = ContextVar("otel_loopeval_undecided", default=None)
"""A critical verdict on which an agent has not decided yet, and its event."""


def patch_detection(module: Any, patches: Patches) -> None:
    """Report what the function finds, once per alarm: it finds the same again with each further call.

    Where an agent may let a critical loop go on, its decision is waited for: see :func:`patch_approval`.
    """

    def detected(args: tuple[Any, ...], kwargs: dict[str, Any], verdict: Any) -> None:
        event = _news(_alarms, args, kwargs, verdict, semconv.SOURCE_PRAISONAI_LOOP_DETECTION)
        history = argument(args, kwargs, 0, "history")
        asked_by_agent = _asking.get() == id(history)
        _asking.set(0)
        if event is None:
            return
        if asked_by_agent and event.doom_loop:
            _undecided.set((verdict, event))
        else:
            report(event)

    patches.on_restore(_alarms.clear)
    patches.wrap(module, "detect_tool_loop", watching(detected, patches))


def patch_plugin(module: Any, patches: Patches) -> None:
    """Report what the plugin's hook acts on: a warning it passes on, a critical loop it blocks.

    Its own binding of the function may be the patched one: then both would report.
    """

    def detected(args: tuple[Any, ...], kwargs: dict[str, Any], verdict: Any, _findings: Findings) -> None:
        event = _news(_plugin_alarms, args, kwargs, verdict, semconv.SOURCE_PRAISONAI_LOOP_DETECTION_PLUGIN)
        if event is not None:
            report(event)

    patches.on_restore(_plugin_alarms.clear)
    patches.wrap(module, "detect_tool_loop", overhearing(detected, patches))


def _news(
    alarms: Alarms, args: tuple[Any, ...], kwargs: dict[str, Any], verdict: Any, source: str
) -> GuardEvent | None:
    """The event of a verdict; None if there is none, or its alarm stands."""
    history, tool = argument(args, kwargs, 0, "history"), argument(args, kwargs, 1, "tool_name")
    stuck = verdict.get("stuck")
    if not stuck and not alarms.stand(history):
        return None
    call = call_key(tool, argument(args, kwargs, 2, "args"))
    if not stuck:
        alarms.over(history, *((detector, call) for detector in _DETECTORS))
        # Ping-pong is between two calls, and the function finds it at every other one of them.
        if alarms.stand(history, _PING_PONG) and not alarms.rises(history, _PING_PONG_MISSED):
            alarms.over(history, _PING_PONG, _PING_PONG_MISSED)
        return None
    event = guard_event_of(verdict)
    key: Hashable = (event.rule, call)
    if event.rule == _PING_PONG:
        key = _PING_PONG
        alarms.over(history, _PING_PONG_MISSED)
    if not alarms.rises(history, key, event.action):
        return None
    tool = tool if isinstance(tool, str) else None
    return replace(event, source=source, tool=tool, key=f"{id(history)}:{key}")


def patch_approval(module: Any, patches: Patches) -> None:
    """Say what the agent did about a critical loop: block the call, or let it go on as it was approved."""
    agent = module.Agent

    def about_to_ask(_args: tuple[Any, ...], _kwargs: dict[str, Any], answer: Any) -> None:
        _asking.set(id(answer[0]))

    def approved(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            answer = None
            try:
                answer = original(*args, **kwargs)
                return answer
            finally:
                _decided(args, kwargs, answer)

        return wrapper

    def approved_async(original: Any) -> Any:
        @functools.wraps(original)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            answer = None
            try:
                answer = await original(*args, **kwargs)
                return answer
            finally:
                _decided(args, kwargs, answer)

        return wrapper

    patches.wrap(agent, "_ensure_loop_detector", watching(about_to_ask, patches))
    patches.wrap(agent, "_doom_loop_approved", approved)
    patches.wrap(agent, "_doom_loop_approved_async", approved_async)


@guarded("praisonai.tool_loops.decided")
def _decided(args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
    undecided = _undecided.get()
    if undecided is None or undecided[0] is not argument(args, kwargs, 3, "verdict"):
        return
    _undecided.set(None)
    report(replace(undecided[1], action=semconv.ACTION_OBSERVE if answer else semconv.ACTION_BLOCK))
