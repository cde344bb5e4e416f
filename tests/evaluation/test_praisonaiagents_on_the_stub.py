"""The real praisonaiagents, end to end, against the stub server: agent, loop, judge, goal loop.

It runs in a process of its own, since the package reads its environment when it is imported, and in one for
all scenarios, since importing it takes its time. The addresses that the process asks for are recorded: none
may leave the machine.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.openai_stub import OpenAIStub, asks_about_goal, asks_for_score, prompt_text

pytest.importorskip("praisonaiagents")
pytestmark = pytest.mark.e2e

# The package's own judge calls litellm, which is an extra of it ("praisonaiagents[llm]").
needs_litellm = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="praisonaiagents' judge needs litellm"
)

SCRIPT = """
import asyncio, importlib.util, json, socket

hosts = set()
connect, getaddrinfo = socket.socket.connect, socket.getaddrinfo

def recording_connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        hosts.add(address[0])
    return connect(self, address)

def recording_getaddrinfo(host, *args, **kwargs):
    hosts.add(host)
    return getaddrinfo(host, *args, **kwargs)

socket.socket.connect = recording_connect
socket.getaddrinfo = recording_getaddrinfo

from praisonaiagents import Agent
from praisonaiagents.eval import EvaluationLoop, Judge

from otel_loopeval.evaluation import EvaluationLoop as OurLoop, run_until_async
from otel_loopeval.evaluation.agents import agent_name

def agent():
    return Agent(name="writer", instructions="Write compelling content", output="silent")

def loop_result(r):
    return [r.score_history, r.success]

played = {"name": agent_name(agent())}
r = OurLoop(agent(), "is compelling").run("Write.")
played["our loop"] = [*loop_result(r), [it.output for it in r.iterations]]
played["our loop, async"] = loop_result(asyncio.run(run_until_async(agent(), "Write.", "is compelling")))

if importlib.util.find_spec("litellm"):
    r = EvaluationLoop(agent=agent(), criteria="is engaging", threshold=8.0).run("Describe it.")
    played["their loop"] = [*loop_result(r), r.accumulated_findings]
    seen = []
    note = lambda it: seen.append(it.iteration)
    r = agent().run_until("Analyze", criteria="is thorough", on_iteration=note)
    played["run_until"] = [*loop_result(r), seen]
    r = asyncio.run(agent().run_until_async("Analyze", criteria="is thorough"))
    played["run_until_async"] = loop_result(r)
    played["their judge, our loop"] = loop_result(OurLoop(agent(), "is good", judge=Judge()).run("Write."))
    r = agent().run_until("Do the task", goal="A PR is open", max_iterations=5)
    played["goal"] = [r.completion_reason, r.success, r.iterations]
played["hosts"] = sorted(hosts)
print("PLAYED " + json.dumps(played))
"""

# One after the other, as the scenarios use them up.
SCORES = [5, 7, 9, 4, 8.5, 6, 8.25, 3, 9.5, 2, 8, 1, 10]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIStub]:
    # Answers that differ: at a third equal one the package's doom loop guard takes a turn of its own.
    answers = [f"Draft {number}." for number in range(1, 40)]
    with OpenAIStub(scores=SCORES, answers=answers, goal_turns=3) as stub:
        yield stub


@pytest.fixture(scope="module")
def played(server: OpenAIStub) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **server.environment()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("PLAYED ")]
    return json.loads(line.removeprefix("PLAYED "))


def test_nothing_leaves_the_machine(played: dict[str, Any]):
    assert played["hosts"] == ["127.0.0.1"]


def test_their_agent_in_our_loop(played: dict[str, Any]):
    assert played["name"] == "writer"
    assert played["our loop"] == [
        [5.0, 7.0, 9.0],
        True,
        ["Draft 1.", "Draft 2.", "Draft 3."],
    ]
    assert played["our loop, async"] == [[4.0, 8.5], True]


@needs_litellm
def test_their_loop_and_judge(played: dict[str, Any], server: OpenAIStub):
    assert played["their loop"] == [[6.0, 8.25], True, ["Improve on 6.", "Improve on 8.25."]]

    requests = [request for request in server.requests if "Describe it." in prompt_text(request)]
    assert "Previous feedback to address:\nWorth 6." in prompt_text(requests[1])
    judged = [request for request in server.requests if "is engaging" in prompt_text(request)]
    assert [asks_for_score(request) for request in judged] == [True, True]


@needs_litellm
def test_their_run_until_and_its_async_twin(played: dict[str, Any]):
    assert played["run_until"] == [[3.0, 9.5], True, [1, 2]]
    assert played["run_until_async"] == [[2.0, 8.0], True]


@needs_litellm
def test_their_judge_in_our_loop(played: dict[str, Any]):
    assert played["their judge, our loop"] == [[1.0, 10.0], True]


@needs_litellm
def test_their_goal_loop(played: dict[str, Any], server: OpenAIStub):
    assert played["goal"] == ["goal_met", True, 3]
    assert sum(asks_about_goal(request) for request in server.requests) == 3
