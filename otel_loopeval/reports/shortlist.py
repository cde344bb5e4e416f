"""The few of many runs that people are shown."""

from otel_loopeval.reports.records import RunRecord


class Shortlist:
    """Keeps the runs that fail the gate, then unhealthy ones, those without a verdict, and healthy ones.

    Of each kind it keeps the first that came.

    Args:
        room: How many to keep.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: tuple[list[RunRecord], ...] = ([], [], [], [])
        self._seen = 0

    def add(self, record: RunRecord, failed: tuple[str, ...]) -> None:
        """Take a run, and the conditions on which it fails."""
        self._seen += 1
        rank = 0 if failed else 1 if record.passed is False else 2 if record.passed is None else 3
        if len(self._kept[rank]) < self._room:
            self._kept[rank].append(record)

    @property
    def runs(self) -> list[RunRecord]:
        """The runs that are shown, in that order."""
        return [record for kept in self._kept for record in kept][: self._room]

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self._seen - len(self.runs)
