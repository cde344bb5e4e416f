"""A loop that is cancelled, interrupted or left early ends as such: spans end, the context is given back."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import get_current
from praisonaiagents.eval.loop import EvaluationLoop as PraisonLoop

from otel_loopeval import EvaluationLoop, StopLoop, iteration, loop, run_until, run_until_async
from otel_loopeval.evaluation.verdicts import GoalVerdict, JudgeResult
from otel_loopeval.otel import pipeline
from otel_loopeval.testing import Capture

Called = Callable[[], Any]


class Judge:
    """Judges synchronously and asynchronously by the same function."""

    def __init__(self, judge: Called) -> None:
        self._judge = judge

    def run(self, *, output: str, criteria: str) -> JudgeResult:
        self._judge()
        return JudgeResult(5.0)

    async def run_async(self, *, output: str, criteria: str) -> JudgeResult:
        result = self._judge()
        if result is not None:
            await result
        return JudgeResult(5.0)


class Agent:
    """An agent for either package's loop, sync and async."""

    name = "writer"

    def __init__(self, chat: Called) -> None:
        self._chat = chat

    def chat(self, prompt: str) -> str:
        self._chat()
        return "answer"

    async def chat_async(self, prompt: str) -> str:
        result = self._chat()
        if result is not None:
            await result
        return "answer"


def own_loop(agent: Called, judge: Called) -> None:
    EvaluationLoop(Agent(agent), "criteria", judge=Judge(judge)).run("prompt")


async def own_loop_async(agent: Called, judge: Called) -> None:
    await EvaluationLoop(Agent(agent), "criteria", judge=Judge(judge)).run_async("prompt")


def praisonai_loop(agent: Called, judge: Called) -> None:
    PraisonLoop(Agent(agent), "criteria", judge=Judge(judge)).run("prompt")  # type: ignore[arg-type]


async def praisonai_loop_async(agent: Called, judge: Called) -> None:
    await PraisonLoop(Agent(agent), "criteria", judge=Judge(judge)).run_async("prompt")  # type: ignore[arg-type]


def goal_loop(agent: Called, judge: Called) -> None:
    def gate(output: str) -> GoalVerdict:
        judge()
        return GoalVerdict(met=False)

    run_until(Agent(agent), "prompt", goal="goal", judge=gate)


async def goal_loop_async(agent: Called, judge: Called) -> None:
    async def gate(output: str) -> GoalVerdict:
        result = judge()
        if result is not None:
            await result
        return GoalVerdict(met=False)

    await run_until_async(Agent(agent), "prompt", goal="goal", judge=gate)


def hand_loop(agent: Called, judge: Called) -> None:
    with loop("writer"):
        while True:
            with iteration() as it:
                agent()
                judge()
                it.score = 5.0


async def hand_loop_async(agent: Called, judge: Called) -> None:
    async with loop("writer"):
        while True:
            async with iteration() as it:
                for step in (agent, judge):
                    result = step()
                    if result is not None:
                        await result
                it.score = 5.0


@loop("writer")
def decorated(agent: Called, judge: Called) -> None:
    for _ in range(5):
        decorated_step(agent, judge)


@iteration
def decorated_step(agent: Called, judge: Called) -> None:
    agent()
    judge()


@loop("writer")
async def decorated_async(agent: Called, judge: Called) -> None:
    for _ in range(5):
        await decorated_step_async(agent, judge)


@iteration
async def decorated_step_async(agent: Called, judge: Called) -> None:
    for step in (agent, judge):
        result = step()
        if result is not None:
            await result


SYNC = [own_loop, praisonai_loop, goal_loop, hand_loop, decorated]
ASYNC = [own_loop_async, praisonai_loop_async, goal_loop_async, hand_loop_async, decorated_async]


def on_call(number: int, act: Called) -> Called:
    """A function that acts on its nth call and does nothing on the others."""
    calls = iter(range(1, 100))

    def step() -> Any:
        return act() if next(calls) == number else None

    return step


def nothing() -> None:
    return None


def assert_ended(capture: Capture, outcome: str, iterations: int) -> None:
    """The trace of one run of this outcome, of which nothing is left over."""
    [root] = [span for span in capture.spans() if span["name"].endswith("_loop writer")]
    inner = capture.spans("evaluation_loop.iteration")
    assert root["attributes"]["loopeval.run.outcome"] == outcome
    assert root["attributes"]["loopeval.run.iterations"] == iterations
    assert "loopeval.health.passed" not in root["attributes"]
    assert "loopeval.health.converged" not in root["attributes"]
    assert len(inner) == iterations
    for span in (root, *inner):
        assert (span["status"], span["description"]) == ("UNSET", None)
        assert "error.type" not in span["attributes"]
        assert "exception" not in [event["name"] for event in span["events"]]
    assert capture.value("loopeval.runs", {"loopeval.run.outcome": outcome}) == 1
    assert capture.value("loopeval.runs") == 1
    assert capture.value("loopeval.run.open") == 0
    assert pipeline.open_spans == {}


@pytest.mark.parametrize("place", ["agent", "judge"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("program", SYNC)
def test_an_interrupt_in_a_sync_loop(
    capture: Capture, program: Callable[..., None], kind: type[BaseException], place: str
) -> None:
    interrupt = kind("by hand")

    def act() -> None:
        raise interrupt

    steps = {"agent": nothing, "judge": nothing, place: on_call(2, act)}
    with trace.use_span(trace.INVALID_SPAN):
        before = get_current()
        with pytest.raises(kind) as caught:
            program(**steps)
        assert get_current() is before
    assert caught.value is interrupt
    assert_ended(capture, "interrupted", 2)


@pytest.mark.parametrize("place", ["agent", "judge"])
@pytest.mark.parametrize("program", ASYNC)
def test_an_interrupt_in_an_async_loop(
    capture: Capture, program: Callable[..., Awaitable[None]], place: str
) -> None:
    interrupt = KeyboardInterrupt("by hand")

    def act() -> None:
        raise interrupt

    async def main() -> None:
        before = get_current()
        try:
            await program(**{"agent": nothing, "judge": nothing, place: on_call(2, act)})
        finally:
            assert get_current() is before

    with pytest.raises(KeyboardInterrupt) as caught:
        asyncio.run(main())
    assert caught.value is interrupt
    assert_ended(capture, "interrupted", 2)


@pytest.mark.parametrize("place", ["agent", "judge"])
@pytest.mark.parametrize("program", ASYNC)
async def test_a_task_that_is_cancelled(
    capture: Capture, program: Callable[..., Awaitable[None]], place: str
) -> None:
    reached = asyncio.Event()
    contexts: list[bool] = []

    async def hang() -> None:
        reached.set()
        await asyncio.sleep(3600)

    async def main() -> None:
        before = get_current()
        try:
            await program(**{"agent": nothing, "judge": nothing, place: on_call(2, hang)})
        finally:
            contexts.append(get_current() is before)

    task = asyncio.create_task(main())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert contexts == [True]
    assert_ended(capture, "cancelled", 2)


@pytest.mark.parametrize("program", ASYNC)
async def test_a_timeout_around_a_loop(capture: Capture, program: Callable[..., Awaitable[None]]) -> None:
    before = get_current()

    async def hang() -> None:
        await asyncio.sleep(3600)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(program(agent=nothing, judge=on_call(1, hang)), 0.02)
    assert get_current() is before
    assert_ended(capture, "cancelled", 1)


async def test_one_of_many_tasks_is_cancelled_and_the_others_go_on(capture: Capture) -> None:
    reached = asyncio.Event()
    release = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await release.wait()

    async def one() -> None:
        async with loop("writer", max_iterations=1), iteration() as it:
            await wait()
            it.score = 9.0

    tasks = [asyncio.create_task(one()) for _ in range(5)]
    await reached.wait()
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.sleep(0)
    release.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results].count(asyncio.CancelledError) == 1
    outcomes = [span["attributes"]["loopeval.run.outcome"] for span in capture.spans("evaluation_loop")]
    assert sorted(outcomes) == ["cancelled", "completed", "completed", "completed", "completed"]


def test_stoploop_in_a_decorated_iteration_ends_the_loop(capture: Capture) -> None:
    steps: list[int] = []

    @iteration
    def step(number: int) -> None:
        steps.append(number)
        if number == 2:
            raise StopLoop

    @loop("writer")
    def program() -> None:
        for number in range(5):
            step(number)

    program()
    assert steps == [0, 1, 2]
    [root] = capture.spans("evaluation_loop")
    assert root["attributes"]["loopeval.run.outcome"] == "stopped"


# Generators and streams -------------------------------------------------------------------------------


@loop("writer")
def stream() -> Iterator[str]:
    for number in range(5):
        with iteration() as it:
            it.score = 5.0
            yield f"chunk {number}"


@loop("writer")
async def stream_async() -> AsyncIterator[str]:
    for number in range(5):
        async with iteration() as it:
            await asyncio.sleep(0)
            it.score = 5.0
            yield f"chunk {number}"


def left_by_break() -> None:
    chunks = stream()
    for chunk in chunks:
        if chunk == "chunk 1":
            break
    del chunks
    gc.collect()


def left_by_close() -> None:
    chunks: Any = stream()
    assert [next(chunks), next(chunks)] == ["chunk 0", "chunk 1"]
    chunks.close()


def left_by_an_outer_generator() -> None:
    def outer() -> Generator[str, None, None]:
        yield from stream()

    chunks = outer()
    assert [next(chunks), next(chunks)] == ["chunk 0", "chunk 1"]
    chunks.close()


@pytest.mark.parametrize("leave", [left_by_break, left_by_close, left_by_an_outer_generator])
def test_a_stream_that_is_left_early(capture: Capture, leave: Callable[[], None]) -> None:
    before = get_current()
    leave()
    assert get_current() is before
    assert_ended(capture, "cancelled", 2)


def test_a_stream_into_which_an_interrupt_is_thrown(capture: Capture) -> None:
    chunks: Any = stream()
    next(chunks)
    interrupt = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        chunks.throw(interrupt)
    assert caught.value is interrupt
    assert_ended(capture, "interrupted", 1)


async def test_an_async_stream_that_is_closed_early(capture: Capture) -> None:
    before = get_current()
    chunks: Any = stream_async()
    assert [await chunks.__anext__(), await chunks.__anext__()] == ["chunk 0", "chunk 1"]
    assert get_current() is before
    await chunks.aclose()
    assert get_current() is before
    assert_ended(capture, "cancelled", 2)


async def test_an_async_stream_that_is_closed_in_another_task(capture: Capture) -> None:
    chunks: Any = stream_async()
    assert await chunks.__anext__() == "chunk 0"

    async def close() -> None:
        before = get_current()
        await chunks.aclose()
        assert get_current() is before

    await asyncio.create_task(close())
    assert_ended(capture, "cancelled", 1)


def test_an_async_stream_that_is_dropped(capture: Capture) -> None:
    async def main() -> None:
        async for chunk in stream_async():
            if chunk == "chunk 1":
                break
        gc.collect()

    asyncio.run(main())  # the event loop closes what was dropped
    assert_ended(capture, "cancelled", 2)


async def test_a_task_that_reads_a_stream_is_cancelled(capture: Capture) -> None:
    reached = asyncio.Event()

    @loop("writer")
    async def slow() -> AsyncGenerator[str, None]:
        async with iteration():
            yield "first"
        async with iteration():
            reached.set()
            await asyncio.sleep(3600)
            yield "second"

    async def read() -> list[str]:
        return [chunk async for chunk in slow()]

    task = asyncio.create_task(read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_ended(capture, "cancelled", 2)


def test_a_coroutine_that_is_dropped_at_an_await(capture: Capture) -> None:
    @loop("writer")
    async def program() -> None:
        async with iteration():
            await forever()

    class Forever:
        def __await__(self) -> Generator[None, None, None]:
            while True:
                yield

    async def forever() -> None:
        await Forever()

    before = get_current()
    coroutine = program()
    coroutine.send(None)
    coroutine.close()
    assert get_current() is before
    assert_ended(capture, "cancelled", 1)


def test_a_context_manager_in_a_generator_that_is_left_early(capture: Capture) -> None:
    def program() -> Iterator[int]:
        with loop("writer"):
            for number in range(5):
                with iteration():
                    yield number

    before = get_current()
    numbers: Any = program()
    next(numbers)
    numbers.close()
    assert get_current() is before
    assert_ended(capture, "cancelled", 1)
