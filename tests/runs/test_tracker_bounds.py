"""The table of open runs is bounded in number and idle time, and every end is counted once."""

import threading

import pytest

from otel_loopeval.health import GuardEvent
from otel_loopeval.runs import run as run_module
from otel_loopeval.runs.run import LoopRun
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.verdict import Policy

S = 1_000_000_000
Evictions = list[tuple[str, str]]


def tracker(evicted: Evictions, **settings: object) -> Tracker:
    return Tracker(
        on_evict=lambda run, reason: evicted.append((run.agent, reason)),
        **settings,  # type: ignore[arg-type]
    )


def started(tracker: Tracker, agent: str, at_s: int = 0) -> LoopRun:
    run = LoopRun(agent, started_ns=at_s * S)
    tracker.start(run)
    return run


def test_runs_are_open_from_start_to_finish() -> None:
    table = Tracker()
    first, second = started(table, "a"), started(table, "b")
    assert table.open_runs() == [first, second]
    verdict = table.finish(first, 5 * S)
    assert verdict is not None
    assert verdict.health.total_duration_s == 5.0
    assert table.open_runs() == [second]


def test_a_run_is_judged_once() -> None:
    table = Tracker()
    run = started(table, "a")
    assert table.finish(run, 1) is not None
    assert table.finish(run, 2) is None


def test_an_outcome_declared_earlier_wins() -> None:
    table = Tracker()
    run = started(table, "a")
    run.outcome = "paused"
    verdict = table.finish(run, 1, outcome="failed")
    assert verdict is not None
    assert verdict.outcome == "paused"


def test_looking_ends_nothing() -> None:
    table = Tracker(Policy(threshold=5))
    run = started(table, "a")
    run.begin_iteration(1).score = 6
    assert table.look(run, 1).passed is True
    assert table.open_runs() == [run]
    run.begin_iteration(2)
    assert table.look(run, 2).passed is False


def test_the_oldest_goes_when_the_table_is_full() -> None:
    evicted: Evictions = []
    table = tracker(evicted, max_runs=2)
    for agent in ("a", "b", "c", "d"):
        started(table, agent)
    assert evicted == [("a", "capacity"), ("b", "capacity")]
    assert [run.agent for run in table.open_runs()] == ["c", "d"]


def test_a_run_that_was_heard_of_gets_a_second_chance() -> None:
    evicted: Evictions = []
    table = tracker(evicted, max_runs=2)
    busy, quiet = started(table, "busy"), started(table, "quiet")
    busy.begin_iteration(7 * S)
    started(table, "c")
    assert evicted == [("quiet", "capacity")]
    started(table, "d")  # busy has not been heard of since it was last looked at, nor has c
    assert evicted[1:] in ([("busy", "capacity")], [("c", "capacity")])
    assert quiet not in table.open_runs()


def test_where_all_are_busy_one_goes_all_the_same() -> None:
    evicted: Evictions = []
    table = tracker(evicted, max_runs=100)
    for number in range(100):
        started(table, f"agent-{number}").active_ns = S + number
    started(table, "one more")
    assert len(table.open_runs()) == 100
    assert len(evicted) == 1


def test_an_eviction_is_cheap_however_many_are_open() -> None:
    """At most 64 are looked at, so a full table of busy runs does not stall the program."""
    evicted: Evictions = []
    table = tracker(evicted, max_runs=5_000)
    runs = [started(table, f"agent-{number}") for number in range(5_000)]
    for run in runs:
        run.active_ns = 5
    started(table, "one more")
    assert evicted == [("agent-64", "capacity")]


def test_an_evicted_run_can_still_end() -> None:
    table = Tracker(max_runs=1)
    first = started(table, "a")
    started(table, "b")
    verdict = table.finish(first, S)
    assert verdict is not None


def test_an_evicted_run_lets_go_of_its_parent() -> None:
    table = Tracker(max_runs=1)
    parent = started(table, "parent")
    child = LoopRun("child", started_ns=0, parent=parent)
    table.start(child)
    table.start(LoopRun("other", started_ns=0))
    assert child.parent is None


def test_idle_runs_go_and_busy_ones_stay() -> None:
    evicted: Evictions = []
    table = tracker(evicted, max_idle_s=60)
    started(table, "idle")
    busy = started(table, "busy")
    busy.begin_iteration(50 * S)
    assert table.evict_idle(60 * S) == 0
    assert table.evict_idle(61 * S) == 1
    assert evicted == [("idle", "idle")]
    assert table.open_runs() == [busy]


def test_idle_runs_go_as_others_start() -> None:
    evicted: Evictions = []
    table = tracker(evicted, max_idle_s=60)
    started(table, "idle", at_s=1)
    started(table, "second", at_s=50)
    assert evicted == []
    started(table, "third", at_s=100)
    assert evicted == [("idle", "idle")]
    assert [run.agent for run in table.open_runs()] == ["second", "third"]


def test_without_a_limit_a_run_may_wait_for_days() -> None:
    table = Tracker()
    started(table, "patient")
    assert table.evict_idle(30 * 86_400 * S) == 0


@pytest.mark.parametrize("fact", ["iteration", "guard"])
def test_facts_are_signs_of_life(fact: str) -> None:
    table = Tracker(max_idle_s=60)
    run = started(table, "a")
    if fact == "iteration":
        run.begin_iteration(100 * S)
    else:
        run.add_guard_event(GuardEvent(time_ns=100 * S))
    assert table.evict_idle(120 * S) == 0


def test_forget_starts_afresh() -> None:
    table = Tracker()
    run = started(table, "parents")
    table.lock.acquire()  # a thread of the parent held it as the process was forked
    assert table.forget() == [run]
    assert run.closed
    assert table.open_runs() == []
    assert table.finish(run, 1) is None
    assert started(table, "childs") in table.open_runs()


def test_evictions_are_told_outside_of_the_lock() -> None:
    seen: list[bool] = []

    def take() -> None:
        seen.append(table.lock.acquire(blocking=False))
        table.lock.release()

    def told(_run: LoopRun, _reason: str) -> None:
        other = threading.Thread(target=take)  # another one, since the lock is reentrant
        other.start()
        other.join()

    table = Tracker(max_runs=1, on_evict=told)
    started(table, "a")
    started(table, "b")
    assert seen == [True]


def test_many_threads() -> None:
    table = Tracker(max_runs=50)
    verdicts: list[object] = []

    def work() -> None:
        for _ in range(500):
            run = LoopRun("a", started_ns=0)
            table.start(run)
            run.begin_iteration(1)
            verdicts.append(table.finish(run, 2))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(verdicts) == 4_000
    assert None not in verdicts
    assert table.open_runs() == []


# One run ------------------------------------------------------------------------------------------------


def test_iterations_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAX_ITERATIONS_KEPT", 10)
    run = LoopRun("a", started_ns=0)
    for number in range(1, 26):
        run.begin_iteration(number).score = float(number)
    assert run.iteration_count == 25
    assert len(run.iterations) == 10
    assert [iteration.number for iteration in run.iterations][:3] == [1, 2, 3]
    assert [iteration.number for iteration in run.iterations][-3:] == [23, 24, 25]


def test_guard_events_beyond_the_bound_are_counted() -> None:
    run = LoopRun("a", started_ns=0)
    for _ in range(1_500):
        run.add_guard_event(GuardEvent())
    assert (run.interventions, len(run.guard_events)) == (1_500, 1_000)


def test_streaks_are_bounded() -> None:
    run = LoopRun("a", started_ns=0)
    fired = [run.add_guard_event(GuardEvent(doom_loop=True, key=str(number))) for number in range(1_500)]
    assert sum(fired) == 1_000


def test_one_doom_loop_per_agent_and_streak() -> None:
    run = LoopRun("a", started_ns=0)
    events = [
        GuardEvent(doom_loop=True, key="k", agent="x"),
        GuardEvent(doom_loop=True, key="k", agent="x"),
        GuardEvent(doom_loop=True, key="k", agent="y"),
        GuardEvent(doom_loop=True, key="other", agent="x"),
        GuardEvent(doom_loop=True, tool="grep"),
        GuardEvent(doom_loop=True, tool="grep"),
        GuardEvent(doom_loop=True, tool="search"),
    ]
    assert [run.add_guard_event(event) for event in events] == [True, False, True, True, True, False, True]


def test_an_event_that_fires_in_the_ancestors_too_counts_in_none_of_them() -> None:
    outer = LoopRun("outer", started_ns=0)
    middle = LoopRun("middle", started_ns=0, parent=outer)
    inner = LoopRun("inner", started_ns=0, parent=middle)
    assert inner.add_guard_event(GuardEvent(doom_loop=True))
    assert [run.doom_loop_fired for run in (outer, middle, inner)] == [True, True, True]
    assert [run.own_doom_loop for run in (outer, middle, inner)] == [False, False, True]
    assert [run.interventions for run in (outer, middle, inner)] == [0, 0, 1]
