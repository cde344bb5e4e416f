"""The steps of a run for its page: each in its iteration, and those that repeat beside one another."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from otel_loopeval.reports.steps import Step, repeated
from otel_loopeval.runs.dialects.facts import TOOL

_MOST_GROUPS: Final = 10
_MOST_SHOWN: Final = 4

Starts = Sequence[tuple[int, int]]
"""Start (nanoseconds since the epoch) and number of each iteration, by start."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One of the calls that are the same.

    Attributes:
        step: The call.
        position: Which one it is, from 1.
        iteration: Number of the iteration that it is in; None where it is in none.
        same: Whether it brought what the first one brought; None where that is not known.
    """

    step: Step
    position: int
    iteration: int | None
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


def repeats_in(steps: Iterable[Step], iterations: Starts) -> list[Repeat]:
    """The tool calls that occur more than once with the same arguments, those that occur most first.

    Calls whose arguments nobody can tell are not compared.
    """
    groups = repeated(step for step in steps if step.kind == TOOL and step.identity)
    return [_repeat(group, iterations) for group in groups[:_MOST_GROUPS]]


def iteration_at(time_ns: int, iterations: Starts) -> int | None:
    """Number of the iteration that a time is in; None before the first."""
    position = bisect_right(iterations, time_ns, key=itemgetter(0))
    return iterations[position - 1][1] if position else None


def _repeat(group: Sequence[Step], iterations: Starts) -> Repeat:
    first = group[0]
    positions = range(len(group))
    if len(group) > _MOST_SHOWN:
        positions = [*range(_MOST_SHOWN - 1), len(group) - 1]
    return Repeat(
        first.name,
        first.arguments,
        len(group),
        tuple(
            Occurrence(
                group[at],
                at + 1,
                iteration_at(group[at].start_ns, iterations),
                None if at == 0 else _same(first, group[at]),
            )
            for at in positions
        ),
    )


def _same(first: Step, other: Step) -> bool | None:
    told = (first.text, first.error), (other.text, other.error)
    return None if (None, None) in told else told[0] == told[1]
