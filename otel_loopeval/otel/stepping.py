"""Decorating functions, coroutines, generators and async generators.

No context token crosses a ``yield``: a generator's body runs in the contexts of whoever advances it, so the
run's context is put in place before each step and taken away after it, and what the body made current
itself is kept for its next step.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Protocol, TypeVar

from opentelemetry.context import Context, attach, get_current

from otel_loopeval.evaluation.stop import StopLoop

F = TypeVar("F", bound=Callable[..., Any])


class Opened(Protocol):
    """A run or an iteration that has begun and has made itself current."""

    def end(self, error: BaseException | None = None) -> None:
        """End it."""
        ...


def decorate(function: F, begin: Callable[[], Opened]) -> F:
    """Wrap a function of any kind so that each call is opened by ``begin`` and ended.

    ``StopLoop`` ends the call quietly: a function returns None, a generator ends.
    """
    if inspect.isasyncgenfunction(function):
        wrapper: Any = _async_generator(function, begin)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, begin)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, begin)
    else:
        wrapper = _function(function, begin)
    return functools.wraps(function)(wrapper)


def _function(function: Callable[..., Any], begin: Callable[[], Opened]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        opened = begin()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            opened.end(error)
            if isinstance(error, StopLoop):
                return None
            raise
        opened.end()
        return result

    return wrapper


def _coroutine(function: Callable[..., Any], begin: Callable[[], Opened]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        opened = begin()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            opened.end(error)
            if isinstance(error, StopLoop):
                return None
            raise
        opened.end()
        return result

    return wrapper


class _Steps:
    """The context of a generator's body, in place only while the body runs."""

    def __init__(self, begin: Callable[[], Opened]) -> None:
        self._begin = begin
        self._opened: Opened | None = None
        self._inner: Context | None = None
        self._outer: Context | None = None

    def __enter__(self) -> None:
        self._outer = get_current()
        if self._opened is None:
            self._opened = self._begin()
        elif self._inner is not None:
            attach(self._inner)

    def __exit__(self, *_: object) -> None:
        self._inner = get_current()
        if self._outer is not None:
            attach(self._outer)

    def end(self, error: BaseException | None) -> None:
        """End what was opened, from within the body's context."""
        if self._opened is None:
            return
        with self:
            self._opened.end(error)


def _generator(function: Callable[..., Any], begin: Callable[[], Opened]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = _Steps(begin)
        body: Generator[Any, Any, Any] = function(*args, **kwargs)
        advance: Callable[[], Any] = functools.partial(next, body)
        try:
            while True:
                try:
                    with steps:
                        value = advance()
                except StopIteration as stop:
                    steps.end(None)
                    return stop.value
                try:
                    sent = yield value
                except GeneratorExit:
                    with steps:
                        body.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is thrown into the body, whatever it is
                    advance = functools.partial(body.throw, error)
                else:
                    advance = functools.partial(body.send, sent)
        except BaseException as error:
            steps.end(error)
            if isinstance(error, StopLoop):
                return None
            raise

    return wrapper


def _async_generator(function: Callable[..., Any], begin: Callable[[], Opened]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = _Steps(begin)
        body: AsyncGenerator[Any, Any] = function(*args, **kwargs)
        advance: Callable[[], Any] = body.__anext__
        try:
            while True:
                try:
                    with steps:
                        value = await advance()
                except StopAsyncIteration:
                    steps.end(None)
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    with steps:
                        await body.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is thrown into the body, whatever it is
                    advance = functools.partial(body.athrow, error)
                else:
                    advance = functools.partial(body.asend, sent)
        except BaseException as error:
            steps.end(error)
            if isinstance(error, StopLoop):
                return
            raise

    return wrapper
