"""Judging a message of the model: put it into its unit, ask the evidence."""

from typing import Any

from otel_loopeval.detect.evidence import Finding
from otel_loopeval.detect.identity import canonical
from otel_loopeval.detect.lane import Lane


def judge_message(lane: Lane, text: str, turn: Any, index: int) -> list[tuple[int, str, Finding]]:
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
    if turn is None or turn != lane.output_turn:
        track.open(index)
    lane.output_turn = turn
    unit = track.unit
    unit.last = index
    unit.id = hash(text.strip()) or 1
    unit.text = text
    found = track.judge()
    unit.text = ""
    return found
