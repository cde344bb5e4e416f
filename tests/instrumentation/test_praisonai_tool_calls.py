"""Tool calls of real PraisonAI agents: a span each, and a step that the detectors are shown as it ends."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        importlib.util.find_spec("openai") is None, reason="praisonaiagents' agents need openai"
    ),
]

WAYS = ["in_turn", "in_a_task"]
"""``Agent.chat``, and ``Agent.achat``."""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the program printed."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("tool_calls_app.py"))],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("TOLD "))


def spans(tree: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The spans of a name's first word, in the order in which they started."""
    found: list[dict[str, Any]] = []
    for span in tree:
        found.extend([span] if span["name"].split()[0] == name else [])
        found.extend(spans(span["children"], name))
    return sorted(found, key=lambda span: span["id"])


def without(attributes: dict[str, Any], *words: str) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not any(word in key for word in words)}


@pytest.mark.parametrize("way", WAYS)
def test_calls_of_one_turn_are_shown_with_it(told: dict[str, Any], way: str) -> None:
    got = told[f"parallel {way}"]
    first, second = (got["steps"][position][-1] for position in (0, 3))
    assert first != second
    for turn, number in ((first, 0), (second, 2)):
        steps = [step[:-1] for step in got["steps"] if step[-1] == turn]
        assert steps[0] == ["ModelOutput", None, None, "Both at once.", None, "", "writer"]
        # They may end in any order.
        assert sorted(steps[1:], key=str) == [
            ["ToolCall", "look_up", {"what": f"{number}-{n}"}, None, f"All about {number}-{n}.", "", "writer"]
            for n in (1, 2)
        ]
    # The answer is shown once, by the iteration.
    assert [step[:4] for step in got["steps"][6:]] == [["ModelOutput", None, None, "Done."]]
    assert got["fired"] == []


def test_the_answer_is_shown_where_no_iteration_does_so(told: dict[str, Any]) -> None:
    steps = told["no iteration"]["steps"]
    assert len(steps) == 7
    assert steps[-1][:-1] == ["ModelOutput", None, None, "Done.", None, "", "writer"]


@pytest.mark.parametrize("way", WAYS)
def test_spans_of_tool_calls(told: dict[str, Any], way: str) -> None:
    (root,) = told[f"parallel {way}"]["tree"]
    (it,) = root["children"]
    tools = spans([root], "execute_tool")
    assert {tool["parent_id"] for tool in tools} == {it["id"]}
    assert {(tool["name"], tool["kind"], tool["status"]) for tool in tools} == {
        ("execute_tool look_up", "INTERNAL", "UNSET")
    }
    told_of = sorted(
        (without(tool["attributes"], "fingerprint") for tool in tools), key=lambda a: a["gen_ai.tool.call.id"]
    )
    assert told_of == [
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look_up",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
        }
        for call_id in ("call-0-1", "call-0-2", "call-2-1", "call-2-2")
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_is_repeated_fires_while_the_run_goes_on(told: dict[str, Any], way: str) -> None:
    got = told[f"stubborn {way}"]
    assert got["fired"][0] == ["exact", "detector", "look_up"]
    # What the tool itself sees of the run, each time that it is called.
    assert got["seen"] == [False] * 4 + [True] * 4
    (root,) = got["tree"]
    events = [event["attributes"] for event in root["children"][0]["events"]]
    (event,) = [event for event in events if event["loopeval.guard.source"] == "detector"]
    assert event == {
        "loopeval.guard.kind": "repeated_action",
        "loopeval.guard.doom_loop": True,
        "loopeval.guard.source": "detector",
        "loopeval.guard.action": "observe",
        "loopeval.guard.tool": "look_up",
        "loopeval.guard.count": 4,
        "loopeval.guard.iteration": 1,
        "loopeval.guard.rule": "exact",
    }
    prints = {tool["attributes"]["loopeval.step.fingerprint"] for tool in spans([root], "execute_tool")}
    assert len(prints) == 1


def test_the_notes_of_the_packages_own_guards_are_no_results(told: dict[str, Any]) -> None:
    for way in WAYS:
        results = {step[4] for step in told[f"stubborn {way}"]["steps"] if step[0] == "ToolCall"}
        assert results == {"All about the same."}


def test_a_tool_that_raises_ends_a_chat(told: dict[str, Any]) -> None:
    assert told["error in_turn"] == "ToolExecutionError"
    got = told["broken in_turn"]
    (tool,) = spans(got["tree"], "execute_tool")
    assert tool["status"] == "ERROR"
    assert tool["attributes"]["error.type"] == "praisonaiagents.errors.ToolExecutionError"
    assert tool["description"] is None
    (call,) = [step for step in got["steps"] if step[0] == "ToolCall"]
    assert (call[1], call[4], "no it" in call[5]) == ("raises", None, True)


def test_errors_that_come_as_results_are_errors(told: dict[str, Any]) -> None:
    got = told["broken in_a_task"]
    tools = spans(got["tree"], "execute_tool")
    assert [(tool["name"], tool["status"], tool["attributes"].get("error.type")) for tool in tools] == [
        ("execute_tool raises", "ERROR", "_OTHER"),
        ("execute_tool reports", "ERROR", "_OTHER"),
        ("execute_tool look_up", "UNSET", None),
    ]
    calls = [step for step in got["steps"] if step[0] == "ToolCall"]
    assert [call[4:6] for call in calls] == [
        [None, "Error executing raises: no it"],
        [None, "no it either"],
        ["All about it.", ""],
    ]


def test_calls_outside_of_any_run_are_spans(told: dict[str, Any]) -> None:
    got = told["outside"]
    assert got["steps"] == []
    assert [root["name"] for root in got["tree"]].count("execute_tool look_up") == 4


def test_arguments_and_results_are_recorded_only_if_content_is(told: dict[str, Any]) -> None:
    tools = spans(told["content"]["tree"], "execute_tool")
    content = sorted(
        (tool["attributes"]["gen_ai.tool.call.arguments"], tool["attributes"]["gen_ai.tool.call.result"])
        for tool in tools
    )
    assert content[0] == ('{"what": "0-1"}', '"All about 0-1."')
    for name in ("parallel in_turn", "outside", "broken in_a_task"):
        for tool in spans(told[name]["tree"], "execute_tool"):
            assert not [key for key in tool["attributes"] if key.endswith(("arguments", "call.result"))]


def test_nothing_was_swallowed(told: dict[str, Any]) -> None:
    assert told["errors"] == {}
