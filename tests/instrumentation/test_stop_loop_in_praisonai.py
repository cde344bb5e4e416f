"""``StopLoop`` and ``run.stop()`` in PraisonAI's loops: the caller gets it, with the result so far on it."""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from instrumented_loops import Agent, praisonaiagents, run_in_asyncio, run_sync, series
from praisonai_agents import (
    BIG_TASK,
    ITERATIVE,
    Stubs,
    agent,
    autonomous_async,
    autonomous_sync,
    root_facts,
    scripted,
    stubs,
)
from support.openai_stub import asks_about_goal, asks_for_score, message, tool_call

from otel_loopeval import LoopEvaluator, StopLoop, current_run, loop, record_guard_event
from otel_loopeval.testing import Capture

__all__ = ["stubs"]  # a fixture, used by its name

both_ways = pytest.mark.parametrize("run", [run_sync, run_in_asyncio], ids=["run", "run_async"])


def stop_on_a_doom_loop(capture: Capture) -> StopLoop:
    """Instrument with a callback that raises this."""
    stop = StopLoop("enough")

    def on_doom_loop(_event: Any, _run: Any) -> None:
        raise stop

    capture.instrument(on_doom_loop=on_doom_loop)
    return stop


class Doomed(Agent):
    """Its second answer comes with a doom loop."""

    def chat(self, prompt: str) -> str:
        answer = super().chat(prompt)
        if answer.startswith("answer 2"):
            record_guard_event({"type": "doom_loop"})
        return answer


@both_ways
def test_an_evaluation_loop_ends_with_what_it_has(plain_capture: Capture, run: Any) -> None:
    stop = stop_on_a_doom_loop(plain_capture)
    family = praisonaiagents()
    with pytest.raises(StopLoop) as caught:
        run(family.loop(Doomed(), "", metric=series(3.0, 6.0, 9.0), threshold=5.0, mode="review"))
    assert caught.value is stop
    from praisonaiagents.eval.results import EvaluationLoopResult, IterationResult  # noqa: PLC0415 - late

    partial: Any = stop.partial
    assert type(partial) is EvaluationLoopResult
    assert [type(iteration) for iteration in partial.iterations] == [IterationResult, IterationResult]
    assert [
        (iteration.iteration, iteration.output, iteration.score, iteration.reasoning, iteration.findings)
        for iteration in partial.iterations
    ] == [
        (1, "answer 1 to a question", 3.0, "numeric metric", []),
        (2, "answer 2 to a question", 6.0, "numeric metric", []),
    ]
    assert partial.best is partial.iterations[1]
    assert (partial.final_score, partial.success) == (6.0, True)
    assert (partial.threshold, partial.mode, partial.metadata) == (5.0, "review", {"stopped": True})
    assert partial.total_duration_seconds > 0
    assert partial.to_dict()["num_iterations"] == 2
    # Evaluated later, it is known to have been in a doom loop.
    assert LoopEvaluator().run(partial).doom_loop_fired is True
    root = plain_capture.span("evaluation_loop")
    assert root["status"] == "UNSET"
    assert root_facts(plain_capture, "run.outcome", "run.iterations", "health.passed", "health.reasons") == {
        "run.outcome": "stopped",
        "run.iterations": 2,
        "health.passed": False,
        "health.reasons": ["doom_loop"],
    }


@both_ways
@pytest.mark.parametrize(
    ("place", "scored"), [("agent", 1), ("judge", 1), ("callback", 2)], ids=["agent", "judge", "callback"]
)
def test_raised_inside_of_an_evaluation_loop(capture: Capture, run: Any, place: str, scored: int) -> None:
    """In its second iteration: in the callback, that has its score already."""
    stop = StopLoop()
    numbers = itertools.count(1)

    def raise_in(here: str) -> None:
        if here == place and next(numbers) == 2:
            raise stop

    class Stopping(Agent):
        def chat(self, prompt: str) -> str:
            raise_in("agent")
            return super().chat(prompt)

    def metric(_output: str) -> float:
        raise_in("judge")
        return 1.0

    evaluation = praisonaiagents().loop(
        Stopping(), "", metric=metric, on_iteration=lambda _iteration: raise_in("callback")
    )
    with pytest.raises(StopLoop) as caught:
        run(evaluation)
    assert caught.value is stop
    assert [iteration.output for iteration in stop.partial.iterations] == [
        f"answer {number} to a question" for number in range(1, scored + 1)
    ]
    assert root_facts(capture, "run.outcome") == {"run.outcome": "stopped"}
    assert {span["status"] for span in capture.spans()} == {"UNSET"}


@both_ways
def test_a_stop_that_comes_with_the_last_answer_changes_nothing(capture: Capture, run: Any) -> None:
    class Stopping(Agent):
        def chat(self, prompt: str) -> str:
            found = current_run()
            assert found is not None
            found.stop()
            return super().chat(prompt)

    result = run(praisonaiagents().loop(Stopping(), "", metric=series(9.0)))
    assert (result.success, result.metadata) == (True, {})
    assert root_facts(capture, "run.outcome") == {"run.outcome": "completed"}


def test_before_the_first_verdict_the_partial_result_is_empty(capture: Capture) -> None:
    class Stopping(Agent):
        def chat(self, prompt: str) -> str:
            raise StopLoop

    with pytest.raises(StopLoop) as caught:
        run_sync(praisonaiagents().loop(Stopping(), "", metric=series(9.0)))
    partial = caught.value.partial
    assert (partial.iterations, partial.best, partial.success) == ([], None, False)


def test_a_loop_inside_a_loop(plain_capture: Capture) -> None:
    """The exception ends both, and has the result of whichever it has left last."""
    stop_on_a_doom_loop(plain_capture)
    seen: list[Any] = []
    family = praisonaiagents()

    class Editor(Agent):
        name = "editor"

        def chat(self, prompt: str) -> str:
            try:
                family.loop(Doomed(), "", metric=series(1.0, 1.0, 1.0)).run(prompt)
            except StopLoop as stop:
                seen.append([iteration.score for iteration in stop.partial.iterations])
                raise
            return "unreachable"

    evaluation = family.loop(Editor(), "", metric=series(9.0))
    with pytest.raises(StopLoop) as caught:
        evaluation.run("task")
    assert seen == [[1.0, 1.0]]
    assert caught.value.partial.iterations == []
    assert [
        span["attributes"]["loopeval.run.outcome"] for span in plain_capture.spans("evaluation_loop")
    ] == [
        "stopped",
        "stopped",
    ]


def test_around_a_hand_written_loop(capture: Capture) -> None:
    """Which ends quietly, as it does whenever ``StopLoop`` reaches it."""
    stop = StopLoop()

    class Stopping(Agent):
        def chat(self, prompt: str) -> str:
            raise stop

    with loop("outer"):
        praisonaiagents().loop(Stopping(), "", metric=series(9.0)).run("task")
    assert stop.partial.iterations == []


def test_in_many_threads_at_once_each_has_its_own(plain_capture: Capture) -> None:
    def on_doom_loop(_event: Any, _run: Any) -> None:
        raise StopLoop

    plain_capture.instrument(on_doom_loop=on_doom_loop)
    family = praisonaiagents()

    def play(number: int) -> list[float]:
        scores = [float(number), 0.5, 0.5]
        with pytest.raises(StopLoop) as caught:
            family.loop(Doomed(), "", metric=series(*scores), threshold=99).run("task")
        return [iteration.score for iteration in caught.value.partial.iterations]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, range(16))) == [[float(number), 0.5] for number in range(16)]


@pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="task groups are new in Python 3.11")
def test_in_a_group_of_tasks(capture: Capture) -> None:
    stop = StopLoop()

    async def judge() -> None:
        raise stop

    class Grouped(praisonaiagents().loop):
        async def _score_async(self, output: str) -> Any:
            tasks: Any = asyncio
            async with tasks.TaskGroup() as group:
                group.create_task(judge())

    with pytest.raises(BaseException, match="unhandled errors in a TaskGroup"):
        run_in_asyncio(Grouped(Agent(), ""))
    assert stop.partial.iterations == []
    assert root_facts(capture, "run.outcome") == {"run.outcome": "stopped"}


# Goal loops and autonomous runs ----------------------------------------------------------------------


def doomed(capture: Capture) -> tuple[StopLoop, Any]:
    """Three answers that are the same make the package's own tracker fire."""
    return stop_on_a_doom_loop(capture), scripted(itertools.repeat("The same answer"))


@pytest.mark.parametrize("run", [autonomous_sync, autonomous_async])
def test_an_autonomous_run_ends_with_what_it_has(plain_capture: Capture, run: Any) -> None:
    stop, worker = doomed(plain_capture)
    with pytest.raises(StopLoop) as caught:
        run(worker)
    assert caught.value is stop
    from praisonaiagents.agent.autonomy import AutonomyResult  # noqa: PLC0415 - late

    partial: Any = stop.partial
    assert type(partial) is AutonomyResult
    assert (partial.success, partial.output, partial.completion_reason) == (
        False,
        "The same answer",
        "stopped",
    )
    assert (partial.iterations, partial.stage, partial.error) == (3, "autonomous", None)
    assert partial.actions == [{"iteration": number, "response": "The same answer"} for number in (1, 2)]
    assert partial.metadata == {"stopped": True}
    assert partial.duration_seconds > 0
    assert str(partial.started_at).endswith("Z")
    assert root_facts(plain_capture, "run.outcome", "run.iterations", "health.passed") == {
        "run.outcome": "stopped",
        "run.iterations": 3,
        "health.passed": False,
    }


def until(worker: Any) -> Any:
    return worker.run_until("Open a PR", goal="a PR is open")


def goal(worker: Any) -> Any:
    return worker.run_goal("Open a PR", "a PR is open")


def goal_async(worker: Any) -> Any:
    return asyncio.run(worker.run_goal_async("Open a PR", "a PR is open"))


@pytest.mark.parametrize("run", [until, goal, goal_async])
def test_a_goal_loop_ends_with_what_it_has(plain_capture: Capture, stubs: Stubs, run: Any) -> None:
    stubs(goal_turns=9)
    stop, worker = doomed(plain_capture)
    with pytest.raises(StopLoop):
        run(worker)
    partial: Any = stop.partial
    assert (partial.output, partial.completion_reason, partial.iterations) == (
        "The same answer",
        "stopped",
        3,
    )
    assert root_facts(plain_capture, "run.outcome", "run.mode") == {
        "run.outcome": "stopped",
        "run.mode": "goal",
    }
    # The package's own clearing up has been done.
    assert worker._goal_state is None


def using_a_tool(request: Any) -> Any:
    if asks_for_score(request) or asks_about_goal(request):
        return None
    if request["messages"][-1]["role"] == "tool":
        return "The tool has answered."
    return message(
        tool_calls=[tool_call("look", {"place": "a"}), tool_call("look", {"place": "b"}, "call_2")]
    )


def until_good(worker: Any) -> Any:
    return worker.run_until("Look around", criteria="is thorough")


def until_good_async(worker: Any) -> Any:
    return asyncio.run(worker.run_until_async("Look around", criteria="is thorough"))


def autonomous(worker: Any) -> Any:
    return worker.run_autonomous(BIG_TASK)


def started(worker: Any) -> Any:
    return asyncio.run(worker.astart(BIG_TASK))


RUNS: list[Callable[[Any], Any]] = [
    until_good,
    until_good_async,
    until,
    goal_async,
    autonomous,
    autonomous_async,
    started,
]


@pytest.mark.parametrize("options", ["plain", "timeout", "parallel"])
@pytest.mark.parametrize("run", RUNS)
def test_a_real_agents_tool_raises_it(capture: Capture, stubs: Stubs, run: Any, options: str) -> None:
    """The package runs tools in threads and catches what they raise; this it lets through."""
    from praisonaiagents import ExecutionConfig  # noqa: PLC0415 - late
    from praisonaiagents.config.feature_configs import ToolConfig  # noqa: PLC0415 - late

    stubs(using_a_tool, goal_turns=9)
    stop = StopLoop("enough")

    def look(place: str) -> str:
        """Look at a place."""
        raise stop

    settings: dict[str, Any] = {
        "plain": {},
        "timeout": {"tool_config": ToolConfig(timeout=30)},
        "parallel": {"execution": ExecutionConfig(parallel_tool_calls=True)},
    }[options]
    with pytest.raises(StopLoop) as caught:
        run(agent(tools=[look], autonomy=ITERATIVE, **settings))
    assert caught.value is stop
    assert stop.partial.metadata == {"stopped": True}
    assert root_facts(capture, "run.outcome") == {"run.outcome": "stopped"}


@pytest.mark.parametrize("run", RUNS)
def test_a_real_agents_tool_asks_for_it(capture: Capture, stubs: Stubs, run: Any) -> None:
    stubs(using_a_tool, scores=[1], goal_turns=9)

    def look(place: str) -> str:
        """Look at a place."""
        found = current_run()
        assert found is not None
        found.stop()
        return "nothing"

    with pytest.raises(StopLoop) as caught:
        run(agent(tools=[look], autonomy=ITERATIVE))
    assert caught.value.partial.metadata == {"stopped": True}
    assert root_facts(capture, "run.outcome", "run.iterations") == {
        "run.outcome": "stopped",
        "run.iterations": 1,
    }


@pytest.mark.parametrize("run", [until_good, until_good_async, autonomous, autonomous_async])
def test_the_next_tool_call_is_a_seam(capture: Capture, stubs: Stubs, run: Any) -> None:
    """An agent may call tools for long within one turn: the loop does not wait for its end."""
    stubs(using_a_tool, scores=[1], goal_turns=9)
    places: list[str] = []

    def look(place: str) -> str:
        """Look at a place."""
        places.append(place)
        found = current_run()
        assert found is not None
        found.stop()
        return "nothing"

    with pytest.raises(StopLoop):
        run(agent(tools=[look], autonomy=ITERATIVE))
    assert places == ["a"]
    assert root_facts(capture, "run.outcome") == {"run.outcome": "stopped"}
