"""Judging stored spans as the live processor would have, whatever is missing, doubled or out of order."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import own
from otel_loopeval.runs.dialects.facts import AGENT, MODEL, TOOL, look_of
from otel_loopeval.runs.dialects.frameworks import HOST, nature_of
from otel_loopeval.runs.following import Following, kind_of, may_have_kind
from otel_loopeval.runs.nodes import Ending, Entry, Opening, SpanNode
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Verdict

_CALLS = (MODEL, TOOL)
_Key = tuple[int, int | None]
_Moment = tuple[int, bool, int, int, _Key, SpanData]


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
    by_id = _telling(spans)
    if not by_id:
        return []
    following = Following(tracker, detects=detectors)
    entries: dict[_Key, Entry] = {}
    kinds: dict[_Key, str | None] = {}
    missing: dict[_Key, SpanNode | Opening] = {}
    replayed: list[Replayed] = []

    for _, is_end, _, _, key, span in _in_order(by_id):
        if is_end:
            entry = entries.pop(key, None)
            if entry is not None:
                endings = following.ended(entry, span, kinds[key])
                if endings:
                    replayed += _replayed(endings, span)
            continue
        look = look_of(span)
        kinds[key] = kind = kind_of(look)
        entry = None
        if span.parent_id is not None:
            around = (span.trace_id, span.parent_id)
            entry = entries.get(around)
            if entry is None and around not in by_id:
                entry = _stand_in(missing, tracker, span, kind)
            elif isinstance(entry, Opening) and entry.node is None and _is_another_process(span, by_id):
                entry = None
        if kind in _CALLS and isinstance(entry, SpanNode) and entry.foreign:
            entries[key] = entry  # nearly always: a call inside an agent opens nothing
            continue
        opened = (
            following.started(entry, span.span_id, look, kind, span.start_ns, lambda span=span: span) or entry
        )
        if opened is not None:
            entries[key] = opened
    for stand_in in missing.values():
        replayed += _replayed(_given_up(following, stand_in), None)
    return replayed


def _telling(spans: Iterable[SpanData]) -> dict[_Key, SpanData]:
    """The spans of the traces that may have a run in them, each once."""
    # A verdict's span repeats what it was found out from.
    spans = [span for span in spans if span.name != semconv.SPAN_VERDICT]
    telling: set[int] = set()
    for span in spans:
        if span.trace_id not in telling and _tells(span):
            telling.add(span.trace_id)
    return {(span.trace_id, span.span_id): span for span in spans if span.trace_id in telling}


def _tells(span: SpanData) -> bool:
    """Whether a span may tell of a loop or an agent: where none of a trace does, there is no run in it."""
    return span.name.startswith(own.NAME_PREFIXES) or may_have_kind(span.name, span.scope, span.attributes)


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
    missing: dict[_Key, SpanNode | Opening], tracker: Tracker, span: SpanData, kind: str | None
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
    if kind is None or kind == AGENT or nature_of(span.scope) is HOST:
        return None
    found = missing.get(key)
    if found is None:
        found = missing[key] = Opening(0, _missing)
    return found


def _given_up(following: Following, stand_in: SpanNode | Opening) -> list[Ending]:
    if isinstance(stand_in, Opening):
        return following.incomplete(stand_in)
    return following.abandoned(stand_in)


def _missing() -> None:
    """The span that is not there."""


def _is_another_process(span: SpanData, by_id: Mapping[_Key, SpanData]) -> bool:
    """Whether a span is outermost in its process: its parent is another service's."""
    parent = by_id.get((span.trace_id, span.parent_id))
    return parent is not None and parent.resource is not span.resource and parent.resource != span.resource


def _in_order(by_id: Mapping[_Key, SpanData]) -> list[_Moment]:
    """Starts and ends by time; at equal times outer spans start first and inner spans end first.

    Where clocks disagree, a span starts no earlier than what it is inside of.

    Returns:
        The moment, as the order has it; whether the span ends; its key, and the span.
    """
    placed: dict[_Key, tuple[int, int]] = {}  # how deep a span is, and when it starts
    moments: list[_Moment] = []
    for order, (key, span) in enumerate(by_id.items()):
        level, start_ns = placed.get(key) or _place(key, by_id, placed)
        moments.append((start_ns, False, level, order, key, span))
        end_ns = span.end_ns
        moments.append((max(start_ns, end_ns), True, -level, order, key, span))
    moments.sort()  # nothing is compared beyond the order
    return moments


def _place(key: _Key, by_id: Mapping[_Key, SpanData], placed: dict[_Key, tuple[int, int]]) -> tuple[int, int]:
    """How deep a span is and when it starts; notes it, and the same of what it is inside of."""
    span = by_id[key]
    around = (key[0], span.parent_id)
    outer = placed.get(around)
    if outer is not None or around not in by_id:  # nearly always
        level, start_ns = outer or (-1, 0)
        placed[key] = found = level + 1, max(span.start_ns, start_ns)
        return found
    path: list[_Key] = []
    around = key
    on_path: set[_Key] = set()  # parents may form a cycle in broken input
    while (span := by_id.get(around)) is not None and around not in placed and around not in on_path:
        on_path.add(around)
        path.append(around)
        around = (around[0], span.parent_id)
    level, start_ns = placed.get(around, (-1, 0))
    for inner in reversed(path):
        level += 1
        start_ns = max(by_id[inner].start_ns, start_ns)
        placed[inner] = level, start_ns
    return level, start_ns
