"""What the page is made of: steps and their repeats, the geometry of charts, numbers and times."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.served_runs import NOW_NS, served

from otel_loopeval.reports.steps import steps_of, text_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.page import formats
from otel_loopeval.server.page.charts import curve, spark
from otel_loopeval.server.page.steps import iteration_at, repeats_in
from otel_loopeval.server.page.timeline import Block, timeline
from otel_loopeval.server.store.details import packed_detail, unpacked_detail
from otel_loopeval.server.store.rows import COLUMNS, key_of, row_of, run_of
from otel_loopeval.testing import TraceBuilder

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}


def tool(builder: TraceBuilder, name: str, arguments: object, result: object = None, **more: object) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = arguments  # type: ignore[reportArgumentType]
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result  # type: ignore[reportArgumentType]
    builder.span(f"execute_tool {name}", attributes=attributes, **more)  # type: ignore[reportArgumentType]


def test_of_wrappers_of_one_call_the_innermost_is_the_step() -> None:
    builder = TraceBuilder()
    outer = builder.span_id()
    builder.span("inner", parent_id=outer, attributes={**CHAT, "gen_ai.response.model": "gpt-5"})
    builder.span("outer", span_id=outer, attributes={**CHAT, "gen_ai.response.model": "proxy"})
    (step,) = steps_of(builder.spans)
    assert (step.name, step.tokens) == ("gpt-5", 12)


def test_parents_in_a_cycle_are_no_trouble() -> None:
    spans = [SpanData("a", 1, 1, 2, 0, 1, CHAT), SpanData("b", 1, 2, 1, 0, 1, CHAT)]
    assert steps_of(spans) == []


def test_steps_are_in_the_iteration_that_they_began_in() -> None:
    builder = TraceBuilder()
    for _ in range(4):
        tool(builder, "look", "{}")
    start = builder.spans[0].start_ns
    iterations = [(start + 1_000_000_000, 1), (start + 3_000_000_000, 2)]
    steps = steps_of(builder.spans)
    assert [iteration_at(step.start_ns, iterations) for step in steps] == [None, 1, 1, 2]
    (repeat,) = repeats_in(steps, iterations)
    assert [seen.iteration for seen in repeat.shown] == [None, 1, 1, 2]


def test_repeats_are_told_apart_by_tool_and_arguments() -> None:
    builder = TraceBuilder()
    for arguments, result in (
        ("1", "a"),
        ("2", "x"),
        ("1", "b"),
        ("1", "a"),
        ("2", None),
        (None, None),
        (None, None),
    ):
        tool(builder, "look", arguments, result)
    tool(builder, "other", "1", "a")
    ones, twos = repeats_in(steps_of(builder.spans), [])
    assert (ones.arguments, ones.count, [(o.position, o.same) for o in ones.shown]) == (
        "1",
        3,
        [(1, None), (2, False), (3, True)],
    )
    assert (twos.arguments, [o.same for o in twos.shown]) == ("2", [None, None])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        ({"b": 1, "a": [1, "ä"]}, '{"a": [1, "ä"], "b": 1}'),
        ((1, 2), "[1, 2]"),
        (b"\x00", "\"b'\\\\x00'\""),
        ({1: 2, "a": 3}, "{1: 2, 'a': 3}"),
        ("x" * 20_000, "x" * 10_000),
    ],
)
def test_values_as_text(value: object, text: str) -> None:
    assert text_of(value) == text


def test_a_curve_has_a_piece_for_each_stretch_and_round_numbers_beside_it() -> None:
    found = curve([(1, 4.0), (2, 6.0), (3, None), (4, 9.0), (5, 9.5)], 8.0)
    assert found is not None
    assert len(found.lines) == 2
    assert [dot.met for dot in found.dots] == [False, False, True, True]
    assert [label.text for label in found.ys] == ["0", "5", "10"]
    assert [label.text for label in found.xs] == ["1", "2", "3", "4", "5"]
    assert curve([(1, None)], 8.0) is None


def test_a_very_long_curve_is_thinned_out_and_keeps_its_end() -> None:
    found = curve([(n, float(n % 7)) for n in range(1, 10_001)], 8.0)
    assert found is not None
    assert 300 < len(found.lines[0].split()) <= 401
    assert found.dots == ()
    assert found.lines[0].split()[-1].startswith("698.0,")


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50),
    st.none() | st.floats(allow_nan=False),
)
def test_charts_stay_inside_their_frame_whatever_the_scores(
    scores: list[float | None], threshold: float | None
) -> None:
    for found in (curve([(n, s) for n, s in enumerate(scores, 1)], threshold), spark(scores, threshold)):
        if found is None:
            assert all(score is None for score in scores)
            continue
        numbers = [float(n) for line in found.lines for n in re.split("[ ,]", line)]
        numbers += [n for dot in found.dots for n in (dot.x, dot.y)] + [label.at for label in found.ys]
        numbers += [] if found.threshold_y is None else [found.threshold_y]
        assert all(math.isfinite(n) and 0 <= n <= found.width for n in numbers)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0 s"),
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (59.94, "59.9 s"),
        (600, "10 min"),
        (9000, "2.5 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


def test_numbers_money_and_times() -> None:
    assert [formats.number(n) for n in (None, 0, 12_345, 8.0, 8.0833333)] == ["", "0", "12,345", "8", "8.083"]
    assert [formats.usd(n) for n in (None, 0.0, 0.00123, 12.5)] == ["", "$0.00", "$0.0012", "$12.50"]
    assert formats.moment(NOW_NS) == "2026-09-21 14:13:20"
    assert formats.machine_moment(2**63 - 1) == "2262-04-11T23:47:16Z"


@pytest.mark.parametrize(
    ("score", "threshold", "texts"),
    [
        (7.995, 8.0, ("7.995", "8")),
        (7.99996, 8.0, ("7.99996", "8")),
        (8.0 - 2**-50, 8.0, ("7.999999999999999", "8")),
        (7.00001, 7.00004, ("7.00001", "7.00004")),
        (99_999.7, 100_000.0, ("99,999.7", "100,000")),
        (8.0, 8.0, ("8", "8")),
        (8.00001, 8.0, ("8", "8")),
        (7.99996, None, ("8", "")),
    ],
)
def test_a_score_below_its_threshold_is_never_shown_as_the_same(
    score: float, threshold: float | None, texts: tuple[str, str]
) -> None:
    assert formats.score_beside(score, threshold) == texts


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_score_below_its_threshold_is_told_apart(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    assert low == high or len(set(formats.score_beside(low, high))) == 2


def test_of_very_many_iterations_both_ends_show() -> None:
    run = served([5.0 + n / 1000 for n in range(1, 2001)])
    row = row_of(run)
    stored = run_of(key_of(run), "", "", 1, run.closed_ns, row[COLUMNS.index("record")], "")
    found = timeline(stored, unpacked_detail(packed_detail(run)))
    assert [part.iteration.number for part in found.parts] == [*range(1, 101), *range(1901, 2001)]
    assert found.left_out == 1800
    assert len(found.blocks) <= 300


def strip_of(wasted: Sequence[bool]) -> tuple[Block, ...]:
    """The strip of a run of iterations of a second each, of which some are wasted."""
    run = served([5.0] * len(wasted))
    row = row_of(run)
    stored = run_of(key_of(run), "", "", 1, run.closed_ns, row[COLUMNS.index("record")], "")
    detail = unpacked_detail(packed_detail(run))
    iterations = [replace(i, wasted=w) for i, w in zip(detail.iterations, wasted, strict=True)]
    return timeline(stored, replace(detail, iterations=tuple(iterations))).blocks


@pytest.mark.parametrize("count", [300, 301, 1000, 1001])
def test_the_strip_tells_of_all_iterations_however_often_their_state_changes(count: int) -> None:
    blocks = strip_of([number % 2 == 1 for number in range(count)])
    assert 150 <= len(blocks) <= 300
    assert blocks[0].x == 0.0
    assert 998.0 <= blocks[-1].x + blocks[-1].width <= 1002.0
    for one, after in pairwise(blocks):
        assert 0.0 <= after.x - one.x - one.width <= 1.5
    shown = [[int(number) for number in re.findall(r"\d+", block.title)] for block in blocks]
    assert [n for ends in shown for n in range(ends[0], ends[-1] + 1)] == [*range(1, count + 1)]


def test_blocks_of_several_iterations_show_the_worst_and_say_which_they_are() -> None:
    assert [(b.state, b.title) for b in strip_of([False, True])] == [
        ("plain", "iteration 1"),
        ("wasted", "iteration 2, wasted"),
    ]
    assert [(b.state, b.title) for b in strip_of([False] * 200 + [True] * 200)] == [
        ("plain", "iterations 1 to 200"),
        ("wasted", "iterations 201 to 400, wasted"),
    ]
    mixed = strip_of([False, True] * 500)
    assert {b.state for b in mixed} == {"wasted"}
    assert (mixed[0].title, mixed[-1].title) == (
        "iterations 1 to 4, some wasted",
        "iterations 997 to 1000, some wasted",
    )


def test_damaged_details_are_an_error_of_their_own() -> None:
    with pytest.raises(ValueError, match="the details of a stored run are damaged"):
        unpacked_detail(b"no zlib")
