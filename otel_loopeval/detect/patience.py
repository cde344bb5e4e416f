"""Waiting is not looping: slow polls, calls that wait, and retries of an outage with growing delays."""

from typing import Final

from otel_loopeval.detect.clock import Clock, seconds
from otel_loopeval.detect.effects import repeated_by_nature
from otel_loopeval.detect.lane import Lane
from otel_loopeval.detect.outcomes import looks_like_outage, looks_pending, named_wait, sleeps
from otel_loopeval.detect.recognition import Recognised

WAIT: Final = seconds(5)
"""Time from which on a call that is called a wait is one, in nanoseconds."""

_OUTAGE: Final = seconds(10)
_BLOCKING: Final = seconds(30)
_GROWN_TWICE: Final = 2
_UNTIMED_OUTAGE: Final = 2.0
_UNKNOWN_RESULT: Final = 1.25
_BY_NATURE: Final = 2.0
_TELLING: Final = 40


def waits_on_purpose(call: Recognised, duration: int, clock: Clock) -> bool:
    """Whether the call itself is a wait.

    Args:
        call: The call.
        duration: How long it took, in nanoseconds.
        clock: The run's clock: without times, the name alone decides.
    """
    if duration < WAIT and (clock.known or not call.same):
        return False
    return named_wait(call.tool[:200]) or sleeps(call.arguments)


def slack(call: Recognised, clock: Clock) -> float:
    """Factor by which limits are raised, where less is known.

    Args:
        call: The call.
        clock: The run's clock.

    Returns:
        1.25 without a result, 2 for an outage without times and for what is repeated by nature (to scroll, to
        press a key) and says nothing, else 1.
    """
    if not call.known:
        return _UNKNOWN_RESULT
    if len(call.text) < _TELLING and repeated_by_nature(call.tool[:200]):
        return _BY_NATURE
    if not clock.known and call.failed and looks_like_outage(call.text):
        return _UNTIMED_OUTAGE
    return 1.0


def is_patient(call: Recognised, lane: Lane, pause: int, duration: int, poll_gap: int) -> bool:
    """Whether looking again is patience and no loop.

    Args:
        call: The call.
        lane: Lane of its agent; its growth of pauses is updated.
        pause: Idle time since the last unit of the agent, in nanoseconds.
        duration: How long the call took, in nanoseconds.
        poll_gap: Pause from which on it is patience, in nanoseconds.

    Returns:
        True after a long pause, for a blocking poll of something under way, for a poll whose pauses keep
        growing, and for an outage that is retried with a pause of ten seconds or with growing pauses.
    """
    if not pause and duration < _BLOCKING:
        lane.growth = 0
        return False
    outage = call.failed and looks_like_outage(call.text)
    factor = 1.2 if outage else 1.5
    lane.growth = lane.growth + 1 if 0 < lane.pause * factor <= pause else 0
    if pause >= poll_gap or (outage and pause >= _OUTAGE):
        return True
    if pause >= poll_gap // 2 and looks_pending(call.text):
        return True
    if lane.growth >= _GROWN_TWICE and (outage or pause >= WAIT):
        return True
    return duration >= _BLOCKING and looks_pending(call.text)
