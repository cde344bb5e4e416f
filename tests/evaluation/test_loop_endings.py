"""How a run ends early: StopLoop, and exceptions that carry the result so far."""

import asyncio
import builtins
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from loop_parts import (
    NotingAgent,
    Run,
    ScriptedJudge,
    Verdict,
    both_ways,
    never,
    notes_of,
    partial_of,
    run_sync,
    series,
)

from otel_loopeval.evaluation import EvaluationLoop, GoalLoop, IterationResult, StopLoop


def raising(error: BaseException, after: int, value: Any = 3) -> Callable[[Any], Any]:
    """A part that works ``after`` times and then raises."""
    count = iter(range(after))

    def part(_: Any) -> Any:
        if next(count, None) is None:
            raise error
        return value

    return part


def make_loop(where: str, error: BaseException) -> EvaluationLoop:
    broken = raising(error, after=2)
    if where == "agent":
        return EvaluationLoop(broken, "", metric=series(3, 5, 4))
    if where == "metric":
        return EvaluationLoop(NotingAgent(), "", metric=broken)
    if where == "judge":

        class Judge:
            def run(self, *, output: str, criteria: str) -> Verdict:
                return Verdict(broken(output))

        return EvaluationLoop(NotingAgent(), "", judge=Judge())
    return EvaluationLoop(NotingAgent(), "", metric=series(3, 5, 4), on_iteration=broken)


@both_ways
@pytest.mark.parametrize(("where", "scores"), [("agent", [3, 5]), ("metric", [3, 3]), ("judge", [3, 3])])
def test_stop_loop_keeps_the_result_so_far(run: Run, where: str, scores: list[float]):
    result = run(make_loop(where, StopLoop()))

    assert result.score_history == scores
    assert result.metadata == {"stopped": True}
    assert (result.success, result.best_score) == (False, max(scores))


@both_ways
def test_stop_loop_in_the_callback_keeps_the_iteration_that_it_saw(run: Run):
    result = run(make_loop("on_iteration", StopLoop()))

    assert result.score_history == [3.0, 5.0, 4.0]
    assert result.metadata == {"stopped": True}


@both_ways
def test_stop_loop_before_the_first_score_gives_an_empty_result(run: Run):
    def agent(_: str) -> str:
        raise StopLoop

    result = run(EvaluationLoop(agent, "", metric=series()))

    assert (result.num_iterations, result.success, result.best) == (0, False, None)
    assert (result.final_score, result.best_score, result.final_output, result.best_output) == (0, 0, "", "")
    assert result.metadata == {"stopped": True}


@both_ways
def test_a_stopped_run_that_met_its_threshold_is_a_success(run: Run):
    loop = EvaluationLoop(raising(StopLoop(), after=1), "", mode="review", metric=series(9))

    result = run(loop)

    assert (result.success, result.score_history) == (True, [9.0])


def test_a_run_that_is_not_stopped_says_nothing_about_it():
    assert EvaluationLoop(NotingAgent(), "", metric=series(9)).run("task").metadata == {}


@both_ways
@pytest.mark.parametrize("where", ["agent", "metric", "judge"])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_any_other_exception_is_the_same_object_with_the_partial_result(
    run: Run, where: str, kind: type[BaseException]
):
    error = kind("boom", 7)

    with pytest.raises(kind) as caught:
        run(make_loop(where, error))

    assert caught.value is error
    assert error.args == ("boom", 7)
    assert error.__cause__ is None
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "part"
    partial = partial_of(error)
    assert partial.num_iterations == 2
    assert partial.metadata == {"partial": True}
    assert (partial.final_score, partial.success) == ({"agent": 5.0}.get(where, 3.0), False)


@both_ways
def test_a_base_exception_in_the_callback_propagates(run: Run):
    error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt) as caught:
        run(make_loop("on_iteration", error))

    assert caught.value is error
    assert partial_of(error).num_iterations == 3


@both_ways
def test_the_note_holds_counts_and_scores_and_no_output(run: Run):
    error = RuntimeError("boom")

    with pytest.raises(RuntimeError):
        run(EvaluationLoop(raising(error, after=2, value="secret"), "", metric=series(3, 5.5)))

    assert notes_of(error) == ["evaluation loop: 2 iteration(s) completed, scores [3, 5.5]"]


def test_notes_that_are_there_stay_and_none_comes_twice():
    error = RuntimeError("boom")
    vars(error)["__notes__"] = ["mine"]
    loop = EvaluationLoop(raising(error, after=0), "", metric=series())

    for _ in range(2):
        with pytest.raises(RuntimeError):
            loop.run("task")

    assert notes_of(error) == ["mine", "evaluation loop: 0 iteration(s) completed, scores []"]


@both_ways
def test_an_exception_that_takes_no_attributes_still_passes(run: Run):
    class StubbornError(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise TypeError("no attributes")

    error = StubbornError("boom")

    with pytest.raises(StubbornError) as caught:
        run(EvaluationLoop(raising(error, after=0), "", metric=series()))

    assert caught.value is error


def test_the_outer_loop_reports_its_own_partial_result():
    inner = EvaluationLoop(raising(RuntimeError("boom"), after=1), "", metric=series(4))
    outer = EvaluationLoop(inner, "", metric=series(6))

    with pytest.raises(RuntimeError) as caught:
        outer.run("task")

    assert partial_of(caught.value).num_iterations == 0
    assert notes_of(caught.value) == [
        "evaluation loop: 1 iteration(s) completed, scores [4]",
        "evaluation loop: 0 iteration(s) completed, scores []",
    ]


async def test_a_cancelled_task_carries_what_it_had():
    reached = asyncio.Event()

    async def agent(prompt: str) -> str:
        if "feedback" in prompt:
            reached.set()
            await asyncio.Event().wait()
        return "first"

    kept: list[BaseException] = []

    async def main() -> None:
        try:
            await EvaluationLoop(agent, "", metric=series(3)).run_async("task")
        except asyncio.CancelledError as error:
            kept.append(error)
            raise

    task = asyncio.create_task(main())
    await reached.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert partial_of(kept[0]).score_history == [3.0]


async def test_a_timeout_stays_a_timeout():
    async def agent(_: str) -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(EvaluationLoop(agent, "", metric=series()).run_async("task"), 0.01)


def test_stop_iteration_from_an_agent_passes_through_run():
    error = StopIteration("odd")

    with pytest.raises(StopIteration) as caught:
        EvaluationLoop(raising(error, after=0), "", metric=series()).run("task")

    assert caught.value is error


async def test_stop_iteration_in_a_worker_thread_does_not_hang():
    loop = EvaluationLoop(raising(StopIteration("odd"), after=0), "", metric=series())

    # A coroutine cannot raise StopIteration: Python itself turns it into a RuntimeError.
    with pytest.raises(RuntimeError) as caught:
        await loop.run_async("task")

    assert isinstance(caught.value.__cause__, StopIteration)


@both_ways
@pytest.mark.parametrize("where", ["agent", "judge", "callback"])
def test_stop_loop_ends_a_goal_loop_too(run: Run, where: str):
    def stop(_: Any) -> Any:
        raise StopLoop

    loop = GoalLoop(
        stop if where == "agent" else series("out"),
        "Reach it.",
        judge=stop if where == "judge" else never,
        on_iteration=stop if where == "callback" else None,
    )

    result = run(loop)

    assert (result.success, result.completion_reason, result.metadata) == (
        False,
        "stopped",
        {"stopped": True},
    )
    assert result.iterations == (1 if where == "callback" else 0)


@both_ways
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_a_goal_loop_carries_the_turns(run: Run, kind: type[BaseException]):
    error = kind("boom")
    loop = GoalLoop(raising(error, after=2, value="secret"), "Reach it.", judge=never)

    with pytest.raises(kind) as caught:
        run(loop)

    assert caught.value is error
    partial = partial_of(error)
    assert (partial.iterations, partial.success, partial.completion_reason) == (2, False, "error")
    assert (partial.error, partial.metadata) == (kind.__name__, {"partial": True})
    assert notes_of(error) == ["goal loop: 2 turn(s) completed, goal not met"]


def test_stop_loop_is_not_caught_by_the_agents_own_except():
    def agent(prompt: str) -> str:
        try:
            raise StopLoop
        except Exception:  # pragma: no cover
            return "swallowed"

    assert EvaluationLoop(agent, "", metric=series(9)).run("task").metadata == {"stopped": True}


def test_stop_loop_from_an_async_agent_reaches_a_sync_run():
    async def agent(prompt: str) -> str:
        await asyncio.sleep(0)
        raise StopLoop

    async def on_loop() -> Any:
        return run_sync(EvaluationLoop(agent, "", judge=ScriptedJudge([])))

    assert run_sync(EvaluationLoop(agent, "", judge=ScriptedJudge([]))).metadata == {"stopped": True}
    assert asyncio.run(on_loop()).metadata == {"stopped": True}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups came with Python 3.11")
@pytest.mark.parametrize(
    ("others", "stopped"), [([], True), ([StopLoop()], True), ([RuntimeError("boom")], False)]
)
def test_stop_loop_is_found_in_the_group_that_a_task_group_raises(others: list[BaseException], stopped: bool):
    group: Any = vars(builtins)["BaseExceptionGroup"]

    def agent(_: str) -> str:
        raise group("tasks", [group("inner", [StopLoop()]), *others])

    loop = EvaluationLoop(agent, "", metric=series())

    if stopped:
        assert loop.run("task").metadata == {"stopped": True}
    else:
        with pytest.raises(group):
            loop.run("task")


def test_iterations_are_immutable_records():
    seen: list[IterationResult] = []
    EvaluationLoop(NotingAgent(), "", metric=series(9), on_iteration=seen.append).run("task")

    with pytest.raises(AttributeError):
        setattr(seen[0], "score", 10.0)  # noqa: B010  # a type checker would refuse the plain form
