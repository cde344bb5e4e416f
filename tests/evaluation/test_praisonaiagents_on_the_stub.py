"""The real praisonaiagents, end to end, against the stub server: agent, loop, judge, goal loop.

Each runs in a process of its own, since the package reads its environment when it is imported. The
connections that the process opens are recorded: none may leave the machine.
"""

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support.openai_stub import OpenAIStub, asks_about_goal, asks_for_score, prompt_text

pytest.importorskip("praisonaiagents")

# The package's own judge calls litellm, which is an extra of it ("praisonaiagents[llm]").
needs_litellm = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="praisonaiagents' judge needs litellm"
)

PRELUDE = """
import asyncio, json, socket
hosts = set()
connect = socket.socket.connect
def recording_connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        hosts.add(address[0])
    return connect(self, address)
socket.socket.connect = recording_connect
getaddrinfo = socket.getaddrinfo
def recording_getaddrinfo(host, *args, **kwargs):
    hosts.add(host)
    return getaddrinfo(host, *args, **kwargs)
socket.getaddrinfo = recording_getaddrinfo

from praisonaiagents import Agent
from praisonaiagents.eval import EvaluationLoop
agent = Agent(name="writer", instructions="Write compelling content", output="silent")
def show(**values):
    print("RESULT " + json.dumps({"hosts": sorted(hosts), **values}))
"""


def run_against(stub: OpenAIStub, code: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**os.environ, **stub.environment()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def test_the_agent_in_our_loop(stub: OpenAIStub):
    result = run_against(
        stub,
        """
from otel_loopeval.evaluation import EvaluationLoop as OurLoop, run_until_async
from otel_loopeval.evaluation.agents import agent_name
r = OurLoop(agent, "is compelling").run("Write.")
scores, outputs = r.score_history, [it.output for it in r.iterations]
a = asyncio.run(run_until_async(agent, "Write more.", "is compelling"))
show(name=agent_name(agent), scores=scores, outputs=outputs, async_scores=a.score_history)
""",
    )

    assert result == {
        "hosts": ["127.0.0.1"],
        "name": "writer",
        "scores": [5.0, 7.0, 9.0],
        "outputs": ["A first draft.", "A better draft.", "A good answer."],
        "async_scores": [9.0],
    }


@needs_litellm
def test_the_packages_own_loop_and_judge(stub: OpenAIStub):
    result = run_against(
        stub,
        """
r = EvaluationLoop(agent=agent, criteria="is engaging", threshold=8.0).run("Write a description")
show(scores=r.score_history, success=r.success, findings=r.accumulated_findings, output=r.final_output)
""",
    )

    assert result == {
        "hosts": ["127.0.0.1"],
        "scores": [5.0, 7.0, 9.0],
        "success": True,
        "findings": ["Improve on 5.", "Improve on 7.", "Improve on 9."],
        "output": "A good answer.",
    }
    assert [asks_for_score(request) for request in stub.requests] == [False, True] * 3
    assert "Previous feedback to address:\nWorth 5." in prompt_text(stub.requests[2])


@needs_litellm
def test_the_packages_run_until_and_its_async_twin():
    with OpenAIStub(scores=[6, 8.5, 3, 8]) as stub:
        result = run_against(
            stub,
            """
seen = []
r = agent.run_until("Analyze", criteria="is thorough", on_iteration=lambda it: seen.append(it.iteration))
a = asyncio.run(agent.run_until_async("Analyze", criteria="is thorough"))
show(scores=r.score_history, seen=seen, async_scores=a.score_history, success=[r.success, a.success])
""",
        )

    assert result == {
        "hosts": ["127.0.0.1"],
        "scores": [6.0, 8.5],
        "seen": [1, 2],
        "async_scores": [3.0, 8.0],
        "success": [True, True],
    }


@needs_litellm
def test_the_packages_goal_loop():
    with OpenAIStub(goal_turns=3) as stub:
        result = run_against(
            stub,
            """
r = agent.run_until("Do the task", goal="A PR is open", max_iterations=5)
show(reason=r.completion_reason, success=r.success, turns=r.iterations)
""",
        )

    assert result == {"hosts": ["127.0.0.1"], "reason": "goal_met", "success": True, "turns": 3}
    assert sum(asks_about_goal(request) for request in stub.requests) == 3


@needs_litellm
def test_the_packages_judge_in_our_loop(stub: OpenAIStub):
    result = run_against(
        stub,
        """
from praisonaiagents.eval import Judge
from otel_loopeval.evaluation import EvaluationLoop as OurLoop
r = OurLoop(agent, "is compelling", judge=Judge()).run("Write.")
show(scores=r.score_history, findings=r.accumulated_findings[:1])
""",
    )

    assert result == {"hosts": ["127.0.0.1"], "scores": [5.0, 7.0, 9.0], "findings": ["Improve on 5."]}
