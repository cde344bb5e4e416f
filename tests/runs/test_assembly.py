"""Traces put together from spans in any order, in bounded memory."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopeval.runs.assembly import Bounds, Trace, TraceAssembler
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.testing import FixedClock, TraceBuilder

S = 1_000_000_000


def span(
    trace_id: int, span_id: int, parent: int | None = None, end_s: int = 1, name: str = "s", **attributes: Any
) -> SpanData:
    return SpanData(name, trace_id, span_id, parent, 0, end_s * S, attributes)


def assemble(spans: Iterable[SpanData], **bounds: Any) -> tuple[list[Trace], TraceAssembler]:
    assembler = TraceAssembler(Bounds(**bounds))
    traces = [trace for span in spans for trace in assembler.add(span)]
    traces.extend(assembler.finish())
    return traces, assembler


def told(traces: Iterable[Trace]) -> list[tuple[int, list[int], str, bool]]:
    return [(t.trace_id, [s.span_id for s in t.spans], t.reason, t.cut) for t in traces]


def test_spans_of_traces_that_are_mixed_come_apart_at_the_end():
    traces, assembler = assemble([span(1, 11, 10), span(2, 21, 20), span(1, 10), span(2, 20)])
    assert told(traces) == [(1, [11, 10], "end", False), (2, [21, 20], "end", False)]
    assert (assembler.held, assembler.late_spans) == (0, 0)


def test_a_trace_with_its_root_is_closed_when_spans_and_time_have_passed_it_by():
    spans = [span(1, 10, end_s=1), *(span(2, 20 + n, 99, end_s=2 + n) for n in range(10))]
    assembler = TraceAssembler(Bounds(quiet_spans=3, quiet_s=5.0))
    closed_after = [len(assembler.add(span)) for span in spans]
    # Three spans have passed with the fourth one, but five seconds only with the sixth.
    assert closed_after == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_without_its_root_a_trace_is_waited_for():
    spans = [span(1, 11, 10), *(span(2, 20 + n, 99, end_s=100 + n) for n in range(10)), span(1, 10)]
    traces, _ = assemble(spans, quiet_spans=3, quiet_s=5.0)
    assert told(traces)[-1] == (1, [11, 10], "end", False)


def test_times_that_stand_still_do_not_keep_a_trace_open_for_ever():
    spans = [span(1, 10, end_s=9_000), *(span(2, 20 + n, 99) for n in range(40))]
    assembler = TraceAssembler(Bounds(quiet_spans=3, quiet_s=5.0))
    closed_after = [len(assembler.add(span)) for span in spans]
    assert closed_after.index(1) == 30  # ten times the spans


def test_what_comes_after_the_end_of_its_trace_is_dropped_and_counted():
    spans = [
        span(1, 10),
        *(span(2, 20 + n, 99, end_s=99) for n in range(5)),
        span(1, 11, 10),
        span(1, 12, 10),
    ]
    traces, assembler = assemble(spans, quiet_spans=3, quiet_s=5.0)
    assert told(traces)[0] == (1, [10], "quiet", False)
    assert assembler.late_spans == 2


def test_a_repeated_span_counts_once_and_its_last_version_counts():
    traces, _ = assemble([span(1, 10, name="old"), span(1, 11, 10), span(1, 10, name="new")])
    assert [s.name for s in traces[0].spans] == ["new", "s"]


def test_too_many_spans_close_the_trace_without_news_first():
    spans = [span(1, 10), span(2, 20), *(span(3, 30 + n, 29) for n in range(5)), span(1, 11, 10)]
    traces, assembler = assemble(spans, max_spans=10)
    assert {t.reason for t in traces} == {"end"}
    spans = [span(1, 11, 10), span(2, 20), span(1, 10), span(3, 30), span(4, 40), span(5, 50)]
    traces, assembler = assemble(spans, max_spans=5)
    assert told(traces)[0] == (2, [20], "capacity", False)
    assert assembler.held == 0


def test_a_trace_that_is_closed_for_room_without_its_root_is_cut():
    spans = [span(1, 11, 10), span(2, 20), span(3, 30), span(4, 40), span(5, 50)]
    traces, _ = assemble(spans, max_spans=4)
    assert told(traces)[0] == (1, [11], "capacity", True)


def test_a_trace_without_a_root_that_has_been_quiet_long_enough_is_not_cut():
    spans = [span(1, 11, 10), span(2, 20), span(3, 30), span(4, 40), span(5, 50)]
    traces, _ = assemble(spans, max_spans=4, quiet_spans=2)
    assert told(traces)[0] == (1, [11], "capacity", False)


def test_one_trace_may_take_half_of_the_room():
    spans = [*(span(1, 11 + n, 10) for n in range(8)), span(1, 10), span(2, 20)]
    traces, assembler = assemble(spans, max_spans=10)
    assert told(traces) == [(1, [11, 12, 13, 14, 15, 16], "too_large", True), (2, [20], "end", False)]
    assert assembler.late_spans == 3


def test_large_attributes_fill_the_room_too():
    spans = [span(n, n, text="x" * 1000) for n in range(1, 11)]
    traces, _ = assemble(spans, max_bytes=10_000)
    assert [(t.trace_id, t.reason) for t in traces][:5] == [
        (1, "capacity"),
        (2, "capacity"),
        (3, "capacity"),
        (4, "capacity"),
        (5, "capacity"),
    ]
    huge = SpanData("s", 99, 1, None, 0, 0, {}, (SpanEvent("e", 0, {"content": "x" * 6000}),))
    assert told(assemble([huge], max_bytes=10_000)[0]) == [(99, [1], "too_large", True)]


def test_too_many_traces_close_the_quietest():
    traces, _ = assemble([span(n, n) for n in range(1, 6)], max_traces=3)
    assert [(t.trace_id, t.reason) for t in traces[:2]] == [(1, "capacity"), (2, "capacity")]


@pytest.mark.parametrize("name", ["max_spans", "max_bytes", "max_traces", "quiet_spans"])
def test_bounds_are_checked(name: str):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Bounds(**{name: 0})


def test_memory_held_stays_within_its_bounds_however_long_the_stream():
    assembler = TraceAssembler(Bounds(max_spans=50, max_traces=20, quiet_spans=10, quiet_s=0.0))
    most = 0
    for n in range(5_000):
        # Every third trace never gets its root, as those of a long-lived caller elsewhere.
        assembler.add(span(n // 2, n, None if n % 2 and n % 3 else 1, end_s=n))
        most = max(most, assembler.held)
    assert most <= 50


# Any order, duplicates -------------------------------------------------------------------------------------


def build_traces(data: Any) -> list[list[SpanData]]:
    """Traces with runs in them, some nested, some with guard events, tokens, or without their root."""
    traces: list[list[SpanData]] = []
    clock = FixedClock()
    for number in range(1, data.draw(st.integers(1, 4)) + 1):
        builder = TraceBuilder(number, clock)
        for _ in range(data.draw(st.integers(1, 2))):
            scores = data.draw(st.lists(st.sampled_from([1.0, 5.0, 8.0, 9.5, None]), max_size=5))
            guards = {1: [builder.guard_event()]} if data.draw(st.booleans()) else None
            outer = builder.run(scores, agent=data.draw(st.sampled_from("ab")), events=guards)
            if data.draw(st.booleans()):
                builder.run(scores[:2], agent="inner", parent_id=outer.span_id)
        spans = builder.spans
        if data.draw(st.booleans()):
            spans = [s for s in spans if s is not spans[-1]]  # a root is missing
        traces.append(spans)
    return traces


def verdicts(spans: Iterable[SpanData]) -> list[tuple[Any, ...]]:
    found = [
        (
            replayed.run.agent,
            replayed.run.started_ns,
            replayed.run.parent is None,
            None if replayed.root is None else (replayed.root.trace_id, replayed.root.span_id),
            replayed.verdict.outcome,
            replayed.verdict.passed,
            replayed.verdict.reasons,
            replayed.verdict.health.to_dict(),
        )
        for replayed in replay(spans, Tracker())
    ]
    return sorted(found, key=repr)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_verdicts_are_those_of_the_whole_file_in_any_order_and_with_duplicates(data: Any):
    whole = [span for trace in build_traces(data) for span in trace]
    shuffled: list[SpanData] = data.draw(st.permutations(whole))
    repeated = shuffled + data.draw(st.lists(st.sampled_from(whole), max_size=5)) if whole else []
    traces, assembler = assemble(repeated)
    assert assembler.late_spans == 0
    assert not any(trace.cut for trace in traces)
    assert sorted((v for trace in traces for v in verdicts(trace.spans)), key=repr) == verdicts(whole)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_traces_that_follow_one_another_are_judged_alike_however_little_is_held(data: Any):
    traces = [trace for trace in build_traces(data) if trace]
    in_turn: list[SpanData] = [span for trace in traces for span in data.draw(st.permutations(trace))]
    largest = max((len(trace) for trace in traces), default=1)
    closed, assembler = assemble(in_turn, max_spans=largest * 2, quiet_spans=largest * 2)
    assert assembler.late_spans == 0
    judged = [v for trace in closed for v in verdicts(trace.spans)]
    assert sorted(judged, key=repr) == verdicts(in_turn)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bound=st.integers(1, 30))
def test_a_stream_that_is_cut_off_or_does_not_fit_loses_spans_and_never_counts_one_twice(
    data: Any, bound: int
):
    whole = [span for trace in build_traces(data) for span in trace]
    shuffled: list[SpanData] = data.draw(st.permutations(whole))
    part = shuffled[: data.draw(st.integers(0, len(shuffled)))]
    closed, assembler = assemble(part, max_spans=bound, quiet_spans=3, quiet_s=0.0)
    given_out = [(s.trace_id, s.span_id) for trace in closed for s in trace.spans]
    assert len(given_out) == len(set(given_out))
    assert len(given_out) + assembler.late_spans == len(part)
    assert len({trace.trace_id for trace in closed}) == len(closed)
    assert assembler.held == 0
