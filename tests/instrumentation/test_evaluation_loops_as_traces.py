"""Our EvaluationLoop and praisonaiagents', run by a program that knows nothing of telemetry."""

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from instrumented_loops import (
    Agent,
    Family,
    both_ways,
    own,
    praisonaiagents,
    run_in_asyncio,
    run_sync,
    series,
)

from otel_loopeval import EvaluationLoop, LoopEvaluator, current_run, uninstrument
from otel_loopeval.otel.pipeline import open_spans
from otel_loopeval.testing import Capture

RUN_AND_ITERATIONS = (
    "evaluation_loop writer\n"
    "  evaluation_loop.iteration\n"
    "    evaluate\n"
    "  evaluation_loop.iteration\n"
    "    evaluate"
)


def iteration_scores(capture: Capture) -> list[Any]:
    return [
        span["attributes"].get("loopeval.iteration.score")
        for span in capture.spans("evaluation_loop.iteration")
    ]


@both_ways
def test_a_run_becomes_a_trace_with_a_verdict(capture: Capture, family: Family, run: Any) -> None:
    result = run(family.make(5.0, 9.0, threshold=8.0, max_iterations=5))
    assert result.score_history == [5.0, 9.0]
    assert capture.outline() == RUN_AND_ITERATIONS
    root = capture.span("evaluation_loop")
    assert root["scope"] == family.scope
    assert root["attributes"] == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "writer",
        "loopeval.run.mode": "optimize",
        "loopeval.run.framework": family.name,
        "loopeval.run.id": "run-1",
        "loopeval.run.threshold": 8.0,
        "loopeval.run.max_iterations": 5,
        "loopeval.run.outcome": "completed",
        "loopeval.run.success": True,
        "loopeval.run.iterations": 2,
        "loopeval.run.final_score": 9.0,
        "loopeval.run.best_score": 9.0,
        "loopeval.run.best_iteration": 2,
        "loopeval.health.passed": True,
        "loopeval.health.converged": True,
        "loopeval.health.doom_loop_fired": False,
        "loopeval.health.iterations_to_success": 2,
        "loopeval.health.wasted_iterations": 0,
        "loopeval.health.guard_interventions": 0,
        "loopeval.health.total_duration_s": 0.0,
        "loopeval.health.threshold": 8.0,
        "loopeval.health.score_delta_per_iteration": [4.0],
        "loopeval.health.reasoning": "Converged in 2 iteration(s).",
        "loopeval.health.evidence": "full",
    }
    first, second = capture.spans("evaluation_loop.iteration")
    assert first["attributes"] == {
        "loopeval.iteration.number": 1,
        "loopeval.iteration.score": 5.0,
        "loopeval.iteration.threshold_met": False,
        "loopeval.iteration.findings_count": 0,
    }
    assert [event["attributes"]["gen_ai.evaluation.score.label"] for event in second["events"]] == ["pass"]
    assert capture.value("loopeval.runs", {"loopeval.run.framework": family.name}) == 1
    assert current_run() is None


@both_ways
@pytest.mark.parametrize(
    ("scores", "settings", "outcome", "passed"),
    [
        ((5.0, 6.0), {"max_iterations": 2}, "limit", False),
        ((9.0, 3.0), {"max_iterations": 2, "mode": "review"}, "completed", True),
        ((3.0, 3.0), {"max_iterations": 2, "mode": "review"}, "completed", False),
        ((float("nan"), 9.0), {"max_iterations": 2}, "completed", True),
    ],
)
def test_outcomes(
    capture: Capture,
    family: Family,
    run: Any,
    scores: tuple[float, ...],
    settings: dict[str, Any],
    outcome: str,
    passed: bool,
) -> None:
    run(family.make(*scores, **settings))
    root = capture.span("evaluation_loop")["attributes"]
    assert (root["loopeval.run.outcome"], root["loopeval.health.passed"]) == (outcome, passed)


@both_ways
def test_the_verdict_agrees_with_the_evaluator_on_the_result(
    capture: Capture, family: Family, run: Any
) -> None:
    for scores, mode in (
        ((5.0, 9.0), "optimize"),
        ((9.0, 3.0, 4.0), "review"),
        ((1.0, 2.0, 3.0), "optimize"),
    ):
        result = run(family.make(*scores, max_iterations=3, mode=mode))
        expected = LoopEvaluator().run(result)
        root = capture.span("evaluation_loop")["attributes"]
        assert root["loopeval.health.passed"] == expected.success
        assert root["loopeval.health.iterations_to_success"] == expected.iterations_to_success
        assert root["loopeval.health.wasted_iterations"] == expected.wasted_iterations
        assert root["loopeval.health.reasoning"] == expected.reasoning
        assert root["loopeval.health.score_delta_per_iteration"] == list(expected.score_delta_per_iteration)
        capture.clear()


@both_ways
def test_callbacks_agents_and_metrics_run_inside_the_iteration(
    capture: Capture, family: Family, run: Any
) -> None:
    places: list[tuple[str, int]] = []

    def look(place: str) -> None:
        current = current_run()
        assert current is not None
        assert current.iteration is not None
        places.append((place, current.iteration.number))

    class Looking(Agent):
        def chat(self, prompt: str) -> str:
            look("agent")
            return super().chat(prompt)

    scores = series(5.0, 9.0)

    def metric(output: str) -> Any:
        look("metric")
        return scores(output)

    run(family.loop(Looking(), "", metric=metric, on_iteration=lambda result: look("callback")))
    assert places == [
        ("agent", 1),
        ("metric", 1),
        ("callback", 1),
        ("agent", 2),
        ("metric", 2),
        ("callback", 2),
    ]


@both_ways
def test_what_the_program_does_inside_is_a_child_of_the_iteration(
    capture: Capture, family: Family, run: Any
) -> None:
    tracer = capture.tracer_provider.get_tracer("client")

    class Traced(Agent):
        def chat(self, prompt: str) -> str:
            with tracer.start_as_current_span("chat", attributes={"gen_ai.usage.input_tokens": 10}):
                return super().chat(prompt)

    run(family.loop(Traced(), "", metric=series(9.0)))
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration\n    chat\n    evaluate"
    assert capture.span("evaluation_loop")["attributes"]["loopeval.run.tokens.input"] == 10
    assert capture.span("evaluation_loop.iteration")["attributes"]["loopeval.iteration.tokens.input"] == 10


@both_ways
def test_the_agents_exception_is_the_same_object_and_the_trace_is_partial(
    capture: Capture, family: Family, run: Any
) -> None:
    error = ConnectionError("words of the user")

    class Failing(Agent):
        def chat(self, prompt: str) -> str:
            answer = super().chat(prompt)
            if answer.startswith("answer 3"):
                raise error
            return answer

    with pytest.raises(ConnectionError) as caught:
        run(family.loop(Failing(), "", metric=series(5.0, 6.0, 9.0)))
    assert caught.value is error
    root = capture.span("evaluation_loop writer")
    assert (root["status"], root["attributes"]["error.type"]) == ("ERROR", "ConnectionError")
    assert root["attributes"]["loopeval.run.outcome"] == "failed"
    assert root["attributes"]["loopeval.run.iterations"] == 3
    assert iteration_scores(capture) == [5.0, 6.0, None]
    assert [span["status"] for span in capture.spans("evaluation_loop.iteration")] == [
        "UNSET",
        "UNSET",
        "ERROR",
    ]
    assert "words of the user" not in repr((capture.spans(), capture.metrics()))
    assert current_run() is None


@both_ways
def test_the_metrics_exception_is_the_same_object(capture: Capture, family: Family, run: Any) -> None:
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught:
        run(family.make(5.0, error))
    assert caught.value is error
    assert iteration_scores(capture) == [5.0, None]
    assert capture.value("loopeval.runs", {"error.type": "ZeroDivisionError"}) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2)])
def test_an_interrupt_passes_and_is_no_failure(
    capture: Capture, family: Family, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        run_sync(family.make(5.0, error))
    assert caught.value is error
    root = capture.span("evaluation_loop")
    assert (root["status"], root["attributes"]["loopeval.run.outcome"]) == ("UNSET", "interrupted")
    assert current_run() is None


def test_a_cancelled_run(capture: Capture) -> None:
    class Slow:
        name = "writer"

        async def achat(self, prompt: str) -> str:
            await asyncio.sleep(60)
            return "never"

    async def main() -> None:
        task = asyncio.create_task(EvaluationLoop(Slow(), "", metric=series(1.0)).run_async("task"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [span["attributes"].get("loopeval.run.outcome") for span in capture.spans()] == ["cancelled", None]
    assert open_spans == {}


@both_ways
def test_results_are_the_same_with_and_without(capture: Capture, family: Family, run: Any) -> None:
    def told(result: Any) -> Any:
        return (
            [(it.iteration, it.output, it.score, it.reasoning, it.findings) for it in result.iterations],
            result.success,
            result.best_output,
            result.mode,
            result.threshold,
        )

    with_us = told(run(family.make(5.0, 7.0, 9.0)))
    uninstrument()
    assert told(run(family.make(5.0, 7.0, 9.0))) == with_us
    assert len(capture.spans("evaluation_loop")) == 1


def test_one_loop_object_in_threads(capture: Capture, family: Family) -> None:
    loop = family.loop(Agent(), "", metric=lambda output: float(output.split()[1]) % 3, threshold=2.0)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: loop.run("task"), range(40)))
    roots = capture.tree()
    assert len(roots) == 40
    histories = sorted(result.score_history for result in results)
    traced = sorted([c["attributes"]["loopeval.iteration.score"] for c in root["children"]] for root in roots)
    assert traced == histories
    assert capture.value("loopeval.runs") == 40
    assert open_spans == {}


def test_one_loop_object_under_gather(capture: Capture, family: Family) -> None:
    class Async(Agent):
        async def chat_async(self, prompt: str) -> str:
            await asyncio.sleep(0)
            return self.chat(prompt)

    loop = family.loop(Async(), "", metric=lambda output: float(output.split()[1]) % 3, threshold=2.0)

    async def main() -> list[Any]:
        return await asyncio.gather(*(loop.run_async("task") for _ in range(40)))

    results = asyncio.run(main())
    roots = capture.tree()
    histories = sorted(result.score_history for result in results)
    traced = sorted([c["attributes"]["loopeval.iteration.score"] for c in root["children"]] for root in roots)
    assert traced == histories
    assert {root["attributes"]["loopeval.run.outcome"] for root in roots} <= {"completed", "limit"}
    assert open_spans == {}


@both_ways
def test_a_loop_inside_a_loop(capture: Capture, family: Family, run: Any) -> None:
    class Editor(Agent):
        name = "editor"

        def chat(self, prompt: str) -> str:
            family.make(9.0).run(prompt)
            return super().chat(prompt)

    run(family.loop(Editor(), "", metric=series(9.0)))
    assert capture.outline() == (
        "evaluation_loop editor\n"
        "  evaluation_loop.iteration\n"
        "    evaluation_loop writer\n"
        "      evaluation_loop.iteration\n"
        "        evaluate\n"
        "    evaluate"
    )
    assert capture.value("loopeval.runs", {"loopeval.run.nested": True}) == 1
    assert capture.value("loopeval.runs", {"loopeval.run.nested": False}) == 1


@pytest.mark.parametrize("place", ["agent", "callback"])
def test_a_loop_object_that_runs_itself(capture: Capture, family: Family, place: str) -> None:
    """The same object, from within its own iteration: a run inside a run."""
    depth: list[int] = []

    def again(_: Any) -> None:
        if not depth:
            depth.append(1)
            loop.run("inner")

    class Recursive(Agent):
        def chat(self, prompt: str) -> str:
            if place == "agent":
                again(prompt)
            return super().chat(prompt)

    loop = family.loop(
        Recursive(), "", metric=series(8.5, 9.5), on_iteration=again if place == "callback" else None
    )
    loop.run("outer")
    outer, inner = capture.spans("evaluation_loop")
    inner_run = "    evaluation_loop writer\n      evaluation_loop.iteration\n        evaluate\n"
    judged = "    evaluate\n"
    assert capture.outline() + "\n" == (
        "evaluation_loop writer\n"
        "  evaluation_loop.iteration\n" + (inner_run + judged if place == "agent" else judged + inner_run)
    )
    scores = (outer["attributes"]["loopeval.run.best_score"], inner["attributes"]["loopeval.run.best_score"])
    assert scores == ((9.5, 8.5) if place == "agent" else (8.5, 9.5))


def test_own_and_praisonaiagents_loops_nest(capture: Capture) -> None:
    class Editor(Agent):
        name = "editor"

        def chat(self, prompt: str) -> str:
            praisonaiagents().make(9.0).run(prompt)
            return super().chat(prompt)

    own().loop(Editor(), "", metric=series(9.0)).run("task")
    frameworks = [span["attributes"]["loopeval.run.framework"] for span in capture.spans("evaluation_loop")]
    assert frameworks == ["otel_loopeval", "praisonaiagents"]


def test_runs_leave_nothing_behind(capture: Capture, family: Family) -> None:
    agent = Agent()
    loop = family.loop(agent, "", metric=series(5.0, 9.0))
    before = set(vars(loop))
    loop.run("task")
    assert set(vars(loop)) == before
    seen = weakref.ref(agent)
    del agent, loop
    gc.collect()
    assert seen() is None
    assert open_spans == {}


@both_ways
def test_an_agent_that_says_the_same_again_is_in_a_doom_loop(
    capture: Capture, family: Family, run: Any
) -> None:
    class Stuck:
        name = "writer"

        def chat(self, prompt: str) -> str:
            return "I shall try the very same thing once more, and hope for better."

    run(family.loop(Stuck(), "", metric=lambda output: 2.0, max_iterations=12))
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.doom_loop_fired"] is True
    assert root["loopeval.health.doom_loop_kinds"] == ["repeated_output"]
    assert capture.value("loopeval.doom_loop.fired", {"loopeval.guard.source": "detector"}) == 1


def test_an_agent_without_a_name(capture: Capture, family: Family) -> None:
    class Nameless:
        def chat(self, prompt: str) -> str:
            return "answer"

    family.loop(Nameless(), "", metric=series(9.0)).run("task")
    assert capture.span("evaluation_loop")["name"] == "evaluation_loop Nameless"


def test_run_and_run_async_take_their_prompt_by_name(capture: Capture, family: Family) -> None:
    family.make(9.0).run(prompt="task")
    asyncio.run(family.make(9.0).run_async(prompt="task"))
    assert capture.value("loopeval.runs") == 2


def test_wrapped_methods_keep_their_names_and_kinds(capture: Capture, family: Family) -> None:
    assert family.loop.run.__name__ == "run"
    assert family.loop.run.__doc__
    assert asyncio.iscoroutinefunction(family.loop.run_async)
    assert not asyncio.iscoroutinefunction(family.loop.run)


def test_run_sync_inside_a_running_event_loop(capture: Capture, family: Family) -> None:
    async def main() -> None:
        family.make(9.0).run("task")
        assert current_run() is None

    asyncio.run(main())
    assert capture.value("loopeval.runs") == 1


@pytest.mark.parametrize("run", [run_in_asyncio])
def test_sync_agents_in_worker_threads_see_the_run(capture: Capture, run: Any) -> None:
    seen: list[Any] = []

    def agent(prompt: str) -> str:
        seen.append(current_run())
        return "answer"

    run(EvaluationLoop(agent, "", metric=series(9.0)))
    assert seen[0] is not None
    assert seen[0].agent == "agent"
