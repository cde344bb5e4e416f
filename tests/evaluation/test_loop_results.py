"""The records that loops return, and how they are written down."""

import json
import math
from typing import Any

import pytest

from otel_loopeval.evaluation import AutonomyResult, EvaluationLoopResult, GoalCriteria, IterationResult


def iteration(number: int, score: float, **fields: Any) -> IterationResult:
    return IterationResult(
        number, f"output {number}", score, timestamp="2026-01-01T00:00:00+00:00", threshold=8.0, **fields
    )


def make_result(*scores: float, **fields: Any) -> EvaluationLoopResult:
    iterations = [iteration(number, score) for number, score in enumerate(scores, 1)]
    return EvaluationLoopResult(iterations=iterations, **fields)


def strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"not strict JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def test_an_iteration_passes_at_the_loops_threshold_else_at_seven():
    assert IterationResult(1, "x", 8.0, threshold=8.0).passed is True
    assert IterationResult(1, "x", 7.9, threshold=8.0).passed is False
    assert IterationResult(1, "x", 7.0).passed is True
    assert IterationResult(1, "x", 6.9).passed is False
    assert IterationResult(1, "x", math.nan).passed is False
    assert IterationResult(1, "x", 0.0, threshold=0.0).passed is True


def test_an_iteration_knows_when_it_ended():
    assert IterationResult(1, "x", 1.0).timestamp.endswith("+00:00")


def test_the_best_falls_back_to_the_highest_score():
    result = make_result(3.0, math.nan, 9.0, 9.0)

    assert result.best is None
    assert result.best_iteration == result.iterations[2]
    assert (result.best_score, result.best_output) == (9.0, "output 3")


def test_a_given_best_wins():
    iterations = [iteration(1, 3.0), iteration(2, 9.0)]

    assert EvaluationLoopResult(iterations=iterations, best=iterations[0]).best_score == 3.0


def test_an_empty_result():
    result = EvaluationLoopResult()

    assert (result.success, result.best, result.best_iteration) == (False, None, None)
    assert (result.best_score, result.final_score, result.best_output, result.final_output) == (0, 0, "", "")
    assert (result.score_history, result.accumulated_findings, result.num_iterations) == ([], [], 0)
    assert (result.threshold, result.mode) == (8.0, "optimize")
    assert strict(result.to_json())["iterations"] == []
    assert "**Iterations**: 0" in result.final_report


def test_the_dict_has_the_seeds_fields():
    result = EvaluationLoopResult(
        iterations=[
            iteration(1, 6.0, reasoning="Short.", findings=["Add detail."], metadata={"model": "m"}),
            iteration(2, 8.5),
        ],
        success=True,
        total_duration_seconds=1.5,
        metadata={"run": 7},
    )

    assert result.to_dict() == {
        "success": True,
        "final_score": 8.5,
        "best_score": 8.5,
        "best_output": "output 2",
        "score_history": [6.0, 8.5],
        "final_output": "output 2",
        "accumulated_findings": ["Add detail."],
        "num_iterations": 2,
        "total_duration_seconds": 1.5,
        "threshold": 8.0,
        "mode": "optimize",
        "iterations": [
            {
                "iteration": 1,
                "output": "output 1",
                "score": 6.0,
                "reasoning": "Short.",
                "findings": ["Add detail."],
                "timestamp": "2026-01-01T00:00:00+00:00",
                "passed": False,
                "threshold": 8.0,
                "metadata": {"model": "m"},
            },
            {
                "iteration": 2,
                "output": "output 2",
                "score": 8.5,
                "reasoning": "",
                "findings": [],
                "timestamp": "2026-01-01T00:00:00+00:00",
                "passed": True,
                "threshold": 8.0,
                "metadata": {},
            },
        ],
        "metadata": {"run": 7},
    }


def test_json_is_strict_whatever_is_in_it():
    result = make_result(
        math.nan, metadata={"bad": math.inf, "nested": [math.nan, (1, {2})], 3: object, "text": "ü"}
    )

    read = strict(result.to_json())

    assert (read["final_score"], read["best_score"], read["score_history"]) == (None, None, [None])
    assert read["metadata"] == {
        "bad": None,
        "nested": [None, [1, [2]]],
        "3": "<class 'object'>",
        "text": "ü",
    }


def test_a_result_can_be_read_back():
    result = make_result(3.0, 9.0, success=True, total_duration_seconds=2.0, mode="review", metadata={"a": 1})

    again = EvaluationLoopResult.from_dict(strict(result.to_json()))

    assert again.to_json() == result.to_json()
    assert again.iterations == result.iterations
    assert again.best == result.iterations[1]


def test_a_missing_score_is_read_back_as_nan():
    again = EvaluationLoopResult.from_dict(strict(make_result(math.nan, 3.0).to_json()))

    assert math.isnan(again.score_history[0])
    assert again.best_score == 3.0


def test_the_report_is_markdown():
    result = EvaluationLoopResult(
        iterations=[iteration(1, 6.0, reasoning="Short.", findings=["Add detail."]), iteration(2, math.nan)],
        total_duration_seconds=1.234,
    )

    assert (
        result.final_report
        == """\
# Evaluation Loop Report

- **Status**: failed
- **Final score**: no score
- **Best score**: 6
- **Threshold**: 8
- **Iterations**: 2
- **Duration**: 1.23 s
- **Mode**: optimize

## Score history

| iteration | score | threshold met |
|---|---|---|
| 1 | 6 | no |
| 2 | no score | no |

## Iterations

### Iteration 1

**Score**: 6

**Reasoning**: Short.

**Findings**:

- Add detail.

### Iteration 2

**Score**: no score

## All findings

- Add detail.
"""
    )


@pytest.mark.parametrize(("success", "word"), [(True, "success"), (False, "failed")])
def test_the_summary_is_a_table(success: bool, word: str, capsys: pytest.CaptureFixture[str]):
    make_result(3.0, 9.25, success=success, total_duration_seconds=1.0).print_summary()

    printed = capsys.readouterr().out
    for text in ("Evaluation loop", word, "9.25", "3 → 9.25", "optimize", "1.00 s"):
        assert text in printed


def test_an_autonomy_result_prints_as_its_output():
    result = AutonomyResult(success=True, output="the answer", metadata={"x": math.nan})

    assert str(result) == "the answer"
    assert strict(result.to_json()) == {
        "success": True,
        "output": "the answer",
        "completion_reason": "goal_met",
        "iterations": 0,
        "stage": "direct",
        "actions": [],
        "duration_seconds": 0.0,
        "error": None,
        "started_at": None,
        "metadata": {"x": None},
    }


def test_goal_criteria_round_trip():
    criteria = GoalCriteria("PR merged", "PR URL exists", ["no force push"])

    assert GoalCriteria.from_dict(criteria.to_dict()) == criteria
    assert GoalCriteria.from_dict({}) == GoalCriteria()
    assert criteria.lines() == [
        "DEFINITION OF DONE: PR merged",
        "VERIFICATION: PR URL exists",
        "CONSTRAINTS (never violate):\n- no force push",
    ]
