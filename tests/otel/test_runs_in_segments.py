"""A run that pauses and goes on, here or in another process, is told apart from one that failed."""

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Tracer

from otel_loopeval import iteration, loop
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.resume import Segments, carry_over, read_token, token_of
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Usage
from otel_loopeval.testing import Capture

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def points(capture: Capture, name: str) -> list[tuple[dict[str, Any], Any]]:
    metric = capture.metrics().get(name, {"points": []})
    return [
        ({k: v for k, v in point["attributes"].items() if k == "loopeval.run.outcome"}, point["value"])
        for point in metric["points"]
    ]


def roots(capture: Capture) -> list[ReadableSpan]:
    return [span for span in capture.finished_spans if span.name == "evaluation_loop writer"]


def chat(capture: Capture, input_tokens: int, output_tokens: int) -> None:
    tracer: Tracer = capture.tracer_provider.get_tracer("somebody.else")
    usage = {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": output_tokens}
    with tracer.start_as_current_span("chat", attributes=usage):
        pass


def first_segment(capture: Capture) -> str:
    with loop("writer", id="order-7", threshold=8.0, max_iterations=5) as run:
        for score in (5.0, 8.5):
            with iteration() as it:
                chat(capture, 10, 2)
                it.score = score
        run.record_guard_event({"type": "doom_loop"})
        run.paused("approval")
    return run.resume_token


def test_the_last_segment_is_judged_as_the_whole_run(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", id="order-7", threshold=8.0, max_iterations=5, resume=token), iteration() as it:
        chat(capture, 100, 20)
        it.score = 9.0

    first, last = capture.spans("evaluation_loop")
    assert first["attributes"]["loopeval.run.outcome"] == "paused"
    assert first["attributes"]["loopeval.run.completion_reason"] == "approval"
    assert "loopeval.health.passed" not in first["attributes"]
    assert "loopeval.run.resumed" not in first["attributes"]
    assert first["status"] == last["status"] == "UNSET"

    found = last["attributes"]
    assert [dict(root.attributes or {})["loopeval.run.id"] for root in roots(capture)] == ["order-7"] * 2
    assert found["loopeval.run.resumed"] is True
    assert found["loopeval.run.iterations"] == 3
    assert found["loopeval.health.iterations_to_success"] == 2
    assert found["loopeval.health.wasted_iterations"] == 1
    assert found["loopeval.health.wasted_tokens"] == 120
    assert found["loopeval.health.score_delta_per_iteration"] == [3.5, 0.5]
    assert found["loopeval.health.guard_interventions"] == 1
    assert found["loopeval.health.doom_loop_kinds"] == ["loop_detected"]
    assert found["loopeval.health.reasons"] == ["wasted_iterations", "doom_loop"]
    assert (found["loopeval.run.tokens.input"], found["loopeval.run.tokens.output"]) == (120, 24)
    assert capture.spans("evaluation_loop.iteration")[2]["attributes"]["loopeval.iteration.number"] == 3


def test_the_last_segment_links_to_the_one_before(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", resume=token):
        pass
    first, last = roots(capture)
    (link,) = last.links
    assert first.context is not None
    assert last.context is not None
    assert (link.context.trace_id, link.context.span_id) == (first.context.trace_id, first.context.span_id)
    assert last.context.trace_id != first.context.trace_id


def test_what_happened_once_is_counted_once(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", threshold=8.0, resume=token), iteration() as it:
        it.score = 9.0

    assert points(capture, "loopeval.runs.started") == [({}, 2)]  # so that started less ended is what is open
    assert points(capture, "loopeval.runs") == [
        ({"loopeval.run.outcome": "paused"}, 1),
        ({"loopeval.run.outcome": "completed"}, 1),
    ]
    assert points(capture, "loopeval.iterations") == [({}, 3)]
    assert points(capture, "loopeval.iterations.wasted") == [({}, 1)]
    assert points(capture, "loopeval.doom_loop.fired") == [({}, 1)]
    assert capture.metrics()["loopeval.run.iterations"]["points"][0]["count"] == 1
    assert capture.metrics()["loopeval.run.iterations"]["points"][0]["sum"] == 3
    assert capture.metrics()["loopeval.run.duration"]["points"][0]["count"] == 1


def test_a_budget_is_exceeded_once(capture: Capture) -> None:
    token = None
    for _ in range(3):
        with loop("writer", token_budget=10, resume=token) as run, iteration():
            chat(capture, 20, 0)
            token = run.paused()
            assert run.over_token_budget is True
    assert points(capture, "loopeval.token_budget.exceeded") == [({}, 1)]


def test_three_segments(capture: Capture) -> None:
    token = ""
    with loop("writer", threshold=8.0) as run:
        with iteration() as it:
            it.score = 1.0
        token = run.paused()
    with loop("writer", threshold=8.0, resume=token) as run:
        with iteration() as it:
            it.score = 2.0
        token = run.paused()
    with loop("writer", threshold=8.0, resume=token) as run:
        with iteration() as it:
            it.score = 8.0
        assert run.scores == [1.0, 2.0, 8.0]
    root = capture.spans("evaluation_loop")[2]["attributes"]
    assert root["loopeval.run.iterations"] == 3
    assert root["loopeval.health.passed"] is True
    assert len({span["attributes"]["loopeval.run.id"] for span in capture.spans("evaluation_loop")}) == 1


def test_another_process_goes_on_with_the_run(capture: Capture) -> None:
    token = first_segment(capture)
    program = textwrap.dedent("""
        import json, sys
        from otel_loopeval import iteration, loop
        from otel_loopeval.testing import Capture

        with Capture() as capture:
            capture.instrument()
            with loop("writer", threshold=8.0, resume=sys.stdin.read()), iteration() as it:
                it.score = 9.0
        print(json.dumps(dict(capture.finished_spans[-1].attributes)))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], input=token, capture_output=True, text=True, check=True, timeout=60
    )
    attributes = json.loads(done.stdout)
    assert attributes["loopeval.run.id"] == "order-7"
    assert attributes["loopeval.health.wasted_iterations"] == 1


def test_time_between_segments_is_not_the_runs() -> None:
    run = LoopRun("writer", started_ns=0)
    token = token_of(run, 3_000_000_000)
    later = LoopRun("writer", started_ns=10**18)
    carry_over(read_token(token), later)
    verdict = Tracker().look(later, 10**18 + 2_000_000_000)
    assert verdict.health.total_duration_s == 5.0


def test_a_traceparent_gives_a_link_alone(capture: Capture) -> None:
    with loop("writer", id="order-7", resume=TRACEPARENT), iteration() as it:
        it.score = 9.0
    (root,) = roots(capture)
    assert [f"{link.context.span_id:016x}" for link in root.links] == ["b7ad6b7169203331"]
    assert root.attributes is not None
    assert root.attributes["loopeval.run.id"] == "order-7"
    assert root.attributes["loopeval.run.iterations"] == 1


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "{}",
        "[]",
        "null",
        '{"v":1}',
        '{"v":2,"id":"a","span":"0-0"}',
        TRACEPARENT[:-4],
        TRACEPARENT.replace("a", "z"),
        "[" * 10_000,
        token_of(LoopRun("writer", started_ns=0), 0).replace('"ns":0', '"ns":-1'),
        token_of(LoopRun("writer", started_ns=0), 0).replace('"spending":null', '"spending":[1]'),
        token_of(LoopRun("writer", started_ns=0), 0).replace('"doom_loops":[]', '"doom_loops":["x"]'),
        token_of(LoopRun("writer", started_ns=0), 0).replace(
            '"iterations":[]', '"iterations":[[1,"9",null]]'
        ),
    ],
)
def test_a_bad_token_is_named(token: str) -> None:
    with pytest.raises(ValueError, match=r"resume must be what run\.paused\(\) gave, or a W3C traceparent"):
        loop("writer", resume=token)


def test_a_token_of_another_run_and_a_token_that_is_no_string() -> None:
    token = token_of(LoopRun("writer", started_ns=0, run_id="order-7"), 0)
    with pytest.raises(ValueError, match="resume is of run 'order-7', not of id 'order-8'"):
        loop("writer", id="order-8", resume=token)
    with pytest.raises(TypeError, match="resume must be a string, got 7"):
        loop("writer", resume=7)  # type: ignore[call-overload]


SPENDINGS = st.tuples(
    st.integers(0, 2**40), st.integers(0, 2**40), st.none() | st.floats(0, 1e6, allow_nan=False)
)


@given(
    st.lists(st.tuples(st.none() | st.floats(-1e9, 1e9), st.none() | SPENDINGS), max_size=20),
    st.integers(0, 2**62),
)
def test_a_run_goes_on_as_it_was_left(iterations: list[Any], ended_ns: int) -> None:
    run = LoopRun("writer", started_ns=0, run_id="order-7")
    for score, spent in iterations:
        it = run.begin_iteration(0)
        it.score = score
        if spent is not None:
            run.spend(it, Usage(*spent[:2]), spent[2])
    later = LoopRun("writer", started_ns=5)
    carry_over(read_token(token_of(run, ended_ns)), later)
    before, after = Tracker().look(run, ended_ns), Tracker().look(later, 5)
    assert before == after
    assert later.carried_iterations == len(iterations)


@pytest.mark.parametrize(
    "name", ["langgraph.errors.GraphInterrupt", "pydantic_ai.exceptions.ApprovalRequired"]
)
def test_frameworks_that_wait_for_a_person_pause_the_run(capture: Capture, name: str) -> None:
    module, _, kind = name.rpartition(".")
    interrupt: type[Exception] = type(kind, (Exception,), {"__module__": module})
    with pytest.raises(interrupt), loop("writer") as run, iteration():
        raise interrupt("approve?")
    root = capture.span("evaluation_loop")
    assert root["attributes"]["loopeval.run.outcome"] == "paused"
    assert root["status"] == capture.span("evaluation_loop.iteration")["status"] == "UNSET"
    assert read_token(run.resume_token).run_id == run.id


def test_stored_segments_are_judged_as_one_run(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", threshold=8.0, resume=token), iteration() as it:
        chat(capture, 100, 20)
        it.score = 9.0
    live = capture.spans("evaluation_loop")[1]["attributes"]

    first, last = replay(capture.neutral_spans(), Tracker())
    assert (first.verdict.outcome, first.verdict.passed) == ("paused", None)
    health = last.verdict.health
    assert last.verdict.outcome == live["loopeval.run.outcome"] == "completed"
    assert last.run.iteration_count == live["loopeval.run.iterations"] == 3
    assert health.wasted_iterations == live["loopeval.health.wasted_iterations"] == 1
    assert health.guard_interventions == live["loopeval.health.guard_interventions"] == 1
    assert list(last.verdict.reasons) == live["loopeval.health.reasons"]
    assert last.run.input_tokens == live["loopeval.run.tokens.input"] == 120
    assert last.verdict.wasted_tokens == live["loopeval.health.wasted_tokens"] == 120


def test_a_segment_without_the_one_before_has_no_verdict(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", threshold=8.0, resume=token), iteration() as it:
        it.score = 9.0
    stored = capture.neutral_spans()
    (second,) = (span.trace_id for span in stored if span.attributes.get("loopeval.run.resumed"))

    (last,) = replay([span for span in stored if span.trace_id == second], Tracker())
    assert (last.verdict.outcome, last.verdict.passed) == ("incomplete", None)


def test_traces_that_are_replayed_one_by_one_share_their_segments(capture: Capture) -> None:
    token = first_segment(capture)
    with loop("writer", threshold=8.0, resume=token), iteration() as it:
        it.score = 9.0
    stored = capture.neutral_spans()
    segments = Segments()
    outcomes = [
        replayed.verdict.outcome
        for trace_id in dict.fromkeys(span.trace_id for span in stored)
        for replayed in replay(
            [span for span in stored if span.trace_id == trace_id], Tracker(segments=segments)
        )
    ]
    assert outcomes == ["paused", "completed"]


def test_a_segment_that_makes_no_sense_is_as_one_that_is_not_known() -> None:
    segments = Segments()
    run = LoopRun("writer", started_ns=0, run_id="order-7")
    run.begin_iteration(0, -1)
    segments.paused(run, 1)
    later = LoopRun("writer", started_ns=2, run_id="order-7")
    assert not segments.go_on(later)
    assert later.iterations == []


def test_of_segments_that_take_too_much_the_latest_are_known() -> None:
    segments = Segments(max_bytes=20_000)

    def pause(run_id: str, iterations: int) -> None:
        run = LoopRun("writer", started_ns=0, run_id=run_id)
        for _ in range(iterations):
            run.begin_iteration(0).score = 7.5
        segments.paused(run, 1)

    def known() -> list[str]:
        return [name for name in "abcd" if segments.go_on(LoopRun("writer", started_ns=2, run_id=name))]

    for name in "abcab":  # 8 kB each
        pause(name, 500)
    assert known() == ["a", "b"]
    pause("c", 10)
    pause("b", 10)
    assert known() == ["a", "b", "c"], "what is there no longer does not count"
    pause("d", 5_000)
    assert known() == [], "it is more than all may take"
    pause("a", 500)
    assert known() == ["a"]


def test_the_time_that_passes_before_the_token_is_asked_for_is_not_the_runs(capture: Capture) -> None:
    with loop("writer") as run:
        run.paused()
    ended_ns = run.state.active_ns
    assert json.loads(run.resume_token)["ns"] == ended_ns - run.state.started_ns
