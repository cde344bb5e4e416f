"""One agent's lane: what its newest unit is, what came before, and where each kind of evidence stands."""

from collections.abc import Sequence
from typing import Any, Final

from otel_loopeval.detect.alarms import SYMPTOM, Alarms
from otel_loopeval.detect.evidence import AnyEvidence, Finding, Unit

_MEMBERS: Final = 16


class Track:
    """The units of one kind (tool calls, or messages) of one agent.

    Attributes:
        unit: The newest unit.
        fresh: States of the evidence at the start.
        states: States of the evidence after the newest unit.
    """

    __slots__ = ("_before", "_evidence", "fresh", "states", "unit")

    def __init__(self, evidence: Sequence[AnyEvidence], fresh: tuple[Any, ...]) -> None:
        self._evidence = evidence
        self.fresh = self.states = self._before = fresh
        self.unit = Unit()

    def open(self, index: int, identity: int) -> Unit:
        """Begin a new unit.

        Args:
            index: Index of its first step.
            identity: Identity of what it does and what it brought.

        Returns:
            The unit.
        """
        unit = self.unit
        unit.ring.append(unit.id)
        unit.ring_first.append(unit.first)
        del unit.ring[0], unit.ring_first[0]
        unit.id = identity or 1
        unit.first = unit.last = index
        self._before = self.states
        return unit

    def news(self) -> None:
        """The newest unit learned something: every streak ends."""
        self.states = self.fresh

    def clear(self) -> None:
        """Forget everything: the user spoke."""
        self.states = self._before = self.fresh
        self.unit = Unit()

    def judge(self) -> Sequence[tuple[int, str, Finding]]:
        """Show the newest unit to all evidence.

        Returns:
            Rank and name of the evidence, and what it found, in the order of the evidence.
        """
        unit = self.unit
        states: list[Any] = []
        found: list[tuple[int, str, Finding]] = []
        for rank, kind in enumerate(self._evidence):
            after, finding = kind.advance(self._before[rank], unit)
            states.append(after)
            if finding is not None:
                found.append((rank if kind.strict else SYMPTOM, kind.name, finding))
        self.states = tuple(states)
        return found


class Lane:
    """One agent of the run.

    Args:
        agent: Its name.
        number: Its number, in the order in which agents appeared.
        tools: Track of its tool calls.
        outputs: Track of its messages.

    Attributes:
        alarms: What was reported of it.
        turn: Turn of its newest tool call.
        output_turn: Turn of its newest message.
        members: Identities of the calls of the newest unit.
        previous_members: The same of the unit before.
        got: Hash of the newest result.
        own_key: Key of the newest call, by its arguments as they are; 0 if they are not known.
        mark: Units so far, and in the low 16 bits the epoch: it grows with every change that the agent made
            or saw, and wraps around.
        idle: Idle time of the run at the newest unit, in nanoseconds.
        pause: Idle time between the newest unit and the one before, in nanoseconds.
        growth: Pauses in a row that grew.
        used: Index of its newest step.
        called: Whether a tool was called since the newest message.
    """

    __slots__ = (
        "agent",
        "alarms",
        "called",
        "got",
        "growth",
        "idle",
        "mark",
        "members",
        "number",
        "output_turn",
        "outputs",
        "own_key",
        "pause",
        "previous_members",
        "tools",
        "turn",
        "used",
    )

    def __init__(self, agent: str | None, number: int, tools: Track, outputs: Track) -> None:
        self.agent = agent
        self.number = number
        self.tools = tools
        self.outputs = outputs
        self.alarms = Alarms()
        self.turn: Any = None
        self.output_turn: Any = None
        self.members: tuple[int, ...] = ()
        self.previous_members: tuple[int, ...] = ()
        self.got = self.own_key = 0
        self.mark = 0
        self.idle = 0
        self.pause = 0
        self.growth = 0
        self.used = 0
        self.called = False

    def open(self, member: int, index: int) -> Unit:
        """Begin a unit with a call.

        Args:
            member: Identity of the call and what it brought.
            index: Index of the step.

        Returns:
            The unit.
        """
        unit = self.tools.open(index, member)
        unit.previous_tool = unit.tool
        self.mark += 1 << 16
        self.previous_members = self.members
        self.members = (member,)
        return unit

    def join(self, member: int, index: int) -> Unit:
        """Add a parallel call to the newest unit, which is the set of its calls, in whatever order.

        Args:
            member: Identity of the call and what it brought.
            index: Index of the step.

        Returns:
            The unit.
        """
        unit = self.tools.unit
        unit.last = index
        if member not in self.members:
            if len(self.members) < _MEMBERS:
                self.members = (*self.members, member)
                unit.id = hash(tuple(sorted(self.members))) or 1
            else:
                unit.id = hash((unit.id, member)) or 1
        return unit

    def changed(self) -> None:
        """Something changed: looking again is verification."""
        self.mark = self.mark & ~0xFFFF | self.mark + 1 & 0xFFFF

    def news(self) -> None:
        """Something was learned: every streak ends, that of messages too."""
        track = self.tools
        track.states = track.fresh
        track = self.outputs
        track.states = track.fresh

    def clear(self) -> None:
        """Forget everything: the user spoke."""
        self.tools.clear()
        self.outputs.clear()
        self.alarms.clear()
        self.turn = self.output_turn = None
        self.members = self.previous_members = ()
        self.got = self.own_key = 0
        self.changed()
        self.pause = self.growth = 0
