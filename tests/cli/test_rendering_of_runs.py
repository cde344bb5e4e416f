"""Tables and trees of runs from stored spans, whoever wrote them."""

import io
from typing import Any

import pytest

from otel_loopeval import semconv
from otel_loopeval.cli.console import ASCII, UNICODE, make_console, printable, symbols_of
from otel_loopeval.cli.rendering import VerdictTable, chart, duration, run_tree
from otel_loopeval.cli.stored_runs import StoredRuns
from otel_loopeval.reports import record_of
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.verdict import Policy

MS = 1_000_000


def span(
    span_id: int,
    name: str,
    parent: int | None = None,
    start: int = 0,
    end: int = 10,
    attributes: dict[str, Any] | None = None,
    events: tuple[SpanEvent, ...] = (),
    *,
    error: bool = False,
) -> SpanData:
    """A span of trace 1; times in milliseconds."""
    return SpanData(
        name,
        1,
        span_id,
        parent,
        start * MS,
        end * MS,
        attributes=attributes or {},
        events=events,
        error=error,
    )


def scored(
    span_id: int, parent: int, number: int, score: float | None, start: int = 0, end: int = 10
) -> SpanData:
    attributes: dict[str, Any] = {"loopeval.iteration.number": number}
    if score is not None:
        attributes["loopeval.iteration.score"] = score
    return span(span_id, "evaluation_loop.iteration", parent, start, end, attributes)


def shown(*things: Any, width: int = 80) -> str:
    stream = io.StringIO()
    console = make_console(file=stream)
    console.width = width
    for thing in things:
        console.print(thing)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def trees(*spans: SpanData, policy: Policy | None = None) -> str:
    runs = StoredRuns(spans, policy)
    return shown(*(run_tree(stored, runs, UNICODE) for stored in runs.runs))


def table(*spans: SpanData, policy: Policy | None = None, width: int = 80) -> str:
    return shown(VerdictTable(map(record_of, StoredRuns(spans, policy).runs), UNICODE), width=width)


def test_a_run_with_a_nested_run_a_failed_call_and_an_iteration_without_a_score():
    inner = span(20, "evaluation_loop critic", 11, 2, 6, {"loopeval.run.threshold": 1.0})
    assert trees(
        span(10, "evaluation_loop writer", None, 0, 30, {"loopeval.run.threshold": 8.0}),
        scored(11, 10, 1, 4.5, 0, 10),
        inner,
        scored(21, 20, 1, 1.0, 2, 5),
        scored(12, 10, 2, None, 10, 20),
        span(13, "chat gpt", 12, 11, 19, {"error.type": "TimeoutError"}, error=True),
        scored(14, 10, 3, 9.25, 20, 30),
    ).splitlines() == [
        "evaluation_loop writer  ✔ healthy  3 iterations, 30 ms",
        "Converged in 3 iteration(s).",
        "├── iteration 1  ━━━━━━────   4.5           10 ms",
        "│   └── evaluation_loop critic  ✔ healthy  1 iteration, 4.0 ms",
        "│       Converged in 1 iteration(s).",
        "│       └── iteration 1  ━━━━━━━━━━  1          3.0 ms  threshold met",
        "├── iteration 2  no score",
        "│   └── chat gpt  8.0 ms  ✘ TimeoutError",
        "└── iteration 3  ━━━━━━━━━━  9.25           10 ms  threshold met",
        "evaluation_loop critic  ✔ healthy  1 iteration, 4.0 ms",
        "Converged in 1 iteration(s).",
        "└── iteration 1  ━━━━━━━━━━  1          3.0 ms  threshold met",
    ]


def test_guard_events_where_they_happened_with_what_is_known_of_them():
    bare = SpanEvent("loopeval.guard", 5 * MS)
    doom = SpanEvent(
        "loopeval.guard",
        6 * MS,
        {
            "loopeval.guard.kind": "no_progress",
            "loopeval.guard.doom_loop": True,
            "loopeval.guard.source": "mine",
        },
    )
    output = trees(
        span(10, "agent_loop coder", None, 0, 10, events=(bare,)),
        span(11, "execute_tool search", 10, 1, 9, events=(doom, SpanEvent("exception", 7 * MS))),
    )
    assert output.splitlines() == [
        "agent_loop coder  ✘ unhealthy  0 iterations, stopped, 10 ms",
        "Did not complete after 0 iteration(s). Doom-loop guard fired. 2 guard",
        "intervention(s).",
        "├── ▲ guard: other (application)",
        "└── execute_tool search  8.0 ms",
        "    └── ▲ doom loop: no_progress (mine)",
    ]


def test_a_judge_at_work_is_shown_where_it_called_something_or_failed():
    assert trees(
        span(10, "evaluation_loop a", None, 0, 30, {"loopeval.run.threshold": 1.0}),
        scored(11, 10, 1, 0.5, 0, 10),
        span(12, "evaluate", 11, 1, 2),
        scored(13, 10, 2, 0.5, 10, 20),
        span(14, "evaluate", 13, 11, 19),
        span(15, "chat gpt", 14, 12, 18),
        scored(16, 10, 3, None, 20, 30),
        span(17, "evaluate", 16, 21, 22, {"error.type": "ValueError"}, error=True),
    ).splitlines()[2:] == [
        "├── iteration 1  ━━━━━─────  0.5           10 ms",
        "├── iteration 2  ━━━━━─────  0.5      +0   10 ms",
        "│   └── evaluate  8.0 ms",
        "│       └── chat gpt  6.0 ms",
        "└── iteration 3  no score",
        "    └── evaluate  1.0 ms  ✘ ValueError",
    ]


def test_of_many_spans_both_ends_are_shown():
    iterations = [scored(100 + n, 10, n, 1.0, n, n + 1) for n in range(1, 21)]
    lines = trees(span(10, "evaluation_loop long", None, 0, 30), *iterations).splitlines()
    assert [line[4:16] for line in lines[2:]] == [
        *(f"iteration {n} " for n in range(1, 7)),
        "… 8 more",
        *(f"iteration {n}" for n in range(15, 21)),
    ]


def test_a_run_whose_root_is_missing():
    output = trees(scored(11, 10, 1, 3.0, 0, 5), scored(12, 10, 2, None, 5, 10))
    assert output.splitlines() == [
        "unknown (its root span is missing)  ○ no verdict  2 iterations, incomplete, 10",
        "ms",
        "├── iteration 1  score 3",
        "└── iteration 2  no score",
    ]


def test_broken_input_that_goes_in_circles_ends():
    output = trees(span(10, "evaluation_loop a", 11), scored(11, 10, 1, 1.0, 1), span(12, "own parent", 12))
    assert output.splitlines()[2:] == ["└── iteration 1  ━─────────  1          9.0 ms"]


def test_names_cannot_drive_the_terminal_or_pass_for_markup():
    name = "evaluation_loop \x1b[31mred\n[bold]x[/bold] :smile:"
    attributes = {"gen_ai.agent.name": "\x1b]0;t\x07[red]agent"}
    output = trees(span(10, name, None, 0, 10, attributes))
    assert output.splitlines()[0].startswith(
        "evaluation_loop \ufffd[31mred\ufffd[bold]x[/bold] :smile:  ✘ unhealthy"
    )
    assert "\ufffd]0;t\ufffd[red]agent" in table(span(10, name, None, 0, 10, attributes))


def test_the_table_gives_every_reason_in_words():
    over = {"gen_ai.usage.input_tokens": 90, "gen_ai.usage.output_tokens": 20}
    assert table(
        span(10, "evaluation_loop spender", None, 0, 9, {"loopeval.run.threshold": 2.0}),
        scored(11, 10, 1, 2.0, 0, 3),
        span(12, "chat m", 11, 1, 2, over),
        scored(13, 10, 2, 1.0, 3, 9),
        span(20, "goal_loop waiter", None, 10, 12, {"loopeval.run.outcome": "paused"}),
        policy=Policy(token_budget=100),
    ).splitlines() == [
        "Loop      Verdict        Iterations     Best   Scores   Why",
        "────────────────────────────────────────────────────────────────────────────────",
        "spender   ✘ unhealthy             2   2 of 2   █▅       1 wasted iteration, over",
        "                                                        the token budget",
        "waiter    ○ no verdict            0                     paused",
    ]


def test_a_narrow_terminal_gets_a_list_whose_words_stay_whole():
    assert table(
        span(10, "evaluation_loop spender", None, 0, 9, {"loopeval.run.threshold": 2.0}),
        scored(11, 10, 1, 2.0, 0, 3),
        scored(13, 10, 2, 1.0, 3, 9),
        span(20, "goal_loop waiter", None, 10, 12, {"loopeval.run.outcome": "paused"}),
        width=36,
    ).splitlines() == [
        "spender  ✘ unhealthy",
        "  2 iterations, 9.0 ms, best 2 of 2",
        "  1 wasted iteration",
        "waiter  ○ no verdict",
        "  0 iterations, paused, 2.0 ms",
    ]


def test_repeated_spans_count_once_and_runs_come_in_the_order_in_which_they_began():
    first = span(10, "evaluation_loop long", None, 0, 100)
    second = span(20, "evaluation_loop short", None, 5, 6)
    runs = StoredRuns([second, first, second])
    assert [stored.run.agent for stored in runs.runs] == ["long", "short"]
    assert runs.span_count == 2
    assert runs.run_of(second) is runs.runs[1]


def test_runs_that_began_at_once_keep_their_own_roots():
    roots = [
        span(10, "evaluation_loop a", None, 0, 9, {semconv.RUN_ID: "x"}),
        span(20, "evaluation_loop b", None, 0, 9),
        span(30, "evaluation_loop c", None, 0, 9, {semconv.RUN_ID: "y"}),
    ]
    runs = StoredRuns(roots)
    assert sorted((stored.run.agent, stored.root.span_id) for stored in runs.runs if stored.root) == [
        ("a", 10),
        ("b", 20),
        ("c", 30),
    ]


@pytest.mark.parametrize(
    ("scores", "threshold", "expected"),
    [
        ([0.0, 4.0, 8.0, 99.0, -5.0, None], 8.0, "▁▅██▁ "),
        ([1.0] * 20, 1.0, "█" * 12),
        ([0.0, 1.0, -1.0], 0.0, "██▁"),
        ([], 8.0, ""),
    ],
)
def test_a_chart_is_as_high_as_the_threshold(scores: list[float | None], threshold: float, expected: str):
    assert chart(scores, threshold, UNICODE) == expected


def test_a_chart_without_unicode_is_figures():
    assert chart([1.5, None, 8.0], 8.0, ASCII) == "1.5 - 8"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0.0 ms"),
        (0.0049, "4.9 ms"),
        (0.25, "250 ms"),
        (1.04, "1.0 s"),
        (119.9, "119.9 s"),
        (7200.0, "120 min"),
    ],
)
def test_durations(seconds: float, expected: str):
    assert duration(seconds) == expected


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", UNICODE), ("cp1252", ASCII), ("ascii", ASCII)])
def test_symbols_are_those_that_the_output_has(encoding: str, expected: object):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert symbols_of(make_console(file=stream)) is expected


def test_printable_keeps_every_script_and_replaces_what_is_invisible():
    assert printable("naïve 名前 ✔") == "naïve 名前 ✔"
    assert printable("a\x1b\r\n\u202eb\ud800") == "a\ufffd\ufffd\ufffd\ufffdb\ufffd"
