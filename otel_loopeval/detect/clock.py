"""Time as the steps tell it: how long nothing happened, as opposed to the model or a tool being at work."""

from typing import Final

_SECOND: Final = 1_000_000_000


class Clock:
    """Idle time of a run, from the times of its steps; nothing else is read.

    A stretch counts as idle when no step of any agent covers it. Where the model's calls are shown with their
    times, thinking is not idle; where they are not, it cannot be told apart.

    Attributes:
        idle: Idle time so far, in nanoseconds. Only differences mean something.
    """

    __slots__ = ("_now", "idle")

    def __init__(self) -> None:
        self.idle = 0
        self._now: int | None = None

    def see(self, start: int | None, end: int | None) -> int:
        """Take in the times of a step.

        Args:
            start: When it began, in nanoseconds.
            end: When it ended.

        Returns:
            How long it took, in nanoseconds; 0 where it is not known.
        """
        if type(start) is not int:
            if type(end) is not int:
                return 0
            start = end
        if type(end) is not int or end < start:
            end = start
        now = self._now
        if now is None:
            self._now = end
            return end - start
        if start > now:
            self.idle += start - now
        if end > now:
            self._now = end
        return end - start

    def skip(self, until: int | None) -> None:
        """Pass over the time up to a moment without counting it: the user was thinking.

        Args:
            until: The moment, in nanoseconds.
        """
        if type(until) is int and (self._now is None or until > self._now):
            self._now = until

    @property
    def known(self) -> bool:
        """Whether any step had a time."""
        return self._now is not None


def seconds(value: float) -> int:
    """Convert seconds to nanoseconds."""
    return int(value * _SECOND)
