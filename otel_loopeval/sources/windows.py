"""Paging by time, for servers that give the first so many of a window and no way to the others."""

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from otel_loopeval.sources.query import Query

_DEFAULT_NS = 7 * 86_400 * 10**9
_T = TypeVar("_T")


class Window(NamedTuple):
    """A time from ``since`` on and before ``until``, in nanoseconds since the epoch."""

    since: int
    until: int


def window_of(query: Query) -> Window:
    """The time that is asked for: up to now, and the last seven days, where it says nothing else.

    A server that is asked for all of time may well try.
    """
    until = query.until if query.until is not None else time.time_ns()
    since = query.since if query.since is not None else max(until - _DEFAULT_NS, 0)
    return Window(since, max(until, since + 1))


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):  # no NamedTuple: those are generic from Python 3.11 on
    """Something in a window: its key, when it began in nanoseconds since the epoch, and itself."""

    key: Hashable
    began_ns: int
    thing: _T


def newest_first(
    window: Window,
    page: Callable[[Window], tuple[list[Found[_T]], bool]],
    *,
    resolution_ns: int,
    all_wanted: bool,
    on_cut: Callable[[Window], object],
) -> Iterator[Found[_T]]:
    """What is in a window, each thing once.

    Args:
        window: The window.
        page: Gives things in a window, and whether there may be more there: then they are any of those there.
        resolution_ns: A window no longer than this is not split.
        all_wanted: That things are taken as they are found, since none will be left; otherwise the newest
            come first.
        on_cut: Told of a window that holds more than one page but is too short to be split.
    """
    seen: set[Hashable] = set()
    waiting = [window]
    while waiting:
        current = waiting.pop()
        found, more = page(current)
        middle = (current.since + current.until) // 2 // resolution_ns * resolution_ns
        split = more and current.since < middle < current.until
        if split:
            waiting += [Window(current.since, middle), Window(middle, current.until)]
        elif more:
            on_cut(current)
        if split and not all_wanted:
            continue
        for one in sorted(found, key=_began, reverse=True):
            if one.key not in seen:
                seen.add(one.key)
                yield one


def _began(found: Found[Any]) -> int:
    return found.began_ns
