"""One agent's lane: what its newest unit is, what came before, and where each kind of evidence stands."""

from collections.abc import Sequence
from typing import Any

from otel_loopeval.detect.alarms import Alarms
from otel_loopeval.detect.evidence import AnyEvidence, Finding, Unit


class Track:
    """The units of one kind (tool calls, or messages) of one agent.

    Attributes:
        unit: The newest unit.
    """

    __slots__ = ("_before", "_evidence", "_fresh", "_states", "unit")

    def __init__(self, evidence: Sequence[AnyEvidence]) -> None:
        self._evidence = evidence
        self._fresh: tuple[Any, ...] = tuple(kind.fresh for kind in evidence)
        self._states = self._before = self._fresh
        self.unit = Unit()

    def open(self, index: int) -> Unit:
        """Begin a new unit.

        Args:
            index: Index of its first step.

        Returns:
            The unit.
        """
        unit = self.unit
        if unit.id:
            ring = unit.ring
            unit.ring = (unit.id, ring[0], ring[1], ring[2], ring[3])
            ring = unit.ring_first
            unit.ring_first = (unit.first, ring[0], ring[1], ring[2], ring[3])
        unit.first = index
        unit.previous_tool = unit.tool
        self._before = self._states
        return unit

    def news(self) -> None:
        """The newest unit learned something: every streak ends."""
        self._states = self._fresh

    def clear(self) -> None:
        """Forget everything: the user spoke."""
        self._states = self._before = self._fresh
        self.unit = Unit()

    def judge(self) -> list[tuple[int, str, Finding]]:
        """Show the newest unit to all evidence.

        Returns:
            Rank and name of the evidence, and what it found, in the order of the evidence.
        """
        unit = self.unit
        states: list[Any] = []
        found: list[tuple[int, str, Finding]] = []
        for rank, (kind, state) in enumerate(zip(self._evidence, self._before, strict=True)):
            after, finding = kind.advance(state, unit)
            states.append(after)
            if finding is not None:
                found.append((rank, kind.name, finding))
        self._states = tuple(states)
        return found


class Lane:
    """One agent of the run.

    Args:
        agent: Its name.
        number: Its number, in the order in which agents appeared.
        tools: Evidence over tool calls.
        outputs: Evidence over messages.
    """

    __slots__ = (
        "agent",
        "alarms",
        "epoch",
        "got",
        "growth",
        "idle",
        "members",
        "number",
        "ordinal",
        "output_turn",
        "outputs",
        "pause",
        "previous_members",
        "tools",
        "turn",
        "used",
    )

    def __init__(
        self, agent: str | None, number: int, tools: Sequence[AnyEvidence], outputs: Sequence[AnyEvidence]
    ) -> None:
        self.agent = agent
        self.number = number
        self.tools = Track(tools)
        self.outputs = Track(outputs)
        self.alarms = Alarms(agent)
        self.turn: Any = None
        self.output_turn: Any = None
        self.members: tuple[int, ...] = ()
        self.previous_members: tuple[int, ...] = ()
        self.got = 0
        self.ordinal = 0
        self.epoch = 0
        self.idle = 0
        self.pause = 0
        self.growth = 0
        self.used = 0

    def news(self) -> None:
        """Something was learned: every streak ends, that of messages too."""
        self.tools.news()
        self.outputs.news()

    def clear(self) -> None:
        """Forget everything: the user spoke."""
        self.tools.clear()
        self.outputs.clear()
        self.alarms.clear()
        self.turn = self.output_turn = None
        self.members = self.previous_members = ()
        self.got = 0
        self.epoch += 1
        self.pause = self.growth = 0
