"""What the detector says about one step."""

from dataclasses import dataclass

from otel_loopeval.health.guards import GuardEvent


@dataclass(frozen=True, slots=True)
class Observation:
    """What the detector makes of one step.

    Attributes:
        redundant: The step did the same work as the unit (turn, or message) before it in its agent, and
            nothing new was learned. False after a wait, since then looking again is the point.
        repeats: Earlier sightings of the same call in its agent, with whatever result, as far back as the
            detector remembers (for a message: of the same message in a row).
        evidence: Name of the evidence behind ``event``, or else behind ``redundant``; ``None`` with neither.
        event: What to report, when a streak crosses a severity with this step. It has ``source``
            ``detector``, ``action`` ``observe``, the ``severity`` (``notice``, ``warning``, ``doom_loop``),
            ``rule``, ``kind``, ``count``, ``agent``, ``tool``, ``first_step`` and ``last_step`` (indices of
            the steps as they were shown, from 0) and ``key`` (identity of the streak).
    """

    redundant: bool = False
    repeats: int = 0
    evidence: str | None = None
    event: GuardEvent | None = None


NOTHING = Observation()
"""Nothing to say: nearly every step."""
