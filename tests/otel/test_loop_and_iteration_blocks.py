"""``with loop()`` and ``with iteration()``: what one hand-written loop looks like from outside."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from otel_loopeval import current_run, iteration, loop
from otel_loopeval.testing import Capture


def scored(*scores: Any, **settings: Any) -> None:
    """A hand-written loop that gives these scores."""
    with loop("writer", **settings):
        for score in scores:
            with iteration() as it:
                it.score = score


def test_spans_are_nested_and_numbered(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"), loop("writer"):
        for _ in range(2):
            with iteration(), tracer.start_as_current_span("chat"):
                pass
    assert capture.outline() == (
        "request\n"
        "  evaluation_loop writer\n"
        "    evaluation_loop.iteration\n"
        "      chat\n"
        "    evaluation_loop.iteration\n"
        "      chat"
    )
    numbers = [
        span["attributes"]["loopeval.iteration.number"] for span in capture.spans("evaluation_loop.iteration")
    ]
    assert numbers == [1, 2]


def test_iteration_attributes(capture: Capture) -> None:
    with loop("writer", threshold=8):
        with iteration() as it:
            it.score = 6.5
            it.findings = ["shorter", "clearer"]
        with iteration() as it:
            it.score = 8
        with iteration():
            pass
    assert [span["attributes"] for span in capture.spans("evaluation_loop.iteration")] == [
        {
            "loopeval.iteration.number": 1,
            "loopeval.iteration.score": 6.5,
            "loopeval.iteration.threshold_met": False,
            "loopeval.iteration.findings_count": 2,
        },
        {
            "loopeval.iteration.number": 2,
            "loopeval.iteration.score": 8.0,
            "loopeval.iteration.threshold_met": True,
            "loopeval.iteration.score_delta": 1.5,
        },
        {"loopeval.iteration.number": 3},
    ]


@pytest.mark.parametrize(
    ("mode", "name", "operation"),
    [
        ("optimize", "evaluation_loop writer", "invoke_workflow"),
        ("review", "evaluation_loop writer", "invoke_workflow"),
        ("goal", "goal_loop writer", "invoke_agent"),
        ("agent", "agent_loop writer", "invoke_agent"),
    ],
)
def test_root_of_each_mode(capture: Capture, mode: str, name: str, operation: str) -> None:
    with loop("writer", mode=mode, conversation_id="c-1", framework="homegrown"):
        pass
    span = capture.span()
    assert (span["name"], span["kind"]) == (name, "INTERNAL")
    assert span["attributes"]["gen_ai.operation.name"] == operation
    assert span["attributes"]["loopeval.run.mode"] == mode
    assert span["attributes"]["gen_ai.conversation.id"] == "c-1"
    assert span["attributes"]["loopeval.run.framework"] == "homegrown"


def test_what_a_sampler_sees_at_the_start(plain_capture: Capture) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    class Noting(Sampler):
        def should_sample(
            self,
            parent_context: Any,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            links: Any = None,
            trace_state: Any = None,
        ) -> SamplingResult:
            seen.append((name, dict(attributes or {})))
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

        def get_description(self) -> str:
            return "noting"

    with Capture(sampler=Noting()) as capture:
        capture.instrument()
        with loop("writer", threshold=7, max_iterations=3, id="run-9"), iteration():
            pass
    assert seen == [
        (
            "evaluation_loop writer",
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.agent.name": "writer",
                "loopeval.run.mode": "optimize",
                "loopeval.run.framework": "otel_loopeval",
                "loopeval.run.id": "run-9",
                "loopeval.run.threshold": 7.0,
                "loopeval.run.max_iterations": 3,
            },
        ),
        ("evaluation_loop.iteration", {"loopeval.iteration.number": 1}),
    ]


def test_a_given_run_id_is_kept(capture: Capture) -> None:
    with loop("writer", id="mine") as run:
        assert run.id == "mine"
    assert (capture.finished_spans[0].attributes or {})["loopeval.run.id"] == "mine"


def test_run_ids_differ(capture: Capture) -> None:
    for _ in range(2):
        scored(9)
    ids = {str((span.attributes or {}).get("loopeval.run.id")) for span in capture.finished_spans} - {"None"}
    assert len(ids) == 2


def test_the_live_view_follows_the_run(capture: Capture) -> None:
    with loop("writer", threshold=5) as run:
        assert run is current_run()
        assert (run.agent, run.mode, run.threshold, run.scores) == ("writer", "optimize", 5.0, [])
        assert run.health.success is False
        with iteration() as it:
            assert run.iteration is it
            assert run.scores == [None]
            it.score = 4
        assert run.health.converged is False
        with iteration() as it:
            it.score = 6
            assert run.health.converged is True
            assert run.health.iterations_to_success == 2
        with iteration() as it:
            it.score = 6
        assert run.health.wasted_iterations == 1
        assert run.health.success is False
        assert run.iteration is None
    assert current_run() is None
    assert run.health.wasted_iterations == 1


def test_success_can_be_declared_and_taken_back(capture: Capture) -> None:
    with loop("reviewer", mode="review") as run:
        assert run.success is None
        run.success = True
        with iteration() as it:
            it.score = 2
    with loop("writer") as run:
        run.success = True
        run.success = None
    first, second = capture.spans("evaluation_loop")
    assert first["attributes"]["loopeval.health.converged"] is True
    assert first["attributes"]["loopeval.run.success"] is True
    assert second["attributes"]["loopeval.run.success"] is False


def test_a_goal_run_converges_when_its_goal_is_met(capture: Capture) -> None:
    for met in (True, False):
        with loop("planner", mode="goal") as run:
            with iteration():
                pass
            run.success = met
    met, missed = (span["attributes"] for span in capture.spans("goal_loop"))
    assert (met["loopeval.health.passed"], met["loopeval.health.reasoning"]) == (
        True,
        "Goal met in 1 iteration(s).",
    )
    assert (missed["loopeval.health.passed"], missed["loopeval.health.reasons"]) == (False, ["not_converged"])


def test_iterations_outside_of_any_run_do_nothing(capture: Capture) -> None:
    with iteration() as it:
        it.score = 9
        assert (it.run, it.number, it.score) == (None, 0, 9.0)
    assert capture.spans() == []
    assert capture.metrics() == {}


def test_numbers_that_the_program_gives(capture: Capture) -> None:
    with loop("writer", threshold=8):
        for number, score in ((3, 9), (1, 4), (2, 6)):  # parallel work begins in any order
            with iteration(number) as it:
                it.score = score
    root = capture.spans("evaluation_loop")[0]["attributes"]
    assert root["loopeval.health.iterations_to_success"] == 3
    assert root["loopeval.health.wasted_iterations"] == 0
    assert root["loopeval.run.final_score"] == 9.0
    assert root["loopeval.run.best_iteration"] == 3


def test_async_blocks(capture: Capture) -> None:
    async def main() -> None:
        async with loop("writer") as run:
            async with iteration() as it:
                await asyncio.sleep(0)
                it.score = 9
            assert current_run() is run
        assert current_run() is None

    asyncio.run(main())
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration"


def test_the_run_is_found_in_tasks_and_in_threads_with_its_context(capture: Capture) -> None:
    found: dict[str, Any] = {}

    async def look(place: str) -> None:
        await asyncio.sleep(0)
        found[place] = current_run()

    async def main() -> None:
        async with loop("writer") as run:
            task = asyncio.create_task(look("task"))
            await asyncio.to_thread(lambda: found.update(to_thread=current_run()))
            await task
            context = contextvars.copy_context()
            for target in (
                lambda: found.update({"thread with context": context.run(current_run)}),
                lambda: found.update({"bare thread": current_run()}),
            ):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
            found["run"] = run

    asyncio.run(main())
    run = found.pop("run")
    assert found == {"task": run, "to_thread": run, "thread with context": run, "bare thread": None}


def test_one_loop_object_in_several_threads(capture: Capture) -> None:
    shared = loop("writer", threshold=8)
    barrier = threading.Barrier(4)

    def work(score: float) -> None:
        with shared:
            barrier.wait()
            with iteration() as it:
                it.score = score
            barrier.wait()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (1, 7, 8, 9)))
    roots = [root for root in capture.tree() if root["name"] == "evaluation_loop writer"]
    verdicts = {
        root["children"][0]["attributes"]["loopeval.iteration.score"]: root["attributes"][
            "loopeval.health.passed"
        ]
        for root in roots
    }
    assert verdicts == {1.0: False, 7.0: False, 8.0: True, 9.0: True}


def test_one_loop_object_in_several_tasks(capture: Capture) -> None:
    shared = loop("writer", threshold=8)

    async def work(score: float) -> None:
        async with shared:
            await asyncio.sleep(0)
            async with iteration() as it:
                await asyncio.sleep(0)
                it.score = score
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work(score) for score in range(1, 11)))

    asyncio.run(main())
    roots = capture.tree()
    assert len(roots) == 10
    passed = {
        root["children"][0]["attributes"]["loopeval.iteration.score"]: root["attributes"][
            "loopeval.health.passed"
        ]
        for root in roots
    }
    assert passed == {float(score): score >= 8 for score in range(1, 11)}


def test_parallel_iterations_of_one_run(capture: Capture) -> None:
    async def attempt(number: int) -> None:
        async with iteration(number) as it:
            await asyncio.sleep(0)
            it.score = number

    async def main() -> None:
        async with loop("writer", threshold=3):
            await asyncio.gather(*(attempt(number) for number in (1, 2, 3)))

    asyncio.run(main())
    (root,) = capture.tree()
    assert [child["attributes"]["loopeval.iteration.score"] for child in root["children"]] == [1.0, 2.0, 3.0]
    assert root["attributes"]["loopeval.health.iterations_to_success"] == 3
    assert root["attributes"]["loopeval.health.score_delta_per_iteration"] == [1.0, 1.0]


def test_nested_loops(capture: Capture) -> None:
    with loop("editor") as outer, iteration() as it:
        with loop("writer") as inner, iteration() as inner_it:
            assert current_run() is inner
            inner_it.score = 9
        assert current_run() is outer
        it.score = 9
    assert capture.outline() == (
        "evaluation_loop editor\n"
        "  evaluation_loop.iteration\n"
        "    evaluation_loop writer\n"
        "      evaluation_loop.iteration"
    )
    assert capture.value("loopeval.runs", {"gen_ai.agent.name": "writer", "loopeval.run.nested": True}) == 1
    assert capture.value("loopeval.runs", {"gen_ai.agent.name": "editor", "loopeval.run.nested": False}) == 1


def test_the_same_loop_object_nested_in_itself(capture: Capture) -> None:
    shared = loop("writer")
    with shared as outer:
        with shared as inner:
            assert inner is not outer
        assert current_run() is outer
    assert current_run() is None
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop writer"


def test_without_instrument_and_without_a_provider_the_program_just_runs() -> None:
    with loop("writer", threshold=8) as run, iteration() as it:
        it.score = 9
    assert run.health.success is True


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"mode": "optimise"},
            ValueError,
            "mode must be one of 'optimize', 'review', 'goal', 'agent', got 'optimise'",
        ),
        ({"threshold": "high"}, TypeError, "threshold must be a finite number, got 'high'"),
        ({"threshold": float("nan")}, ValueError, "threshold must be a finite number, got nan"),
        ({"threshold": True}, TypeError, "threshold must be a finite number, got True"),
        (
            {"max_iterations": -1},
            ValueError,
            "max_iterations must be a whole number of at least 0, got -1",
        ),
        (
            {"max_iterations": 2.0},
            TypeError,
            "max_iterations must be a whole number of at least 0, got 2.0",
        ),
        ({"token_budget": "1k"}, TypeError, "token_budget must be a whole number of at least 0, got '1k'"),
        ({"id": 7}, TypeError, "id must be a string, got 7"),
        ({"framework": None}, TypeError, "framework must be a string, got None"),
        ({"conversation_id": b"x"}, TypeError, "conversation_id must be a string, got b'x'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        loop("writer", **settings)
    assert str(caught.value) == message


def test_a_bad_agent_or_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^agent must be a string, got 3$"):
        loop(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^number must be a whole number of at least 1, got '1'$"):
        iteration("1")  # type: ignore[reportArgumentType]
