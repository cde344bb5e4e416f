"""Arguments that are wrong: each error names the argument, the value and what is allowed."""

import math
from decimal import Decimal
from typing import Any

import pytest

from otel_loopeval.evaluation import EvaluationLoop, GoalCriteria, GoalLoop, Judge, run_until, run_until_async


def agent(prompt: str) -> str:
    return prompt


def defaults(arguments: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {**others, **arguments}


class AgentClass:
    def chat(self, prompt: str) -> str:
        return prompt


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"mode": "OPTIMIZE"}, ValueError, "mode must be 'optimize' or 'review', got 'OPTIMIZE'"),
        ({"mode": None}, ValueError, "mode must be 'optimize' or 'review', got None"),
        ({"mode": []}, ValueError, "mode must be 'optimize' or 'review', got []"),
        ({"threshold": math.nan}, ValueError, "threshold must be a finite number, got nan"),
        ({"threshold": -math.inf}, ValueError, "threshold must be a finite number, got -inf"),
        ({"threshold": "8"}, TypeError, "threshold must be a finite number, got '8'"),
        ({"threshold": None}, TypeError, "threshold must be a finite number, got None"),
        ({"threshold": True}, TypeError, "threshold must be a finite number, got True"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be an integer of at least 1, got 0"),
        ({"max_iterations": -1}, ValueError, "max_iterations must be an integer of at least 1, got -1"),
        ({"max_iterations": 2.0}, TypeError, "max_iterations must be an integer of at least 1, got 2.0"),
        ({"max_iterations": True}, TypeError, "max_iterations must be an integer of at least 1, got True"),
        ({"max_iterations": None}, TypeError, "max_iterations must be an integer of at least 1, got None"),
        ({"metric": 0.5}, TypeError, "metric must be callable or None, got 0.5"),
        ({"on_iteration": "print"}, TypeError, "on_iteration must be callable or None, got 'print'"),
        ({"criteria": None}, TypeError, "criteria must be a string, got None"),
        ({"model": None}, TypeError, "model must be a string, got None"),
        ({"judge": 8}, TypeError, "judge must have a method run or run_async, got 8"),
        ({"judge": "x" * 100}, TypeError, "got '" + "x" * 79 + "..."),
        (
            {"agent": None},
            TypeError,
            "agent must be a function, another callable, or an instance with one of",
        ),
        ({"agent": AgentClass}, TypeError, "agent must be a function, another callable, or an instance"),
    ],
)
def test_a_wrong_argument_of_the_loop(arguments: dict[str, Any], error: type[Exception], text: str):
    with pytest.raises(error) as caught:
        EvaluationLoop(**defaults(arguments, agent=agent, criteria=""))

    assert text in str(caught.value)


def test_the_error_about_an_agent_names_what_is_accepted():
    with pytest.raises(TypeError) as caught:
        EvaluationLoop(agent=42, criteria="")

    assert str(caught.value) == (
        "agent must be a function, another callable, or an instance with one of the methods achat, ainvoke, "
        "arun, chat, chat_async, invoke, kickoff, kickoff_async, run; got 42"
    )


@pytest.mark.parametrize("threshold", [8, 0.5, -3.0, Decimal("7.5")])
def test_any_finite_number_is_a_threshold(threshold: Any):
    assert EvaluationLoop(agent, "", threshold=threshold).threshold == float(threshold)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"goal": ""}, ValueError, "goal must be a non-empty string, got ''"),
        ({"goal": 7}, TypeError, "goal must be a string, got 7"),
        ({"criteria": "done"}, TypeError, "criteria must be a GoalCriteria or None, got 'done'"),
        ({"max_turns": 0}, ValueError, "max_turns must be an integer of at least 1, got 0"),
        ({"judge": 7}, TypeError, "judge must be a function or have a method gate or gate_async, got 7"),
        ({"agent": None}, TypeError, "agent must be a function, another callable, or an instance"),
    ],
)
def test_a_wrong_argument_of_the_goal_loop(arguments: dict[str, Any], error: type[Exception], text: str):
    with pytest.raises(error) as caught:
        GoalLoop(**defaults(arguments, agent=agent, goal="Reach it."))

    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"criteria": None}, TypeError, "criteria must be a string, got None"),
        ({"max_retries": -1}, ValueError, "max_retries must be an integer of at least 0, got -1"),
        ({"timeout": "soon"}, TypeError, "timeout must be a finite number, got 'soon'"),
    ],
)
def test_a_wrong_argument_of_the_judge(arguments: dict[str, Any], error: type[Exception], text: str):
    with pytest.raises(error) as caught:
        Judge(**arguments)

    assert text in str(caught.value)


def test_constraints_are_a_list():
    with pytest.raises(TypeError) as caught:
        GoalCriteria(**defaults({"constraints": "none"}))

    assert str(caught.value) == "constraints must be a list of strings, got 'none'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"goal_criteria": GoalCriteria("x")}, "goal_criteria is allowed only together with goal"),
        ({"goal": "x", "metric": len}, "metric is not allowed together with goal"),
    ],
)
async def test_arguments_that_do_not_go_together(arguments: dict[str, Any], text: str):
    with pytest.raises(ValueError) as caught:
        run_until(agent, "task", **arguments)
    assert text in str(caught.value)

    with pytest.raises(ValueError) as caught:
        await run_until_async(agent, "task", **arguments)
    assert text in str(caught.value)
