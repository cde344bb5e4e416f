"""``LoopHealthEvaluator`` in the real ``EvalSuite`` of praisonaiagents, beside its own evaluators."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from praisonaiagents.eval import EvalSuite, LoopEvaluator
from praisonaiagents.eval.accuracy import AccuracyEvaluator
from praisonaiagents.eval.base import BaseEvaluator
from praisonaiagents.eval.loop import EvaluationLoop as PraisonLoop

from otel_loopeval import AutonomyResult, EvaluationLoop, LoopHealthResult, record_guard_event
from otel_loopeval.suite import LoopHealthEvaluator, LoopHealthScore, UnhealthyLoopError, health_score
from otel_loopeval.testing import Capture


class Agent:
    name = "writer"

    def chat(self, prompt: str) -> str:
        return f"an answer to {len(prompt)} letters"


def loop_of(*scores: float, cls: Any = EvaluationLoop, **settings: Any) -> Any:
    remaining = iter(scores)
    settings = {"max_iterations": len(scores), **settings}
    return cls(Agent(), "", metric=lambda _output: next(remaining), **settings)


def result_of(*scores: float, **fields: Any) -> Any:
    return SimpleNamespace(**{"score_history": list(scores), "threshold": 8.0, "mode": "optimize", **fields})


class Nine(BaseEvaluator):
    """Any other evaluator of a suite."""

    def run(self, **_kwargs: Any) -> Any:
        return SimpleNamespace(score=9.0)


both_loops = pytest.mark.parametrize("cls", [EvaluationLoop, PraisonLoop])


@both_loops
def test_a_healthy_loop(cls: Any) -> None:
    suite = EvalSuite([Nine(), LoopHealthEvaluator(loop_of(5, 7, 9, cls=cls), "task")]).run(
        print_summary=False
    )
    assert suite.success
    assert suite.errors == []
    assert suite.evaluator_results["LoopHealthEvaluator_1"].score == 10.0
    assert suite.overall_score == 9.5


@both_loops
def test_an_unhealthy_loop_fails_the_suite(cls: Any) -> None:
    health = LoopHealthEvaluator(loop_of(4, 2, cls=cls), "task")
    suite = EvalSuite([Nine(), health]).run(print_summary=False)
    assert not suite.success
    assert suite.errors == [
        "LoopHealthEvaluator_1 failed: unhealthy loop, 2.5/10: Did not converge after 2 iteration(s)."
    ]
    assert suite.overall_score == 9.0  # of those that did not fail, as the package has it
    assert health.result is not None
    assert health.result.score == 2.5


def test_why_an_adapter_is_needed() -> None:
    """The package's own evaluator gets no result, and a verdict that is returned fails nothing."""
    alone: Any = LoopEvaluator()
    assert "loop_result" in EvalSuite([alone]).run(print_summary=False).errors[0]

    class Wrapped(BaseEvaluator):
        def run(self, **_kwargs: Any) -> Any:
            return LoopEvaluator().run(result_of(1, 2))

    assert EvalSuite([Wrapped()]).run(print_summary=False).success


def test_beside_the_accuracy_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    accuracy = AccuracyEvaluator(agent=Agent(), input_text="Hello", expected_output="Hi")  # type: ignore[arg-type]
    judged = SimpleNamespace(score=8.0, reasoning="")
    monkeypatch.setattr(accuracy, "_judge_output", lambda *_args, **_kwargs: judged)
    health = LoopHealthEvaluator(result_of(9))
    suite = EvalSuite([accuracy, health]).run(print_summary=False)
    assert (suite.success, suite.errors, suite.overall_score) == (True, [], 9.0)


def test_fail_fast() -> None:
    health: Any = LoopHealthEvaluator(result_of(3, 4))
    with pytest.raises(RuntimeError, match=r"fail_fast.*unhealthy loop, 2\.5/10"):
        EvalSuite([health, Nine()], fail_fast=True).run(print_summary=False)


def test_a_score_that_fails_nothing() -> None:
    health: Any = LoopHealthEvaluator(result_of(9, 9, 9, 9), fail_suite=False)
    suite = EvalSuite([Nine(), health], score_weights={"LoopHealthEvaluator_1": 3.0}).run(print_summary=False)
    assert suite.success
    assert suite.evaluator_results["LoopHealthEvaluator_1"].score == 6.25
    assert suite.overall_score == (9.0 + 3 * 6.25) / 4


def test_printed_and_saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    health: Any = LoopHealthEvaluator(result_of(9), name="health", save_results_path=str(tmp_path / "{name}"))
    EvalSuite([health], name="gate", save_results_path=str(tmp_path / "suite")).run()
    assert "LoopHealthEvaluator_0: 10.0/10" in capsys.readouterr().out
    assert json.loads((tmp_path / "health").read_text())["passed"] is True
    assert json.loads((tmp_path / "suite").read_text())["success"] is True


def test_the_suite_in_an_event_loop() -> None:
    async def main() -> Any:
        health: Any = LoopHealthEvaluator(loop_of(5, 9), "task")
        return EvalSuite([health]).run(print_summary=False)

    assert asyncio.run(main()).success


# Without a suite -------------------------------------------------------------------------------------------


@both_loops
def test_run_async(cls: Any) -> None:
    async def main() -> list[LoopHealthScore]:
        evaluators = [LoopHealthEvaluator(loop_of(5, 9, cls=cls), "task") for _ in range(3)]
        return await asyncio.gather(*(evaluator.run_async() for evaluator in evaluators))

    assert [result.score for result in asyncio.run(main())] == [10.0, 10.0, 10.0]


def test_run_async_raises_too() -> None:
    with pytest.raises(UnhealthyLoopError) as caught:
        asyncio.run(LoopHealthEvaluator(loop_of(5, 6), "task").run_async())
    assert caught.value.result.health.iterations_to_success == 2


def test_callables() -> None:
    async def later() -> Any:
        return result_of(9)

    for loop in (lambda: result_of(9), later):
        evaluator = LoopHealthEvaluator(loop)
        assert evaluator.run().score == 10.0
        assert asyncio.run(evaluator.run_async()).score == 10.0


def test_the_loop_runs_each_time() -> None:
    runs = iter([result_of(9), result_of(9, 9)])
    evaluator = LoopHealthEvaluator(lambda: next(runs), fail_suite=False)
    assert [evaluator.run().score, evaluator.run().score] == [10.0, 7.5]


def test_goal_loops() -> None:
    met = AutonomyResult(success=True, completion_reason="goal_met", iterations=3, duration_seconds=2.0)
    assert LoopHealthEvaluator(met).run().to_dict() == {
        "score": 10.0,
        "iterations_to_success": 3,
        "wasted_iterations": 0,
        "doom_loop_fired": False,
        "guard_interventions": 0,
        "total_duration_s": 2.0,
        "score_delta_per_iteration": [0.0, 1.0],
        "converged": True,
        "success": True,
        "passed": True,
        "threshold": 1.0,
        "reasoning": "Converged in 3 iteration(s).",
        "metadata": {"num_iterations": 3},
    }
    missed = AutonomyResult(success=False, completion_reason="budget_paused", iterations=3)
    with pytest.raises(UnhealthyLoopError, match=r"unhealthy loop, 0\.0/10: Did not converge"):
        LoopHealthEvaluator(missed).run()


def test_guard_events_that_are_given() -> None:
    with pytest.raises(UnhealthyLoopError, match=r"0\.0/10: Converged in 1 iteration.*Doom-loop guard fired"):
        LoopHealthEvaluator(result_of(9), guard_events=[{"type": "doom_loop"}]).run()


@pytest.mark.parametrize("given", [None, []])
def test_guard_events_that_were_captured(capture: Capture, given: Any) -> None:
    class Stuck(Agent):
        def chat(self, prompt: str) -> str:
            record_guard_event({"type": "doom_loop"})
            return super().chat(prompt)

    loop = EvaluationLoop(Stuck(), "", metric=lambda _output: 9.0)
    result = LoopHealthEvaluator(loop, "task", guard_events=given, fail_suite=False).run()
    assert result.score == (0.0 if given is None else 10.0)
    assert result.health.guard_interventions == (1 if given is None else 0)


@pytest.mark.parametrize(
    ("scores", "max_wasted", "score"),
    [
        ((9,), 0, 10.0),
        ((5, 7, 9), 0, 10.0),
        ((9, 9), 0, 7.5),
        ((9, 9), 1, 10.0),
        ((5, 5, 5, 9, 9), 0, 9.0),
        ((9, *[9] * 9), 0, 5.5),
        ((4,), 0, 2.5),
        ((7.9,), 0, 5 * 7.9 / 8),
        ((-3,), 0, 0.0),
        ((float("nan"),), 0, 0.0),
        ((-(10**400), 4), 0, 2.5),
        ((), 0, 0.0),
    ],
)
def test_scores(scores: tuple[float, ...], max_wasted: int, score: float) -> None:
    evaluator = LoopHealthEvaluator(result_of(*scores), max_wasted_iterations=max_wasted, fail_suite=False)
    assert evaluator.run().score == pytest.approx(score)


def test_a_threshold_that_no_score_can_be_a_part_of() -> None:
    health = LoopHealthResult(1, 0, doom_loop_fired=False, guard_interventions=0, total_duration_s=0.0)
    health.threshold = 0.0
    assert health_score(health, -1.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Agent(),), "must be a loop with run"),
        ((EvaluationLoop, "task"), "is a class"),
        ((loop_of(9),), "prompt=None: the loop"),
        ((result_of(9), "task"), "loop= is a result"),
        ((lambda: result_of(9), "task"), "loop= is a callable without arguments"),
        ((loop_of(9), 5), "prompt=5 must be a str or None"),
    ],
)
def test_misuse(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        LoopHealthEvaluator(*arguments)


def test_a_loop_that_returns_no_result() -> None:
    health: Any = LoopHealthEvaluator(lambda: "an answer")
    (error,) = EvalSuite([health]).run(print_summary=False).errors
    assert error == "LoopHealthEvaluator_0 failed: the loop returned 'an answer', which is no loop's result"


def test_nothing_of_the_package_is_imported() -> None:
    program = "import sys, otel_loopeval.suite; print('praisonaiagents' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
