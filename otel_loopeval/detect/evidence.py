"""The Protocol behind which each kind of evidence lives, and what passes through it.

To add a kind of evidence, write a class with the three members of :class:`Evidence` and hand it to
``DoomLoopDetector(evidence=(*default_evidence(), MyEvidence()))``.
"""

from array import array
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from otel_loopeval import semconv
from otel_loopeval.detect.outcomes import looks_failed
from otel_loopeval.health.drafts import quick

NOTICE: Final = "notice"
WARNING: Final = "warning"
DOOM_LOOP: Final = "doom_loop"
SEVERITIES: Final = ("", NOTICE, WARNING, DOOM_LOOP)
"""Severities by level, from 0 (nothing to report) to 3."""

TOOLS: Final = "tools"
OUTPUTS: Final = "outputs"


@dataclass(frozen=True, slots=True)
class Finding:
    """A streak that one kind of evidence sees running through the newest unit.

    Attributes:
        kind: What it is, one of ``semconv.GUARD_KINDS``.
        identity: What repeats, so that severity is kept for each repeated thing apart.
        count: How often it was seen in the streak.
        first_step: Index of the first step of the streak.
        level: How bad it is, an index into :data:`SEVERITIES`.
        grew: Whether it became that bad with this unit.
    """

    kind: str
    identity: int
    count: int
    first_step: int
    level: int
    grew: bool = True


_new_finding = quick(Finding)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Counts at which a streak becomes worth each severity.

    Attributes:
        notice: Count for ``notice``.
        warning: Count for ``warning``.
        doom_loop: Count for ``doom_loop``.

    Raises:
        ValueError: The counts are not in ascending order, or below 1.
    """

    notice: int
    warning: int
    doom_loop: int

    def __post_init__(self) -> None:
        if not 1 <= self.notice <= self.warning <= self.doom_loop:
            raise ValueError(
                "notice, warning and doom_loop must be counts with 1 <= notice <= warning <= doom_loop, "
                f"not {self.notice}, {self.warning}, {self.doom_loop}"
            )

    def level(self, count: int, slack: float = 1.0) -> int:
        """Level of a count.

        Args:
            count: How often it was seen.
            slack: Factor by which every count of the ladder is raised, where less is known.

        Returns:
            Index into :data:`SEVERITIES`.
        """
        if count < self.notice * slack:
            return 0
        return 3 if count >= self.doom_loop * slack else 2 if count >= self.warning * slack else 1

    def finding(self, kind: str, identity: int, count: int, first_step: int, slack: float = 1.0) -> Finding:
        """Make a finding of a streak whose count grew by one with the newest unit.

        Args:
            kind: What it is, one of ``semconv.GUARD_KINDS``.
            identity: What repeats.
            count: How often it was seen.
            first_step: Index of the first step of the streak.
            slack: As for :meth:`level`.

        Returns:
            The finding.
        """
        level = self.level(count, slack)
        return _new_finding(kind, identity, count, first_step, level, level > self.level(count - 1, slack))


class Unit:
    """The newest unit of one agent (all tool calls of one turn, or one message), with what came before it.

    The object is reused: evidence reads it, and keeps nothing of it but numbers.

    Attributes:
        first: Index of its first step.
        last: Index of its last step.
        id: Identity of the work and what it brought.
        ring: Identities of the five units before, the newest last; 0 where there was none.
        ring_first: Indices of the first steps of those units.
        tool: Name of the tool, or ``None`` if there are several or it is a message.
        previous_tool: The same of the unit before.
        normalised: Whether the identity rests on normalised arguments or results.
        slack: Factor by which limits are raised, since results are not known or an outage cannot be timed.
        stale: Whether all of it was seen before.
        echoes: Whether its tool only looks and brought the very same long result as in the unit before, under
            other arguments.
        sightings: How often its newest call was seen with this result while nothing changed.
        sighted: Identity of that call.
        sighted_first: Index of the first step of those sightings.
        error: Whether an error was given.
        text: Text of the result or error (for a message: the message), only while the unit is judged.
    """

    __slots__ = (
        "_failed",
        "echoes",
        "error",
        "first",
        "id",
        "last",
        "normalised",
        "previous_tool",
        "ring",
        "ring_first",
        "sighted",
        "sighted_first",
        "sightings",
        "slack",
        "stale",
        "text",
        "tool",
    )

    def __init__(self) -> None:
        self.first = self.last = 0
        self.id = 0
        # Arrays take a third of the room of tuples of integers, and a run may have many agents.
        self.ring = array("q", (0,) * 5)
        self.ring_first = array("q", (0,) * 5)
        self.tool: str | None = None
        self.previous_tool: str | None = None
        self.normalised = False
        self.slack = 1.0
        self.stale = self.echoes = False
        self.sightings = 0
        self.sighted = 0
        self.sighted_first = 0
        self.error = False
        self.text = ""
        self._failed: bool | None = None

    def forget_outcome(self) -> None:
        """Make :attr:`failed` look again: the result has changed."""
        self._failed = None

    @property
    def failed(self) -> bool:
        """Whether the unit failed: an error was given, or the result reads like one."""
        if self._failed is None:
            self._failed = self.error or looks_failed(self.text)
        return self._failed

    @property
    def action_kind(self) -> str:
        """The guard kind of a repetition of this unit."""
        return semconv.KIND_REPEATED_FAILURE if self.failed else semconv.KIND_REPEATED_ACTION


State = TypeVar("State")


class Evidence(Protocol[State]):
    """One kind of evidence for a loop: a pure function over its own small state.

    The detector keeps one state for each agent, hands it back with the next unit, and starts it anew when
    a unit brings news (a call not seen before that did not fail, or a new result), when the user speaks, or
    when the agent waited. When a further parallel call joins a unit, the unit is judged again from the
    state before it.

    Attributes:
        name: Name of the rule: it becomes ``GuardEvent.rule``, so of low cardinality.
        track: :data:`TOOLS` or :data:`OUTPUTS`: which units it is shown.
        strict: Whether it sees the whole of a streak (a row, a rotation) rather than a symptom. What is not
            strict keeps silent where a loop was reported already.
        fresh: State at the start; immutable, as every state.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - in the class docstring
    @property
    def track(self) -> str: ...  # noqa: D102
    @property
    def strict(self) -> bool: ...  # noqa: D102
    @property
    def fresh(self) -> State: ...  # noqa: D102

    def advance(self, state: State, unit: Unit) -> tuple[State, Finding | None]:
        """Judge the newest unit.

        Args:
            state: What the last call returned, or :attr:`fresh`.
            unit: The newest unit.

        Returns:
            The next state, and the streak that runs through the unit, if there is one.
        """
        ...


AnyEvidence = Evidence[Any]
