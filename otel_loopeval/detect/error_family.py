"""Evidence *error family*: one tool fails in the same way again and again, whatever it is given."""

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import TOOLS, Finding, Ladder, Unit
from otel_loopeval.detect.normalise import error_family

_State = tuple[int, int, int]


class ErrorFamily:
    """The same tool failing in the same way in a row, under any arguments.

    Args:
        ladder: Units in a row for each severity.
    """

    name = "error_family"
    track = TOOLS
    strict = False
    fresh: _State = (0, 0, 0)

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(3, 4, 5)

    def advance(self, state: _State, unit: Unit) -> tuple[_State, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if unit.tool is None or not unit.failed:
            return self.fresh, None
        family = hash((unit.tool, error_family(unit.text)))
        known, count, first = state
        if family != known:
            return (family, 1, unit.first), None
        count += 1
        kind = semconv.KIND_REPEATED_FAILURE
        return (family, count, first), self._ladder.finding(kind, family, count, first, unit.slack)
