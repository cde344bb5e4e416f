"""Our goal loop, ``run_until`` in both forms, and the entry point of ``opentelemetry-instrument``."""

import asyncio
from importlib.metadata import entry_points
from typing import Any

import pytest
from instrumented_loops import Agent, both_ways, series

from otel_loopeval import GoalCriteria, record_guard_event, run_until, run_until_async
from otel_loopeval.evaluation import GoalLoop
from otel_loopeval.instrumentation.instrumentor import LoopEvalInstrumentor
from otel_loopeval.testing import Capture


class Gate:
    """A judge of goals: met at this turn."""

    def __init__(self, at: int) -> None:
        self._left = at

    def gate(self, *, output: str, goal: str, criteria: Any) -> Any:
        self._left -= 1
        return self._left <= 0


@both_ways
def test_a_goal_that_is_met(capture: Capture, run: Any) -> None:
    result = run(GoalLoop(Agent(), "a PR is open", max_turns=5, judge=Gate(2)))
    assert (result.success, result.completion_reason) == (True, "goal_met")
    root, first, _, second, _ = capture.spans()
    assert [span["name"] for span in capture.spans("evaluate")] == ["evaluate", "evaluate"]
    assert root["name"] == "goal_loop writer"
    assert root["attributes"] == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "writer",
        "loopeval.run.mode": "goal",
        "loopeval.run.framework": "otel_loopeval",
        "loopeval.run.id": "run-1",
        "loopeval.run.threshold": 1.0,
        "loopeval.run.max_iterations": 5,
        "loopeval.run.outcome": "completed",
        "loopeval.run.completion_reason": "goal_met",
        "loopeval.run.success": True,
        "loopeval.run.iterations": 2,
        "loopeval.run.final_score": 1.0,
        "loopeval.run.best_score": 1.0,
        "loopeval.run.best_iteration": 2,
        "loopeval.health.passed": True,
        "loopeval.health.converged": True,
        "loopeval.health.doom_loop_fired": False,
        "loopeval.health.iterations_to_success": 2,
        "loopeval.health.wasted_iterations": 0,
        "loopeval.health.guard_interventions": 0,
        "loopeval.health.total_duration_s": 0.0,
        "loopeval.health.threshold": 1.0,
        "loopeval.health.reasoning": "Goal met in 2 iteration(s).",
        "loopeval.health.evidence": "full",
    }
    assert [span["attributes"]["loopeval.iteration.threshold_met"] for span in (first, second)] == [
        False,
        True,
    ]


@both_ways
def test_a_goal_that_is_not_met(capture: Capture, run: Any) -> None:
    result = run(GoalLoop(Agent(), "a PR is open", max_turns=2, judge=Gate(9)))
    assert result.completion_reason == "budget_paused"
    root = capture.span("goal_loop")["attributes"]
    assert root["loopeval.run.completion_reason"] == "budget_paused"
    assert root["loopeval.run.outcome"] == "limit"
    assert root["loopeval.health.passed"] is False
    assert root["loopeval.health.reasons"] == ["not_converged"]
    assert root["loopeval.health.reasoning"] == "Goal not met after 2 iteration(s)."


def test_a_goal_loop_stopped_on_a_doom_loop(plain_capture: Capture) -> None:
    def stop(event: Any, run: Any) -> None:
        run.stop()

    class Looping(Agent):
        def chat(self, prompt: str) -> str:
            record_guard_event({"type": "doom_loop"})
            return super().chat(prompt)

    plain_capture.instrument(on_doom_loop=stop)
    result = GoalLoop(Looping(), "a PR is open", judge=Gate(9)).run("task")
    assert result.metadata == {"stopped": True}
    root = plain_capture.span("goal_loop")["attributes"]
    assert (root["loopeval.run.outcome"], root["loopeval.run.iterations"]) == ("stopped", 1)


def test_a_goal_judge_that_raises(capture: Capture) -> None:
    error = ConnectionError("words")

    class Broken:
        def gate(self, *, output: str, goal: str, criteria: Any) -> Any:
            raise error

    with pytest.raises(ConnectionError) as caught:
        GoalLoop(Agent(), "a PR is open", judge=Broken()).run("task")
    assert caught.value is error
    assert capture.span("goal_loop")["attributes"]["loopeval.run.outcome"] == "failed"


def test_run_until_in_both_forms(capture: Capture) -> None:
    run_until(Agent(), "task", metric=series(5.0, 9.0))
    asyncio.run(run_until_async(Agent(), "task", metric=series(9.0)))
    run_until(Agent(), "task", goal="done", goal_criteria=GoalCriteria(outcome="tests pass"), judge=Gate(1))
    asyncio.run(run_until_async(Agent(), "task", goal="done", judge=Gate(1)))
    assert [(root["name"], len(root["children"])) for root in capture.tree()] == [
        ("evaluation_loop writer", 2),
        ("evaluation_loop writer", 1),
        ("goal_loop writer", 1),
        ("goal_loop writer", 1),
    ]


# The entry point ----------------------------------------------------------------------------------


def test_the_entry_point_is_registered() -> None:
    (found,) = [e for e in entry_points(group="opentelemetry_instrumentor") if e.name == "loopeval"]
    assert found.load() is LoopEvalInstrumentor


def test_the_instrumentor_instruments_and_uninstruments(plain_capture: Capture) -> None:
    instrumentor: Any = LoopEvalInstrumentor()
    assert instrumentor.instrumentation_dependencies() == ()
    instrumentor.instrument(**plain_capture.providers, threshold=5.0)
    try:
        run_until(Agent(), "task", threshold=5.0, metric=series(6.0))
    finally:
        instrumentor.uninstrument()
    run_until(Agent(), "task", metric=series(9.0))
    assert len(plain_capture.spans("evaluation_loop")) == 1


def test_bad_options_of_a_configuration_file_are_a_warning(
    plain_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception here would end the instrumentation of everything else too."""
    instrumentor: Any = LoopEvalInstrumentor()
    instrumentor.instrument(threshold="high")
    instrumentor.uninstrument()
    instrumentor.instrument(colour="blue")
    instrumentor.uninstrument()
    messages = [r.getMessage() for r in caplog.records if r.name == "otel_loopeval"]
    assert messages[0] == (
        "otel-loopeval: threshold must be a finite number, got 'high'; using the environment and the defaults"
    )
    assert "unexpected keyword argument 'colour'" in messages[1]


def test_the_distros_own_arguments_are_no_bad_options(
    plain_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    """BaseInstrumentor passes on what it was called with, which may not be meant for us."""
    instrumentor: Any = LoopEvalInstrumentor()
    instrumentor.instrument(**plain_capture.providers, skip_dep_check=True)
    instrumentor.uninstrument()
    assert [r.getMessage() for r in caplog.records if r.name == "otel_loopeval"] == []
