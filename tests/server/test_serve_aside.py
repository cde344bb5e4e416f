"""A trace of very many spans is judged while others are answered."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from server.followed import Followed, scored
from sources.stored_spans import request
from support.served_runs import NOW_NS

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage
from otel_loopeval.server.core import Core
from otel_loopeval.server.http.replies import PROTOBUF
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.queries import RunFilter
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.traces.aside import Aside
from otel_loopeval.server.traces.intake import Intake
from otel_loopeval.server.traces.judging import Closed
from otel_loopeval.server.traces.limits import Limits

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}


def trace(trace_id: int, count: int) -> bytes:
    """An agent and its model calls, so many spans in all."""
    root = SpanData("invoke_agent writer", trace_id, 1, None, NOW_NS, NOW_NS + count + 1, AGENT, scope="x")
    calls = (
        SpanData("chat m", trace_id, 1 + n, 1, NOW_NS + n, NOW_NS + n + 1, CHAT, scope="x")
        for n in range(1, count)
    )
    return request(root, *calls)


LARGE, SMALL = trace(1, 1_500), trace(2, 20)


class Gate:
    """Tells what a call cost, as soon as it is open: judging takes until then.

    Attributes:
        open: Whether it is.
        threads: Those in which somebody asked.
    """

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.threads: set[threading.Thread] = set()

    def __call__(self, usage: Usage, at_ns: int) -> float | None:
        del usage, at_ns
        self.threads.add(threading.current_thread())
        if not self.open.wait(20):
            raise TimeoutError("judging kept the loop from going on")
        return 0.5


def core_with(gate: Gate, store: Store | None = None, **limits: int) -> Core:
    core = Core(replace(ServeOptions(), limits=Limits(grace_s=0.0, **limits)), store, gate)
    gate.threads.clear()  # it has been asked once, to read its list
    return core


async def send(core: Core, body: bytes, signal: str = "traces") -> int:
    return (await core.take(signal, PROTOBUF, b"", body, "")).status


def judged(core: Core) -> float:
    """How many runs were judged."""
    samples = (sample for metric in core.registry.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name == "loopeval_runs_total")


async def while_judging(
    core: Core, gate: Gate, then: Callable[["asyncio.Task[None]"], Awaitable[None]]
) -> None:
    """Send a large trace, and do something while it is judged."""
    assert await send(core, LARGE) == 200
    gate.open.clear()
    tick = asyncio.ensure_future(core.tick())
    while not gate.threads:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    await then(tick)


def test_others_are_answered_while_a_large_trace_is_judged() -> None:
    gate = Gate()
    core = core_with(gate)

    async def then(tick: "asyncio.Task[None]") -> None:
        assert threading.main_thread() not in gate.threads
        assert await send(core, b"", "metrics") == 200
        assert await send(core, LARGE) == 200  # again, as by a sender that heard nothing
        assert judged(core) == 0
        assert core.following.open_traces == 0
        assert core.following.held_bytes > 0
        gate.open.set()
        await tick

    asyncio.run(while_judging(core, gate, then))
    assert judged(core) == 1
    assert core.following.counts.late == 1_500
    assert core.following.held_bytes == 0


def test_large_traces_that_keep_coming_keep_nothing_else_from_being_done() -> None:
    gate = Gate()
    core = core_with(gate)

    async def then(tick: "asyncio.Task[None]") -> None:
        assert await send(core, trace(3, 1_200)) == 200
        gate.open.set()
        await tick
        assert judged(core) == 1
        await core.tick()

    asyncio.run(while_judging(core, gate, then))
    assert judged(core) == 2


def test_what_goes_on_with_a_paused_run_is_judged_after_it() -> None:
    name = "evaluation_loop writer"
    paused = SpanData(name, 1, 1, None, 1, 9, {"loopeval.run.id": "r", "loopeval.run.outcome": "paused"})
    parts = (
        SpanData("evaluation_loop.iteration", 1, 1 + n, 1, 1, 2, {"loopeval.iteration.number": n})
        for n in range(1, 1_100)
    )
    later = SpanData(name, 2, 1, None, 11, 19, {"loopeval.run.id": "r", "loopeval.run.resumed": True})
    gate = Gate()
    core = core_with(gate)

    async def main() -> None:
        core.following.take(Intake().read(request(paused, *parts)), 0.0)
        core.following.take(Intake().read(request(later)), 0.0)
        await core.tick()

    asyncio.run(main())
    samples = [sample for metric in core.registry.collect() for sample in metric.samples]
    outcomes = [s.labels["loopeval_run_outcome"] for s in samples if s.name == "loopeval_runs_total"]
    assert sorted(outcomes) == ["completed", "paused"]


def test_a_small_trace_is_judged_at_once() -> None:
    gate = Gate()
    core = core_with(gate)
    asyncio.run(send(core, SMALL))
    assert judged(core) == 1
    assert gate.threads == {threading.main_thread()}


def test_an_end_while_a_large_trace_is_judged_loses_no_run(tmp_path: Path) -> None:
    gate = Gate()
    store = Store(tmp_path / "runs.db")
    core = core_with(gate, store)

    async def then(tick: "asyncio.Task[None]") -> None:
        assert await send(core, trace(3, 1_200)) == 200
        tick.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tick
        gate.open.set()
        await core.finish()

    asyncio.run(while_judging(core, gate, then))
    assert judged(core) == 2
    runs = store.view().runs(RunFilter()).runs
    assert sorted((run.record.trace_id or "")[-1] for run in runs) == ["1", "3"]
    assert list(store.open_spans()) == []
    assert store.close()


def test_where_there_is_no_room_to_wait_a_large_trace_is_judged_at_once() -> None:
    gate = Gate()
    core = core_with(gate, max_bytes=2_000_000)
    asyncio.run(send(core, LARGE))
    assert judged(core) == 1
    assert core.following.held_bytes == 0


def test_the_verdict_is_that_of_score() -> None:
    put_aside: list[Closed] = []
    followed = Followed(aside=put_aside.append)
    followed.take(LARGE)
    followed.following.tick(60.0)
    assert followed.runs == []
    for closed in put_aside:
        followed.following.deliver(closed, followed.following.judge(closed))
    assert followed.records() == scored([LARGE])
    assert followed.closed == [1]


def test_what_cannot_be_judged_is_not_closed_and_keeps_no_other_from_it() -> None:
    put_aside: list[Closed] = []
    followed = Followed(aside=put_aside.append)
    followed.take(LARGE, trace(3, 1_200))
    followed.following.tick(60.0)
    aside = Aside()
    for closed in put_aside:
        aside.add(closed)

    def judge(closed: Closed) -> list[ServedRun]:
        if closed.trace_id == 1:
            raise ValueError("what nobody thought of")
        return followed.following.judge(closed)

    asyncio.run(aside.work(judge, followed.following.deliver))
    assert followed.closed == [3]
    assert [run.trace_id for run in followed.runs] == [3]
    assert followed.following.held_bytes == 0
