"""Guard events: what a loop guard or detector reported, whatever shape it used.

A guard is anything that watches a loop and steps in. Guards come in many shapes (dicts, dataclasses,
enums), so reading them is duck-typed; :class:`GuardEvent` is the one shape that everything in this
package uses afterwards.
"""

from dataclasses import dataclass

from otel_loopeval import semconv


@dataclass(frozen=True, slots=True)
class GuardEvent:
    """One firing of a guard or detector, in this package's own shape.

    Attributes:
        kind: What was seen, one of ``semconv.GUARD_KINDS``.
        doom_loop: Whether the event says that the run is in a doom loop.
        source: Who reported it, one of ``semconv.GUARD_SOURCES``.
        action: What the guard did about it, one of ``semconv.GUARD_ACTIONS``.
        tool: Name of the tool concerned.
        count: Repetitions seen so far.
        iteration: Number of the iteration in which it fired, from 1.
        rule: The rule that fired, in the guard's own word for it (low cardinality).
        agent: Name of the agent concerned, where a run has several.
        reason: The guard's explanation. Content: it leaves the process only with content capture on.
        severity: ``"notice"``, ``"warning"`` or ``"doom_loop"``, for our detectors.
        key: Identity of the streak, so that what fires again on the same streak is an intervention
            and not a second doom loop. Opaque; never exported.
        first_step: Index of the first step of the streak, from 0, for our detectors.
        last_step: Index of the last step of the streak.
        time_ns: When it fired, in nanoseconds since the epoch.
    """

    kind: str = semconv.KIND_OTHER
    doom_loop: bool = False
    source: str = semconv.SOURCE_APPLICATION
    action: str = semconv.ACTION_OBSERVE
    tool: str | None = None
    count: int | None = None
    iteration: int | None = None
    rule: str | None = None
    agent: str | None = None
    reason: str | None = None
    severity: str | None = None
    key: str | None = None
    first_step: int | None = None
    last_step: int | None = None
    time_ns: int | None = None
