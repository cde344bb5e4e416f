"""Evidence *exact*: the same call with the same result, several times in a row."""

from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit

Streak = tuple[int, int]
"""Units in the streak so far, and the index of its first step."""


class Exact:
    """The same call with the same result in a row.

    Args:
        ladder: Units in a row for each severity.
    """

    name = "exact"
    track = TOOLS
    strict = True
    fresh: Streak = (0, 0)
    _normalised = False

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(2, 3, 4)

    def advance(self, state: Streak, unit: Unit) -> tuple[Streak, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if unit.id != unit.ring[-1]:
            return self.fresh, None
        count, first = state if state[0] else (1, unit.ring_first[-1])
        count += 1
        state = (count, first)
        if unit.normalised is not self._normalised:
            return state, None
        return state, self._ladder.finding(unit.action_kind, unit.id, count, first, unit.slack)
