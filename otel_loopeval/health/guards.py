"""Guard events: what a loop guard or detector reported, whatever shape it used.

A guard is anything that watches a loop and steps in. Guards come in many shapes (dicts, dataclasses,
enums), so reading them is duck-typed; :class:`GuardEvent` is the one shape that everything in this
package uses afterwards.

Nothing here raises: a guard event is someone else's object, and a field that cannot be read is absent.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, cast

from otel_loopeval import semconv
from otel_loopeval.health.wire import as_int, as_text, as_time_ns

DOOM_LOOP_TYPES: Final = {
    "doom_loop": semconv.KIND_LOOP_DETECTED,
    "doom-loop": semconv.KIND_LOOP_DETECTED,
    "doomloop": semconv.KIND_LOOP_DETECTED,
    "loop_detected": semconv.KIND_LOOP_DETECTED,
    "repetition": semconv.KIND_REPEATED_ACTION,
    "repeated_action": semconv.KIND_REPEATED_ACTION,
    "repeated_failure": semconv.KIND_REPEATED_FAILURE,
    "no_progress": semconv.KIND_NO_PROGRESS,
    "circular_plan": semconv.KIND_CIRCULAR_PLAN,
    "resource_exhaustion": semconv.KIND_RESOURCE_EXHAUSTION,
    "repeated_output": semconv.KIND_REPEATED_OUTPUT,
}
"""The eleven ``type`` / ``event`` values (lower case) that say doom loop, and our kind for each."""

_RULE_KINDS: Final = {
    # praisonaiagents.escalation.loop_guard: code of a LoopGuardDecision
    "idempotent_warn": semconv.KIND_REPEATED_ACTION,
    "idempotent_block": semconv.KIND_REPEATED_ACTION,
    "idempotent_halt": semconv.KIND_REPEATED_ACTION,
    "mutating_warn": semconv.KIND_REPEATED_ACTION,
    "mutating_block": semconv.KIND_REPEATED_ACTION,
    "mutating_halt": semconv.KIND_REPEATED_ACTION,
    "no_progress_warn": semconv.KIND_NO_PROGRESS,
    "no_progress_halt": semconv.KIND_NO_PROGRESS,
    "time_exceeded": semconv.KIND_RESOURCE_EXHAUSTION,
    # praisonaiagents.agent.loop_detection: detector of a detect_tool_loop() dict
    "generic_repeat": semconv.KIND_REPEATED_ACTION,
    "poll_no_progress": semconv.KIND_NO_PROGRESS,
    "ping_pong": semconv.KIND_CIRCULAR_PLAN,
}
"""Rules of praisonaiagents' guards whose events name no type."""

_LEVEL_ACTIONS: Final = {"warning": semconv.ACTION_WARN, "critical": semconv.ACTION_BLOCK}
_RECOVERY_ACTIONS: Final = {"continue": semconv.ACTION_OBSERVE, "abort": semconv.ACTION_HALT}
_SEVERITIES: Final = ("notice", "warning", "doom_loop")
_GUARD_FIELDS: Final = ("is_loop", "loop_type", "doom_loop", "doom_loop_fired", "type", "event")
_EARLIEST_S: Final = 1e9  # 2001: an earlier timestamp counts from another epoch, such as the process start
_MISSING: Final = object()


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


def is_doom_loop_event(event: Any) -> bool:
    """Whether a guard event says that the run is in a doom loop.

    The precedence is that of ``praisonaiagents.eval.LoopEvaluator``, for dicts and objects alike: an
    ``is_loop`` that is not ``None`` decides by its truth; else a ``loop_type`` that is not ``None`` means
    yes; else a true ``doom_loop`` (or, where that is absent, ``doom_loop_fired``) means yes; else
    ``type`` (or, where that is absent, ``event``), a string or an enum of strings, must be one of
    :data:`DOOM_LOOP_TYPES` in any case.

    Args:
        event: Anything. A field that raises when read is absent.

    Returns:
        Whether it is a doom loop; false for whatever has none of these fields.
    """
    # Lists of events are long, and mostly of these two shapes with nothing odd in them.
    try:
        if type(event) is dict:
            return _dict_says_doom_loop(cast("dict[Any, Any]", event))
        if not isinstance(event, dict):
            return _object_says_doom_loop(event)
    except Exception:  # noqa: BLE001, S110 - something cannot be read: field by field, then
        pass
    return _says_doom_loop(event)


def _dict_says_doom_loop(event: dict[Any, Any]) -> bool:
    if "is_loop" in event and (is_loop := event["is_loop"]) is not None:
        return bool(is_loop)
    if "loop_type" in event and event["loop_type"] is not None:
        return True
    if "doom_loop" in event:
        if event["doom_loop"]:
            return True
    elif event.get("doom_loop_fired"):
        return True
    kind = event["type"] if "type" in event else event.get("event")
    return (kind.lower() if type(kind) is str else _word(kind)) in DOOM_LOOP_TYPES


def _object_says_doom_loop(event: Any) -> bool:
    is_loop = getattr(event, "is_loop", None)
    if is_loop is not None:
        return bool(is_loop)
    if getattr(event, "loop_type", None) is not None:
        return True
    flag = getattr(event, "doom_loop", _MISSING)
    if getattr(event, "doom_loop_fired", False) if flag is _MISSING else flag:
        return True
    kind = getattr(event, "type", _MISSING)
    if kind is _MISSING:
        kind = getattr(event, "event", None)
    return (kind.lower() if type(kind) is str else _word(kind)) in DOOM_LOOP_TYPES


def _says_doom_loop(event: Any) -> bool:
    """The same for any shape, where a field that cannot be read is absent."""
    is_loop = _truth(_field(event, "is_loop"))
    if is_loop is not None:
        return is_loop
    if _field(event, "loop_type") is not None:
        return True
    if _truth(_field(event, "doom_loop", "doom_loop_fired")):
        return True
    return _word(_field(event, "type", "event")) in DOOM_LOOP_TYPES


def guard_event_of(event: Any) -> GuardEvent:
    """Read any guard event into our own shape.

    Recognised are our :class:`GuardEvent`, dicts and objects with the fields of
    :func:`is_doom_loop_event`, a bare enum member whose value is one of :data:`DOOM_LOOP_TYPES`, and
    praisonaiagents' ``DoomLoopEvent``, ``DoomLoopResult``, ``LoopGuardDecision`` and
    ``detect_tool_loop()`` dict. The last two are no doom loop to :func:`is_doom_loop_event`, as in the
    package; here a guard that halted the turn, or called the loop critical, reports one. A doom loop
    that names no type is of kind ``loop_detected``; everything else without a known type is ``other``.

    Args:
        event: Anything. A value that is no text, number or enum value where its field wants one is absent.

    Returns:
        The event. Unreadable or unknown input gives one of kind ``other`` that is no doom loop; a source
        or action outside ``semconv.GUARD_SOURCES`` and ``GUARD_ACTIONS`` becomes the first of them.
    """
    # By its type: an object may say that it is of any class, as mocks do.
    return _own_event(event) if issubclass(type(event), GuardEvent) else _foreign_event(event)


def tally_guard_events(guard_events: Any) -> tuple[int, bool]:
    """Count guard events, and say whether one of them is a doom loop.

    Args:
        guard_events: A list or any other collection or iterable of events, a single dict or event, or
            ``None``. A collection is counted by its ``len()``, as in the package (a string by its
            characters). What an iterable yields before it raises counts.

    Returns:
        The number of events, and whether a doom loop fired.
    """
    if guard_events is None or _truth(guard_events) is False:
        return 0, False
    if _is_a(guard_events, dict):
        return 1, is_doom_loop_event(guard_events)
    try:
        count, events = len(guard_events), iter(guard_events)
    except Exception:  # noqa: BLE001 - no collection: one event, or an iterable without a length
        return _tally_uncounted(guard_events)
    try:
        return count, any(map(is_doom_loop_event, events))
    except Exception:  # noqa: BLE001 - the collection raised while it was read
        return count, False


def _tally_uncounted(guard_events: Any) -> tuple[int, bool]:
    # Some events can be iterated over (a pydantic model gives its fields): the fields tell them apart.
    if any(_field(guard_events, name) is not None for name in _GUARD_FIELDS):
        return 1, is_doom_loop_event(guard_events)
    try:
        events = iter(guard_events)
    except Exception:  # noqa: BLE001 - not iterable: an event of unknown shape
        return 1, False
    count, fired = 0, False
    with suppress(Exception):  # what came before an iterable raised did happen
        for event in events:
            count += 1
            fired = fired or is_doom_loop_event(event)
    return count, fired


def _own_event(event: GuardEvent) -> GuardEvent:
    return replace(
        event,
        kind=_kind(event.kind),
        doom_loop=is_doom_loop_event(event),
        source=_source(event.source),
        action=_action(event.action),
        tool=_str(event, "tool"),
        count=_int(event, "count"),
        iteration=_int(event, "iteration"),
        rule=_str(event, "rule"),
        agent=_str(event, "agent"),
        reason=_str(event, "reason"),
        key=_str(event, "key"),
        time_ns=as_time_ns(event.time_ns),
    )


def _foreign_event(event: Any) -> GuardEvent:
    word = _word(_field(event, "loop_type")) or _word(_field(event, "type", "event"))
    rule = _str(event, "rule", "code", "detector")
    doom_loop = is_doom_loop_event(event) or _has_halted(event)
    if not word and _is_a(event, Enum):
        word = _word(event)
        doom_loop = doom_loop or word in DOOM_LOOP_TYPES
    own_kind = _field(event, "kind")
    if word or own_kind is not None:
        kind = DOOM_LOOP_TYPES.get(word) or _kind(own_kind)
    else:
        kind = _RULE_KINDS.get(rule or "") or (
            semconv.KIND_LOOP_DETECTED if doom_loop else semconv.KIND_OTHER
        )
    details = _field(event, "metadata")
    severity = _word(_field(event, "severity"))
    return GuardEvent(
        kind=kind,
        doom_loop=doom_loop,
        source=_source(_field(event, "source")),
        action=_action_of(event),
        tool=_str(event, "tool", "tool_name") or _str(details, "tool_name"),
        count=_int(event, "count", "loop_count") or _int(details, "count", "actions_since_progress"),
        iteration=_int(event, "iteration"),
        rule=rule,
        agent=_str(event, "agent", "agent_name"),
        reason=_str(event, "reason", "description", "message"),
        severity=severity if severity in _SEVERITIES else None,
        key=_str(event, "key"),
        time_ns=as_time_ns(_field(event, "time_ns")) or _nanoseconds(_field(event, "timestamp")),
    )


def _has_halted(event: Any) -> bool:
    """Whether a guard of praisonaiagents that names no type stopped a stuck loop."""
    if _field(event, "code") is not None:
        return _word(_field(event, "action")) == semconv.ACTION_HALT
    return _field(event, "stuck") is True and _word(_field(event, "level")) == "critical"


def _action_of(event: Any) -> str:
    action = _word(_field(event, "action"))
    if action:
        return _action(action)
    recovery = _word(_field(event, "recovery_action"))
    if recovery:
        return _RECOVERY_ACTIONS.get(recovery, semconv.ACTION_RECOVER)
    return _LEVEL_ACTIONS.get(_word(_field(event, "level")), semconv.ACTION_OBSERVE)


def _kind(value: Any) -> str:
    return DOOM_LOOP_TYPES.get(_word(value), semconv.KIND_OTHER)


def _source(value: Any) -> str:
    return value if type(value) is str and value in semconv.GUARD_SOURCES else semconv.SOURCE_APPLICATION


def _action(value: Any) -> str:
    word = _word(value)
    return word if word in semconv.GUARD_ACTIONS else semconv.ACTION_OBSERVE


def _field(event: Any, *names: str) -> Any:
    """The first of the named keys (of a dict) or attributes (of anything else) that can be read."""
    for name in names:
        try:
            if isinstance(event, dict):
                if name in event:
                    return cast("Any", event[name])
            else:
                value = getattr(event, name, _MISSING)
                if value is not _MISSING:
                    return value
        except Exception:  # noqa: BLE001, PERF203, S112 - a property of someone else's may raise anything
            continue
    return None


def _first(event: Any, names: Iterable[str], accept: Callable[[Any], Any]) -> Any:
    return next((found for name in names if (found := accept(_field(event, name))) is not None), None)


def _str(event: Any, *names: str) -> str | None:
    return _first(event, names, as_text)


def _int(event: Any, *names: str) -> int | None:
    return _first(event, names, as_int)


def _nanoseconds(timestamp: Any) -> int | None:
    try:
        seconds = float(timestamp)
        return as_time_ns(int(seconds * 1e9)) if seconds > _EARLIEST_S else None
    except Exception:  # noqa: BLE001 - no finite number
        return None


def _word(value: Any) -> str:
    """The lower-cased text of a string or of an enum's value; empty for what cannot be read."""
    if value is None:
        return ""
    try:
        return str(getattr(value, "value", value)).lower()
    except Exception:  # noqa: BLE001 - __str__ of someone else's may raise anything
        return ""


def _truth(value: Any) -> bool | None:
    """Whether the value is true; ``None`` if it is ``None`` or does not say."""
    try:
        return None if value is None else bool(value)
    except Exception:  # noqa: BLE001 - an array has no single truth
        return None


def _is_a(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except Exception:  # noqa: BLE001 - __class__ can be a property that raises
        return False
