"""What only the page of a run shows: its iterations, guard events and spans, packed."""

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.otlp import read_lines, trace_line
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.rows import bounded, encoded

_GUARD_FIELDS: Final = (
    "kind",
    "doom_loop",
    "source",
    "action",
    "tool",
    "count",
    "iteration",
    "rule",
    "agent",
    "reason",
    "time_ns",
)
_guard_values = attrgetter(*_GUARD_FIELDS)
_MAX_SPANS: Final = 20_000
"""Spans of one run that are kept for its page: the first and the last."""
_MAX_CHARACTERS: Final = 32 * 2**20
"""Characters of content that they may have together, so that a page of a run can be made in little memory."""


@dataclass(frozen=True, slots=True)
class StoredIteration:
    """An iteration of a stored run.

    Attributes:
        number: Its number, from 1.
        started_ns: When it began, in nanoseconds since the epoch.
        score: Its score, or None.
        tokens: Input plus output tokens of its model calls; None where there were none.
        cost_usd: What they cost; None where it is unknown.
        wasted: Whether it was wasted.
    """

    number: int
    started_ns: int
    score: float | None
    tokens: int | None
    cost_usd: float | None
    wasted: bool


@dataclass(frozen=True, slots=True)
class RunDetail:
    """What only the page of a run shows.

    Attributes:
        iterations: Its iterations, in order; of very many, not the middle.
        guard_events: Its guard events, in order; of very many, the first.
        spans: The spans that tell of it; of very many, the first and the last.
        left_out: How many spans are not kept.
    """

    iterations: tuple[StoredIteration, ...]
    guard_events: tuple[GuardEvent, ...]
    spans: tuple[SpanData, ...]
    left_out: int


def packed_detail(served: ServedRun) -> bytes:
    """The details of a run, as bytes."""
    spans: Sequence[SpanData] = served.spans if served.root is None else _inside(served.root, served.spans)
    kept = _both_ends(spans)
    left_out = len(spans) - len(kept)
    spans = kept
    detail = {
        "iterations": [
            [i.number, i.started_ns, i.score, i.tokens, i.cost_usd, i.wasted] for i in _iterations(served)
        ],
        "guard_events": [
            [bounded(value) for value in _guard_values(event)] for event in served.run.guard_events
        ],
        "left_out": left_out,
    }
    return zlib.compress(f"{encoded(detail)}\n{trace_line(spans)}\n".encode(), 1)


def unpacked_detail(packed: bytes) -> RunDetail:
    """The details of a run out of bytes.

    Raises:
        ValueError: They are damaged.
    """
    try:
        first, _, lines = zlib.decompress(packed).partition(b"\n")
        detail = json.loads(first)
        return RunDetail(
            iterations=tuple(StoredIteration(*values) for values in detail["iterations"]),
            guard_events=tuple(
                GuardEvent(**dict(zip(_GUARD_FIELDS, values, strict=True)))
                for values in detail["guard_events"]
            ),
            spans=tuple(read_lines([lines])),
            left_out=detail["left_out"],
        )
    except (zlib.error, TypeError, KeyError) as error:
        raise ValueError(f"the details of a stored run are damaged: {error}") from error


def _inside(root: SpanData, spans: Iterable[SpanData]) -> list[SpanData]:
    """The root and what is inside it: the spans of a trace may be many runs' one after another."""
    children: defaultdict[int | None, list[SpanData]] = defaultdict(list)
    for span in spans:
        children[span.parent_id].append(span)
    found: dict[int, SpanData] = {root.span_id: root}
    waiting = [root.span_id]
    while waiting:
        for span in children[waiting.pop()]:
            if span.span_id not in found:  # broken input may have cycles
                found[span.span_id] = span
                waiting.append(span.span_id)
    return sorted(found.values(), key=attrgetter("start_ns"))


def _both_ends(spans: Sequence[SpanData]) -> Sequence[SpanData]:
    """Spans from both ends, as many as are kept."""
    sizes = [
        sum(len(value) for value in span.attributes.values() if isinstance(value, str)) for span in spans
    ]
    if len(spans) <= _MAX_SPANS and sum(sizes) <= _MAX_CHARACTERS:
        return spans
    head = _fitting(sizes)
    tail = _fitting(sizes[: head - 1 : -1] if head else sizes[::-1])
    return [*spans[:head], *spans[len(spans) - tail :]]


def _fitting(sizes: Sequence[int]) -> int:
    """How many of the first fit into half of what may be kept."""
    room = _MAX_CHARACTERS // 2
    for position, size in enumerate(sizes[: _MAX_SPANS // 2]):
        room -= size
        if room < 0:
            return position
    return min(len(sizes), _MAX_SPANS // 2)


def _iterations(served: ServedRun) -> Iterable[StoredIteration]:
    kept = sorted(served.run.iterations, key=attrgetter("number"))
    by_turns = served.run.mode == semconv.MODE_AGENT
    first_wasted = len(kept) - served.verdict.health.wasted_iterations
    for position, iteration in enumerate(kept):
        spending = iteration.spending
        yield StoredIteration(
            number=iteration.number,
            started_ns=iteration.started_ns,
            score=iteration.score if iteration.score is not None and math.isfinite(iteration.score) else None,
            tokens=None if spending is None else spending.tokens,
            cost_usd=None if spending is None else spending.cost_usd,
            wasted=iteration.wasted if by_turns else position >= first_wasted,
        )
