"""Alarms that stand: guards are level-triggered, and one alarm is reported once."""

from collections.abc import Hashable
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.health.captured import ByIdentity

_RANKS: Final = {
    semconv.ACTION_OBSERVE: 1,
    semconv.ACTION_WARN: 2,
    semconv.ACTION_RECOVER: 3,
    semconv.ACTION_BLOCK: 4,
    semconv.ACTION_HALT: 5,
}
_MOST_ALARMS = 100
_MOST_GUARDS = 200


class Alarms:
    """The alarms of guards of one kind that stand now, each with the hardest action so far.

    Guards are told apart by identity and not kept alive by their alarms; but what cannot be referenced
    weakly, such as a list, is held while an alarm of its stands.
    """

    def __init__(self) -> None:
        self._by_guard: ByIdentity[dict[Hashable, int]] = ByIdentity(_MOST_GUARDS, holds=True)

    def rises(self, guard: object, key: Hashable = None, action: str = semconv.ACTION_OBSERVE) -> bool:
        """Whether an alarm is to be reported: it did not stand, or the guard acts harder than before.

        Args:
            guard: Whose alarm.
            key: Which of its alarms.
            action: What the guard does about it, one of ``semconv.GUARD_ACTIONS``.
        """
        standing = self._by_guard.get(guard)
        if standing is None:
            standing = dict[Hashable, int]()
            self._by_guard.set(guard, standing)
        rank = _RANKS[action]
        if standing.get(key, 0) >= rank:
            return False
        if len(standing) >= _MOST_ALARMS:
            standing.clear()
        standing[key] = rank
        return True

    def stand(self, guard: object, *keys: Hashable) -> bool:
        """Whether an alarm of the guard stands, or one of these if some are named."""
        standing = self._by_guard.get(guard)
        return bool(standing) and (not keys or any(key in standing for key in keys))

    def over(self, guard: object, *keys: Hashable) -> None:
        """The guard does not see this any more: these alarms of its end, or all of them if none is named."""
        standing = self._by_guard.get(guard)
        if not standing:
            return
        for key in keys:
            standing.pop(key, None)
        if not keys or not standing:
            self._by_guard.pop(guard)

    def clear(self) -> None:
        """Every alarm is over."""
        self._by_guard.clear()
