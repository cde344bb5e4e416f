"""Decorating functions, coroutines, generators and async generators.

No context token crosses a ``yield``: a generator's body runs in the contexts of whoever advances it, so the
run's context is put in place before each step and taken away after it, and what the body made current
itself is kept for its next step.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.context import attach, get_current

from otel_loopeval.evaluation.calls import is_async
from otel_loopeval.evaluation.checks import shown
from otel_loopeval.otel.errors import guarded, swallow
from otel_loopeval.otel.node import leave

if TYPE_CHECKING:
    from otel_loopeval.otel.iterations import Iteration
    from otel_loopeval.otel.live import Run

F = TypeVar("F", bound=Callable[..., Any])
Quiet = Callable[[BaseException], bool]


def decorate(function: F, begin: Callable[[], "Run | Iteration"], quiet: Quiet | None = None) -> F:
    """Wrap a function of any kind so that each call is opened by ``begin`` and ended.

    Args:
        function: The function.
        begin: Begins a run or an iteration.
        quiet: Says which exceptions end a call quietly: a function returns None, a generator ends. None
            for no exception.

    Raises:
        TypeError: The function cannot be called.
    """
    if not callable(function):  # pyright: ignore[reportUnnecessaryComparison] # users may have no type checker
        raise TypeError(f"only something callable can be decorated, got {shown(function)}")
    try:
        if inspect.isasyncgenfunction(function):
            wrapper: Any = _async_generator(function, begin, quiet)
        elif inspect.isgeneratorfunction(function):
            wrapper = _generator(function, begin, quiet)
        elif is_async(function):
            wrapper = _coroutine(function, begin, quiet)
        else:
            wrapper = _function(function, begin, quiet)
        decorated: Any = functools.wraps(function)(wrapper)
    except Exception as error:  # noqa: BLE001 - the guard: the program has its function as it was
        swallow("stepping.decorate", error)
        return function
    return decorated


@guarded("stepping.begin")
def _begin(begin: Callable[[], "Run | Iteration"]) -> "Run | Iteration":
    return begin()


@guarded("stepping.end")
def _end(opened: "Run | Iteration | None", error: BaseException | None = None) -> None:
    if opened is not None:
        opened.end(error)


def _function(
    function: Callable[..., Any], begin: Callable[[], "Run | Iteration"], quiet: Quiet | None
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = get_current()
        opened = _begin(begin)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            leave(opened, outer)
            _end(opened, error)
            if quiet is not None and quiet(error):
                return None
            raise
        leave(opened, outer)
        _end(opened)
        return result

    return wrapper


def _coroutine(
    function: Callable[..., Any], begin: Callable[[], "Run | Iteration"], quiet: Quiet | None
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        outer = get_current()
        opened = _begin(begin)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            leave(opened, outer)
            _end(opened, error)
            if quiet is not None and quiet(error):
                return None
            raise
        leave(opened, outer)
        _end(opened)
        return result

    return wrapper


def _generator(
    function: Callable[..., Any], begin: Callable[[], "Run | Iteration"], quiet: Quiet | None
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body: Generator[Any, Any, Any] = function(*args, **kwargs)
        advance: Callable[[], Any] = functools.partial(next, body)
        opened = inner = left = None
        begun = False
        while True:
            outer = get_current()
            if inner is not None:
                attach(inner)
            elif not begun:
                opened, begun = _begin(begin), True
            try:
                value = advance()
                if left is not None:  # the body goes on though it was told to end
                    _end(opened, left)
            except StopIteration as stop:
                _end(opened, left)
                return stop.value
            except BaseException as error:
                _end(opened, error)
                if quiet is not None and quiet(error):
                    return None
                raise
            finally:
                if opened is not None:
                    inner = get_current()
                    attach(outer)
            try:
                sent = yield value
            except BaseException as error:  # noqa: BLE001 - it is thrown into the body, whatever it is
                advance = functools.partial(body.throw, error)
                left = error if isinstance(error, GeneratorExit) else None
            else:
                advance = functools.partial(body.send, sent)

    return wrapper


def _async_generator(
    function: Callable[..., Any], begin: Callable[[], "Run | Iteration"], quiet: Quiet | None
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body: AsyncGenerator[Any, Any] = function(*args, **kwargs)
        advance: Callable[[], Any] = body.__anext__
        opened = inner = left = None
        begun = False
        while True:
            outer = get_current()
            if inner is not None:
                attach(inner)
            elif not begun:
                opened, begun = _begin(begin), True
            try:
                value = await advance()
                if left is not None:  # the body goes on though it was told to end
                    _end(opened, left)
            except StopAsyncIteration:
                _end(opened, left)
                return
            except BaseException as error:
                _end(opened, error)
                if quiet is not None and quiet(error):
                    return
                raise
            finally:
                if opened is not None:
                    inner = get_current()
                    attach(outer)
            try:
                sent = yield value
            except BaseException as error:  # noqa: BLE001 - it is thrown into the body, whatever it is
                advance = functools.partial(body.athrow, error)
                left = error if isinstance(error, GeneratorExit) else None
            else:
                advance = functools.partial(body.asend, sent)

    return wrapper
