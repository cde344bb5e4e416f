"""``@loop`` and ``@iteration`` on functions, coroutines, generators and async generators."""

import asyncio
import functools
import gc
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from otel_loopeval import StopLoop, current_run, iteration, loop
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.testing import Capture


def current_iteration() -> Any:
    run = current_run()
    assert run is not None
    return run.iteration


def outcomes(capture: Capture) -> list[str]:
    return [span["attributes"]["loopeval.run.outcome"] for span in capture.spans("evaluation_loop")]


# Functions and coroutines --------------------------------------------------------------------------------


def test_bare_decorators_on_functions(capture: Capture) -> None:
    @iteration
    def attempt(score: float) -> float:
        current_iteration().score = score
        return score

    @loop
    def write_page(scores: list[float]) -> str:
        """Writes."""
        for score in scores:
            attempt(score)
        return "done"

    assert write_page([5, 9]) == "done"
    assert write_page([9]) == "done"
    assert write_page.__name__ == "write_page"
    assert write_page.__doc__ == "Writes."
    assert capture.outline() == (
        "evaluation_loop write_page\n  evaluation_loop.iteration\n  evaluation_loop.iteration\n"
        "evaluation_loop write_page\n  evaluation_loop.iteration"
    )
    assert [s["attributes"]["loopeval.run.iterations"] for s in capture.spans("evaluation_loop")] == [2, 1]
    assert current_run() is None


def test_decorators_with_settings(capture: Capture) -> None:
    @iteration(3)
    def attempt() -> None:
        current_iteration().score = 3

    @loop("writer", threshold=3, mode="review")
    def write_page() -> None:
        attempt()

    write_page()
    root = capture.span("evaluation_loop")["attributes"]
    assert (root["loopeval.run.mode"], root["loopeval.run.threshold"]) == ("review", 3.0)
    numbers = [
        s["attributes"]["loopeval.iteration.number"] for s in capture.spans("evaluation_loop.iteration")
    ]
    assert numbers == [3]


def test_methods_and_callable_objects(capture: Capture) -> None:
    class Writer:
        @loop
        def write(self, word: str) -> str:
            return word * 2

        def __call__(self) -> str:
            return "called"

    assert Writer().write("a") == "aa"
    assert loop(Writer())() == "called"
    assert loop(functools.partial(str, 7))() == "7"
    assert [span["name"] for span in capture.spans()] == [
        "evaluation_loop write",
        "evaluation_loop Writer",
        "evaluation_loop partial",
    ]


def test_a_coroutine(capture: Capture) -> None:
    @iteration
    async def attempt(score: float) -> None:
        await asyncio.sleep(0)
        current_iteration().score = score

    @loop
    async def write_page(score: float) -> float:
        await attempt(score)
        return score

    assert inspect.iscoroutinefunction(write_page)

    async def main() -> list[float]:
        return await asyncio.gather(*(write_page(score) for score in (1, 8, 9)))

    assert asyncio.run(main()) == [1, 8, 9]
    assert sorted(s["attributes"]["loopeval.run.best_score"] for s in capture.spans("evaluation_loop")) == [
        1,
        8,
        9,
    ]
    assert all(len(root["children"]) == 1 for root in capture.tree())


def test_a_failing_function_raises_the_same_error(capture: Capture) -> None:
    error = ValueError("secret words")

    @loop
    def write_page() -> None:
        raise error

    with pytest.raises(ValueError) as caught:
        write_page()
    assert caught.value is error
    span = capture.span()
    assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "ValueError")
    assert outcomes(capture) == ["failed"]


def test_stoploop_ends_a_function_quietly(capture: Capture) -> None:
    @loop
    def write_page() -> str:
        raise StopLoop

    @loop
    async def write_async() -> str:
        raise StopLoop

    assert write_page() is None
    assert asyncio.run(write_async()) is None
    assert outcomes(capture) == ["stopped", "stopped"]


def test_a_cancelled_coroutine(capture: Capture) -> None:
    @loop
    async def write_page() -> None:
        with iteration():
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(write_page())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert outcomes(capture) == ["cancelled"]
    assert {span["status"] for span in capture.spans()} == {"UNSET"}
    assert "loopeval.health.passed" not in capture.span("evaluation_loop")["attributes"]


def test_a_recursive_function(capture: Capture) -> None:
    @loop
    def dig(depth: int) -> int:
        return depth if depth == 0 else dig(depth - 1)

    dig(2)
    assert capture.outline() == "evaluation_loop dig\n  evaluation_loop dig\n    evaluation_loop dig"


# Generators ----------------------------------------------------------------------------------------------


def test_a_generator_yields_receives_and_returns(capture: Capture) -> None:
    @loop
    def converse() -> Generator[str, str, int]:
        said: list[str] = []
        for number in range(2):
            with iteration() as it:
                said.append((yield f"question {number}"))
                it.score = 9
        return len("".join(said))

    assert inspect.isgeneratorfunction(converse)
    talk = converse()
    assert current_run() is None  # nothing runs before the first step
    assert capture.spans() == []
    assert next(talk) == "question 0"
    assert current_run() is None  # the body is suspended: whoever advances it is in no run
    assert talk.send("ab") == "question 1"
    with pytest.raises(StopIteration) as stop:
        talk.send("cde")
    assert stop.value.value == 5
    assert outcomes(capture) == ["completed"]
    assert capture.outline() == (
        "evaluation_loop converse\n  evaluation_loop.iteration\n  evaluation_loop.iteration"
    )


def test_yield_from_a_decorated_generator(capture: Capture) -> None:
    @loop
    def inner() -> Generator[int, None, str]:
        yield 1
        yield 2
        return "end"

    def outer() -> Generator[Any, None, None]:
        result = yield from inner()
        yield result

    assert list(outer()) == [1, 2, "end"]
    assert outcomes(capture) == ["completed"]


def test_an_exception_thrown_into_a_generator_that_handles_it(capture: Capture) -> None:
    @loop
    def robust() -> Iterator[str]:
        try:
            yield "first"
        except KeyError:
            yield "handled"

    steps = robust()
    assert next(steps) == "first"
    assert steps.throw(KeyError("x")) == "handled"  # type: ignore[attr-defined]
    assert list(steps) == []
    assert outcomes(capture) == ["completed"]


def test_an_exception_thrown_into_a_generator_that_does_not(capture: Capture) -> None:
    @loop
    def fragile() -> Iterator[int]:
        with iteration():
            yield 1

    steps = fragile()
    next(steps)
    error = KeyError("x")
    with pytest.raises(KeyError) as caught:
        steps.throw(error)  # type: ignore[attr-defined]
    assert caught.value is error
    assert outcomes(capture) == ["failed"]
    assert {span["attributes"]["error.type"] for span in capture.spans()} == {"KeyError"}


def test_a_generator_left_early_is_cancelled(capture: Capture) -> None:
    closed: list[str] = []

    @loop
    def endless() -> Iterator[int]:
        try:
            for number in range(1_000):
                with iteration() as it:
                    it.score = number
                    yield number
        finally:
            closed.append(current_run().agent)  # type: ignore[union-attr]

    for number in endless():
        if number == 2:
            break
    gc.collect()
    assert closed == ["endless"]
    assert outcomes(capture) == ["cancelled"]
    assert len(capture.spans("evaluation_loop.iteration")) == 3
    assert current_run() is None


def test_a_generator_closed_before_its_first_step_was_no_run(capture: Capture) -> None:
    @loop
    def never() -> Iterator[int]:
        yield 1

    never().close()  # type: ignore[attr-defined]
    assert capture.spans() == []


def test_a_generator_that_ignores_its_closing(capture: Capture) -> None:
    @loop
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    steps = stubborn()
    next(steps)
    with pytest.raises(RuntimeError, match="generator ignored GeneratorExit"):
        steps.close()  # type: ignore[attr-defined]
    assert len(outcomes(capture)) == 1


def test_interleaved_generators_keep_to_their_own_runs(capture: Capture) -> None:
    @loop
    def count(agent: str) -> Iterator[str]:
        for number in (1, 2):
            with iteration() as it:
                it.score = number if agent == "a" else number * 10
                run = current_run()
                assert run is not None
                yield f"{agent}{number}:{run.id}"

    first, second = count("a"), count("b")
    seen = [next(first), next(second), next(first), next(second)]
    assert list(first) == list(second) == []
    assert seen[0].split(":")[1] == seen[2].split(":")[1] != seen[1].split(":")[1] == seen[3].split(":")[1]
    roots = capture.tree()
    assert [[c["attributes"]["loopeval.iteration.score"] for c in root["children"]] for root in roots] == [
        [1.0, 2.0],
        [10.0, 20.0],
    ]


def test_a_generator_advanced_from_several_threads(capture: Capture) -> None:
    @loop
    def count() -> Iterator[int]:
        for number in range(4):
            with iteration() as it:
                it.score = number
                yield number

    steps = count()
    got: list[int] = []
    for _ in range(4):
        thread = threading.Thread(target=lambda: got.append(next(steps)))
        thread.start()
        thread.join()
    assert list(steps) == []
    assert got == [0, 1, 2, 3]
    assert outcomes(capture) == ["completed"]
    assert len(capture.tree()[0]["children"]) == 4


def test_a_generator_inside_a_run_is_nested_in_it(capture: Capture) -> None:
    @loop
    def inner() -> Iterator[int]:
        yield 1

    with loop("outer") as outer:
        for _ in inner():
            assert current_run() is outer
    assert capture.outline() == "evaluation_loop outer\n  evaluation_loop inner"


def test_stoploop_ends_a_generator(capture: Capture) -> None:
    @loop
    def stopping() -> Iterator[int]:
        yield 1
        raise StopLoop

    assert list(stopping()) == [1]
    assert outcomes(capture) == ["stopped"]


def test_an_iteration_that_is_a_generator(capture: Capture) -> None:
    @iteration
    def stream(words: list[str]) -> Iterator[str]:
        yield from words
        current_iteration().score = 9

    with loop("writer"):
        assert list(stream(["a", "b"])) == ["a", "b"]
    assert [
        s["attributes"]["loopeval.iteration.score"] for s in capture.spans("evaluation_loop.iteration")
    ] == [9.0]


# Async generators --------------------------------------------------------------------------------------


def test_an_async_generator(capture: Capture) -> None:
    @loop
    async def stream(count: int) -> AsyncIterator[int]:
        for number in range(count):
            async with iteration() as it:
                await asyncio.sleep(0)
                it.score = number
                yield number

    async def main() -> list[int]:
        assert inspect.isasyncgenfunction(stream)
        return [number async for number in stream(3)]

    assert asyncio.run(main()) == [0, 1, 2]
    assert outcomes(capture) == ["completed"]
    assert len(capture.spans("evaluation_loop.iteration")) == 3


def test_an_async_generator_left_early_in_another_task(capture: Capture) -> None:
    """Leaving it lets the event loop close it in a context of its own: no token may have been kept."""

    @loop
    async def stream() -> AsyncIterator[int]:
        for number in range(1_000):
            async with iteration():
                yield number

    async def main() -> None:
        async for number in stream():
            if number == 1:
                break
        gc.collect()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert outcomes(capture) == ["cancelled"]
    assert current_run() is None


def test_an_async_generator_closed(capture: Capture) -> None:
    closed: list[str] = []

    @loop
    async def stream() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def main() -> None:
        steps = stream()
        await anext(steps)  # type: ignore[arg-type]
        await steps.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert closed == ["closed"]
    assert outcomes(capture) == ["cancelled"]


def test_an_exception_thrown_into_an_async_generator(capture: Capture) -> None:
    @loop
    async def stream() -> AsyncIterator[str]:
        try:
            yield "first"
        except KeyError:
            yield "handled"
        yield "last"

    async def main() -> list[str]:
        steps: Any = stream()
        got = [await anext(steps), await steps.athrow(KeyError("x")), await steps.asend(None)]
        with pytest.raises(ZeroDivisionError):
            await steps.athrow(ZeroDivisionError())
        return got

    assert asyncio.run(main()) == ["first", "handled", "last"]
    assert outcomes(capture) == ["failed"]


def test_values_sent_into_an_async_generator(capture: Capture) -> None:
    @loop
    async def echo() -> AsyncGenerator[str, str]:
        got = yield "ready"
        yield f"got {got}"

    async def main() -> list[str]:
        steps: Any = echo()
        return [await anext(steps), await steps.asend("x")] + [value async for value in steps]

    assert asyncio.run(main()) == ["ready", "got x"]
    assert outcomes(capture) == ["completed"]


def test_a_cancelled_async_generator(capture: Capture) -> None:
    @loop
    async def stream() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(60)

    async def consume() -> None:
        async for _ in stream():
            pass

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert outcomes(capture) == ["cancelled"]


def test_many_async_generators_at_once(capture: Capture) -> None:
    @loop
    async def stream(score: float) -> AsyncIterator[float]:
        for _ in range(3):
            async with iteration() as it:
                await asyncio.sleep(0)
                it.score = score
                yield score

    async def consume(score: float) -> None:
        async for got in stream(score):
            assert got == score
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(consume(score) for score in range(20)))

    asyncio.run(main())
    roots = capture.tree()
    assert len(roots) == 20
    for root in roots:
        assert len({child["attributes"]["loopeval.iteration.score"] for child in root["children"]}) == 1
        assert len(root["children"]) == 3


def test_stoploop_ends_an_async_generator(capture: Capture) -> None:
    @loop
    async def stopping() -> AsyncIterator[int]:
        yield 1
        raise StopLoop

    async def main() -> list[int]:
        return [number async for number in stopping()]

    assert asyncio.run(main()) == [1]
    assert outcomes(capture) == ["stopped"]


def test_a_generator_that_is_collected_while_its_table_is_locked(capture: Capture) -> None:
    """The collector runs anywhere, on a thread that holds the lock too."""

    @loop
    def abandoned() -> Iterator[int]:
        yield 1

    def collect() -> None:
        generator = abandoned()
        next(generator)
        with registry.current().tracker.lock:
            generator.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert outcomes(capture) == ["cancelled"]
