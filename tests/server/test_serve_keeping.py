"""Runs that the store does not take: they wait, and their spans stay; no full disk and no lock loses one."""

import asyncio
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server.serve_processes import Serve, Sink, Traffic, await_that, serving
from sources.stored_spans import request
from support.served_runs import NOW_NS, served

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.core import Core
from otel_loopeval.server.http.replies import PROTOBUF
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.keeping import Keeping
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.traces.limits import Limits


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    yield store
    fill(store, full=False)
    assert store.close()


def fill(store: Store, *, full: bool) -> None:
    """Let the file grow no more, as on a full disk; or let it."""
    store.put_spans([]).result(10)  # it is at nothing else
    connection: sqlite3.Connection = store._writer._connection  # pyright: ignore[reportPrivateUsage]
    connection.execute(f"PRAGMA max_page_count = {1 if full else 2**30}").fetchall()


def run_of(trace_id: int, **more: Any) -> ServedRun:
    """A run of a trace of its own. It needs pages of its own in the file: it does not pack well."""
    text = random.Random(trace_id).randbytes(20_000).hex()
    return replace(served([9.0], trace_id=trace_id, attributes={"text": text}), tenant="red", **more)


def hand_over(keeping: Keeping, *runs: ServedRun) -> None:
    for run in runs:
        keeping.over(run)
        keeping.closed(run.tenant, run.trace_id)


def settle(store: Store, keeping: Keeping, *, told: bool = True, times: int = 6) -> None:
    """Some ticks, between which the store does what it was asked for."""
    for _ in range(times):
        keeping.tick(told=told)
        store.put_spans([]).result(10)


def kept(store: Store, tmp_path: Path) -> tuple[list[int], list[int]]:
    """The ids of the traces of runs in the store, in their order, and of those whose spans are in it."""
    connection = sqlite3.connect(tmp_path / "runs.db")
    try:
        rows = connection.execute("SELECT trace_id FROM runs ORDER BY seq").fetchall()
    finally:
        connection.close()
    runs = [int.from_bytes(trace_id, "big") for (trace_id,) in rows]
    return runs, sorted({span.trace_id for _, span in store.open_spans()})


def test_runs_that_a_full_disk_did_not_take_are_taken_in_their_order(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = Keeping(store)
    runs = [run_of(number) for number in (3, 1, 2)]
    for run in runs:
        store.put_spans(run.spans, "red").result(10)
    fill(store, full=True)
    hand_over(keeping, *runs)
    settle(store, keeping)
    assert keeping.waiting == 3
    assert kept(store, tmp_path) == ([], [1, 2, 3])
    hand_over(keeping, run_of(4))
    assert keeping.waiting == 4
    fill(store, full=False)
    settle(store, keeping)
    assert (keeping.waiting, keeping.lost) == (0, 0)
    assert kept(store, tmp_path) == ([3, 1, 2, 4], [])
    first, second = [record.getMessage() for record in caplog.records]
    assert first.endswith("database or disk is full; what it does not take waits, and is tried again")
    assert second == "the store takes runs again, and those that waited are on their way into it"


def test_spans_stay_until_their_verdicts_were_told(store: Store, tmp_path: Path) -> None:
    keeping = Keeping(store)
    run = run_of(1)
    store.put_spans(run.spans, "red").result(10)
    hand_over(keeping, run)
    settle(store, keeping, told=False)
    assert kept(store, tmp_path) == ([1], [1])
    settle(store, keeping)
    assert kept(store, tmp_path) == ([1], [])


def test_a_trace_goes_with_the_last_of_its_runs_and_is_its_tenants(store: Store, tmp_path: Path) -> None:
    keeping = Keeping(store)
    run = run_of(1)
    for tenant in ("red", "blue"):
        store.put_spans(run.spans, tenant).result(10)
    keeping.over(run)
    settle(store, keeping)
    fill(store, full=True)
    root = replace(run.root or run.spans[0], span_id=2)
    keeping.over(replace(run, root=root))
    keeping.closed("red", 1)
    settle(store, keeping)
    count = len(run.spans)
    assert [tenant for tenant, _ in store.open_spans()] == ["blue"] * count + ["red"] * count
    fill(store, full=False)
    settle(store, keeping)
    assert {tenant for tenant, _ in store.open_spans()} == {"blue"}
    assert kept(store, tmp_path)[0] == [1, 1]


@pytest.mark.parametrize("bound", [{"max_runs": 2}, {"max_bytes": 100_000}], ids=["runs", "bytes"])
def test_of_more_runs_than_there_is_room_for_the_oldest_are_left_to_the_next_start(
    bound: dict[str, int], store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = Keeping(store, **bound)
    runs = [run_of(number) for number in range(1, 6)]
    for run in runs:
        store.put_spans(run.spans, "red").result(10)
    fill(store, full=True)
    hand_over(keeping, *runs)
    settle(store, keeping)
    assert (keeping.waiting, keeping.lost) == (2, 3)
    fill(store, full=False)
    settle(store, keeping)
    assert kept(store, tmp_path) == ([4, 5], [1, 2, 3])
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the store failed",
        "more runs wait for the store than there is room for",
        "the store takes runs again, and those that waited are on their way into it",
    ]


def test_a_run_that_can_never_be_kept_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    keeping = Keeping(store)
    odd, good = run_of(1), run_of(2)
    for run in (odd, good):
        store.put_spans(run.spans, "red").result(10)
    spans = tuple(replace(span, attributes={"x": 2**70}) for span in odd.spans)  # no 64 bits have it
    hand_over(keeping, replace(odd, spans=spans, root=spans[-1]), good)
    settle(store, keeping)
    assert (keeping.waiting, keeping.lost) == (0, 1)
    assert kept(store, tmp_path) == ([2], [1])


def test_a_sender_is_not_told_that_a_run_is_safe_before_it_is(store: Store) -> None:
    keeping = Keeping(store)
    run = run_of(1)
    fill(store, full=True)
    hand_over(keeping, run)
    settle(store, keeping)
    assert keeping.owes("red", run.spans)
    assert not keeping.owes("blue", run.spans)
    fill(store, full=False)
    settle(store, keeping)
    assert not keeping.owes("red", run.spans)


def test_that_the_store_failed_is_known_at_once(store: Store) -> None:
    keeping = Keeping(store)
    run = run_of(1)
    fill(store, full=True)
    hand_over(keeping, run)
    store.put_spans([]).result(10)  # it has failed by now, and nobody has looked
    assert keeping.owes("red", run.spans)
    assert not keeping.owes("blue", run.spans)


def test_a_late_span_waits_for_a_run_on_its_way_into_a_store_that_then_fails(store: Store) -> None:
    core = Core(replace(ServeOptions(), limits=Limits(grace_s=0.0)), store)
    body = request(*run_of(1).spans)
    released = threading.Event()

    def wait(_connection: sqlite3.Connection) -> tuple[str, ...]:
        assert released.wait(20)
        return ()

    async def send() -> int:
        return (await core.take("traces", PROTOBUF, b"", body, "")).status

    async def send_twice() -> list[int]:
        store._writer.submit(wait)  # pyright: ignore[reportPrivateUsage]
        first = asyncio.ensure_future(send())
        again = asyncio.ensure_future(send())  # its trace is over by now, and the run not written
        await asyncio.sleep(0)
        released.set()
        return [await first, await again]

    fill(store, full=True)
    assert asyncio.run(send_twice()) == [503, 503]
    fill(store, full=False)
    assert core.keeping is not None
    settle(store, core.keeping)
    assert asyncio.run(send()) == 200


def test_of_more_traces_than_may_wait_for_their_verdicts_the_oldest_are_left_to_the_next_start(
    store: Store, tmp_path: Path
) -> None:
    keeping = Keeping(store, max_untold=2)
    runs = [run_of(number) for number in range(1, 6)]
    for run in runs:
        store.put_spans(run.spans, "red").result(10)
    hand_over(keeping, *runs)
    settle(store, keeping, told=False)
    settle(store, keeping)
    assert kept(store, tmp_path) == ([1, 2, 3, 4, 5], [1, 2, 3])


def test_what_is_retried_of_a_run_without_its_root_is_not_judged_again_by_the_next_process(
    tmp_path: Path,
) -> None:
    score = {"loopeval.iteration.number": 1, "loopeval.iteration.score": 9.0}
    body = request(SpanData("evaluation_loop.iteration", 1, 2, 7, NOW_NS, NOW_NS + 9, score))
    options = replace(ServeOptions(), limits=Limits(idle_s=0.0))
    for judged in (1, 0):
        store = Store(tmp_path / "runs.db")
        core = Core(options, store)

        async def go(core: Core = core) -> int:
            status = (await core.take("traces", PROTOBUF, b"", body, "")).status
            await core.finish()
            return status

        assert asyncio.run(go()) == 200
        assert store.close()
        samples = [sample for metric in core.registry.collect() for sample in metric.samples]
        assert sum(s.value for s in samples if s.name == "loopeval_runs_total") == judged


def test_at_the_end_what_is_locked_out_is_told_and_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    keeping = Keeping(store)
    run = run_of(1)
    store.put_spans(run.spans, "red").result(10)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    hand_over(keeping, run)
    asyncio.run(keeping.finish(told=True, patience_s=0.2))
    assert not store.close(0.2)
    other.close()
    assert caplog.messages == [
        "runs that the store did not take: 1; the next start judges them by their spans in it"
    ]
    assert keeping.lost == 1


# The whole server --------------------------------------------------------------------------------------

QUICK = ("--grace", "1s", "--idle", "1h")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="a limit for another process")


def limit(server: Serve, size: int) -> None:
    """Let files of a server have no more bytes than so many, as on a full disk; -1 ends that."""
    import resource  # noqa: PLC0415 - there is none for Windows

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def in_store(tmp_path: Path) -> tuple[int, int]:
    """How many runs there are, and how many spans of runs that are not."""
    connection = sqlite3.connect(tmp_path / "runs.db")
    try:
        return connection.execute(
            "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM open_spans)"
        ).fetchone()
    finally:
        connection.close()


@on_linux
@pytest.mark.parametrize("end", ["space", "kill", "term"])
def test_a_run_that_is_over_while_the_disk_is_full(end: str, tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent("writer")
    body = traffic.body()
    with Sink() as sink:
        arguments = ("--forward", sink.url, "--store", "runs.db", *QUICK)
        with serving(*arguments, cwd=tmp_path) as server:
            assert server.send(body) == 200
            limit(server, 1)
            await_that(lambda: server.metrics()["loopeval_serve_runs_waiting"] == 1, "a run that waits")
            await_that(sink.verdicts, "its verdict")
            assert server.send(body) == 503
            assert in_store(tmp_path) == (0, 5)
            if end == "space":
                limit(server, -1)
                await_that(lambda: in_store(tmp_path) == (1, 0), "the run in the store")
                assert server.metrics()["loopeval_serve_runs_waiting"] == 0
                assert server.send(body) == 200
                assert server.end() == 0
            elif end == "kill":
                server.end(signal.SIGKILL)
            else:
                assert server.end() == 0
                assert "runs that the store did not take: 1" in server.lines[-1]
            said = [line for line in server.lines if "the store failed" in line]
            assert len(said) == 1
        if end != "space":
            with serving(*arguments, cwd=tmp_path) as server:
                await_that(lambda: in_store(tmp_path) == (1, 0), "the run in the store")
                assert server.end() == 0
        assert len({verdict.span_id for verdict in sink.verdicts()}) == 1
    assert in_store(tmp_path) == (1, 0)
