"""Both ``LoopEvaluator``s, without guard events, take those that were captured while the loop ran."""

import asyncio
from typing import Any

import pytest
from instrumented_loops import Agent, Family, both_ways, series
from praisonaiagents.eval import loop_eval

from otel_loopeval import LoopEvaluator, loop, record_guard_event, run_until, uninstrument
from otel_loopeval.testing import Capture

BOTH = [LoopEvaluator, loop_eval.LoopEvaluator]

both_evaluators = pytest.mark.parametrize("evaluator", BOTH, ids=["own", "praisonaiagents"])


class Stuck(Agent):
    def chat(self, prompt: str) -> str:
        record_guard_event({"type": "repeated_action", "tool": "bash"})
        return super().chat(prompt)


def stuck_loop(family: Family) -> Any:
    return family.loop(Stuck(), "", metric=series(5.0, 9.0))


@both_evaluators
@both_ways
def test_the_events_of_the_run(capture: Capture, family: Family, run: Any, evaluator: Any) -> None:
    result, other = run(stuck_loop(family)), run(family.make(5.0, 9.0))
    health = evaluator().run(result)
    assert (health.converged, health.doom_loop_fired, health.guard_interventions) == (True, True, 2)
    assert not health.passed
    root = capture.spans("evaluation_loop")[0]["attributes"]
    assert root["loopeval.health.guard_interventions"] == 2
    assert evaluator().run(other).passed


@both_evaluators
def test_run_async(capture: Capture, family: Family, evaluator: Any) -> None:
    result = stuck_loop(family).run("task")
    assert asyncio.run(evaluator().run_async(loop_result=result)).guard_interventions == 2


@both_evaluators
@pytest.mark.parametrize("given", [[], [{"type": "note"}]])
def test_what_is_given_wins(capture: Capture, family: Family, evaluator: Any, given: list[Any]) -> None:
    result = stuck_loop(family).run("task")
    for health in (
        evaluator().run(result, given),
        evaluator().run(result, guard_events=given),
        evaluator().run(loop_result=result, guard_events=given),
    ):
        assert (health.passed, health.guard_interventions) == (True, len(given))


@both_evaluators
def test_none_in_every_way(capture: Capture, family: Family, evaluator: Any) -> None:
    result = stuck_loop(family).run("task")
    for health in (
        evaluator().run(result, None),
        evaluator().run(result, guard_events=None),
        evaluator().run(loop_result=result),
    ):
        assert health.guard_interventions == 2


@both_evaluators
def test_without_instrumentation(family: Family, evaluator: Any) -> None:
    assert evaluator().run(stuck_loop(family).run("task")).passed


@both_evaluators
def test_after_uninstrument(capture: Capture, family: Family, evaluator: Any) -> None:
    result = stuck_loop(family).run("task")
    uninstrument()
    assert evaluator().run(result).passed
    assert evaluator().run(stuck_loop(family).run("task")).passed


@both_evaluators
def test_a_doom_loop_in_a_run_inside(capture: Capture, family: Family, evaluator: Any) -> None:
    class Nested(Agent):
        def chat(self, prompt: str) -> str:
            with loop("inner"):
                record_guard_event({"type": "doom_loop"})
            return super().chat(prompt)

    result = family.loop(Nested(), "", metric=series(9.0)).run("task")
    health = evaluator().run(result)
    assert (health.doom_loop_fired, health.guard_interventions) == (True, 1)


def test_goal_loops_have_their_events_too(capture: Capture) -> None:
    class Gate:
        def gate(self, **_kwargs: Any) -> bool:
            return True

    result = run_until(Stuck(), "task", goal="a PR is open", judge=Gate())
    assert LoopEvaluator().run(result).guard_interventions == 1


def test_subclasses_of_the_packages_evaluator(capture: Capture, family: Family) -> None:
    class Stricter(loop_eval.LoopEvaluator):
        def run(self, loop_result: Any, guard_events: Any = None, **kwargs: Any) -> Any:
            return super().run(loop_result, guard_events=guard_events, **kwargs)

    assert Stricter().run(stuck_loop(family).run("task")).guard_interventions == 2


def test_errors_of_the_packages_evaluator_are_its_own(capture: Capture) -> None:
    with pytest.raises(TypeError, match="loop_result"):
        loop_eval.LoopEvaluator().run()  # type: ignore[call-arg]
