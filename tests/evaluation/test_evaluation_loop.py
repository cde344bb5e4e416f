"""What the loop decides: when it stops, what succeeds, what is best, what the agent is told."""

import asyncio
import logging
import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from loop_parts import NotingAgent, Run, ScriptedJudge, Verdict, both_ways, nan_as_none, series

from otel_loopeval.evaluation import EvaluationLoop, IterationResult


def outcome(result: Any) -> tuple[list[float | None], bool]:
    return nan_as_none(result.score_history), result.success


@both_ways
@pytest.mark.parametrize(
    ("mode", "scores", "history", "success"),
    [
        ("optimize", [3, 9, 10], [3.0, 9.0], True),
        ("optimize", [3, 8.0, 10], [3.0, 8.0], True),
        ("optimize", [3, 7.999, 4], [3.0, 7.999, 4.0], False),
        ("review", [9, 3, 4], [9.0, 3.0, 4.0], True),
        ("review", [3, 4, 5], [3.0, 4.0, 5.0], False),
    ],
)
def test_optimize_stops_at_the_threshold_and_review_runs_all(
    run: Run, mode: str, scores: list[float], history: list[float], success: bool
):
    loop = EvaluationLoop(NotingAgent(), "", max_iterations=3, mode=mode, metric=series(*scores))

    assert outcome(run(loop)) == (history, success)


@both_ways
def test_the_best_iteration_is_the_highest_and_the_first_on_ties(run: Run):
    loop = EvaluationLoop(NotingAgent(), "", max_iterations=4, mode="review", metric=series(3, 9, 9, 5))

    result = run(loop)

    assert result.best.iteration == 2
    assert result.best_iteration.iteration == 2
    assert (result.best_score, result.best_output) == (9.0, "answer 2")
    assert (result.final_score, result.final_output) == (5.0, "answer 4")
    assert result.num_iterations == 4


@both_ways
def test_the_agent_gets_the_last_verdict_only(run: Run):
    agent = NotingAgent()
    judge = ScriptedJudge(
        [
            Verdict(3, "Too short.", ["Add detail.", "Cite sources."]),
            Verdict(4, "Still short."),
            Verdict(9, "Good."),
        ]
    )

    result = run(EvaluationLoop(agent, "is thorough", judge=judge), "Write.")

    assert agent.prompts == [
        "Write.",
        "Write.\n\nPrevious feedback to address:\nToo short.\nSuggestions:\n- Add detail.\n- Cite sources.",
        "Write.\n\nPrevious feedback to address:\nStill short.",
    ]
    assert judge.asked == [
        ("answer 1", "is thorough"),
        ("answer 2", "is thorough"),
        ("answer 3", "is thorough"),
    ]
    assert [it.reasoning for it in result.iterations] == ["Too short.", "Still short.", "Good."]
    assert result.accumulated_findings == ["Add detail.", "Cite sources."]


@both_ways
def test_a_verdict_without_reasoning_leaves_the_prompt_alone(run: Run):
    agent = NotingAgent()

    run(EvaluationLoop(agent, "", judge=ScriptedJudge([Verdict(1), Verdict(9)])), "Write.")

    assert agent.prompts == ["Write.", "Write."]


@both_ways
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, None, "excellent", [9]])
def test_a_judge_without_a_usable_score_never_converges(run: Run, score: Any):
    judge = ScriptedJudge([Verdict(score), Verdict(7), Verdict(score)])

    result = run(EvaluationLoop(NotingAgent(), "", max_iterations=3, judge=judge))

    assert outcome(result) == ([None, 7.0, None], False)
    assert result.best.iteration == 2
    assert [it["score"] for it in result.to_dict()["iterations"]] == [None, 7.0, None]


@both_ways
def test_a_judge_that_returns_nothing_never_converges(run: Run):
    result = run(EvaluationLoop(NotingAgent(), "", max_iterations=2, judge=ScriptedJudge([None, object()])))

    assert outcome(result) == ([None, None], False)
    assert result.best_output == "answer 1"


@both_ways
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf"])
def test_a_metric_that_is_not_finite_counts_as_zero_with_a_warning(
    run: Run, value: Any, caplog: pytest.LogCaptureFixture
):
    loop = EvaluationLoop(NotingAgent(), "", max_iterations=1, metric=series(value))

    with caplog.at_level(logging.WARNING):
        result = run(loop)

    assert outcome(result) == ([0.0], False)
    assert [(r.levelname, "counts as 0.0" in r.getMessage()) for r in caplog.records] == [("WARNING", True)]


@both_ways
@pytest.mark.parametrize(
    ("value", "score"), [("0.9", 0.9), (True, 1.0), (7, 7.0), (Decimal("0.5"), 0.5), (Fraction(1, 4), 0.25)]
)
def test_a_metric_may_return_anything_that_is_a_number(run: Run, value: Any, score: Any):
    loop = EvaluationLoop(NotingAgent(), "", max_iterations=1, metric=series(value))

    assert run(loop).score_history == [score]


@both_ways
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, "metric must return a number, got None"),
        ([1], TypeError, "metric must return a number, got [1]"),
        (1j, TypeError, "metric must return a number, got 1j"),
        ("abc", ValueError, "metric must return a number, got 'abc'"),
        (10**400, ValueError, "metric must return a number, got 1000"),
    ],
)
def test_a_metric_that_returns_no_number_is_an_error(run: Run, value: Any, error: Any, text: str):
    with pytest.raises(error) as caught:
        run(EvaluationLoop(NotingAgent(), "", metric=series(value)))

    assert text in str(caught.value)


@both_ways
def test_the_metric_takes_over_from_the_judge(run: Run):
    judge = ScriptedJudge([])

    result = run(EvaluationLoop(NotingAgent(), "", threshold=0.8, judge=judge, metric=series(0.4, 0.9)))

    assert outcome(result) == ([0.4, 0.9], True)
    assert judge.asked == []
    assert [it.reasoning for it in result.iterations] == ["numeric metric: 0.4", "numeric metric: 0.9"]


@both_ways
def test_on_iteration_sees_each_iteration_as_it_ends(run: Run):
    seen: list[tuple[int, str, float, bool]] = []

    def on_iteration(it: IterationResult) -> None:
        seen.append((it.iteration, it.output, it.score, it.passed))

    run(EvaluationLoop(NotingAgent(), "", metric=series(3, 7.5, 9), on_iteration=on_iteration))

    assert seen == [
        (1, "answer 1", 3.0, False),
        (2, "answer 2", 7.5, False),
        (3, "answer 3", 9.0, True),
    ]


@both_ways
def test_an_error_in_on_iteration_is_logged_without_its_message_and_ignored(
    run: Run, caplog: pytest.LogCaptureFixture
):
    def on_iteration(it: IterationResult) -> None:
        raise RuntimeError("holds the output: secret")

    loop = EvaluationLoop(NotingAgent(), "", max_iterations=2, metric=series(3, 4), on_iteration=on_iteration)
    with caplog.at_level(logging.WARNING):
        result = run(loop)

    assert result.score_history == [3.0, 4.0]
    assert [r.getMessage() for r in caplog.records] == [
        "on_iteration raised RuntimeError, which is ignored",
        "on_iteration raised RuntimeError, which is ignored",
    ]
    assert "secret" not in caplog.text


@both_ways
def test_a_falsy_callback_is_called_too(run: Run):
    class Recorder(list[int]):
        def __call__(self, it: IterationResult) -> None:
            self.append(it.iteration)

    recorder = Recorder()
    run(EvaluationLoop(NotingAgent(), "", max_iterations=1, metric=series(3), on_iteration=recorder))

    assert recorder == [1]


@both_ways
def test_a_coroutine_callback_is_awaited(run: Run):
    seen: list[int] = []

    async def on_iteration(it: IterationResult) -> None:
        seen.append(it.iteration)

    run(EvaluationLoop(NotingAgent(), "", metric=series(3, 9), on_iteration=on_iteration))

    assert seen == [1, 2]


@both_ways
def test_an_async_judge_is_awaited(run: Run):
    class AsyncJudge:
        async def run_async(self, *, output: str, criteria: str) -> Verdict:
            return Verdict(9 if output == "answer 2" else 2)

    assert run(EvaluationLoop(NotingAgent(), "", judge=AsyncJudge())).score_history == [2.0, 9.0]


@both_ways
def test_an_async_metric_is_awaited(run: Run):
    async def metric(output: str) -> float:
        return 9.0 if output == "answer 2" else 2.0

    assert run(EvaluationLoop(NotingAgent(), "", metric=metric)).score_history == [2.0, 9.0]


def test_run_prefers_a_judges_run_and_run_async_its_run_async():
    class BothWaysJudge:
        def run(self, *, output: str, criteria: str) -> Verdict:
            return Verdict(8, "sync")

        async def run_async(self, *, output: str, criteria: str) -> Verdict:
            return Verdict(9, "async")

    loop = EvaluationLoop(NotingAgent(), "", judge=BothWaysJudge())

    assert loop.run("task").iterations[0].reasoning == "sync"
    assert asyncio.run(loop.run_async("task")).iterations[0].reasoning == "async"


@both_ways
def test_a_verdicts_odd_shapes_are_read(run: Run):
    odd = SimpleNamespace(score="6", reasoning=None, suggestions="One suggestion.")
    judge = ScriptedJudge([odd, SimpleNamespace(score=9, suggestions=None)])

    result = run(EvaluationLoop(NotingAgent(), "", judge=judge))

    assert result.score_history == [6.0, 9.0]
    assert [it.findings for it in result.iterations] == [["One suggestion."], []]
    assert [it.reasoning for it in result.iterations] == ["", ""]


@both_ways
def test_verbose_logs_numbers_and_prints_a_summary(
    run: Run, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    loop = EvaluationLoop(series("secret output", "secret output"), "", metric=series(3, 9), verbose=True)

    with caplog.at_level(logging.INFO):
        run(loop)

    assert [r.getMessage() for r in caplog.records if r.name.startswith("otel_loopeval")] == [
        "iteration 1 of at most 5: score 3",
        "iteration 2 of at most 5: score 9",
    ]
    printed = capsys.readouterr().out
    assert "Evaluation loop" in printed
    assert "3 → 9" in printed
    assert "secret" not in printed + caplog.text


@both_ways
def test_the_seams_are_looked_up_on_the_object(run: Run):
    calls: list[Any] = []

    class Louder(EvaluationLoop):
        def _get_agent_output(self, prompt: str, iteration: int, feedback: str = "") -> str:
            calls.append(("output", prompt, iteration, feedback))
            return super()._get_agent_output(prompt, iteration, feedback).upper()

        async def _get_agent_output_async(self, prompt: str, iteration: int, feedback: str = "") -> str:
            calls.append(("output", prompt, iteration, feedback))
            return (await super()._get_agent_output_async(prompt, iteration, feedback)).upper()

        def _score(self, output: str) -> Any:
            calls.append(("score", output))
            return Verdict(float(len(calls)) * 2, "why")

        async def _score_async(self, output: str) -> Any:
            calls.append(("score", output))
            return Verdict(float(len(calls)) * 2, "why")

    result = run(Louder(NotingAgent(), "unused"), "task")

    assert calls == [
        ("output", "task", 1, ""),
        ("score", "ANSWER 1"),
        ("output", "task", 2, "why"),
        ("score", "ANSWER 2"),
    ]
    assert result.score_history == [4.0, 8.0]


@both_ways
def test_a_loop_can_run_again_and_starts_afresh(run: Run):
    agent = NotingAgent()
    loop = EvaluationLoop(agent, "", max_iterations=2, metric=series(3, 4, 9))

    first, second = run(loop, "one"), run(loop, "two")

    assert (first.score_history, second.score_history) == ([3.0, 4.0], [9.0])
    assert agent.prompts[2] == "two"
