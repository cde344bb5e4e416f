"""Our loop decides as praisonaiagents' does, on generated runs; and where it does not, why."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_parts import NotingAgent, ScriptedJudge, Verdict, series

from otel_loopeval.evaluation import EvaluationLoop

theirs: Any = pytest.importorskip("praisonaiagents.eval.loop").EvaluationLoop

verdicts = st.builds(
    Verdict,
    score=st.floats(min_value=-5, max_value=15) | st.integers(0, 10),
    reasoning=st.text(max_size=10),
    suggestions=st.lists(st.text(max_size=10), max_size=3),
)


@dataclass
class Run:
    prompts: list[str]
    asked: list[tuple[str, str]]
    seen: list[int]
    result: dict[str, Any] = field(default_factory=dict[str, Any])


def play(loop_class: Any, scripted: list[Verdict], mode: str, threshold: float) -> Run:
    agent, judge = NotingAgent(), ScriptedJudge(scripted)
    run = Run(agent.prompts, judge.asked, [])

    def on_iteration(it: Any) -> None:
        run.seen.append(it.iteration)

    loop = loop_class(
        agent,
        "criteria",
        threshold=threshold,
        max_iterations=len(scripted),
        mode=mode,
        judge=judge,
        on_iteration=on_iteration,
    )
    result = loop.run("Write.")
    run.result = result.to_dict()
    run.result["best"] = result.best_iteration.iteration
    del run.result["total_duration_seconds"]
    for iteration in run.result["iterations"]:
        for ours_to_say in ("timestamp", "passed", "threshold"):
            iteration.pop(ours_to_say, None)
    return run


@settings(max_examples=150, deadline=None)
@given(
    st.lists(verdicts, min_size=1, max_size=6),
    st.sampled_from(["optimize", "review"]),
    st.floats(min_value=0, max_value=10),
)
def test_the_same_run(scripted: list[Verdict], mode: str, threshold: float):
    assert play(EvaluationLoop, scripted, mode, threshold) == play(theirs, scripted, mode, threshold)


def test_metrics_decide_alike_and_differ_in_the_reasoning_only():
    """Ours tells the agent its score, where theirs says "numeric metric" and nothing more."""
    runs: list[Any] = []
    for loop_class in (EvaluationLoop, theirs):
        metric = series("0.4", math.nan, True, 0.9)
        loop = loop_class(NotingAgent(), "", threshold=2, max_iterations=4, metric=metric)
        runs.append(loop.run("Write."))
    ours, package = runs

    assert ours.score_history == package.score_history == [0.4, 0.0, 1.0, 0.9]
    assert ours.best_iteration.iteration == package.best_iteration.iteration == 3
    assert ours.iterations[0].reasoning == "numeric metric: 0.4"
    assert package.iterations[0].reasoning == "numeric metric"


def test_a_judges_nan_stays_out_of_the_best():
    """Theirs lets NaN win: max() keeps the first of what it cannot compare."""
    runs: list[Any] = []
    for loop_class in (EvaluationLoop, theirs):
        judge = ScriptedJudge([Verdict(math.nan), Verdict(9.0)])
        runs.append(loop_class(NotingAgent(), "", judge=judge).run("Write."))

    assert [run.num_iterations for run in runs] == [2, 2]
    assert [run.success for run in runs] == [True, False]
    assert runs[0].best_score == 9.0
    assert math.isnan(runs[1].best_score)


@pytest.mark.parametrize("most", [0, -1])
def test_no_iterations_are_refused(most: int):
    """Theirs returns an empty failure."""
    with pytest.raises(ValueError, match="max_iterations"):
        EvaluationLoop(NotingAgent(), "", max_iterations=most)

    assert theirs(NotingAgent(), "", max_iterations=most).run("Write.").num_iterations == 0


def test_an_agent_that_answers_nothing_has_an_empty_output():
    """Theirs gives the judge the word None."""

    class Silent:
        def chat(self, prompt: str) -> None:
            return None

    asked: list[Any] = []
    for loop_class in (EvaluationLoop, theirs):
        judge = ScriptedJudge([Verdict(9)])
        loop_class(Silent(), "", judge=judge).run("Write.")
        asked.append(judge.asked[0][0])

    assert asked == ["", "None"]
