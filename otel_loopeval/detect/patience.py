"""Waiting is not looping: slow polls, calls that wait, and retries of an outage with growing delays."""

from typing import Final

from otel_loopeval.detect.clock import Clock, seconds
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.outcomes import looks_failed, looks_like_outage, looks_pending, waits
from otel_loopeval.detect.recognition import Recognised

_WAIT: Final = seconds(5)
_OUTAGE: Final = seconds(10)
_BLOCKING: Final = seconds(30)
_GROWN_TWICE: Final = 2
_UNTIMED_OUTAGE: Final = 2.0
_UNKNOWN_RESULT: Final = 1.25


def waits_on_purpose(call: Recognised, duration: int, clock: Clock) -> bool:
    """Whether the call itself is a wait.

    Args:
        call: The call.
        duration: How long it took, in nanoseconds.
        clock: The run's clock: without times, the name alone decides.
    """
    if duration < _WAIT and not (call.same and not clock.known):
        return False
    return waits(call.tool, call.arguments)


def slack(call: Recognised, clock: Clock) -> float:
    """Factor by which limits are raised, where less is known.

    Args:
        call: The call.
        clock: The run's clock.

    Returns:
        1.25 without a result, 2 for an outage without times, else 1.
    """
    if not call.known:
        return _UNKNOWN_RESULT
    return (
        _UNTIMED_OUTAGE
        if not clock.known and looks_like_outage(call.text) and looks_failed(call.text)
        else 1.0
    )


def is_patient(
    call: Recognised, lane: Lane, pause: int, duration: int, poll_gap: int, *, failed: bool
) -> bool:
    """Whether looking again is patience and no loop.

    Args:
        call: The call.
        lane: Lane of its agent; its growth of pauses is updated.
        pause: Idle time since the last unit of the agent, in nanoseconds.
        duration: How long the call took, in nanoseconds.
        poll_gap: Pause from which on it is patience, in nanoseconds.
        failed: Whether an error was given.

    Returns:
        True after a long pause, for a blocking poll of something under way, for a poll whose pauses keep
        growing, and for an outage that is retried with a pause of ten seconds or with growing pauses.
    """
    outage = looks_like_outage(call.text) and (failed or looks_failed(call.text))
    factor = 1.2 if outage else 1.5
    grown = 0 < lane.pause * factor <= pause
    lane.growth = lane.growth + 1 if grown else 0
    if pause >= poll_gap or (outage and pause >= _OUTAGE):
        return True
    if lane.growth >= _GROWN_TWICE and (outage or pause >= _WAIT):
        return True
    return duration >= _BLOCKING and looks_pending(call.text)
