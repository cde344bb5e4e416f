"""The guards that a real Agent of praisonaiagents has, in turns against a stub of the OpenAI API.

In a process of its own, since the package reads its environment when it is imported.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.openai_stub import JsonObject, OpenAIStub, message, prompt_text, tool_call

pytestmark = pytest.mark.e2e

PROGRAM = """
import asyncio, json, sys
from otel_loopeval.testing import Capture

capture = Capture()
capture.instrument(detectors=False)

from praisonaiagents import Agent
from praisonaiagents.agent.loop_detection import LoopDetectionConfig
from praisonaiagents.permissions.manager import PermissionManager
from otel_loopeval import loop

def told(guard, times, is_async):
    capture.clear()
    seen = []

    def look_up(word: str) -> str:
        "Look a word up."
        seen.append(word)
        return "the same"

    agent = Agent(name="writer", instructions="Look things up", tools=[look_up], output="silent")
    if guard == "tool_loop":
        agent._loop_detector_config = LoopDetectionConfig(
            enabled=True, warn_threshold=2, critical_threshold=3
        )
        agent._loop_detector_history = []
    elif guard == "permissions":
        agent._permission_manager = PermissionManager(storage_dir=sys.argv[1])
    task = f"Look it up {times} times"
    with loop("outer"):
        try:
            asyncio.run(agent.achat(task)) if is_async else agent.chat(task)
        except Exception as error:  # what a guard that halts does
            print(error, file=sys.stderr)
    return {
        "calls": len(seen),
        "events": [
            [event["attributes"][f"loopeval.guard.{name}"] for name in ("source", "action", "tool", "count")]
            for span in capture.spans()
            for event in span["events"]
            if event["name"] == "loopeval.guard"
        ],
    }

cases = [
    (guard, times, is_async)
    for guard, times in (
        ("loop_guard", 2), ("loop_guard", 9), ("tool_loop", 6), ("permissions", 3), ("permissions", 5)
    )
    for is_async in (False, True)
]
print("TOLD " + json.dumps({
    **{f"{guard} {times} {is_async}": told(guard, times, is_async) for guard, times, is_async in cases},
    "fired": capture.value("loopeval.doom_loop.fired"),
    "errors": capture.points("loopeval.tracker.errors"),
}))
"""


def calls_the_tool(request: JsonObject) -> Any:
    """A model that calls the tool as often as the task says, with the same arguments, and then answers."""
    wanted = re.search(r"Look it up (\d+) times", prompt_text(request))
    done = sum(1 for item in request["messages"] if item["role"] == "tool")
    if wanted is None or done >= int(wanted[1]):
        return "An answer."
    return message(tool_calls=[tool_call("look_up", {"word": "same"}, f"call_{done}")])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program printed."""
    with OpenAIStub(calls_the_tool) as stub:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("permissions"))],
            env={**os.environ, **stub.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=Path(__file__).parents[2],
        )
    before, _, said = done.stdout.partition("TOLD ")
    assert said, before + done.stderr
    return json.loads(said.splitlines()[0])


WARNED = ["praisonaiagents.loop_guard", "warn", "look_up", 3]
LOOPED = ["praisonaiagents.loop_detection", "warn", "look_up", 2]
BLOCKED = ["praisonaiagents.loop_detection", "block", "look_up", 3]
DENIED = ["praisonaiagents.permissions", "block", "look_up", 3]
HALTED = [
    WARNED,
    ["praisonaiagents.loop_guard", "warn", "look_up", 4],  # another rule: no progress
    ["praisonaiagents.loop_guard", "halt", "look_up", 8],
]


@pytest.mark.parametrize(
    ("case", "calls", "events"),
    [
        ("loop_guard 2 False", 2, []),
        ("loop_guard 2 True", 2, []),
        ("loop_guard 9 False", 8, HALTED),
        ("loop_guard 9 True", 8, HALTED),
        ("tool_loop 6 False", 2, [LOOPED, WARNED, BLOCKED]),
        ("tool_loop 6 True", 2, [LOOPED, BLOCKED]),  # looked for before the loop guard is asked
        ("permissions 3 False", 3, [WARNED]),
        ("permissions 3 True", 3, [WARNED]),
        ("permissions 5 False", 3, [WARNED, DENIED]),
        ("permissions 5 True", 3, [WARNED, DENIED]),
    ],
)
def test_guards_of_agents(told: dict[str, Any], case: str, calls: int, events: list[Any]) -> None:
    assert told[case] == {"calls": calls, "events": events}


def test_what_was_counted(told: dict[str, Any]) -> None:
    assert (told["fired"], told["errors"]) == (6, [])
