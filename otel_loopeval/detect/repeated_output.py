"""Evidence *repeated output*: the same message in a row, while no tool brought anything new."""

from otel_loopeval import semconv
from otel_loopeval.detect.evidence import OUTPUTS, Finding, Ladder, Unit

_State = tuple[int, int]


class RepeatedOutput:
    """The same message of the model several times in a row.

    Args:
        ladder: Messages in a row for each severity.
    """

    name = "repeated_output"
    track = OUTPUTS
    strict = True
    fresh: _State = (0, 0)

    def __init__(self, ladder: Ladder | None = None) -> None:
        self._ladder = ladder or Ladder(2, 2, 3)

    def advance(self, state: _State, unit: Unit) -> tuple[_State, Finding | None]:
        """See :class:`~otel_loopeval.detect.evidence.Evidence`."""
        if unit.id != unit.ring[-1]:
            return self.fresh, None
        count, first = state if state[0] else (1, unit.ring_first[-1])
        count += 1
        return (count, first), self._ladder.finding(
            semconv.KIND_REPEATED_OUTPUT, unit.id, count, first, unit.slack
        )
