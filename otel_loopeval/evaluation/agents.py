"""Calling any agent: a function, or an object with one of the methods that agent frameworks use.

Sync runs take the first of ``chat, run, invoke, kickoff, __call__`` that the agent has, then the async
``chat_async, achat, arun, ainvoke, kickoff_async``. Async runs prefer the async methods, in that order, to
the sync ones. Each is called with the prompt as its only argument; whatever it returns, an awaitable
included, is resolved. Frameworks that want more than a prompt (a dict of inputs, a runner) are wrapped in a
function by the caller.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

from otel_loopeval.evaluation import calls
from otel_loopeval.evaluation.checks import shown

_SYNC_METHODS = ("chat", "run", "invoke", "kickoff", "__call__")
_ASYNC_METHODS = ("chat_async", "achat", "arun", "ainvoke", "kickoff_async")
_TEXT_ATTRIBUTES = ("content", "output", "final_output", "raw", "text")


def check_agent(agent: Any) -> None:
    """Raise if the agent cannot be called.

    Raises:
        TypeError: If it is neither callable nor has one of the accepted methods, or is a class.
    """
    _method(agent, _SYNC_METHODS + _ASYNC_METHODS)


def agent_name(agent: Any) -> str:
    """The agent's name: its ``name`` if that is a non-empty string, else ``__name__``, else its class's."""
    try:
        name = getattr(agent, "name", None)
    except Exception:  # noqa: BLE001 - a property of somebody else's, which the loop itself never reads
        name = None
    if isinstance(name, str) and name:
        return name
    while isinstance(agent, functools.partial):
        agent = cast("Any", agent).func
    name = getattr(agent, "__name__", None)
    return name if isinstance(name, str) and name else type(agent).__name__


def ask(agent: Any, prompt: str) -> str:
    """Give the agent a prompt and return its answer as text.

    Raises:
        TypeError: If the agent cannot be called.
    """
    return output_text(calls.call(_method(agent, _SYNC_METHODS + _ASYNC_METHODS), prompt))


async def ask_async(agent: Any, prompt: str) -> str:
    """As :func:`ask`; a sync agent runs in a worker thread.

    Raises:
        TypeError: If the agent cannot be called.
    """
    method = _method(agent, _ASYNC_METHODS + _SYNC_METHODS)
    return output_text(await calls.call_async(method, prompt))


def output_text(result: Any) -> str:
    """The text of an agent's answer.

    A string is itself; None is empty; an object with a string ``content``, ``output``, ``final_output``,
    ``raw`` or ``text`` gives the first of them, and a dict its ``"output"``; anything else is ``str(...)``.

    Raises:
        TypeError: If it is a generator: its text would be judged as ``<generator object ...>``.
    """
    if isinstance(result, str):
        return result
    if result is None:
        return ""
    if isinstance(result, dict):
        entries = cast("dict[Any, Any]", result)
        return output_text(entries["output"]) if "output" in entries else str(entries)
    for attribute in _TEXT_ATTRIBUTES:
        value = getattr(result, attribute, None)
        if isinstance(value, str):
            return value
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"agent must return a whole answer, got {shown(result)}: join what it yields first")
    return str(result)


def _method(agent: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    if not isinstance(agent, type):
        for name in names:
            method = agent if name == "__call__" and callable(agent) else getattr(agent, name, None)
            if callable(method):
                return method
    methods = ", ".join(sorted(set(_SYNC_METHODS + _ASYNC_METHODS) - {"__call__"}))
    raise TypeError(
        f"agent must be a function, another callable, or an instance with one of the methods {methods}; "
        f"got {shown(agent)}"
    )
