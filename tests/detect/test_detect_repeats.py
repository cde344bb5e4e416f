"""The same call with the same result: when it counts, when it does not, and what is reported."""

from typing import Any

import pytest
from detect_steps import events, fired, observe

from otel_loopeval.detect import DoomLoopDetector, Observation, ToolCall, UserMessage
from otel_loopeval.health.guards import GuardEvent

LIST = ToolCall("ls", {"path": "."}, "a b c")


def test_severity_grows_with_the_streak_and_is_reported_once_for_each_step():
    assert [(at, event.severity, event.count, event.doom_loop) for at, event in events([LIST] * 9)] == [
        (2, "notice", 2, False),
        (3, "warning", 3, False),
        (4, "doom_loop", 4, True),
    ]


def test_the_event_says_what_was_seen():
    seen = observe([ToolCall("ls", {}, "x", agent="scout", end_ns=n) for n in range(4)])
    assert seen[3] == Observation(
        redundant=True,
        repeats=3,
        evidence="exact",
        event=GuardEvent(
            kind="repeated_action",
            doom_loop=True,
            source="detector",
            action="observe",
            tool="ls",
            count=4,
            rule="exact",
            agent="scout",
            severity="doom_loop",
            key="0:0:scout",
            first_step=0,
            last_step=3,
            time_ns=3,
        ),
    )


def test_a_repeated_failure_has_its_own_kind():
    assert [event.kind for _, event in events([ToolCall("get", {}, error="boom")] * 4)][
        -1
    ] == "repeated_failure"


def test_one_call_is_nothing():
    assert observe([LIST]) == [Observation()]


def test_a_call_whose_result_moves_on_is_no_loop():
    steps = [ToolCall("status", {"id": 7}, f"{n} of 20 done") for n in range(20)]
    assert fired(steps) == []
    assert not any(one.redundant for one in observe(steps))


def test_calls_with_other_arguments_are_no_loop():
    assert events([ToolCall("read", {"page": n}, f"page {n}") for n in range(20)]) == []


def test_the_same_result_under_other_arguments_is_no_loop_unless_it_is_a_failure():
    assert events([ToolCall("grep", {"pattern": f"word{chr(97 + n)}"}, "no hits") for n in range(20)]) == []


@pytest.mark.parametrize(
    "same",
    [
        {"b": 1, "a": "x", "none": None, "empty": [], "nothing": {}, "blank": ""},
        '{"a": "x", "b": 1}',
        '  {"b":1,\n"a":"x", "c": null}  ',
    ],
)
def test_arguments_are_compared_by_what_they_say(same: Any):
    steps = [ToolCall("t", {"a": "x", "b": 1}, "r"), ToolCall("t", same, "r")] * 2
    assert fired(steps) == [(4, "exact")]


@pytest.mark.parametrize("empty", [{}, "", "{}", "null", {"a": None}, {"a": {"b": []}}])
def test_no_arguments_are_all_alike(empty: Any):
    assert fired([ToolCall("t", {}, "r"), ToolCall("t", empty, "r")] * 2) == [(4, "exact")]


def test_nearly_equal_arguments_are_not_equal():
    for one, other in (
        ({"n": -1}, {"n": -2}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "1 2"}, {"a": ["1", "2"]}),
    ):
        assert fired([ToolCall("t", one, "r"), ToolCall("t", other, "s")] * 2) == []


def test_malformed_arguments_are_compared_as_text():
    assert fired([ToolCall("<malformed>", '{"path": ', error="not JSON")] * 4) == [(4, "exact")]


def test_arguments_that_were_not_captured_are_never_grouped():
    seen = observe([ToolCall("bash", None)] * 12 + [ToolCall("bash", None, error="exit 1")] * 12)
    assert seen == [Observation()] * 24


def test_without_results_it_takes_one_repeat_more():
    assert fired([ToolCall("t", {"a": 1})] * 6) == [(5, "exact")]


def test_large_arguments_that_differ_in_the_middle_are_not_the_same():
    def large(n: int) -> ToolCall:
        return ToolCall("write", {"text": "x" * 99_999 + chr(97 + n) + "x" * 99_999}, "written")

    assert fired([large(n) for n in range(20)]) == []
    # What was only sampled at first is read in full once it seems to come back: one step later.
    assert fired([large(0)] * 6) == [(5, "exact")]


def test_large_results_that_differ_in_the_middle_are_not_the_same():
    steps = [ToolCall("read", {}, "x" * 99_999 + chr(97 + n) + "x" * 99_999) for n in range(20)]
    assert fired(steps) == []


def test_agents_are_judged_apart():
    steps = [ToolCall("ls", {}, "x", agent=name) for name in ("a", "b", "c") for _ in range(3)]
    assert fired(steps) == []
    mixed = [ToolCall("ls", {}, "x", agent=f"agent {n % 3}") for n in range(12)]
    assert [at for at, _ in fired(mixed)] == [10, 11, 12]


def test_agents_in_between_do_not_break_a_streak():
    steps: list[ToolCall] = []
    for n in range(4):
        steps += [ToolCall("ls", {}, "x", agent="a"), ToolCall("read", {"n": n}, str(n), agent="b")]
    assert fired(steps) == [(7, "exact")]


def test_parallel_calls_of_one_turn_are_one_unit():
    assert events([ToolCall("query", {"q": n % 2}, "up", turn=1) for n in range(12)]) == []


def test_a_turn_of_parallel_calls_that_comes_back_is_a_loop_in_whatever_order():
    steps: list[ToolCall] = []
    for turn in range(4):
        pair = [ToolCall("a", {}, "1", turn=turn), ToolCall("b", {}, "2", turn=turn)]
        steps += pair if turn % 2 else reversed(pair)
    assert fired(steps) == [(8, "exact")]
    assert [one.redundant for one in observe(steps)] == [False, False] + [True] * 6


def test_a_turn_that_grows_is_no_repetition():
    steps = [ToolCall("read", {"n": n}, str(n), turn=turn) for turn in range(5) for n in range(turn + 1)]
    assert fired(steps) == []


def test_the_user_speaking_starts_anew_unless_nobody_listens():
    steps = [LIST, LIST, UserMessage()] * 4
    assert fired(steps) == []
    assert fired(steps, user_resets=False) == [(5, "exact")]


def test_repeats_counts_earlier_sightings_with_whatever_result():
    seen = observe([LIST, ToolCall("cat", {}, "1"), LIST, ToolCall("cat", {}, "2")])
    assert [(one.redundant, one.repeats) for one in seen] == [(False, 0), (False, 0), (False, 1), (False, 1)]


def test_a_streak_that_comes_back_at_once_is_the_same_one_and_later_a_new_one():
    other = ToolCall("cat", {"f": "a"}, "text")
    assert len(fired([LIST] * 4 + [other] + [LIST] * 4)) == 1
    read = [ToolCall("cat", {"f": str(n)}, f"text {n}") for n in range(12)]
    both = [event for _, event in events([LIST] * 4 + read + [LIST] * 4) if event.doom_loop]
    assert [event.first_step for event in both] == [0, 16]
    assert both[0].key != both[1].key


def test_an_application_may_say_what_identifies_a_call():
    steps = [ToolCall("click", {"x": n, "target": "save"}, "ok") for n in range(4)]
    assert fired(steps) == []
    assert fired(steps, tool_identity=lambda step: step.arguments["target"]) == [(4, "exact")]


def test_an_identity_may_leave_it_to_the_detector_or_fail():
    def broken(step: ToolCall) -> str:
        raise RuntimeError(step.name)

    assert fired([LIST] * 4, tool_identity=lambda _: None, result_identity=lambda _: None) == [(4, "exact")]
    assert fired([LIST] * 4, tool_identity=broken, result_identity=broken) == [(4, "exact")]


def test_an_application_may_say_what_identifies_a_result():
    steps = [ToolCall("read", {}, {"etag": "v1", "body": f"{n} of 9 rows"}) for n in range(4)]
    assert fired(steps) == []
    assert fired(steps, result_identity=lambda step: step.result["etag"]) == [(4, "exact")]


def test_an_identity_stands_in_for_arguments_that_were_not_captured():
    assert fired([ToolCall("t", None, "r")] * 4, tool_identity=lambda step: step.name) == [(4, "exact")]


def test_doing_again_what_is_repeated_by_nature_takes_twice_as_long():
    assert fired([ToolCall("browser_scroll", {"by": 400}, "ok")] * 9) == [(8, "exact")]


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="poll_gap_s must be a positive number of seconds, not 0"):
        DoomLoopDetector(poll_gap_s=0)


def test_what_is_no_step_is_passed_over():
    assert DoomLoopDetector().observe("a string") == Observation()  # pyright: ignore[reportArgumentType]
