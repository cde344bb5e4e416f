"""Time: a slow poll is no loop, a fast one is, and thinking is not waiting."""

from detect_steps import SECOND, fired, spaced

from otel_loopeval.detect import ModelOutput, ToolCall
from otel_loopeval.detect.clock import Clock

STATUS = ToolCall("job_status", {"id": "d1"}, "RUNNING")


def test_a_slow_poll_is_no_loop():
    assert fired(spaced([STATUS] * 30, gap=60)) == []


def test_a_fast_poll_is_a_loop():
    assert fired(spaced([STATUS] * 30, gap=5)) == [(4, "exact")]


def test_how_slow_is_slow_is_an_option():
    assert fired(spaced([STATUS] * 30, gap=5), poll_gap_s=4) == []
    assert fired(spaced([STATUS] * 30, gap=60), poll_gap_s=150) == [(4, "exact")]


def test_what_is_under_way_is_worth_half_the_patience():
    assert fired(spaced([STATUS] * 30, gap=15)) == []
    assert fired(spaced([ToolCall("grep", {"p": "x"}, "a.py:3: x")] * 30, gap=15)) == [(4, "exact")]


def test_thinking_is_not_waiting_where_the_models_calls_are_shown():
    steps: list[ToolCall | ModelOutput] = []
    now = 0
    for _ in range(6):
        steps.append(ModelOutput(None, start_ns=now, end_ns=now + 60 * SECOND))
        now += 61 * SECOND
        steps.append(ToolCall("job_status", {}, "RUNNING", start_ns=now, end_ns=now + SECOND))
        now += SECOND
    assert fired(steps) == [(8, "exact")]


def test_what_other_agents_do_is_not_waiting():
    steps: list[ToolCall] = []
    now = 0
    for n in range(5):
        steps.append(ToolCall("job_status", {}, "RUNNING", agent="a", start_ns=now, end_ns=now + SECOND))
        busy = ToolCall(
            "build", {"n": n}, f"built {n}", agent="b", start_ns=now + SECOND, end_ns=now + 90 * SECOND
        )
        steps.append(busy)
        now += 91 * SECOND
    assert fired(steps) == [(7, "exact")]


def test_waiting_on_purpose_between_looks_is_patience():
    wait = ToolCall("wait", {"seconds": 20}, "waited")
    steps: list[ToolCall] = []
    for n in range(10):
        at = n * 22 * SECOND
        steps += [
            ToolCall("wait", {"seconds": 20}, "waited", start_ns=at, end_ns=at + 20 * SECOND),
            ToolCall("job_status", {}, "RUNNING", start_ns=at + 21 * SECOND, end_ns=at + 22 * SECOND),
        ]
    assert fired(steps) == []
    # Without times the name alone tells.
    assert fired([wait, STATUS] * 10) == []


def test_a_wait_that_does_not_wait_is_a_loop():
    assert fired(spaced([ToolCall("wait", {"seconds": 20}, "waited")] * 5, gap=0.1, duration=0.01)) == [
        (4, "exact")
    ]


def test_a_command_that_sleeps_before_it_looks_is_patience():
    sleepy = ToolCall("bash", {"command": "sleep 20 && cat log"}, "no new lines")
    assert fired(spaced([sleepy] * 10, gap=0.1, duration=20)) == []


def test_a_blocking_poll_of_something_under_way_is_patience_but_a_slow_test_is_not():
    blocking = ToolCall("get_job", {"id": 1}, "still running")
    assert fired(spaced([blocking] * 10, gap=0.1, duration=60)) == []
    assert fired(spaced([ToolCall("run_tests", {}, "1 failed")] * 5, gap=0.1, duration=60)) == [(4, "exact")]


def test_a_poll_whose_pauses_keep_growing_is_patience():
    steps: list[ToolCall] = []
    at = 0.0
    for n in range(5):
        at += 4 * 1.6**n
        steps.append(
            ToolCall("job_status", {}, "RUNNING", start_ns=int(at * SECOND), end_ns=int(at * SECOND))
        )
    assert fired(steps) == []


def test_a_pause_ends_a_streak_and_what_follows_counts_anew():
    fast = spaced([STATUS] * 3, gap=1)
    later = [
        ToolCall(
            s.name,
            s.arguments,
            s.result,
            start_ns=(s.start_ns or 0) + 100 * SECOND,
            end_ns=(s.end_ns or 0) + 100 * SECOND,
        )
        for s in spaced([STATUS] * 4, gap=1)
    ]
    assert fired(fast + later) == [(7, "exact")]


def test_times_may_be_missing_reversed_or_overlapping():
    clock = Clock()
    assert clock.see(None, None) == 0
    assert not clock.known
    assert clock.see(10 * SECOND, 5 * SECOND) == 0
    assert clock.see(None, 12 * SECOND) == 0
    assert clock.see(11 * SECOND, 20 * SECOND) == 9 * SECOND
    assert clock.idle == 2 * SECOND
    clock.skip(30 * SECOND)
    assert clock.see(31 * SECOND, None) == 0
    assert clock.idle == 3 * SECOND
