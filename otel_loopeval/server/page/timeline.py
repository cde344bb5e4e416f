"""One run as its page shows it: iterations along time, with what happened in each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.reports.steps import Step, step_of, step_spans
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.dialects.facts import TOOL
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.page.charts import Curve, curve
from otel_loopeval.server.page.steps import Repeat, Starts, iteration_at, repeats_in
from otel_loopeval.server.store.details import RunDetail, StoredIteration
from otel_loopeval.server.store.rows import StoredRun

_AT_EACH_END: Final = 100
"""Iterations that a page shows from a run's beginning and from its end, if there are many."""
_MOST_STEPS: Final = 60
"""Steps of one iteration that a page shows."""
_FEW: Final = 12
"""Iterations up to which all of them are unfolded."""
_STRIP: Final = 1000.0
_MOST_BLOCKS: Final = 300
_NARROWEST: Final = 2.0
_WORST_FIRST: Final = ("wasted", "met", "plain")


@dataclass(frozen=True, slots=True)
class Block:
    """An iteration on the strip of time, or several that follow each other, from 0 to 1000.

    Attributes:
        x: Where it begins.
        width: How wide it is.
        state: ``"wasted"``, ``"met"`` or ``"plain"``; of several, the worst.
        title: It in words.
    """

    x: float
    width: float
    state: str
    title: str


@dataclass(frozen=True, slots=True)
class Part:
    """An iteration with what happened in it.

    Attributes:
        iteration: The iteration.
        state: ``"wasted"``, ``"met"`` (the threshold, for the first time) or ``"plain"``.
        delta: Change of the score since the one before; None where one of them has none.
        offset_s: Seconds from the run's start to its own.
        duration_s: Seconds that it took.
        steps: Its steps; of very many, the first.
        more_steps: How many more there are.
        guard_events: Guard events in it.
        unfolded: Whether its steps show at once.
    """

    iteration: StoredIteration
    state: str
    delta: float | None
    offset_s: float
    duration_s: float
    steps: tuple[Step, ...]
    more_steps: int
    guard_events: tuple[GuardEvent, ...]
    unfolded: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run along time.

    Attributes:
        parts: Its iterations; of many, those at both ends.
        left_out: How many iterations are left out after the first hundred.
        blocks: All of them on the strip; of very many, neighbours together.
        alarms: Where guard events are on the strip, and what they were.
        guard_events: All guard events, by time.
        before: Steps before the first iteration.
        curve: Its scores; None where it has none.
        repeats: Its tool calls that repeat.
        started_ns: When it began, in nanoseconds since the epoch.
    """

    parts: tuple[Part, ...]
    left_out: int
    blocks: tuple[Block, ...]
    alarms: tuple[Block, ...]
    guard_events: tuple[GuardEvent, ...]
    before: tuple[Step, ...]
    curve: Curve | None
    repeats: tuple[Repeat, ...]
    started_ns: int


def timeline(run: StoredRun, detail: RunDetail) -> Timeline:
    """A run along time."""
    iterations = sorted(detail.iterations, key=attrgetter("number"))
    by_start = sorted((iteration.started_ns, iteration.number) for iteration in iterations)
    steps = step_spans(detail.spans)
    grouped: defaultdict[int | None, list[SpanData]] = defaultdict(list)
    for _, span in steps:
        grouped[iteration_at(span.start_ns, by_start)].append(span)
    started_ns, ended_ns = _extent(detail, iterations, run.record.duration_s)
    ends = _ends(detail, by_start, ended_ns)
    parts = _parts(run, iterations, grouped, _alarms(detail.guard_events, by_start), started_ns, ends)
    left_out = max(len(parts) - 2 * _AT_EACH_END, 0)
    span_ns = max(ended_ns - started_ns, 1)
    return Timeline(
        parts=tuple(parts if not left_out else [*parts[:_AT_EACH_END], *parts[-_AT_EACH_END:]]),
        left_out=left_out,
        blocks=tuple(_block(group, span_ns / 1e9) for group in _neighbours(parts)),
        alarms=tuple(
            Block(_share(event.time_ns - started_ns, span_ns), 0, "alarm", event.kind)
            for event in detail.guard_events
            if event.time_ns is not None
        ),
        guard_events=tuple(sorted(detail.guard_events, key=lambda event: event.time_ns or 0)),
        before=_read(grouped[None]),
        curve=curve([(i.number, i.score) for i in iterations], run.record.threshold),
        repeats=tuple(repeats_in(_calls(steps), by_start)),
        started_ns=started_ns,
    )


def _parts(
    run: StoredRun,
    iterations: Sequence[StoredIteration],
    spans: Mapping[int | None, Sequence[SpanData]],
    alarms: Mapping[int | None, Sequence[GuardEvent]],
    started_ns: int,
    ends: Mapping[int, int],
) -> list[Part]:
    """All iterations; those in the middle of many without their steps."""
    record = run.record
    converges = record.mode == semconv.MODE_OPTIMIZE and record.converged is True
    first_met = record.iterations_to_success if converges else None
    middle = range(_AT_EACH_END, len(iterations) - _AT_EACH_END)
    parts: list[Part] = []
    previous: float | None = None
    for position, iteration in enumerate(iterations):
        inside, events = spans.get(iteration.number, ()), alarms.get(iteration.number, ())
        parts.append(
            Part(
                iteration=iteration,
                state="wasted" if iteration.wasted else "met" if iteration.number == first_met else "plain",
                delta=None if previous is None or iteration.score is None else iteration.score - previous,
                offset_s=max(iteration.started_ns - started_ns, 0) / 1e9,
                duration_s=max(ends[iteration.number] - iteration.started_ns, 0) / 1e9,
                steps=() if position in middle else _read(inside),
                more_steps=max(len(inside) - _MOST_STEPS, 0),
                guard_events=tuple(events),
                unfolded=len(iterations) <= _FEW or bool(events),
            )
        )
        previous = iteration.score
    return parts


def _alarms(events: Iterable[GuardEvent], by_start: Starts) -> Mapping[int | None, Sequence[GuardEvent]]:
    """Guard events by the iteration that they are in."""
    alarms: defaultdict[int | None, list[GuardEvent]] = defaultdict(list)
    for event in events:
        number = event.iteration
        if number is None and event.time_ns is not None:
            number = iteration_at(event.time_ns, by_start)
        alarms[number].append(event)
    return alarms


def _read(spans: Sequence[SpanData]) -> tuple[Step, ...]:
    """The first steps of an iteration."""
    return tuple(step for span in spans[:_MOST_STEPS] if (step := step_of(span)) is not None)


def _calls(steps: Iterable[tuple[str, SpanData]]) -> Iterator[Step]:
    for kind, span in steps:
        step = step_of(span) if kind == TOOL else None
        if step is not None:
            yield step


def _extent(
    detail: RunDetail, iterations: Sequence[StoredIteration], duration_s: float | None
) -> tuple[int, int]:
    """When the run began and ended."""
    starts = [span.start_ns for span in detail.spans] + [i.started_ns for i in iterations]
    if not starts:
        return 0, 0
    started = min(starts)
    ends = [span.end_ns for span in detail.spans] or [started + int((duration_s or 0) * 1e9)]
    return started, max(*ends, started)


def _ends(detail: RunDetail, by_start: Starts, ended_ns: int) -> dict[int, int]:
    """When each iteration ended: as its span tells, else as the next one began."""
    ends = {
        number: by_start[position + 1][0] if position + 1 < len(by_start) else ended_ns
        for position, (_, number) in enumerate(by_start)
    }
    for span in detail.spans:
        number = span.attributes.get(semconv.ITERATION_NUMBER)
        if own.is_iteration(span.name) and isinstance(number, int) and number in ends:
            ends[number] = span.end_ns
    return ends


def _neighbours(parts: Sequence[Part]) -> list[Sequence[Part]]:
    """The iterations of each block: several, where there are more than could be told apart."""
    if len(parts) <= _MOST_BLOCKS:
        return [[part] for part in parts]
    groups = [list(group) for _, group in groupby(parts, attrgetter("state"))]
    # The state may change too often even so: then blocks are of several states, and none is left out.
    at_a_time = -(-len(groups) // _MOST_BLOCKS)
    return [
        list(chain.from_iterable(groups[start : start + at_a_time]))
        for start in range(0, len(groups), at_a_time)
    ]


def _block(parts: Sequence[Part], span_s: float) -> Block:
    """Iterations that follow each other, on the strip; what is worst of them shows."""
    x = _share(min(part.offset_s for part in parts), span_s)
    wide = _share(max(part.offset_s + part.duration_s for part in parts), span_s) - x
    width = min(max(wide - 1.0, _NARROWEST), _STRIP - x + _NARROWEST)
    states = {part.state for part in parts}
    state = next(state for state in _WORST_FIRST if state in states)
    words = ", threshold met" if "met" in states else ""
    if "wasted" in states:
        words += ", wasted" if len(states) == 1 else ", some wasted"
    first, last = parts[0].iteration.number, parts[-1].iteration.number
    name = f"iteration {first}" if len(parts) == 1 else f"iterations {first} to {last}"
    return Block(x, round(width, 1), state, name + words)


def _share(part: float, whole: float) -> float:
    return round(min(max(part / whole, 0.0), 1.0) * _STRIP, 1)
