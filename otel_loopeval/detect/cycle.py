"""Evidence *cycle*: two to five units in rotation, each with the same result as the last time round."""

from dataclasses import replace
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit

_PERIODS: Final = (2, 3, 4, 5)
_Runs = tuple[int, ...]


class Cycle:
    """A rotation of two to five units.

    Args:
        ladder: Full rounds for each severity.
        track: Whether it watches tool calls (``TOOLS``) or messages (``OUTPUTS``).
    """

    strict = True
    fresh: _Runs = (0,) * (2 * len(_PERIODS))
    """For each period: units in a row that equal the one a period before, and the first step of it all."""

    def __init__(self, ladder: Ladder | None = None, track: str = TOOLS) -> None:
        self._ladder = ladder or Ladder(2, 3, 3)
        self.track = track
        self.name = "cycle" if track == TOOLS else "output_cycle"
        self._kind = semconv.KIND_CIRCULAR_PLAN if track == TOOLS else semconv.KIND_REPEATED_OUTPUT

    def advance(self, state: _Runs, unit: Unit) -> tuple[_Runs, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        ring = unit.ring
        runs: list[int] | None = None
        finding: Finding | None = None
        for at, period in enumerate(_PERIODS):
            if unit.id != ring[-period]:
                continue
            run = state[2 * at] + 1
            first = state[2 * at + 1] if run > 1 else unit.ring_first[-period]
            if runs is None:
                runs = list(self.fresh)
            runs[2 * at], runs[2 * at + 1] = run, first
            if run < period or finding is not None:
                continue
            # The same rotation may be entered at any of its members. All alike is a plain repetition, which
            # other evidence sees sooner.
            members = {unit.id, *ring[1 - period :]}
            if len(members) > 1:
                rounds = 1 + run // period
                identity = hash(tuple(sorted(members)))
                finding = self._ladder.finding(self._kind, identity, rounds, first, unit.slack)
                if run % period:
                    finding = replace(finding, grew=False)
        return (self.fresh if runs is None else tuple(runs)), finding
