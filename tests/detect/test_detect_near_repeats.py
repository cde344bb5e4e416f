"""Repeats that differ in what changes by itself: ids, times, counters, references."""

import pytest
from detect_steps import events, fired, observe

from otel_loopeval.detect import ToolCall
from otel_loopeval.detect.normalise import error_family, normalise, normalise_arguments


@pytest.mark.parametrize(
    ("text", "calm"),
    [
        ("done at 2024-05-01T10:00:07.123Z", "done at #"),
        ("done at 10:00:07, took 0.34 s", "done at # took # s"),
        ("took 120ms", "took #"),
        ("request_id: req_9a8f state RUNNING", "request_id : # state RUNNING".replace(" :", ":")),
        ('{"requestId": "ab12-9", "state": "RUNNING"}', "requestId : # state : RUNNING"),
        ("pid=331 port 8080", "pid=# port #"),
        ("attempt 3 of 10 failed", "attempt # of 10 failed"),
        ("object at 0x7f33aa0012", "object at #"),
        ("id 123e4567-e89b-12d3-a456-426614174000 ok", "id # ok"),
        ("since 1714550000 up", "since # up"),
        ("wrote /tmp/tmpab12cd34/out.txt fine", "wrote # fine"),
        ("button [ref=e12] Submit", "button ref=# Submit"),
    ],
)
def test_what_changes_by_itself_is_taken_out(text: str, calm: str):
    assert normalise(text) == calm


@pytest.mark.parametrize(
    "text",
    [
        "step 3 of 12 done",
        "6 failed 4 passed",
        "page 7 of 9",
        "42% done",
        "row 3: value 24",
        "commit 1f3870be274f6c49b3e31a0c6728957f1f3870be",
    ],
)
def test_what_may_be_progress_is_kept(text: str):
    assert normalise(text) == text


def test_a_result_that_is_only_an_id_says_just_that():
    assert normalise("e2594ed50d260594") == "e2594ed50d260594"


def test_a_result_that_differs_only_in_times_and_ids_is_a_loop_one_step_later():
    steps = [ToolCall("poll", {"id": 1}, f"idle at 10:00:{n:02d}, request_id=r-{n}") for n in range(6)]
    assert fired(steps) == [(5, "normalised")]
    assert [one.redundant for one in observe(steps)] == [False, False, True, True, True, True]


def test_a_result_that_moves_on_beside_a_time_is_no_loop():
    steps = [ToolCall("poll", {"id": 1}, f"{n} rows at 10:00:{n:02d}") for n in range(20)]
    assert events(steps) == []


def test_stored_fingerprints_are_compared_as_they_are():
    steps = [ToolCall("poll", "0f3c", f"{n:016x}") for n in range(11, 31)]
    assert fired(steps) == []
    assert fired([ToolCall("poll", "0f3c", "e2594ed50d260594")] * 4) == [(4, "exact")]


def test_one_button_under_a_fresh_reference_is_a_loop():
    steps = [ToolCall("click", {"ref": f"E{n * 7}", "label": "Submit"}, "name is required") for n in range(6)]
    assert fired(steps) == [(5, "normalised")]


def test_elements_told_apart_only_by_reference_are_no_loop():
    assert fired([ToolCall("click", {"ref": f"E{n}"}, "clicked") for n in range(12)]) == []


def test_the_models_own_reasoning_does_not_tell_calls_apart():
    steps = [ToolCall("ls", {"path": ".", "reasoning": f"reason {'abcdef'[n]}"}, "a b c") for n in range(6)]
    assert fired(steps) == [(5, "normalised")]


def test_case_and_spacing_of_a_query_do_not_tell_calls_apart_if_the_results_are_the_same():
    queries = ["Doom loop", "doom loop", "doom  loop", "DOOM LOOP", " doom loop", "Doom Loop"]
    assert fired([ToolCall("search", {"q": query}, "3 hits") for query in queries]) == [(5, "normalised")]


def test_arguments_that_are_no_mapping_have_nothing_to_take_out():
    assert normalise_arguments("plain text") is None
    assert normalise_arguments(["ref"]) is None
    assert normalise_arguments({"ref": "e1"}) is None
    assert normalise_arguments('{"ref": "e1", "element": "Save"}') == "element=save"


def test_errors_of_one_kind_are_one_family():
    assert error_family("HTTP 404: record rec-100 not found") == error_family(
        "HTTP 404: record rec-7 not found"
    )
    assert error_family("HTTP 404: not found") != error_family("HTTP 500: not found")
    assert error_family("no file 'a.py' in /srv/x") == error_family("no file 'b.py' in /srv/y/z")


def test_normalising_a_huge_text_keeps_what_lies_in_the_middle():
    assert normalise("a " * 20_000 + "b" + " a" * 20_000) != normalise("a " * 20_000 + "c" + " a" * 20_000)
