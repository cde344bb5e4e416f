"""Evidence *no progress*: for many units in a row, everything done was done before, with the same result."""

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit

_State = tuple[int, int]


class NoProgress:
    """Nothing new for many units, in whatever order: long rotations, and wandering among the same calls.

    Args:
        ladder: Units in a row without news for each severity.
    """

    name = "no_progress"
    track = TOOLS
    strict = False
    fresh: _State = (0, 0)

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(6, 8, 12)

    def advance(self, state: _State, unit: Unit) -> tuple[_State, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if not unit.stale:
            return self.fresh, None
        count, first = state
        first = first if count else unit.first
        count += 1
        if not self._ladder.level(count, unit.slack):
            return (count, first), None
        return (count, first), self._ladder.finding(semconv.KIND_NO_PROGRESS, 0, count, first, unit.slack)
