"""Judging runs from spans that somebody stored: ours or another library's, whole or in pieces."""

from dataclasses import replace
from typing import Any

import pytest

from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy, Verdict
from otel_loopeval.testing import TraceBuilder


def judged(spans: list[SpanData], policy: Policy | None = None) -> list[tuple[LoopRun, Verdict]]:
    return [(run, verdict) for run, verdict, _ in replay(spans, Tracker(policy))]


def one(spans: list[SpanData], policy: Policy | None = None) -> tuple[LoopRun, Verdict]:
    (found,) = judged(spans, policy)
    return found


def test_a_run_of_another_library() -> None:
    trace = TraceBuilder()
    trace.run([5.0, 9.0, 9.5], agent="writer", attributes={"loopeval.run.threshold": 9.0})
    run, verdict = one(trace.spans)
    assert (run.agent, run.mode, run.framework) == ("writer", "optimize", "other")
    assert (verdict.outcome, verdict.passed, verdict.reasons) == ("completed", False, ("wasted_iterations",))
    assert verdict.health.to_dict() == {
        **verdict.health.to_dict(),
        "iterations_to_success": 2,
        "wasted_iterations": 1,
        "score_delta_per_iteration": [4.0, 0.5],
        "total_duration_s": 3.0,
        "threshold": 9.0,
        "converged": True,
        "success": False,
    }


@pytest.mark.parametrize(
    ("name", "agent", "mode"),
    [
        ("evaluation_loop writer", "writer", "optimize"),
        ("evaluation_loop", "unknown", "optimize"),
        ("goal_loop two words", "two words", "goal"),
        ("agent_loop x", "x", "agent"),
    ],
)
def test_names_of_roots(name: str, agent: str, mode: str) -> None:
    trace = TraceBuilder()
    trace.span(name)
    run, _ = one(trace.spans)
    assert (run.agent, run.mode) == (agent, mode)


@pytest.mark.parametrize(
    "name", ["evaluation_looper writer", "evaluation", "", "chat writer", "xevaluation_loop"]
)
def test_names_that_are_nobodys_root(name: str) -> None:
    trace = TraceBuilder()
    trace.span(name)
    assert judged(trace.spans) == []


def test_attributes_of_the_wrong_type_are_ignored() -> None:
    trace = TraceBuilder()
    trace.span(
        "evaluation_loop writer",
        attributes={
            "gen_ai.agent.name": 7,
            "loopeval.run.mode": "sideways",
            "loopeval.run.threshold": "8",
            "loopeval.run.max_iterations": 2.5,
            "loopeval.run.outcome": "exploded",
            "loopeval.run.success": "yes",
            "loopeval.run.id": "",
            "loopeval.run.completion_reason": 3,
        },
    )
    run, verdict = one(trace.spans)
    assert (run.agent, run.mode, run.threshold, run.max_iterations) == ("writer", "optimize", None, None)
    assert (run.success, run.completion_reason) == (None, None)
    assert len(run.id) == 16
    assert verdict.outcome == "completed"


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_that_no_iteration_has(number: int) -> None:
    trace = TraceBuilder()
    root = trace.span_id()
    for told in (number, 2):
        trace.span(
            "evaluation_loop.iteration", parent_id=root, attributes={"loopeval.iteration.number": told}
        )
    trace.span("evaluation_loop writer", span_id=root)
    run, _ = one(trace.spans)
    assert [iteration.number for iteration in run.iterations] == [1, 2]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "9", True, [9.0], None])
def test_scores_that_are_none(score: Any) -> None:
    trace = TraceBuilder()
    root = trace.span_id()
    trace.span("evaluation_loop.iteration", parent_id=root, attributes={"loopeval.iteration.score": score})
    trace.span(
        "evaluation_loop writer", span_id=root, start_ns=trace.clock.now_ns - 2_000_000_000, duration_s=3
    )
    run, verdict = one(trace.spans)
    assert [iteration.score for iteration in run.iterations] == [None]
    assert (verdict.converged, verdict.best_score) == (False, None)


def test_a_failed_root_without_an_outcome() -> None:
    trace = TraceBuilder()
    trace.run([5.0], error=True)
    _, verdict = one(trace.spans)
    assert (verdict.outcome, verdict.passed) == ("failed", False)


def test_the_outcome_that_the_root_tells_wins() -> None:
    trace = TraceBuilder()
    trace.run([5.0], error=True, attributes={"loopeval.run.outcome": "cancelled"})
    _, verdict = one(trace.spans)
    assert (verdict.outcome, verdict.passed) == ("cancelled", None)


def test_a_missing_root_is_incomplete() -> None:
    trace = TraceBuilder()
    trace.run([5.0, 9.0])
    run, verdict = one(trace.spans[:-1])
    assert (verdict.outcome, verdict.passed, verdict.converged) == ("incomplete", None, None)
    assert verdict.reasons == ()
    assert [iteration.score for iteration in run.iterations] == [5.0, 9.0]
    assert (verdict.best_score, verdict.health.total_duration_s) == (9.0, 2.0)
    assert run.agent == "unknown"


def test_iterations_of_two_missing_roots_are_two_runs() -> None:
    trace = TraceBuilder()
    trace.run([5.0, 9.0])
    trace.run([1.0])
    pieces = [span for span in trace.spans if span.name == "evaluation_loop.iteration"]
    assert [run.iteration_count for run, _ in judged(pieces)] == [2, 1]


def test_a_doom_loop_of_a_run_without_its_root() -> None:
    trace = TraceBuilder()
    trace.run([5.0], events={1: [trace.guard_event("repeated_action", tool="grep", rule="exact", count=3)]})
    run, verdict = one(trace.spans[:-1])
    assert verdict.health.doom_loop_fired
    (event,) = run.guard_events
    assert (event.kind, event.tool, event.rule, event.count) == ("repeated_action", "grep", "exact", 3)


def test_guard_events_with_junk_in_them() -> None:
    trace = TraceBuilder()
    event = trace.guard_event("made up", doom_loop=False, action="explode", tool=7, count="many", source="")
    trace.run([5.0], events={1: [event]})
    run, verdict = one(trace.spans)
    (read,) = run.guard_events
    assert (read.kind, read.action, read.tool, read.count, read.source) == (
        "other",
        "observe",
        None,
        None,
        "application",
    )
    assert verdict.health.guard_interventions == 1


def test_a_childs_doom_loop_marks_its_ancestors() -> None:
    trace = TraceBuilder()
    outer = trace.span_id()
    start = trace.clock.now_ns
    trace.run([5.0], agent="inner", parent_id=outer, events={1: [trace.guard_event()]})
    trace.span("evaluation_loop outer", span_id=outer, start_ns=start, duration_s=5)
    verdicts = {run.agent: verdict for run, verdict in judged(trace.spans)}
    assert verdicts["outer"].health.doom_loop_fired
    assert verdicts["outer"].health.guard_interventions == 0
    assert verdicts["outer"].doom_loop_kinds == ()
    assert verdicts["inner"].doom_loop_kinds == ("loop_detected",)


def test_runs_inside_spans_that_are_nobodys_still_nest() -> None:
    trace = TraceBuilder()
    outer, tool = trace.span_id(), trace.span_id()
    start = trace.clock.now_ns
    trace.run([9.0], agent="inner", parent_id=tool)
    trace.span("execute_tool", span_id=tool, parent_id=outer, start_ns=start, duration_s=2)
    trace.span("evaluation_loop outer", span_id=outer, start_ns=start, duration_s=3)
    parents = {run.agent: run.parent.agent if run.parent else None for run, _ in judged(trace.spans)}
    assert parents == {"inner": "outer", "outer": None}


def usage(input_tokens: Any, output_tokens: Any) -> dict[str, Any]:
    return {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": output_tokens}


def test_tokens_count_once_through_nested_wrappers() -> None:
    """agent span (sum of its calls) > wrapper > client > two calls."""
    trace = TraceBuilder()
    root, agent, wrapper = trace.span_id(), trace.span_id(), trace.span_id()
    start = trace.clock.now_ns
    trace.span("chat", parent_id=wrapper, attributes=usage(10, 5))
    trace.span(
        "chat wrapper",
        span_id=wrapper,
        parent_id=agent,
        start_ns=start,
        duration_s=1.5,
        attributes=usage(10, 5),
    )
    trace.span("chat", parent_id=agent, attributes=usage(20, 7))
    trace.span(
        "invoke_agent", span_id=agent, parent_id=root, start_ns=start, duration_s=3, attributes=usage(30, 12)
    )
    trace.span("chat", parent_id=root, attributes=usage(1, None))
    trace.span("evaluation_loop writer", span_id=root, start_ns=start, duration_s=9)
    inner, outer = (run for run, _ in judged(trace.spans))
    assert inner.parent is outer
    assert (inner.input_tokens, inner.output_tokens) == (30, 12)
    assert (outer.input_tokens, outer.output_tokens) == (31, 12)


@pytest.mark.parametrize("bad", ["many", -5, 2.5, True, None])
def test_token_counts_that_are_none(bad: Any) -> None:
    trace = TraceBuilder()
    root = trace.span_id()
    start = trace.clock.now_ns
    trace.span("chat", parent_id=root, attributes=usage(bad, 3))
    trace.span("evaluation_loop writer", span_id=root, start_ns=start, duration_s=9)
    run, _ = one(trace.spans)
    assert (run.input_tokens, run.output_tokens) == (0, 3)


def test_tokens_of_child_runs_are_inclusive_and_of_the_innermost_iteration() -> None:
    trace = TraceBuilder()
    outer = trace.span_id()
    start = trace.clock.now_ns
    inner_root, inner_iteration = trace.span_id(), trace.span_id()
    trace.span("chat", parent_id=inner_iteration, attributes=usage(10, 5))
    trace.span(
        "evaluation_loop.iteration",
        span_id=inner_iteration,
        parent_id=inner_root,
        start_ns=start,
        duration_s=2,
    )
    trace.span("evaluation_loop inner", span_id=inner_root, parent_id=outer, start_ns=start, duration_s=3)
    trace.span("evaluation_loop outer", span_id=outer, start_ns=start, duration_s=4)
    runs = {run.agent: run for run, _ in judged(trace.spans)}
    assert (runs["outer"].input_tokens, runs["inner"].input_tokens) == (10, 10)
    assert runs["inner"].iterations[0].input_tokens == 10


def test_spans_that_end_after_their_root_are_late() -> None:
    trace = TraceBuilder()
    root = trace.span_id()
    start = trace.clock.now_ns
    trace.span("evaluation_loop writer", span_id=root, start_ns=start, duration_s=1)
    trace.span("chat", parent_id=root, start_ns=start, duration_s=2, attributes=usage(10, 5))
    run, _ = one(trace.spans)
    assert run.input_tokens == 0


def test_spans_that_all_take_no_time() -> None:
    """A clock of coarse resolution, or a file that kept seconds only."""
    trace = TraceBuilder()
    trace.run([5.0, 9.0], attributes={"loopeval.run.threshold": 8.0})
    flat = [replace(span, start_ns=1, end_ns=1) for span in trace.spans]
    for spans in (flat, flat[::-1]):
        run, verdict = one(spans)
        assert verdict.outcome == "completed"
        assert sorted(iteration.number for iteration in run.iterations) == [1, 2]
        assert verdict.health.iterations_to_success == 2


def test_a_span_that_ends_before_it_starts() -> None:
    trace = TraceBuilder()
    trace.run([9.0])
    spans = [replace(span, end_ns=span.start_ns - 5) for span in trace.spans]
    _, verdict = one(spans)
    assert verdict.health.total_duration_s == 0.0


def test_parents_that_form_a_cycle() -> None:
    trace = TraceBuilder()
    trace.span("a", span_id=901, parent_id=902)
    trace.span("b", span_id=902, parent_id=901)
    trace.span("self", span_id=903, parent_id=903)
    trace.run([9.0], parent_id=901)
    assert len(judged(trace.spans)) == 1


def test_the_same_span_ids_in_two_traces() -> None:
    first, second = TraceBuilder(1), TraceBuilder(2)
    first.run([9.0], agent="one")
    second.run([5.0], agent="two")
    verdicts = {run.agent: verdict.passed for run, verdict in judged(first.spans + second.spans)}
    assert verdicts == {"one": True, "two": False}


def test_runs_come_in_the_order_in_which_they_ended() -> None:
    trace = TraceBuilder()
    trace.run([9.0], agent="first")
    trace.run([9.0], agent="second")
    assert [run.agent for run, _ in judged(trace.spans[::-1])] == ["first", "second"]


def test_the_policy_decides_where_the_run_does_not() -> None:
    trace = TraceBuilder()
    trace.run([5.0, 6.0])
    assert one(trace.spans, Policy(threshold=5.0))[1].reasons == ("wasted_iterations",)
    assert one(trace.spans, Policy(threshold=5.0, max_wasted_iterations=1))[1].passed is True
    assert one(trace.spans, Policy())[1].reasons == ("not_converged",)


def test_a_trace_of_twenty_thousand_levels() -> None:
    trace = TraceBuilder()
    parent: int | None = None
    for _ in range(20_000):
        parent = trace.span("deep", parent_id=parent, start_ns=trace.clock.now_ns).span_id
    trace.run([9.0], parent_id=parent)
    assert len(judged(trace.spans)) == 1
