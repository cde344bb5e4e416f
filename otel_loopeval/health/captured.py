"""Guard events by the result of the loop in which guards reported them.

Instrumentations remember the events of a run when it ends with a result; evaluators that are given the
result and no events ask for them. Where nothing is instrumented nothing is remembered.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent

T = TypeVar("T")

_MOST_OBJECTS = 1_000


class ByIdentity(Generic[T]):
    """Values by object: whatever its equality and hash, and without keeping it alive.

    No lock: what the garbage collector calls may come at any time, also in the thread that would hold it.

    Args:
        most: Objects to remember; the oldest are forgotten first.
        holds: Keep objects alive that cannot be referenced weakly, such as lists.
    """

    __slots__ = ("_holds", "_known", "_most")

    def __init__(self, most: int = _MOST_OBJECTS, *, holds: bool = False) -> None:
        self._known: dict[int, tuple[Callable[[], Any], T]] = {}
        self._most = most
        self._holds = holds

    def __len__(self) -> int:
        return len(self._known)

    def get(self, subject: object) -> T | None:
        """The value of this very object, or None."""
        known = self._known.get(id(subject))
        return known[1] if known is not None and known[0]() is subject else None

    def set(self, subject: object, value: T) -> None:
        """Give the object a value.

        Raises:
            TypeError: The object cannot be referenced weakly, and is not to be held.
        """
        key = id(subject)

        def forget(dead: Callable[[], Any]) -> None:
            known = self._known.get(key)
            if known is not None and known[0] is dead:  # else another object has its address by now
                self._known.pop(key, None)

        reference: Callable[[], Any]
        try:
            reference = ref(subject, forget)
        except TypeError:
            if not self._holds:
                raise
            reference = partial(_same, subject)
        self._known[key] = (reference, value)
        if len(self._known) > self._most:
            for oldest in list(self._known)[: len(self._known) - self._most]:
                self._known.pop(oldest, None)

    def pop(self, subject: object) -> T | None:
        """The value of this very object, which is forgotten, or None."""
        value = self.get(subject)
        if value is not None:
            self._known.pop(id(subject), None)
        return value

    def clear(self) -> None:
        """Forget every object."""
        self._known.clear()


def _same(subject: T) -> T:
    return subject


_events: ByIdentity[tuple[GuardEvent, ...]] = ByIdentity()


def remember_guard_events(
    loop_result: object, events: Iterable[GuardEvent], *, fired_inside: bool = False
) -> None:
    """Remember what guards reported in the run that ended with this result.

    Results that cannot be referenced weakly (None, a string) are not remembered: they would be kept alive.

    Args:
        loop_result: The result, of any kind.
        events: The guard events of the run; may be empty.
        fired_inside: Whether a doom loop fired in a run inside this one: it counts as one more event, of
            kind ``loop_detected``, if none of the run's own is a doom loop.
    """
    reported = tuple(events)
    if fired_inside and not any(event.doom_loop for event in reported):
        reported += (GuardEvent(kind=semconv.KIND_LOOP_DETECTED, doom_loop=True),)
    with suppress(TypeError):
        _events.set(loop_result, reported)


def captured_guard_events(loop_result: object) -> tuple[GuardEvent, ...] | None:
    """What guards reported in the run that ended with this result.

    Returns:
        The events, in order; None if the run was not followed, or too long ago: the last 1,000 results
        that are still in use are remembered.
    """
    return _events.get(loop_result)


def forget_guard_events() -> None:
    """Forget the events of every run."""
    _events.clear()
