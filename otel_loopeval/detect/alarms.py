"""Severity, kept per rule and per repeated thing, so that a standing alarm hides no new one."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_loopeval.detect.evidence import SEVERITIES, Finding

_KEPT: Final = 3
_GAP: Final = 8
SYMPTOM: Final = 1000
"""Rank of evidence that is not strict."""
_DOOM: Final = len(SEVERITIES) - 1


class _Alarm(NamedTuple):
    level: int
    last: int
    at: int
    rank: int
    first_rank: int  # the rule that reported the streak first
    first_step: int  # and the streak's first step


class Raised(NamedTuple):
    """An alarm that grew worse.

    Attributes:
        rule: Name of the evidence.
        finding: What it found.
        streak: Identity of the streak in its agent: rank of the evidence that reported it first, and the
            index of its first step.
    """

    rule: str
    finding: Finding
    streak: tuple[int, int]


class Alarms:
    """The alarms of one agent: which streaks were reported, and how bad; the three worst and latest."""

    __slots__ = ("_standing",)

    def __init__(self) -> None:
        # Three at most: a list of tuples takes half the room of a dictionary.
        self._standing: list[_Alarm] = []

    def clear(self) -> None:
        """Forget all alarms."""
        self._standing = []

    def judge(self, found: Sequence[tuple[int, str, Finding]], step: int) -> Raised | None:
        """Take in what the evidence found in one unit.

        A streak seen by several kinds of evidence is reported once: while its doom loop stands, and eight
        steps longer, evidence of the same or a higher rank keeps silent; then it goes on with that streak.
        A streak that breaks off and comes back within eight steps is the same streak.

        Args:
            found: Rank (its place for strict evidence, :data:`SYMPTOM` for other), name of the rule and
                finding, in ascending order.
            step: Index of the newest step.

        Returns:
            The worst alarm that grew worse, if any did.
        """
        worst: Raised | None = None
        worst_level = 0
        for rank, rule, finding in found:
            level = finding.level
            if not level:
                continue
            at = hash((rule, finding.identity))
            known = next((alarm for alarm in self._standing if alarm.at == at), None)
            if known is not None:
                self._standing.remove(known)
            rises = True
            if known is None or finding.first_step > known.last + _GAP:
                # An alarm that was forgotten, since only three are kept, is not raised again.
                rises = finding.grew
                known = _Alarm(0, step, at, rank, rank, finding.first_step)
            streak = (known.first_rank, known.first_step)
            if known.level < level:
                other = self._loop_in(rank, finding)
                if other is not None and step <= other.last + _GAP:
                    level = known.level
                elif other is not None:
                    streak = (other.first_rank, other.first_step)
            self._standing.append(_Alarm(max(level, known.level), step, at, rank, *streak))
            if len(self._standing) > _KEPT:
                self._standing.remove(min(self._standing))
            if rises and level > known.level and level > worst_level:
                worst, worst_level = Raised(rule, finding, streak), level
            if level == _DOOM:
                break
        return worst

    def _loop_in(self, rank: int, finding: Finding) -> _Alarm | None:
        # The loop that was reported in the same streak.
        for alarm in reversed(self._standing):
            if alarm.level == _DOOM and alarm.rank <= rank and alarm.last >= finding.first_step:
                return alarm
        return None
