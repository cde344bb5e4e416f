"""Failures: the same one over and over is a loop, an outage that is retried with patience is not."""

import pytest
from detect_steps import events, fired, spaced

from otel_loopeval.detect import ToolCall
from otel_loopeval.detect.outcomes import looks_failed, looks_like_outage


def test_one_tool_that_fails_in_the_same_way_under_other_arguments_is_a_loop():
    steps = [ToolCall("get", {"id": f"rec-{n}"}, error=f"record rec-{n} not found") for n in range(6)]
    found = events(steps)
    assert [(at, event.severity) for at, event in found] == [(3, "notice"), (4, "warning"), (5, "doom_loop")]
    assert (found[2][1].rule, found[2][1].kind) == ("error_family", "repeated_failure")
    assert (found[2][1].first_step, found[2][1].last_step) == (0, 4)


def test_a_failure_may_be_the_text_of_a_result():
    steps = [ToolCall("get", {"id": n}, f"Error: record {n} not found") for n in range(7)]
    # The first one is only looked at closely once the same tool is called again.
    assert fired(steps) == [(6, "error_family")]


def test_failures_of_several_kinds_are_no_loop():
    reasons = ["no such file", "permission denied", "is a directory", "file too large", "bad encoding"]
    assert fired([ToolCall("read", {"n": n}, error=reason) for n, reason in enumerate(reasons * 2)]) == []


def test_a_success_in_between_ends_the_row():
    steps = [
        ToolCall("get", {"id": n}, "found" if n % 4 == 3 else None, None if n % 4 == 3 else "missing")
        for n in range(16)
    ]
    assert fired(steps) == []


def test_growing_pauses_in_an_outage_are_no_loop():
    steps: list[ToolCall] = []
    for n in range(8):
        start = 2**n
        steps.append(
            ToolCall(
                "fetch",
                {},
                error="HTTP 429 Too Many Requests",
                start_ns=start * 10**9,
                end_ns=start * 10**9 + 10,
            )
        )
    assert fired(steps) == []


def test_long_pauses_in_an_outage_are_no_loop():
    assert fired(spaced([ToolCall("fetch", {}, error="503 Service Unavailable")] * 20, gap=12)) == []


def test_hammering_in_an_outage_is_a_loop():
    assert fired(spaced([ToolCall("fetch", {}, error="HTTP 429 Too Many Requests")] * 6, gap=0.5)) == [
        (4, "exact")
    ]


def test_an_outage_without_times_gets_twice_the_patience():
    assert fired([ToolCall("fetch", {}, error="HTTP 429 Too Many Requests")] * 9) == [(8, "exact")]


def test_a_failure_that_is_no_outage_is_a_loop_at_ten_seconds_too():
    assert fired(spaced([ToolCall("fetch", {}, error="404 not found")] * 5, gap=12)) == [(4, "exact")]


def test_an_edit_that_succeeded_and_is_tried_again_is_a_loop():
    edit = {"file": "a.py", "old": "x", "new": "y"}
    steps = [ToolCall("edit", edit, "edited")] + [ToolCall("edit", edit, error="old text not found")] * 5
    assert [at for at, _ in fired(steps)] == [5]


@pytest.mark.parametrize(
    "text",
    [
        "Error: nope",
        "Traceback (most recent call last):\n  File",
        "Command write returned: Error: bad argument",
        "ValueError: x",
        "bash: foo: command not found",
        "cat: a.txt: No such file or directory",
        "exit code: 1",
        "Process exited with code 2",
        "HTTP 404 for /x",
        '{"error": "quota"}',
        '{"status": "error", "message": "x"}',
        '{"success": false}',
        "usage: tool [-h]",
        "Invalid argument",
    ],
)
def test_failures_are_read_from_the_text(text: str):
    assert looks_failed(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ok",
        "0 errors, 0 warnings",
        "12 passed",
        '{"error": null, "rows": 3}',
        '{"success": true}',
        "exit code: 0",
        "def error_handler(): return 1",
        "returned 3 rows",
        "HTTP 200",
    ],
)
def test_what_is_no_failure_is_not_read_as_one(text: str):
    assert not looks_failed(text)


def test_outages_are_told_from_other_failures():
    assert looks_like_outage("HTTP 503 Service Unavailable")
    assert looks_like_outage("rate limit exceeded")
    assert looks_like_outage("Connection refused")
    assert looks_like_outage("read timed out")
    assert not looks_like_outage("HTTP 404 not found")
    assert not looks_like_outage("old text not found")
