"""Evidence *interleaved*: a call comes back with the same result between calls that change nothing."""

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit


class Interleaved:
    """The same call with the same result again and again, while nothing was changed in between.

    A change is a call that may have an effect and did not fail, a call whose result moved on, a wait, a
    message of the user, or eight units without the call.

    Args:
        ladder: Sightings for each severity.
    """

    name = "interleaved"
    track = TOOLS
    strict = False
    fresh: None = None

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(4, 5, 6)

    def advance(self, state: None, unit: Unit) -> tuple[None, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if not self._ladder.level(unit.sightings, unit.slack):
            return state, None
        return state, self._ladder.finding(
            semconv.KIND_REPEATED_ACTION, unit.sighted, unit.sightings, unit.sighted_first, unit.slack
        )
