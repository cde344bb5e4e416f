"""Makes the functions of our telemetry code raise, one at a time.

A function is replaced by its ``__code__``, so that every reference to it raises, wherever it was imported
to or bound. A function that is itself a guard (its ``try`` hands what it catches to ``swallow``) cannot be
made to raise from outside; in such a one, the lines inside its ``try`` are made to raise, one at a time.
"""

import ast
import inspect
import mmap
import pkgutil
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import otel_loopeval

ROOMS = ("otel", "runs", "instrumentation", "health", "detect")
PACKAGE = otel_loopeval.__name__


class InjectedError(Exception):
    """What an injected fault raises."""


@dataclass(frozen=True)
class Target:
    """A function or method of ours.

    Attributes:
        name: ``module:qualified.name``, without the package's own name.
        function: The function, or None for one that is defined inside another.
        code: Its code.
        guarded_lines: Lines inside the ``try`` of a function that is itself a guard.
    """

    name: str
    function: types.FunctionType | None
    code: types.CodeType
    guarded_lines: tuple[int, ...] = ()

    @property
    def room(self) -> str:
        """The subpackage that it is in."""
        return self.name.partition(".")[0].partition(":")[0]


class Injection:
    """One fault while it is in place."""

    def __init__(self) -> None:
        self._raised = mmap.mmap(-1, 1)  # shared with forked children

    @property
    def raised(self) -> bool:
        """Whether it was raised, here or in a forked child."""
        return self._raised[0] != 0

    def strike(self, name: str) -> None:
        """Raise the fault."""
        self._raised[0] = 1
        raise InjectedError(f"injected into {name}")


def find_targets() -> dict[str, Target]:
    """Every function and method of our telemetry code, by name."""
    targets: dict[str, Target] = {}
    for room in ROOMS:
        package = import_module(f"{PACKAGE}.{room}")
        names = [package.__name__]
        names += [info.name for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
        for module_name in names:
            module = import_module(module_name)
            short = module_name.removeprefix(PACKAGE + ".")
            for qualified, function in _functions_of(module):
                for suffix, code in _codes(function.__code__):
                    name = f"{short}:{qualified}{suffix}"
                    whole = None if suffix else function
                    targets[name] = Target(name, whole, code, _guarded_lines(code))
    return targets


def _codes(code: types.CodeType, suffix: str = "") -> Iterator[tuple[str, types.CodeType]]:
    """A function's code, and that of the functions defined inside it."""
    yield suffix, code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and constant.co_name.isidentifier():
            yield from _codes(constant, f"{suffix}.{constant.co_name}")


def _functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    seen: set[types.CodeType] = set()
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            members = list(vars(value).items()) if value.__module__ == module.__name__ else []
            found = [(f"{value.__qualname__}.{member}", thing) for member, thing in members]
        else:
            found = [(name, value)]
        for qualified, thing in found:
            for suffix, function in _unwrapped(thing):
                if function.__module__ == module.__name__ and function.__code__ not in seen:
                    seen.add(function.__code__)
                    yield qualified + suffix, function


def _unwrapped(thing: Any) -> Iterator[tuple[str, types.FunctionType]]:
    if isinstance(thing, property):
        for suffix, accessor in ((".get", thing.fget), (".set", thing.fset)):
            if accessor is not None:
                yield from ((suffix, function) for _, function in _unwrapped(accessor))
        return
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__  # type: ignore[reportUnknownMemberType]
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if isinstance(thing, types.FunctionType):
        yield "", thing


# Guards ------------------------------------------------------------------------------------------------


@cache
def _function_nodes(file: str) -> dict[tuple[str, int], ast.AST]:
    with open(file, encoding="utf-8") as source:  # noqa: PTH123
        tree = ast.parse(source.read())
    nodes: dict[tuple[str, int], ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            nodes[node.name, first] = node
    return nodes


def _guarded_lines(code: types.CodeType) -> tuple[int, ...]:
    if not code.co_filename.endswith(".py"):
        return ()  # generated, such as the __init__ of a dataclass
    node = _function_nodes(code.co_filename).get((code.co_name, code.co_firstlineno))
    lines: set[int] = set()
    for inner in _own_nodes(node):
        if isinstance(inner, ast.Try) and any(map(_swallows, inner.handlers)):
            for statement in inner.body:
                nodes = filter(_can_raise, (statement, *_own_nodes(statement)))
                lines.update(getattr(node, "lineno", 0) for node in nodes)
    return tuple(sorted(lines))


def _can_raise(node: ast.AST) -> bool:
    """Whether a node is a statement at which something can go wrong."""
    if isinstance(node, ast.Return):
        return node.value is not None and not isinstance(node.value, (ast.Constant, ast.Name))
    return isinstance(node, ast.stmt) and not isinstance(node, (ast.Try, ast.Pass, ast.Break, ast.Continue))


def _own_nodes(node: ast.AST | None) -> Iterator[ast.AST]:
    """The nodes inside a node, without those of functions defined inside it."""
    for inner in () if node is None else ast.iter_child_nodes(node):
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield inner
            yield from _own_nodes(inner)


def _swallows(handler: ast.ExceptHandler) -> bool:
    if not isinstance(handler.type, ast.Name) or handler.type.id != "Exception":
        return False
    calls = [node.func for node in ast.walk(handler) if isinstance(node, ast.Call)]
    return any(
        (isinstance(call, ast.Name) and call.id == "swallow")
        or (isinstance(call, ast.Attribute) and call.attr == "swallow")
        for call in calls
    )


# Watching -----------------------------------------------------------------------------------------------


@contextmanager
def counting_calls(targets: dict[str, Target]) -> Generator[Counter[str]]:
    """Count the calls of the targets, in every thread that is started meanwhile."""
    names = {target.code: name for name, target in targets.items()}
    calls: Counter[str] = Counter()

    def watch(frame: types.FrameType, event: str, _arg: Any) -> None:
        if event == "call":
            name = names.get(frame.f_code)
            if name is not None:
                calls[name] += 1

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


# Raising ------------------------------------------------------------------------------------------------

_active: dict[str, Callable[[types.FrameType | None], None]] = {}
_clones: dict[str, Callable[..., Any]] = {}


def strike_or_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function whose code was replaced does: raise, or call the function as it was."""
    _active[name](sys._getframe(2))
    return _clones[name](*args, **kwargs)


@contextmanager
def raising_calls(target: Target, nth: int | None, *, spare: Callable[[str], bool]) -> Generator[Injection]:
    """Make a function raise when it is called.

    Args:
        target: The function.
        nth: Which call raises, from 1; None for every call.
        spare: Tells from the module of the caller whether to let a call be.
    """
    injection = Injection()
    function: Any = target.function
    original = target.code
    counted = 0

    def decide(caller: types.FrameType | None) -> None:
        nonlocal counted
        if caller is not None and spare(caller.f_globals.get("__name__", "")):
            return
        counted += 1
        if nth is None or counted == nth:
            injection.strike(target.name)

    _active[target.name] = decide
    _clones[target.name] = _clone(function)
    function.__code__ = _replacement(target.name, function)
    try:
        yield injection
    finally:
        function.__code__ = original


def _clone(function: types.FunctionType) -> Callable[..., Any]:
    clone = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    clone.__kwdefaults__ = function.__kwdefaults__
    return clone


def _replacement(name: str, function: types.FunctionType) -> types.CodeType:
    """Code that calls :func:`strike_or_call`, with as many free variables as the function's own."""
    free = [f"_free{number}" for number in range(len(function.__code__.co_freevars))]
    is_async = inspect.iscoroutinefunction(function)
    result = "await _strike" if is_async else "_strike"
    if inspect.isgeneratorfunction(function):
        result = "yield from _strike"
    lines = [
        "def outer():",
        *(f"    {variable} = None" for variable in free),
        f"    {'async ' if is_async else ''}def inner(*args, **kwargs):",
        *(f"        nonlocal {variable}" for variable in free),
        f"        from {__name__} import strike_or_call as _strike",
        f"        return {result}({name!r}, args, kwargs)",
        "    return inner",
    ]
    if result == "yield from _strike":
        lines[-2] = f"        return (yield from _strike({name!r}, args, kwargs))"
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    return namespace["outer"]().__code__


@contextmanager
def raising_line(target: Target, line: int) -> Generator[Injection]:
    """Make a line of a function raise the first time that it is reached, in each thread."""
    injection = Injection()
    code = target.code

    def inside(frame: types.FrameType, event: str, _arg: Any) -> Any:
        if event == "line" and frame.f_lineno == line:
            injection.strike(f"{target.name}, line {line}")  # the interpreter stops tracing here
        return inside

    def trace(frame: types.FrameType, event: str, _arg: Any) -> Any:
        return inside if event == "call" and frame.f_code is code else None

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield injection
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
