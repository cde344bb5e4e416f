"""Calling sync and async code from sync and async code, without deadlocks and without blocking.

Sync code that meets an awaitable runs it to its end: with ``asyncio.run`` where this thread has no running
event loop, else in a helper thread with a loop of its own. Each such call gets a fresh loop, so an agent
that keeps an async client open between calls should be run with ``run_async``. Async code runs sync
functions in a worker thread. In every case the callee sees a copy of the caller's context variables.
"""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def is_async(function: Any) -> bool:
    """Whether calling it makes a coroutine: an async function, a partial of one, an async ``__call__``."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    if inspect.iscoroutinefunction(function):
        return True
    # On the type, where Python looks a call up; an instance attribute of that name is never called.
    call_method = getattr(type(cast("object", function)), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(call_method)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call from sync code; an awaitable result is run to its end."""
    result = function(*args, **kwargs)
    return _finish(result) if inspect.isawaitable(result) else result


async def call_async(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call from async code; a sync function runs in a worker thread, an awaitable result is awaited.

    A cancelled caller does not wait for the worker thread, which Python cannot interrupt.
    """
    if is_async(function):
        result = function(*args, **kwargs)
    else:
        outcome = await asyncio.to_thread(_Outcome.of, functools.partial(function, *args, **kwargs))
        result = outcome.get()
    return await result if inspect.isawaitable(result) else result


class _Outcome:
    """A value or the exception raised instead.

    Carried as a value because a future cannot hold a StopIteration: on Python 3.11 and older an agent
    that raises one in a worker thread would leave its caller waiting for ever.
    """

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self._value = value
        self._error = error

    @classmethod
    def of(cls, function: Callable[[], Any]) -> "_Outcome":
        try:
            return cls(function(), None)
        except BaseException as error:  # noqa: BLE001  # raised again by get(), in the caller's thread
            return cls(None, error)

    def get(self) -> Any:
        error = self._error
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del self, error  # break the cycle through the traceback


def _finish(awaitable: Awaitable[T]) -> T:
    async def main() -> T:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    outcomes: list[_Outcome] = []
    context = contextvars.copy_context()

    def work() -> None:
        outcomes.append(_Outcome.of(lambda: context.run(asyncio.run, main())))

    thread = threading.Thread(target=work, name="loopeval-async-call", daemon=True)
    thread.start()
    thread.join()
    return outcomes[0].get()
