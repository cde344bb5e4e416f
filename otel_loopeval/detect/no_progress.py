"""Evidence *no progress*: for many units in a row, everything done was done before, with the same result."""

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit

_State = tuple[int, int, int, int]


class NoProgress:
    """Nothing new for many units, in whatever order: long rotations, and wandering among the same calls.

    Also: one tool that only looks brings the very same long result again and again, whatever it is asked.

    Args:
        ladder: Units in a row without news for each severity.
        echoes: Units in a row with the same long result for each severity.
    """

    name = "no_progress"
    track = TOOLS
    strict = False
    fresh: _State = (0, 0, 0, 0)
    """Units in a row without news, and their first step; the same for units with one result."""

    def __init__(self, ladder: Ladder | None = None, echoes: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(6, 8, 12)
        self._echoes = echoes or Ladder(4, 5, 6)

    def advance(self, state: _State, unit: Unit) -> tuple[_State, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        count, first, echoes, began = state
        if unit.echoes or (unit.stale and unit.id == unit.ring[-1] and echoes):
            echoes, began = (echoes + 1, began) if echoes else (2, unit.ring_first[-1])
        else:
            echoes = began = 0
        if unit.stale:
            count, first = count + 1, first if count else unit.first
        else:
            count = first = 0
        state = (count, first, echoes, began)
        if echoes and self._echoes.level(echoes, unit.slack) >= self._ladder.level(count, unit.slack):
            ladder, count, first = self._echoes, echoes, began
        else:
            ladder = self._ladder
        if not ladder.level(count, unit.slack):
            return state, None
        return state, ladder.finding(semconv.KIND_NO_PROGRESS, 0, count, first, unit.slack)
