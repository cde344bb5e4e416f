"""The store: what was put is there, also after kill -9, in the order and under the filters of the list."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.served_runs import NOW_NS, agent_with_repeats, served, served_all

from otel_loopeval.server.store.queries import Cursor, RunFilter, read_choices, read_counts, read_page
from otel_loopeval.server.store.retention import Retention
from otel_loopeval.server.store.schema import StoreError, open_writer
from otel_loopeval.server.store.store import Store, open_store
from otel_loopeval.testing import TraceBuilder

SECOND = 1_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    yield store
    store.close()


def put(store: Store, *runs: object) -> None:
    for future in [store.put_run(run) for run in runs]:  # type: ignore[reportArgumentType]
        future.result(10)


def agents(store: Store, **asked: object) -> list[str]:
    return [run.record.agent for run in store.view().runs(RunFilter(**asked)).runs]  # type: ignore[reportArgumentType]


def total_of(store: Store) -> int:
    return store.view().counts(RunFilter())[None]


def test_a_run_comes_back_with_its_record_iterations_guard_events_and_spans(store: Store) -> None:
    put(store, served([4.0, 6.5, 9.0, 9.5], doom_loop=True))
    (listed,) = store.view().runs(RunFilter()).runs
    assert listed.key == f"{1:032x}-{1:016x}"
    assert (listed.record.agent, listed.service, listed.environment) == ("writer", "shop", "test")
    assert listed.record.passed is False
    assert listed.record.reasons == ("wasted_iterations", "doom_loop")
    assert listed.record.scores == (4.0, 6.5, 9.0, 9.5)
    found = store.view().run(listed.key)
    assert found is not None
    run, detail = found
    assert run == listed
    assert [(i.number, i.score, i.wasted) for i in detail.iterations] == [
        (1, 4.0, False),
        (2, 6.5, False),
        (3, 9.0, False),
        (4, 9.5, True),
    ]
    (event,) = detail.guard_events
    assert (event.kind, event.tool, event.count, event.iteration, event.doom_loop) == (
        "repeated_action",
        "search",
        5,
        2,
        True,
    )
    assert [span.name for span in detail.spans] == [
        "evaluation_loop writer",
        *["evaluation_loop.iteration"] * 4,
    ]
    assert detail.left_out == 0


def test_turns_of_an_agent_keep_their_tokens_and_waste(store: Store) -> None:
    put(store, agent_with_repeats())
    found = store.view().run(store.view().runs(RunFilter()).runs[0].key)
    assert found is not None
    assert [i.tokens for i in found[1].iterations] == [960, 1110, 1260, 1410, 1560, 1710]
    assert [i.wasted for i in found[1].iterations] == [False, False, True, True, True, True]


def test_a_run_inside_another_keeps_only_the_spans_inside_it(store: Store) -> None:
    builder = TraceBuilder(3)
    outer = builder.span_id()
    builder.run([9.0], agent="inner", parent_id=outer)
    builder.span(
        "evaluation_loop outer",
        span_id=outer,
        start_ns=builder.clock.now_ns - 5 * SECOND,
        duration_s=6,
        attributes={"gen_ai.agent.name": "outer", "loopeval.run.mode": "review"},
    )
    put(store, *served_all(builder.spans))
    by_agent = {run.record.agent: run for run in store.view().runs(RunFilter()).runs}
    spans = {name: store.view().run(run.key) for name, run in by_agent.items()}
    assert {name: len(found[1].spans) for name, found in spans.items() if found} == {"inner": 2, "outer": 3}
    assert [run.record.agent for run in store.view().siblings(by_agent["inner"])] == ["outer"]


def test_a_run_that_comes_again_is_there_once_in_its_latest_state(store: Store) -> None:
    run = served([4.0, 9.0])
    put(store, replace(run, complete=False), run)
    page = store.view().runs(RunFilter())
    assert [listed.complete for listed in page.runs] == [True]


def test_an_unknown_key_is_no_run(store: Store) -> None:
    assert store.view().run("nothing") is None


def test_lists_are_filtered_by_verdict_agent_service_and_time(store: Store) -> None:
    put(
        store,
        served([9.0], trace_id=1, agent="good", closed_ns=NOW_NS - 4 * SECOND),
        served([1.0], trace_id=2, agent="bad", closed_ns=NOW_NS - 3 * SECOND, service="other"),
        served([1.0, 1.0], trace_id=3, agent="looping", doom_loop=True, closed_ns=NOW_NS - 2 * SECOND),
        served([1.0], trace_id=4, agent="paused", attributes={"loopeval.run.outcome": "paused"}),
    )
    assert agents(store) == ["paused", "looping", "bad", "good"]
    assert agents(store, verdict="unhealthy") == ["looping", "bad"]
    assert agents(store, verdict="doom_loop") == ["looping"]
    assert agents(store, verdict="healthy") == ["good"]
    assert agents(store, verdict="none") == ["paused"]
    assert agents(store, agent="bad") == ["bad"]
    assert agents(store, service="shop", verdict="unhealthy") == ["looping"]
    assert agents(store, since_ns=NOW_NS - 2 * SECOND) == ["paused", "looping"]
    choices = store.view().choices()
    assert choices.agents == ("bad", "good", "looping", "paused")
    assert choices.services == ("other", "shop")
    with pytest.raises(ValueError, match="verdict is 'odd': it must be one of unhealthy, doom_loop, healthy"):
        RunFilter(verdict="odd")


def test_pages_go_forth_and_back_without_gaps_also_where_times_are_equal(store: Store) -> None:
    put(store, *(served([9.0], trace_id=n, agent=f"a{n}", closed_ns=NOW_NS + n // 3) for n in range(1, 8)))
    first = store.view().runs(RunFilter(), size=3)
    assert first.newer is None
    second = store.view().runs(RunFilter(), first.older, size=3)
    third = store.view().runs(RunFilter(), second.older, size=3)
    assert third.older is None
    forth = [run.record.agent for page in (first, second, third) for run in page.runs]
    assert forth == ["a7", "a6", "a5", "a4", "a3", "a2", "a1"]
    assert store.view().runs(RunFilter(), third.newer, size=3).runs == second.runs
    back = store.view().runs(RunFilter(), second.newer, size=3)
    assert (back.runs, back.newer) == (first.runs, None)


def test_spans_are_open_until_their_trace_is_closed(store: Store) -> None:
    runs = [served([9.0], trace_id=1), served([8.5], trace_id=2)]
    for run in runs:
        store.put_spans(run.spans).result(10)
    store.put_spans(runs[0].spans).result(10)  # a retry
    assert list(store.open_spans()) == [
        ("", span) for run in runs for span in sorted(run.spans, key=lambda span: span.span_id)
    ]
    put(store, runs[0])
    store.close_trace(1).result(10)
    assert {span.trace_id for _, span in store.open_spans()} == {2}
    assert store.closed_traces(NOW_NS, 10) == [("", 1)]
    assert store.closed_traces(NOW_NS + 1, 10) == []


def test_the_latest_of_the_traces_that_are_closed_are_told_once_each_the_latest_last(store: Store) -> None:
    second = served([9.0], trace_id=2, closed_ns=NOW_NS + 2)
    again = replace(second.root or second.spans[0], span_id=99)
    put(
        store,
        replace(served([9.0], trace_id=3, closed_ns=NOW_NS + 3), root=None),  # its root never came
        second,
        replace(second, root=again, closed_ns=NOW_NS + 4),  # two runs of one trace
        served([9.0], trace_id=1, closed_ns=NOW_NS + 1),
        replace(served([9.0], trace_id=1, closed_ns=NOW_NS + 5), tenant="red"),
    )
    told = [("", 1), ("", 3), ("", 2), ("red", 1)]
    assert store.closed_traces(NOW_NS, 10) == told
    assert store.closed_traces(NOW_NS, 3) == told[1:]
    assert store.closed_traces(NOW_NS + 3, 10) == told[1:]


def test_what_is_old_goes(tmp_path: Path) -> None:
    now = [NOW_NS]
    retention = Retention(max_age_s=3600, every_s=0.05)
    store = Store(tmp_path / "runs.db", retention, clock=lambda: now[0])
    put(store, served([9.0], trace_id=1, closed_ns=NOW_NS), served([9.0], trace_id=2, closed_ns=NOW_NS + 1))
    store.put_spans(served([9.0], trace_id=3).spans).result(10)
    before = store.view().changes
    now[0] += 3600 * SECOND + 1
    while store.view().changes == before:
        store.put_spans([]).result(10)
    assert [run.closed_ns for run in store.view().runs(RunFilter()).runs] == [NOW_NS + 1]
    assert list(store.open_spans()) == []
    store.close()


def test_the_oldest_go_where_the_file_is_too_large(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db", Retention(max_bytes=1_500_000, every_s=0.05), clock=lambda: NOW_NS)
    for start in range(0, 3000, 500):
        put(
            store,
            *(served([9.0] * 5, trace_id=n + 1, closed_ns=NOW_NS + n) for n in range(start, start + 500)),
        )
    before = -1
    while store.view().changes != before:  # until nothing more goes
        before = store.view().changes
        store.put_spans([]).result(10)
    store.close()
    again = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    assert 0 < total_of(again) < 2500
    assert again.view().runs(RunFilter()).runs[0].closed_ns == NOW_NS + 2999, "the newest stay"
    again.close()


def on_disk(path: Path) -> int:
    """Bytes of the store's files, the write-ahead log included."""
    return sum(beside.stat().st_size for beside in path.parent.glob(f"{path.name}*"))


def test_what_was_removed_is_given_back_to_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = Store(path, Retention(every_s=3_600), clock=lambda: NOW_NS)
    long = {"gen_ai.output.messages": os.urandom(20_000).hex()}  # which cannot be packed
    for start in range(0, 1_200, 400):
        put(store, *(served([9.0], trace_id=n + 1, attributes=long) for n in range(start, start + 400)))
    store.close()
    assert path.stat().st_size > 24_000_000
    limit = 4_000_000
    rounds: list[int] = []

    def clock() -> int:
        rounds.append(1)  # one look at the clock in each
        return NOW_NS

    smaller = Store(path, Retention(max_bytes=limit, every_s=3_600), clock=clock)
    looks = 0
    while path.stat().st_size > limit and looks < 1_000:
        time.sleep(0.02)
        looks += 1
    assert path.stat().st_size <= limit, "while it is open"
    assert len(rounds) < 50, "for 6,600 pages"
    total = total_of(smaller)
    assert 120 < total < 190, "as many as there is room for"
    smaller.close()
    assert on_disk(path) <= limit


def test_a_clock_that_jumps_takes_nothing_away(tmp_path: Path) -> None:
    now = [NOW_NS]
    store = Store(tmp_path / "runs.db", Retention(max_age_s=86_400, every_s=0.02), clock=lambda: now[0])
    put(store, served([9.0], trace_id=1))
    looks: list[int] = []
    now[0] += 10 * 365 * 86_400 * SECOND
    for _ in range(20):
        store.put_spans([]).result(10)
        looks.append(total_of(store))
        time.sleep(0.02)
    now[0] = NOW_NS - 86_400 * SECOND  # and back, further than it was
    put(store, served([9.0], trace_id=2, closed_ns=now[0]))
    assert set(looks) == {1}
    assert [run.closed_ns for run in store.view().runs(RunFilter()).runs] == [
        NOW_NS,
        NOW_NS - 86_400 * SECOND,
    ]
    store.close()


def test_of_a_run_with_very_much_content_both_ends_are_kept(store: Store) -> None:
    run = agent_with_repeats(turns=20)
    told = {"gen_ai.tool.call.result": "x" * 4_000_000}
    heavy = tuple(
        replace(span, attributes={**span.attributes, **told}) if "execute_tool" in span.name else span
        for span in run.spans
    )
    put(store, replace(run, spans=heavy))
    found = store.view().run(store.view().runs(RunFilter()).runs[0].key)
    assert found is not None
    kept = sorted(found[1].spans, key=lambda span: span.start_ns)
    # 16 million characters at each end: four calls there, and the calls of the model between them.
    assert [span.name for span in kept if "execute_tool" in span.name] == [
        "execute_tool list_sources",
        *["execute_tool search"] * 7,
    ]
    assert found[1].left_out == 41 - len(kept)
    assert len(kept) == 18
    assert len(found[1].iterations) == 20


@pytest.mark.parametrize("wrong", ["max_age_s", "max_bytes", "every_s"])
def test_a_retention_of_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{wrong} is 0: it must be above 0"):
        Retention(**{wrong: 0})


def test_none_is_no_store() -> None:
    assert open_store("none") is None


def test_a_closed_store_refuses_and_what_was_put_before_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    future = store.put_run(served([9.0]))
    store.close()
    assert future.result(0) is None
    with pytest.raises(StoreError, match="is closed"):
        store.put_spans([]).result(0)
    again = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    assert total_of(again) == 1
    again.close()


KILLED = """
import sys
from support.served_runs import NOW_NS, served
from otel_loopeval.server.store.store import Store
store = Store(sys.argv[1], clock=lambda: NOW_NS)
number = 0
while True:
    number += 1
    futures = [store.put_spans(served([4.0, 9.0], trace_id=number).spans)]
    futures.append(store.put_run(served([9.0], trace_id=1_000_000 + number)))
    for future in futures:
        future.result(10)
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "runs.db")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 40:
            break
    process.send_signal(signal.SIGKILL)
    acknowledged = [40, *(int(line) for line in process.stdout if line.endswith("\n"))][-1]
    process.wait()
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)  # the lock went with the process
    assert {span.trace_id for _, span in store.open_spans()} >= set(range(1, acknowledged + 1))
    assert total_of(store) >= acknowledged
    closed = {trace_id for _, trace_id in store.closed_traces(0, 1_000_000)}
    assert closed >= {1_000_000 + number for number in range(1, acknowledged + 1)}
    store.close()


@pytest.mark.parametrize("verdict", [None, "unhealthy", "doom_loop", "healthy", "none"])
@pytest.mark.parametrize("agent", [None, "writer"])
@pytest.mark.parametrize("service", [None, "shop"])
@pytest.mark.parametrize("since_ns", [None, NOW_NS])
@pytest.mark.parametrize("tenant", [None, "red"])
def test_lists_are_read_from_an_index_in_their_order(
    tmp_path: Path,
    tenant: str | None,
    verdict: str | None,
    agent: str | None,
    service: str | None,
    since_ns: int | None,
) -> None:
    """However long the list is: nothing is sorted, and no table is read from one end to the other."""
    connection = open_writer(tmp_path / "runs.db")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    asked = RunFilter(verdict, agent, service, since_ns)
    for cursor in (None, Cursor(NOW_NS, "x"), Cursor(NOW_NS, "x", newer=True)):
        read_page(connection, tenant, asked, cursor, 50)
    read_counts(connection, tenant, asked)
    read_choices(connection, tenant, 50)
    connection.set_trace_callback(None)
    plans = [row[3] for text in statements for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    connection.close()
    assert len(statements) == 3 + 5 + 2
    assert [plan for plan in plans if "TEMP B-TREE" in plan or plan == "SCAN runs"] == []
    of_others = [
        plan for plan in plans if "runs" in plan and "tenant=?" not in plan and "(key=?)" not in plan
    ]
    assert tenant is None or of_others == []
