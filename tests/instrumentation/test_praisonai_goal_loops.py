"""PraisonAI's goal loops: ``run_until(goal=...)``, ``run_goal``, ``run_goal_async``."""

import asyncio
import importlib.util
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from praisonai_agents import SCOPE, Stubs, agent, outline, root_facts, scripted, stubs
from support.openai_stub import Fault, asks_about_goal

from otel_loopeval import current_run
from otel_loopeval.testing import Capture

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="praisonaiagents' judge needs litellm"
)
__all__ = ["stubs"]  # a fixture, used by its name

PROMPT, GOAL = "Open a PR", "a PR is open"


def run_until(worker: Any, turns: int) -> Any:
    return worker.run_until(PROMPT, goal=GOAL, max_iterations=turns)


def run_goal(worker: Any, turns: int) -> Any:
    return worker.run_goal(PROMPT, GOAL, max_turns=turns)


def run_goal_async(worker: Any, turns: int) -> Any:
    return asyncio.run(worker.run_goal_async(PROMPT, GOAL, max_turns=turns))


all_ways = pytest.mark.parametrize("run", [run_until, run_goal, run_goal_async])
both_ways = pytest.mark.parametrize("run", [run_goal, run_goal_async])


def scores(capture: Capture) -> list[Any]:
    return [
        span["attributes"].get("loopeval.iteration.score")
        for span in capture.spans("evaluation_loop.iteration")
    ]


@all_ways
def test_a_goal_that_is_met(capture: Capture, stubs: Stubs, run: Any) -> None:
    stubs(goal_turns=2, answers=["A branch.", "A PR."])
    result = run(agent(), 5)
    assert (result.success, result.completion_reason, result.output) == (True, "goal_met", "A PR.")
    assert outline(capture) == (
        "goal_loop writer\n"
        "  evaluation_loop.iteration\n"
        "    evaluate\n"
        "  evaluation_loop.iteration\n"
        "    evaluate"
    )
    root = capture.span("goal_loop")
    assert (root["scope"], root["status"]) == (SCOPE, "UNSET")
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "writer",
        "loopeval.run.mode": "goal",
        "loopeval.run.framework": "praisonaiagents",
        "loopeval.run.threshold": 1.0,
        "loopeval.run.max_iterations": 5,
        "loopeval.run.outcome": "completed",
        "loopeval.run.completion_reason": "goal_met",
        "loopeval.run.success": True,
        "loopeval.run.iterations": 2,
        "loopeval.run.turns_used": 2,
        "loopeval.run.stage": "direct",
        "loopeval.run.final_score": 1.0,
        "loopeval.run.best_iteration": 2,
        "loopeval.health.passed": True,
        "loopeval.health.converged": True,
        "loopeval.health.iterations_to_success": 2,
        "loopeval.health.reasoning": "Goal met in 2 iteration(s).",
    }
    assert {name: root["attributes"].get(name) for name in expected} == expected
    first, second = capture.spans("evaluation_loop.iteration")
    assert [span["attributes"]["loopeval.iteration.number"] for span in (first, second)] == [1, 2]
    assert [span["events"] for span in (first, second)] == [
        [
            {
                "name": "gen_ai.evaluation.result",
                "attributes": {
                    "gen_ai.evaluation.name": "loopeval.score",
                    "gen_ai.evaluation.score.value": score,
                    "gen_ai.evaluation.score.label": label,
                },
            }
        ]
        for score, label in ((0.0, "fail"), (1.0, "pass"))
    ]
    # The goal loop delegates to the autonomous one: still a single run.
    assert capture.value("loopeval.runs", {"loopeval.run.mode": "goal"}) == 1
    assert capture.value("loopeval.runs") == 1


@all_ways
def test_turns_that_are_used_up_are_a_limit(capture: Capture, stubs: Stubs, run: Any) -> None:
    """The package calls it a pause; as one, a goal loop would never be seen to fail."""
    stubs(goal_turns=9, answers=["A branch.", "A commit."])
    result = run(agent(), 2)
    assert (result.success, result.completion_reason) == (False, "budget_paused")
    assert scores(capture) == [0.0, 0.0]
    assert root_facts(
        capture, "run.outcome", "run.completion_reason", "run.turns_used", "health.passed", "health.reasons"
    ) == {
        "run.outcome": "limit",
        "run.completion_reason": "budget_paused",
        "run.turns_used": 2,
        "health.passed": False,
        "health.reasons": ["not_converged"],
    }


@both_ways
def test_the_autonomous_loops_own_limit(capture: Capture, stubs: Stubs, run: Any) -> None:
    stubs(goal_turns=9)
    worker = scripted(autonomy={"level": "full_auto", "max_iterations": 2, "track_changes": False})
    result = run(worker, 5)
    assert result.completion_reason == "max_iterations"
    assert root_facts(capture, "run.outcome", "run.max_iterations", "run.turns_used") == {
        "run.outcome": "limit",
        "run.max_iterations": 5,
        "run.turns_used": 2,
    }


def test_the_async_loop_gates_in_a_thread(capture: Capture, stubs: Stubs) -> None:
    stubs(goal_turns=2)
    from praisonaiagents import Agent  # noqa: PLC0415 - as late as a program might

    places: list[Any] = []

    class Watching(Agent):
        def _goal_gate(self, response: str) -> Any:
            verdict = super()._goal_gate(response)
            run = current_run()
            assert run is not None
            assert run.iteration is not None
            places.append((threading.current_thread() is threading.main_thread(), run.iteration.number))
            return verdict

    run_goal_async(scripted(base=Watching), 5)
    assert places == [(False, 1), (False, 2)]
    # The override and the method that it calls are one judging.
    assert scores(capture) == [0.0, 1.0]
    assert len(capture.spans("evaluate")) == 2
    numbers = {span["id"]: span for span in capture.spans("evaluation_loop.iteration")}
    assert [
        numbers[span["parent_id"]]["attributes"]["loopeval.iteration.number"]
        for span in capture.spans("evaluate")
    ] == [1, 2]


@both_ways
def test_a_guard_may_take_a_turn_before_the_gate(capture: Capture, stubs: Stubs, run: Any) -> None:
    """The third answer that is the same makes the package's tracker act, and nobody judges that turn."""
    stubs(goal_turns=9)
    result = run(scripted(itertools.repeat("The same answer")), 4)
    assert (result.completion_reason, result.iterations) == ("budget_paused", 5)
    assert scores(capture) == [0.0, 0.0, None, 0.0, 0.0]
    facts = root_facts(capture, "run.iterations", "run.turns_used", "health.doom_loop_fired")
    assert facts == {"run.iterations": 5, "run.turns_used": 4, "health.doom_loop_fired": True}
    third = capture.spans("evaluation_loop.iteration")[2]
    assert "loopeval.guard" in [event["name"] for event in third["events"]]


class Sessions:
    """A session store, as the package's agents use one."""

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}

    def update_session_metadata(self, _session_id: str, **values: Any) -> None:
        self._metadata.update(values)

    def get_session(self, _session_id: str) -> Any:
        return SimpleNamespace(metadata=dict(self._metadata))


@both_ways
def test_a_goal_that_is_taken_up_again(capture: Capture, stubs: Stubs, run: Any) -> None:
    """The package keeps its count of turns; each call is a run of its own."""
    stubs(goal_turns=3)
    sessions = Sessions()
    for turns, reason in ((2, "budget_paused"), (5, "goal_met")):
        worker = scripted()
        worker._session_store = sessions
        assert run(worker, turns).completion_reason == reason
    roots = [span["attributes"] for span in capture.spans("goal_loop")]
    assert [
        (root["loopeval.run.iterations"], root["loopeval.run.turns_used"], root["loopeval.run.outcome"])
        for root in roots
    ] == [(2, 2, "limit"), (1, 3, "completed")]


@both_ways
@pytest.mark.parametrize(
    ("reply", "error_type", "reason", "outcome", "turns"),
    [
        (Fault(status=400), "judge_unavailable", "budget_paused", "limit", 4),
        ("I think so", "judge_unreadable", "budget_paused", "stopped", 3),
    ],
    ids=["no answer", "no verdict"],
)
def test_a_judge_that_fails(
    capture: Capture,
    stubs: Stubs,
    run: Any,
    reply: Any,
    error_type: str,
    reason: str,
    outcome: str,
    turns: int,
) -> None:
    """The package goes on, and gives up on a judge that it cannot read three times."""
    stubs(lambda request: reply if asks_about_goal(request) else None)
    result = run(scripted(), 4)
    assert (result.completion_reason, result.iterations) == (reason, turns)
    judged = capture.spans("evaluate")
    assert [(span["status"], span["attributes"].get("error.type")) for span in judged] == [
        ("ERROR", error_type)
    ] * turns
    assert scores(capture) == [0.0] * turns
    facts = root_facts(capture, "run.outcome", "health.passed")
    assert facts == {"run.outcome": outcome, "health.passed": False}
    assert capture.span("goal_loop")["status"] == "UNSET"


@both_ways
def test_an_agent_that_fails(capture: Capture, stubs: Stubs, run: Any) -> None:
    stubs(goal_turns=9)
    result = run(scripted(["A branch.", ConnectionError("words of the user")]), 4)
    assert (result.completion_reason, result.error) == ("error", "words of the user")
    root = capture.span("goal_loop")
    first, second = capture.spans("evaluation_loop.iteration")
    assert [(span["status"], span["attributes"].get("error.type")) for span in (root, first, second)] == [
        ("ERROR", "ConnectionError"),
        ("UNSET", None),
        ("ERROR", "ConnectionError"),
    ]
    assert root["attributes"]["loopeval.run.outcome"] == "failed"
    assert "words of the user" not in repr(capture.spans())
    assert capture.value("loopeval.runs", {"error.type": "ConnectionError"}) == 1


def test_a_result_is_what_it_was(plain_capture: Capture, stubs: Stubs) -> None:
    stubs(goal_turns=3)

    def told() -> Any:
        stub = stubs(goal_turns=3)
        result = run_goal(agent(), 5)
        return result.success, result.output, result.completion_reason, result.actions, stub.requests

    before = told()
    plain_capture.instrument()
    assert told() == before
    assert len(plain_capture.spans("goal_loop")) == 1
