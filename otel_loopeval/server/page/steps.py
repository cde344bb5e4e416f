"""The steps of a run for its page: each in its iteration, and those that repeat beside one another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_loopeval.reports.steps import Step, repeated
from otel_loopeval.runs.dialects.facts import TOOL

_MOST_GROUPS: Final = 10
_MOST_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One of the calls that are the same.

    Attributes:
        step: The call.
        position: Which one it is, from 1.
        same: Whether it brought what the first one brought; None where that is not known.
    """

    step: Step
    position: int
    same: bool | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Calls of one tool with the same arguments.

    Attributes:
        name: Name of the tool.
        arguments: The arguments; None where they were not captured.
        count: How many calls there are.
        shown: The first of them, and the last.
    """

    name: str
    arguments: str | None
    count: int
    shown: tuple[Occurrence, ...]


def repeats_in(steps: Iterable[Step]) -> list[Repeat]:
    """The tool calls that occur more than once with the same arguments, those that occur most first.

    Calls whose arguments nobody can tell are not compared.
    """
    groups = repeated(step for step in steps if step.kind == TOOL and step.identity)
    return [_repeat(group) for group in groups[:_MOST_GROUPS]]


def numbered(steps: Iterable[Step], iterations: Sequence[tuple[int, int]]) -> list[Step]:
    """The steps, each with the iteration that it began in.

    Args:
        steps: The steps, in the order in which they began.
        iterations: Start (nanoseconds since the epoch) and number of each iteration, by start.
    """
    found: list[Step] = []
    position = -1
    for step in steps:
        while position + 1 < len(iterations) and iterations[position + 1][0] <= step.start_ns:
            position += 1
        found.append(replace(step, iteration=iterations[position][1]) if position >= 0 else step)
    return found


def _repeat(group: Sequence[Step]) -> Repeat:
    first = group[0]
    positions = range(len(group))
    if len(group) > _MOST_SHOWN:
        positions = [*range(_MOST_SHOWN - 1), len(group) - 1]
    return Repeat(
        first.name,
        first.arguments,
        len(group),
        tuple(
            Occurrence(group[at], at + 1, None if at == 0 else _same(first, group[at])) for at in positions
        ),
    )


def _same(first: Step, other: Step) -> bool | None:
    told = (first.text, first.error), (other.text, other.error)
    return None if (None, None) in told else told[0] == told[1]
