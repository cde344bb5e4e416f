"""Messages of the model: the same one in a row, in turn, or one that chants."""

import pytest
from detect_steps import events, fired, observe

from otel_loopeval.detect import ModelOutput, ToolCall, UserMessage
from otel_loopeval.detect.chanting import longest_chant

SORRY = ModelOutput("I am sorry, I will try again.")


def test_the_same_message_three_times_is_a_loop():
    found = events([SORRY] * 5)
    assert [(at, event.severity) for at, event in found] == [(2, "warning"), (3, "doom_loop")]
    assert (found[1][1].kind, found[1][1].rule, found[1][1].tool) == (
        "repeated_output",
        "repeated_output",
        None,
    )
    assert [(one.redundant, one.repeats) for one in observe([SORRY] * 3)] == [
        (False, 0),
        (True, 1),
        (True, 2),
    ]


def test_messages_in_turn_are_a_loop():
    assert fired([SORRY, ModelOutput("Thank you for waiting.")] * 4) == [(6, "output_cycle")]


def test_the_same_message_before_new_work_is_no_loop():
    steps: list[ToolCall | ModelOutput] = []
    for n in range(10):
        steps += [ModelOutput("Let me continue."), ToolCall("read", {"page": n}, f"page {n}")]
    assert fired(steps) == []


def test_the_same_words_before_the_same_call_count_no_more_than_the_call():
    steps = [ModelOutput("Let me check."), ToolCall("check", {}, "not yet")] * 4
    assert fired(steps) == [(7, "repeated_output")]
    assert fired(steps[:6]) == []


def test_messages_between_do_not_break_a_row_of_calls():
    steps: list[ToolCall | ModelOutput] = []
    for n in range(4):
        steps += [ModelOutput(f"Attempt number {n}, now with more care."), ToolCall("ls", {}, "a b")]
    assert fired(steps) == [(8, "exact")]


def test_messages_of_one_turn_are_one():
    assert events([ModelOutput("Hello there.", turn=1)] * 6) == []


def test_messages_that_were_not_captured_or_say_nothing_are_not_grouped():
    for text in (None, "", "  \n", "-----", "***"):
        assert events([ModelOutput(text)] * 6) == []


def test_the_user_speaking_starts_anew():
    assert fired([SORRY, SORRY, UserMessage()] * 3) == []
    assert fired([SORRY, UserMessage()] * 3, user_resets=False) == [(5, "repeated_output")]


@pytest.mark.parametrize(
    "text",
    [
        "The ruling of the " + "court " * 60,
        "First some words of introduction, then: " + "I will now check the configuration file again. " * 12,
        "Well. "
        + (
            "This paragraph explains at length, in words that take up a good deal of room, what was done "
            "and why, and it goes on until there are more than enough of them to fill a line. "
        )
        * 6,
        "no " * 400 + "and so on",
    ],
)
def test_a_message_that_chants_is_a_loop(text: str):
    assert fired([ModelOutput(text)]) == [(1, "chanting")]


@pytest.mark.parametrize(
    "text",
    [
        "Files checked:\n"
        + "\n".join(f"- /srv/portal/backend/services/module_{n:03d}.py ok" for n in range(80)),
        "| name | state |\n|---|---|\n" + "| service | ok |\n" * 25,
        "=" * 400 + "\n" + "-" * 400,
        "0, " * 300,
        "```html\n<tr>" + "<td></td>" * 40 + "</tr>\n```",
        "It was a very, very, very, very long day. " + " ".join(f"Sentence {n} is new." for n in range(40)),
        "ha " * 15,
        " ".join(f"word{n}" for n in range(2000)),
    ],
)
def test_lists_tables_code_and_rules_do_not_chant(text: str):
    assert events([ModelOutput(text)]) == []


def test_a_chant_at_the_end_of_a_very_long_message_is_found():
    text = " ".join(f"word{n}" for n in range(20_000)) + " and again and again" * 100
    assert fired([ModelOutput(text)]) == [(1, "chanting")]


def test_a_chant_is_measured():
    assert longest_chant("x" * 30 + "I will try once more now. " * 20)[:2] == (20, 26)
