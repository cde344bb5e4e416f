"""Judging a message of the model: put it into its unit, ask the evidence."""

from collections.abc import Sequence
from typing import Any, Final

from otel_loopeval.detect.evidence import Finding
from otel_loopeval.detect.identity import canonical
from otel_loopeval.detect.lane import Lane

_BETWEEN_CALLS: Final = 4 / 3


def judge_message(lane: Lane, text: str, turn: Any, index: int) -> Sequence[tuple[int, str, Finding]]:
    """Judge a message.

    Args:
        lane: Lane of the agent that spoke.
        text: The message, not blank.
        turn: Turn it belongs to: several messages of one turn are one unit, the last of which counts.
        index: Index of the step.

    Returns:
        What the evidence found.
    """
    if turn is not None and type(turn) is not int and type(turn) is not str:
        turn = canonical(turn)[0]
    track = lane.outputs
    identity = hash(text.strip())
    if turn is None or turn != lane.output_turn:
        unit = track.open(index, identity)
    else:
        unit = track.unit
        unit.id, unit.last = identity or 1, index
    lane.output_turn = turn
    # The same words before the same call are no more than the call says: only alone they count by themselves.
    unit.slack = _BETWEEN_CALLS if lane.called else 1.0
    lane.called = False
    unit.text = text
    found = track.judge()
    unit.text = ""
    return found
