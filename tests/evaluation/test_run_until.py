"""``run_until`` and its async twin, in the seed's own calls."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from loop_parts import NotingAgent, ScriptedJudge, Verdict, always, never, series
from support.openai_stub import OpenAIStub, prompt_text

from otel_loopeval.evaluation import (
    AutonomyResult,
    EvaluationLoopResult,
    GoalCriteria,
    IterationResult,
    run_until,
    run_until_async,
)


def until_async(*args: Any, **kwargs: Any) -> Any:
    until: Any = run_until_async
    return asyncio.run(until(*args, **kwargs))


def noting(seen: list[int]) -> Callable[[IterationResult], None]:
    def on_iteration(it: IterationResult) -> None:
        seen.append(it.iteration)

    return on_iteration


both = pytest.mark.parametrize("until", [run_until, until_async], ids=["run_until", "run_until_async"])
Until = Callable[..., Any]


@both
def test_the_evaluation_loop(until: Until):
    seen: list[int] = []
    judge = ScriptedJudge([Verdict(6), Verdict(8.5)])

    result = until(
        NotingAgent(),
        "Analyze the authentication flow",
        criteria="Analysis is thorough",
        threshold=8.0,
        judge=judge,
        on_iteration=noting(seen),
    )

    assert isinstance(result, EvaluationLoopResult)
    assert (result.final_score, result.success, result.threshold) == (8.5, True, 8.0)
    assert judge.asked[0] == ("answer 1", "Analysis is thorough")
    assert seen == [1, 2]


@both
def test_all_options_by_position(until: Until):
    seen: list[int] = []

    result = until(
        NotingAgent(),
        "task",
        "",
        0.5,
        3,
        "review",
        noting(seen),
        False,
        metric=series(0.1, 0.9, 0.2),
    )

    assert (result.score_history, result.success, result.mode) == ([0.1, 0.9, 0.2], True, "review")
    assert seen == [1, 2, 3]


@both
def test_the_goal_loop(until: Until):
    seen: list[float] = []

    def on_iteration(it: IterationResult) -> None:
        seen.append(it.score)

    result = until(
        NotingAgent(),
        "Do the task",
        goal="A PR is open with green CI",
        goal_criteria=GoalCriteria(outcome="PR merged", verification="PR URL exists"),
        max_iterations=2,
        judge=never,
        on_iteration=on_iteration,
    )

    assert isinstance(result, AutonomyResult)
    assert (result.completion_reason, result.iterations) == ("budget_paused", 2)
    assert seen == [0.0, 0.0]


@both
@pytest.mark.parametrize(
    ("options", "shown", "hidden"),
    [
        ({"criteria": "PR merged"}, "DEFINITION OF DONE: PR merged", "VERIFICATION"),
        (
            {"criteria": "ignored", "goal_criteria": GoalCriteria(verification="URL")},
            "VERIFICATION: URL",
            "ignored",
        ),
        ({}, "GOAL: A PR is open", "DEFINITION OF DONE"),
    ],
)
def test_bare_criteria_become_the_outcome(until: Until, options: dict[str, Any], shown: str, hidden: str):
    agent = NotingAgent()

    until(agent, "task", goal="A PR is open", judge=always, **options)

    assert shown in agent.prompts[0]
    assert hidden not in agent.prompts[0]


@both
@pytest.mark.parametrize(
    ("options", "model"),
    [({}, "gpt-4o-mini"), ({"model": "m"}, "m"), ({"model": "m", "judge_model": "j"}, "j")],
)
@pytest.mark.parametrize("goal", [None, "A PR is open"])
def test_the_judges_model(
    until: Until,
    options: dict[str, Any],
    model: str,
    goal: str | None,
    stub: OpenAIStub,
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)

    until(NotingAgent(), "task", "is good", max_iterations=1, goal=goal, **options)

    assert [request["model"] for request in stub.requests] == [model]
    assert "is good" in prompt_text(stub.requests[0])
