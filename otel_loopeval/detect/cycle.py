"""Evidence *cycle*: two to five units in rotation, each with the same result as the last time round."""

from typing import Final

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit

_PERIODS: Final = (2, 3, 4, 5)
_Runs = tuple[tuple[int, int], ...]


class Cycle:
    """A rotation of two to five units.

    Args:
        ladder: Full rounds for each severity.
        track: Whether it watches tool calls (``TOOLS``) or messages (``OUTPUTS``).
    """

    fresh: _Runs = ((0, 0),) * len(_PERIODS)
    """For each period: units in a row that equal the one a period before, and the first step of it all."""

    def __init__(self, ladder: Ladder | None = None, track: str = TOOLS) -> None:
        self._ladder = ladder or Ladder(2, 3, 3)
        self.track = track
        self.name = "cycle" if track == TOOLS else "output_cycle"
        self._kind = semconv.KIND_CIRCULAR_PLAN if track == TOOLS else semconv.KIND_REPEATED_OUTPUT

    def advance(self, state: _Runs, unit: Unit) -> tuple[_Runs, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        ring = unit.ring
        if unit.id not in ring:
            return self.fresh, None
        runs = tuple(
            ((run + 1, first) if run else (1, unit.ring_first[period - 1]))
            if unit.id == ring[period - 1]
            else (0, 0)
            for (run, first), period in zip(state, _PERIODS, strict=True)
        )
        for (run, first), period in zip(runs, _PERIODS, strict=True):
            members = {unit.id, *ring[: period - 1]}
            # All members alike is a plain repetition, which other evidence sees sooner.
            if run >= period and len(members) > 1:
                rounds = 1 + run // period
                # The same rotation may be entered at any of its members.
                identity = hash(tuple(sorted(members)))
                level = self._ladder.level(rounds, unit.slack)
                return runs, Finding(self._kind, identity, rounds, first, level)
        return runs, None
