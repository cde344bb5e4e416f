"""Loops over several calls: rotations, interleaved repeats, wandering among the same calls."""

import pytest
from detect_steps import events, fired

from otel_loopeval.detect import ToolCall


def read(name: str, text: str | None = None) -> ToolCall:
    return ToolCall("read", {"file": name}, text or f"text of {name}")


@pytest.mark.parametrize("period", [2, 3, 4, 5])
def test_a_rotation_is_a_loop_after_three_rounds(period: int):
    steps = [read("abcde"[n % period]) for n in range(6 * period)]
    assert fired(steps) == [(3 * period, "cycle")]
    event = events(steps)[-1][1]
    assert (event.kind, event.count, event.first_step, event.last_step) == (
        "circular_plan",
        3,
        0,
        3 * period - 1,
    )


def test_a_longer_rotation_is_no_progress():
    steps = [read("abcdefg"[n % 7]) for n in range(40)]
    assert fired(steps) == [(19, "no_progress")]
    assert events(steps)[-1][1].kind == "no_progress"


def test_wandering_among_the_same_calls_is_no_progress():
    order = "abcdef" + "fadbecfbdaec"
    assert fired([read(name) for name in order]) == [(18, "no_progress")]


def test_a_rotation_in_which_something_moves_on_is_no_loop():
    steps: list[ToolCall] = []
    for n in range(12):
        steps += [ToolCall("list", {}, "a b"), ToolCall("status", {}, f"{n} of 12")]
    assert fired(steps) == []


def test_testing_after_each_edit_is_no_loop_even_if_the_test_goes_on_failing():
    steps: list[ToolCall] = []
    for n in range(12):
        steps += [ToolCall("edit", {"file": f"{n}.py"}, "edited"), ToolCall("run_tests", {}, "1 failed")]
    assert fired(steps) == []


def test_the_same_edit_and_the_same_test_in_turn_are_a_loop():
    pair = [ToolCall("edit", {"file": "a.py", "new": "x"}, "edited"), ToolCall("run_tests", {}, "1 failed")]
    assert fired(pair * 4) == [(6, "cycle")]


def test_a_failing_test_between_reads_is_a_loop():
    steps: list[ToolCall] = []
    for n in range(7):
        steps += [ToolCall("run_tests", {}, "1 failed"), read(f"{n}.py")]
    assert fired(steps) == [(11, "interleaved")]


def test_a_failing_test_between_edits_that_fail_is_a_loop():
    steps: list[ToolCall] = []
    for n in range(7):
        steps += [
            ToolCall("run_tests", {}, "1 failed"),
            ToolCall("edit", {"old": str(n)}, error=f"no text {n}"),
        ]
    assert fired(steps) == [(11, "interleaved")]


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("cat a{n}.py", False),
        ("cd /srv && grep -rn x{n} . 2>/dev/null | head", False),
        ("git log -{n}", False),
        ("sed -i s/a/b{n}/ a.py", True),
        ("echo x{n} > a.py", True),
        ("cat a{n} | xargs rm", True),
        ("python fix{n}.py", True),
    ],
)
def test_what_a_shell_command_does_decides_whether_a_test_is_verification(command: str, changes: bool):
    steps: list[ToolCall] = []
    for n in range(7):
        steps += [
            ToolCall("run_tests", {}, "1 failed"),
            ToolCall("bash", {"command": command.format(n=n)}, f"out {n}"),
        ]
    assert bool(fired(steps)) is not changes


HITS = "\n".join(f"src/module_{n}.py:{n}: def parse_config(path)" for n in range(4))


def test_the_same_long_answer_to_whatever_is_asked_is_no_progress():
    steps = [ToolCall("search", {"q": f"parse config {word}"}, HITS) for word in "abcdefgh"]
    found = events(steps)
    assert [(at, event.rule, event.severity) for at, event in found] == [
        (4, "no_progress", "notice"),
        (5, "no_progress", "warning"),
        (6, "no_progress", "doom_loop"),
    ]
    assert found[2][1].first_step == 0


def test_the_same_answer_to_changes_is_no_loop():
    assert events([ToolCall("edit", {"text": word}, "It was edited. " * 9) for word in "abcdefgh"]) == []


def test_a_call_that_comes_back_now_and_then_is_no_loop():
    steps: list[ToolCall] = []
    for n in range(60):
        steps.append(ToolCall("todo_list", {}, "3 open") if n % 10 == 0 else read(f"{n}.py"))
    assert events(steps) == []


def test_a_standing_alarm_about_failures_hides_no_exact_streak():
    failing = [ToolCall("get", {"id": f"r{n}"}, error="missing") for n in range(6)]
    steps = failing + [ToolCall("get", {"id": "r9"}, error="missing")] * 4
    both = [event for _, event in events(steps) if event.doom_loop]
    assert [event.rule for event in both] == ["error_family", "exact"]
    assert both[0].key != both[1].key


def test_one_streak_is_reported_once_however_many_rules_see_it():
    same = [ToolCall("get", {"id": "r1"}, error="missing")] * 20
    assert fired(same) == [(4, "exact")]


def test_a_broader_rule_that_goes_on_with_a_streak_has_its_key():
    same = [ToolCall("get", {"id": "r1"}, error="missing")] * 4
    others = [ToolCall("get", {"id": f"s{n}"}, error="missing") for n in range(12)]
    both = [(at, event) for at, event in events(same + others) if event.doom_loop]
    assert [(at, event.rule) for at, event in both] == [(4, "exact"), (13, "error_family")]
    assert both[0][1].key == both[1][1].key


def test_a_long_loop_makes_few_events():
    for period in (1, 2, 5, 6, 8, 9, 20):
        assert len(fired([read(str(n % period)) for n in range(400)])) == 1
