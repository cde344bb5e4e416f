"""Severity, kept per rule and per repeated thing, so that a standing alarm hides no new one."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_loopeval.detect.evidence import SEVERITIES, Finding

_KEPT: Final = 4
_GAP: Final = 8
_DOOM: Final = len(SEVERITIES) - 1


class _Alarm(NamedTuple):
    level: int
    rank: int
    last: int
    streak: tuple[int, int]  # rank of the rule that reported it first, and its first step


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
    """The alarms of one agent: which streaks were reported, and how bad; the four worst and latest."""

    __slots__ = ("_standing",)

    def __init__(self) -> None:
        self._standing: dict[int, _Alarm] = {}

    def clear(self) -> None:
        """Forget all alarms."""
        self._standing = {}

    def judge(self, found: Sequence[tuple[int, str, Finding]], step: int) -> Raised | None:
        """Take in what the evidence found in one unit.

        A streak seen by several kinds of evidence is reported by the most specific one: while that one's
        doom loop stands, and eight steps longer, broader ones keep silent; then they go on with its streak.
        A streak that breaks off and comes back within eight steps is the same streak.

        Args:
            found: Rank (most specific first, in ascending order), name of the rule and finding.
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
            at = hash((rank, finding.identity))
            known = self._standing.pop(at, None)
            if known is None or finding.first_step > known.last + _GAP:
                known = _Alarm(0, rank, step, (rank, finding.first_step))
            streak = known.streak
            if known.level < level == _DOOM:
                narrower = self._narrower(rank, finding)
                if narrower is not None and step <= narrower.last + _GAP:
                    level = known.level
                elif narrower is not None:
                    streak = narrower.streak
            self._standing[at] = _Alarm(max(level, known.level), rank, step, streak)
            if len(self._standing) > _KEPT:
                del self._standing[min(self._standing, key=self._weight)]
            if level > known.level and level > worst_level:
                worst, worst_level = Raised(rule, finding, streak), level
            if level == _DOOM:
                break
        return worst

    def _weight(self, at: int) -> tuple[int, int]:
        alarm = self._standing[at]
        return alarm.level, alarm.last

    def _narrower(self, rank: int, finding: Finding) -> _Alarm | None:
        # The loop that a more specific rule reported in the same streak.
        for alarm in reversed(self._standing.values()):
            if alarm.level == _DOOM and alarm.rank < rank and alarm.last >= finding.first_step:
                return alarm
        return None
