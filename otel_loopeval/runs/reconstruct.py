"""Judging stored spans as the live processor would have, whatever is missing, doubled or out of order."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.dialects.facts import AGENT, Look, look_of
from otel_loopeval.runs.following import Following, kind_of
from otel_loopeval.runs.nodes import Ending, Entry, Opening, SpanNode
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Verdict

_Key = tuple[int, int | None]


class Replayed(NamedTuple):
    """A run out of stored spans.

    Attributes:
        run: The run.
        verdict: What it amounts to.
        root: The span that is its root; None where that is missing.
    """

    run: LoopRun
    verdict: Verdict
    root: SpanData | None


def replay(spans: Iterable[SpanData], tracker: Tracker, *, detectors: bool = True) -> list[Replayed]:
    """Judge the runs in stored spans, as the live processor would have.

    Starts and ends are fed in the order of their times. Spans that ended after their run's root are
    late, as they are live. A run whose root is missing is judged from what there is, and ``incomplete``.

    Args:
        spans: Spans of any number of traces, in any order; a repeated span id counts once.
        tracker: A tracker of the replay's own.
        detectors: Whether our detectors look at the steps.

    Returns:
        The runs with their verdicts and roots, in the order in which they ended.
    """
    by_id: dict[_Key, SpanData] = {
        (span.trace_id, span.span_id): span
        for span in spans
        if span.name != semconv.SPAN_VERDICT  # it repeats what it was found out from
    }
    following = Following(tracker, detects=detectors)
    entries: dict[_Key, Entry] = {}
    missing: dict[_Key, SpanNode | Opening] = {}
    replayed: list[Replayed] = []

    for span, is_end in _in_order(by_id):
        key = (span.trace_id, span.span_id)
        look = look_of(span)
        if not is_end:
            entry = None if span.parent_id is None else entries.get((span.trace_id, span.parent_id))
            if entry is None and span.parent_id is not None and (span.trace_id, span.parent_id) not in by_id:
                entry = _stand_in(missing, tracker, span, look)
            elif isinstance(entry, Opening) and entry.node is None and _is_another_process(span, by_id):
                entry = None
            opened = (
                following.started(entry, span.span_id, look, span.start_ns, lambda span=span: span) or entry
            )
            if opened is not None:
                entries[key] = opened
            continue
        entry = entries.pop(key, None)
        if entry is None:
            continue
        replayed += _replayed(following.ended(entry, span), span)
    for stand_in in missing.values():
        if isinstance(stand_in, Opening):
            replayed += _replayed(following.incomplete(stand_in), None)
        else:
            replayed += _replayed(following.abandoned(stand_in), None)
    return replayed


def replay_trace(spans: Iterable[SpanData], tracker: Tracker, *, cut: bool = False) -> list[Replayed]:
    """Judge the runs in the stored spans of one trace.

    Args:
        spans: Its spans; a repeated span id counts once.
        tracker: A tracker of the replay's own.
        cut: Whether spans of the trace are missing: then all of its runs are ``incomplete``, since what is
            there may tell of them, but does not judge them.

    Returns:
        The runs with their verdicts and roots, in the order in which they began.
    """
    runs = replay(spans, tracker)
    if cut:
        runs = [_incomplete(replayed) for replayed in runs]
    runs.sort(key=lambda replayed: (replayed.run.started_ns, replayed.run.parent is not None))
    return runs


def _incomplete(replayed: Replayed) -> Replayed:
    verdict = replayed.verdict._replace(outcome=semconv.OUTCOME_INCOMPLETE, decided=False, reasons=())
    return replayed._replace(verdict=verdict)


def _replayed(endings: list[Ending], root: SpanData | None) -> list[Replayed]:
    return [Replayed(ending.run, ending.verdict, root) for ending in endings if ending.verdict is not None]


def _stand_in(
    missing: dict[_Key, SpanNode | Opening], tracker: Tracker, span: SpanData, look: Look
) -> SpanNode | Opening | None:
    """What stands for the missing parent of a span: one thing for all spans of that parent.

    A parent may also be missing since another process has it; then the span is the outermost of its process,
    as nearly all spans without a parent are. Only what cannot be the whole of a run points to a missing root.
    """
    key = (span.trace_id, span.parent_id)
    if own.is_iteration(span.name):
        node = missing.get(key)
        if not isinstance(node, SpanNode):
            run = LoopRun(semconv.AGENT_UNKNOWN, started_ns=span.start_ns, framework=semconv.FRAMEWORK_OTHER)
            tracker.start(run)
            node = missing[key] = SpanNode(run, None, 0)
        return node
    kind = kind_of(look)
    if kind is None or kind == AGENT:
        return None
    found = missing.get(key)
    if found is None:
        found = missing[key] = Opening(0, _missing)
    return found


def _missing() -> None:
    """The span that is not there."""


def _is_another_process(span: SpanData, by_id: Mapping[_Key, SpanData]) -> bool:
    """Whether a span is outermost in its process: its parent is another service's."""
    parent = by_id.get((span.trace_id, span.parent_id))
    return parent is not None and parent.resource is not span.resource and parent.resource != span.resource


def _in_order(by_id: Mapping[_Key, SpanData]) -> list[tuple[SpanData, bool]]:
    """Starts and ends by time; at equal times outer spans start first and inner spans end first.

    Where clocks disagree, a span starts no earlier than what it is inside of.
    """
    depth: dict[_Key, tuple[int, int]] = {}  # with the time of the start

    def measure(key: _Key) -> None:
        path: list[_Key] = []
        on_path: set[_Key] = set()  # parents may form a cycle in broken input
        while (span := by_id.get(key)) is not None and key not in depth and key not in on_path:
            on_path.add(key)
            path.append(key)
            key = (key[0], span.parent_id)
        level, start_ns = depth.get(key, (-1, 0))
        for inner in reversed(path):
            level += 1
            start_ns = max(by_id[inner].start_ns, start_ns)
            depth[inner] = level, start_ns

    moments: list[tuple[int, bool, int, int, SpanData]] = []
    for order, (key, span) in enumerate(by_id.items()):
        measure(key)
        level, start_ns = depth[key]
        moments.append((start_ns, False, level, order, span))
        moments.append((max(span.end_ns, start_ns), True, -level, order, span))
    moments.sort(key=itemgetter(0, 1, 2, 3))
    return [(moment[4], moment[1]) for moment in moments]
