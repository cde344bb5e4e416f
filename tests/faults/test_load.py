"""Many runs at once, and many that never end: none is lost, nothing piles up, everything is counted."""

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest
from opentelemetry.context import Context, attach, get_current

from otel_loopeval import iteration, loop
from otel_loopeval.otel import pipeline
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.testing import Capture

CONCURRENT = 10_000
ABANDONED = 30_000
FOLLOWED = 500


def test_ten_thousand_concurrent_runs(capture: Capture) -> None:
    """Every third run converges at its last iteration, every third at its third, every third never."""
    scores = {
        0: [1.0, 2.0, 3.0, 4.0, 9.0],
        1: [1.0, 2.0, 9.0, 9.0, 9.0],
        2: [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    started = 0
    everyone = asyncio.Event()

    async def one(number: int) -> tuple[bool, int]:
        nonlocal started
        async with loop("writer", threshold=8.0, max_iterations=5, id=f"{number}") as run:
            started += 1
            if started == CONCURRENT:
                everyone.set()
            await everyone.wait()
            for score in scores[number % 3]:
                async with iteration() as it:
                    await asyncio.sleep(0)
                    it.score = score
        return run.health.success, run.health.wasted_iterations

    async def main() -> list[tuple[bool, int]]:
        return await asyncio.gather(*(one(number) for number in range(CONCURRENT)))

    results = asyncio.run(main())
    expected = {0: (True, 0), 1: (False, 2), 2: (False, 0)}
    assert results == [expected[number % 3] for number in range(CONCURRENT)]

    assert registry.current().tracker.open_runs() == []
    assert pipeline.open_spans == {}
    spans = capture.finished_spans
    roots = [span for span in spans if span.name == "evaluation_loop writer"]
    verdicts: dict[str, Any] = {}
    for span in roots:
        attributes = span.attributes or {}
        verdicts[str(attributes["loopeval.run.id"])] = (
            attributes["loopeval.health.passed"],
            attributes["loopeval.health.wasted_iterations"],
        )
    assert verdicts == {f"{number}": expected[number % 3] for number in range(CONCURRENT)}
    parents: dict[int, int] = {}
    for span in spans:
        if span.parent is not None:
            parents[span.parent.span_id] = parents.get(span.parent.span_id, 0) + 1
    assert len(spans) == 6 * CONCURRENT
    assert set(parents.values()) == {5}
    assert len(parents) == CONCURRENT

    converged, wasteful, missed = 3334, 3333, 3333
    assert capture.value("loopeval.runs.started") == CONCURRENT
    assert capture.value("loopeval.runs", {"loopeval.health.passed": True}) == converged
    assert capture.value("loopeval.runs", {"loopeval.health.passed": False}) == wasteful + missed
    assert capture.value("loopeval.runs", {"loopeval.health.converged": True}) == converged + wasteful
    assert capture.value("loopeval.runs", {"loopeval.run.outcome": "limit"}) == missed
    assert capture.value("loopeval.iterations") == 5 * CONCURRENT
    assert capture.value("loopeval.iterations.wasted") == 2 * wasteful
    assert capture.value("loopeval.run.open") == 0
    assert capture.value("loopeval.tracker.evicted_runs") == 0


def in_one_context() -> None:
    """Each run begins inside the one before, which was never left."""
    loop("abandoned").__enter__()
    iteration().__enter__()


def in_copied_contexts() -> None:
    """Each run begins in a context of its own, as in a task or a thread."""
    contextvars.copy_context().run(in_one_context)


def in_dropped_generators() -> None:
    """Each run is in a generator that somebody keeps for a while and never advances again."""

    def program() -> Generator[None, None, None]:
        with loop("abandoned"), iteration():
            yield

    steps = program()
    next(steps)
    kept.append(steps)


def in_dropped_coroutines() -> None:
    """Each run is in a coroutine that stays where it awaits."""

    class Forever:
        def __await__(self) -> Generator[None, None, None]:
            while True:
                yield

    @loop("abandoned")
    async def program() -> None:
        async with iteration():
            await Forever()

    coroutine = program()
    coroutine.send(None)
    kept.append(coroutine)


kept: list[Any] = []


@pytest.fixture
def abandoning(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A small table, and a context that is given back at the end."""
    monkeypatch.setenv("LOOPEVAL_MAX_OPEN_RUNS", str(FOLLOWED))
    before = get_current()
    yield
    attach(before)
    kept.clear()


def nodes_in_memory() -> int:
    gc.collect()
    return sum(type(thing).__name__ in ("Run", "Iteration", "LoopRun") for thing in gc.get_objects())


@pytest.mark.parametrize("abandon", [in_one_context, in_copied_contexts])
def test_runs_that_are_never_left(abandoning: None, abandon: Callable[[], None]) -> None:
    with Capture(exporting=False) as capture:
        capture.instrument()
        for _ in range(FOLLOWED):
            abandon()
        before = nodes_in_memory()
        for _ in range(ABANDONED - FOLLOWED):
            abandon()
        evicted = {"loopeval.reason": "capacity"}
        assert capture.value("loopeval.tracker.evicted_runs", evicted) == ABANDONED - FOLLOWED
        assert len(registry.current().tracker.open_runs()) == FOLLOWED
        assert capture.value("loopeval.run.open") == FOLLOWED
        assert capture.value("loopeval.runs.started") == ABANDONED
        assert capture.value("loopeval.runs") == 0
        # A run, its state and its iteration for each that is followed: what was evicted is gone.
        assert nodes_in_memory() <= before + 10
        assert len(pipeline.open_spans) <= 2 * FOLLOWED


@pytest.mark.parametrize("abandon", [in_dropped_generators, in_dropped_coroutines])
def test_runs_that_are_left_when_their_code_is_garbage(abandoning: None, abandon: Callable[[], None]) -> None:
    with Capture(exporting=False) as capture:
        capture.instrument()
        for _ in range(2_000):
            abandon()
            if len(kept) > FOLLOWED:
                del kept[: FOLLOWED // 2]
        del kept[:]
        gc.collect()
        assert capture.value("loopeval.runs", {"loopeval.run.outcome": "cancelled"}) == 2_000
        assert registry.current().tracker.open_runs() == []
        assert pipeline.open_spans == {}


def test_an_evicted_run_that_is_alive_ends_as_any_other(abandoning: None, capture: Capture) -> None:
    before = get_current()
    with loop("alive") as run:
        with iteration() as it:
            it.score = 9.0
        inside = get_current()
        for _ in range(FOLLOWED + 10):
            contextvars.copy_context().run(in_one_context)
        assert get_current() is inside
        with iteration() as it:
            it.score = 3.0
    assert get_current() is before
    assert run.health.wasted_iterations == 1
    assert capture.value("loopeval.runs", {"gen_ai.agent.name": "alive"}) == 1
    assert capture.value("loopeval.tracker.evicted_runs") == 11


def test_foreign_runs_that_are_never_ended(abandoning: None) -> None:
    with Capture(exporting=False) as capture:
        capture.instrument()
        tracer = capture.tracer_provider.get_tracer("foreign")

        def abandon() -> None:
            root = tracer.start_span("evaluation_loop foreign", context=Context({"foreign": 1}))
            inside = tracer.start_span("evaluation_loop.iteration", context=_in(root))
            tracer.start_span("chat model", context=_in(inside))

        for _ in range(ABANDONED):
            abandon()
        tracker = registry.current().tracker
        assert len(tracker.open_runs()) == FOLLOWED
        assert capture.value("loopeval.tracker.evicted_runs") == ABANDONED - FOLLOWED
        assert len(pipeline.open_spans) <= 20_000
        assert len(registry.current().foreign_roots) <= 20_000


def _in(span: Any) -> Context:
    from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

    return set_span_in_context(span, Context({"foreign": 1}))


def test_finished_runs_leave_nothing(capture: Capture) -> None:
    runs: list[weakref.ref[Any]] = []

    def program() -> None:
        with loop("writer") as run, iteration() as it:
            it.score = 9.0
        runs.append(weakref.ref(run))

    for _ in range(100):
        program()
    gc.collect()
    assert [ref() for ref in runs] == [None] * 100
    assert pipeline.open_spans == {}
