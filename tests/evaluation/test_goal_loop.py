"""The goal loop: an independent judge gates completion after each turn."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from loop_parts import NotingAgent, Run, both_ways, never, partial_of, series
from support.openai_stub import Fault, JsonObject, OpenAIStub, prompt_text

from otel_loopeval.evaluation import GoalCriteria, GoalLoop, IterationResult, Judge, JudgeError
from otel_loopeval.evaluation.verdicts import GoalVerdict


@both_ways
def test_a_goal_that_is_met(run: Run):
    agent = NotingAgent()

    result = run(GoalLoop(agent, "A PR is open.", judge=series(False, GoalVerdict(True, "URL shown."))))

    assert (result.success, result.completion_reason, result.iterations) == (True, "goal_met", 2)
    assert (result.output, str(result), result.stage, result.error) == (
        "answer 2",
        "answer 2",
        "direct",
        None,
    )
    assert result.actions == [
        {"iteration": 1, "response": "answer 1", "met": False, "reason": ""},
        {"iteration": 2, "response": "answer 2", "met": True, "reason": "URL shown."},
    ]
    assert result.metadata == {}
    assert result.started_at.endswith("+00:00")
    assert result.duration_seconds >= 0


@both_ways
def test_a_budget_that_runs_out_is_a_pause(run: Run):
    result = run(GoalLoop(NotingAgent(), "A PR is open.", max_turns=3, judge=never))

    assert (result.success, result.completion_reason, result.iterations) == (False, "budget_paused", 3)
    assert result.metadata == {"paused_by": "max_turns"}


@both_ways
def test_each_turn_restates_the_task_the_goal_its_criteria_and_the_reason(run: Run):
    agent = NotingAgent()
    criteria = GoalCriteria("PR merged", "PR URL exists", ["no force push", "no new dependency"])
    judge = series(GoalVerdict(False, "No URL."), False, True)

    run(GoalLoop(agent, "A PR is open.", criteria, judge=judge), "Do the task.")

    first = (
        "Do the task.\n\nGOAL: A PR is open.\n\nDEFINITION OF DONE: PR merged\n\n"
        "VERIFICATION: PR URL exists\n\n"
        "CONSTRAINTS (never violate):\n- no force push\n- no new dependency"
    )
    again = "\n\nThe goal is not met yet. Keep working until it is."
    assert agent.prompts == [first, f"{first}{again}\n\nReason it is not met yet: No URL.", f"{first}{again}"]


@both_ways
def test_on_iteration_sees_each_turn(run: Run):
    seen: list[tuple[Any, ...]] = []

    def on_iteration(it: IterationResult) -> None:
        seen.append((it.iteration, it.output, it.score, it.passed, it.reasoning, it.metadata))
        raise RuntimeError("ignored")

    loop = GoalLoop(
        NotingAgent(),
        "A PR is open.",
        judge=series(GoalVerdict(False, "No."), GoalVerdict(True, "Yes.")),
        on_iteration=on_iteration,
    )

    assert run(loop).success is True
    assert seen == [
        (1, "answer 1", 0.0, False, "No.", {"goal_met": False}),
        (2, "answer 2", 1.0, True, "Yes.", {"goal_met": True}),
    ]


@both_ways
def test_a_judge_of_any_kind(run: Run):
    async def async_function(output: str) -> bool:
        return output == "answer 1"

    class SyncGate:
        def gate(self, *, output: str, goal: str, criteria: GoalCriteria | None) -> Any:
            met = (output, goal, criteria) == ("answer 1", "g", None)
            return SimpleNamespace(met=met, reason=None)

    class AsyncGate:
        async def gate_async(self, *, output: str, goal: str, criteria: GoalCriteria | None) -> Any:
            return SimpleNamespace(met=output == "answer 1", reason="so")

    for judge in (async_function, SyncGate(), AsyncGate()):
        assert run(GoalLoop(NotingAgent(), "g", max_turns=1, judge=judge)).success is True


@both_ways
@pytest.mark.parametrize("value", [None, "done", 1, SimpleNamespace(met="yes"), SimpleNamespace()])
def test_a_judge_that_does_not_say_whether_is_an_error(run: Run, value: Any):
    with pytest.raises(TypeError) as caught:
        run(GoalLoop(NotingAgent(), "g", judge=series(value)))

    assert "judge must return a bool or an object with a bool met, got" in str(caught.value)


@both_ways
def test_the_seams_are_looked_up_on_the_object(run: Run):
    calls: list[Any] = []

    class Watched(GoalLoop):
        def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
            calls.append((prompt, iteration, feedback))
            return f"turn {iteration}"

        async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
            calls.append((prompt, iteration, feedback))
            return f"turn {iteration}"

        def _goal_gate(self, output: str, iteration: int) -> GoalVerdict:
            calls.append((output, iteration))
            return GoalVerdict(iteration == 2, "why")

        async def _goal_gate_async(self, output: str, iteration: int) -> GoalVerdict:
            calls.append((output, iteration))
            return GoalVerdict(iteration == 2, "why")

    result = run(Watched(NotingAgent(), "g"), "task")

    assert calls == [("task", 1, ""), ("turn 1", 1), ("task", 2, "why"), ("turn 2", 2)]
    assert (result.success, result.iterations) == (True, 2)


@both_ways
def test_verbose_logs_no_content(run: Run, caplog: pytest.LogCaptureFixture):
    loop = GoalLoop(series("secret", "secret"), "secret goal", judge=series(False, True), verbose=True)

    with caplog.at_level(logging.INFO):
        run(loop)

    assert [r.getMessage() for r in caplog.records if r.name.startswith("otel_loopeval")] == [
        "turn 1 of at most 20: goal not met",
        "turn 2 of at most 20: goal met",
    ]


@both_ways
def test_the_default_judge_asks_the_model(run: Run, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch):
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)
    loop = GoalLoop(
        NotingAgent(), "A PR is open.", GoalCriteria(outcome="PR merged"), max_turns=5, model="judge-model"
    )

    result = run(loop)

    assert (result.completion_reason, result.iterations) == ("goal_met", 2)
    assert [action["reason"] for action in result.actions] == ["not yet", "met"]
    request = stub.requests[0]
    assert (request["model"], request["temperature"]) == ("judge-model", 0.0)
    assert request["response_format"]["json_schema"]["schema"]["properties"]["verdict"] == {
        "type": "string",
        "enum": ["done", "continue"],
    }
    text = prompt_text(request)
    assert "GOAL: A PR is open." in text
    assert "DEFINITION OF DONE: PR merged" in text
    assert "<<<OUTPUT\nanswer 1\nOUTPUT>>>" in text


@both_ways
def test_three_unreadable_verdicts_in_a_row_pause_the_run(run: Run):
    with OpenAIStub(lambda _: "I cannot say.") as stub:
        judge = Judge(base_url=stub.base_url, api_key="key")
        result = run(GoalLoop(NotingAgent(), "g", max_turns=10, judge=judge))

    assert (result.success, result.completion_reason, result.iterations) == (False, "budget_paused", 3)
    assert result.metadata == {"paused_by": "unreadable_verdicts"}
    assert [action["reason"] for action in result.actions] == ["The judge's answer could not be read."] * 3
    assert len(stub.requests) == 6


@both_ways
def test_unreadable_verdicts_that_are_not_in_a_row_do_not_pause(run: Run):
    turns = iter([None, None, "continue", None, None, "done"])

    def reply(request: JsonObject) -> str:
        if len(request["messages"]) > 1:  # asked again: still unreadable
            return "I cannot say."
        verdict = next(turns)
        return "I cannot say." if verdict is None else json.dumps({"verdict": verdict, "reason": "r"})

    with OpenAIStub(reply) as stub:
        judge = Judge(base_url=stub.base_url, api_key="key")
        result = run(GoalLoop(NotingAgent(), "g", max_turns=10, judge=judge))

    assert (result.success, result.iterations) == (True, 6)


@both_ways
def test_a_judge_that_cannot_be_asked_is_an_error(run: Run):
    with OpenAIStub([None, Fault(401)]) as stub:
        judge = Judge(base_url=stub.base_url, api_key="key")
        with pytest.raises(JudgeError) as caught:
            run(GoalLoop(NotingAgent(), "g", judge=judge))

    assert partial_of(caught.value).iterations == 1


def test_the_judge_sees_the_end_of_a_long_output(stub: OpenAIStub):
    judge = Judge(base_url=stub.base_url, api_key="key")
    judge.gate("start " + "x" * 10_000 + " PR URL", "g")

    text = prompt_text(stub.requests[0])
    assert "start" not in text
    assert "x PR URL\nOUTPUT>>>" in text


async def test_async_gates_at_once(stub: OpenAIStub):
    judge = Judge(base_url=stub.base_url, api_key="key")

    verdicts = await asyncio.gather(*(judge.gate_async("out", "g") for _ in range(3)))

    assert sorted(verdict.met for verdict in verdicts) == [False, True, True]
