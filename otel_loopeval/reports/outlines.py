"""A run as an indented outline of plain text, for messages that are no terminal's."""

from collections.abc import Iterator, Sequence
from typing import Final

from otel_loopeval.reports import words
from otel_loopeval.reports.records import record_of
from otel_loopeval.runs.reconstruct import Replayed
from otel_loopeval.runs.run import IterationState

_AT_EACH_END: Final = 10
"""Iterations that are shown from the beginning and from the end of a run, if it has many."""
_EVENTS: Final = 20


def outline(run: Replayed, others: Sequence[Replayed] = ()) -> str:
    """The verdict on a run, its iterations with their scores and guard events, and the runs inside it.

    Args:
        run: The run.
        others: Runs among which those inside it are found.

    Returns:
        Lines without an end at the last.
    """
    return "\n".join(_lines(run, others, ""))


def _lines(run: Replayed, others: Sequence[Replayed], indent: str) -> Iterator[str]:
    record = record_of(run)
    yield f"{indent}{_plain(record.agent)}: {words.verdict(record.passed)}: {words.why(record)}"
    inner = indent + "  "
    yield inner + record.reasoning
    events = list(run.run.guard_events[:_EVENTS])
    iterations = run.run.iterations
    for position, iteration in enumerate(iterations):
        if _AT_EACH_END <= position < len(iterations) - _AT_EACH_END:
            if position == _AT_EACH_END:
                yield f"{inner}... {len(iterations) - 2 * _AT_EACH_END} more"
            continue
        yield inner + _iteration(iteration)
        for event in [event for event in events if event.iteration == iteration.number]:
            events.remove(event)
            yield f"{inner}  {_plain(words.guard_event(event))}"
    for event in events:
        yield inner + _plain(words.guard_event(event))
    for other in others:
        if other.run.parent is run.run:
            yield from _lines(other, others, inner)


def _iteration(iteration: IterationState) -> str:
    score = "no score" if iteration.score is None else f"score {iteration.score:g}"
    tokens = "" if iteration.spending is None else f"  {iteration.spending.tokens:,} tokens"
    return f"iteration {iteration.number}  {score}{tokens}"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
