"""The real Agent and the real Judge of praisonaiagents, against a stub of the OpenAI API.

In a process of its own, since the package reads its environment when it is imported.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.openai_stub import OpenAIStub

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None, reason="praisonaiagents' judge needs litellm"
    ),
]

PROGRAM = """
import asyncio, json
from otel_loopeval.testing import Capture

capture = Capture()
capture.instrument()

from praisonaiagents import Agent

def agent():
    return Agent(name="writer", instructions="Write compelling content", output="silent")

seen = []
first = agent().run_until("Analyze", criteria="is thorough", on_iteration=lambda it: seen.append(it.score))
second = asyncio.run(agent().run_until_async("Analyze", criteria="is thorough"))
print("TOLD " + json.dumps({
    "histories": [first.score_history, second.score_history],
    "seen": seen,
    "tree": capture.tree(),
    "runs": capture.value("loopeval.runs"),
    "errors": capture.points("loopeval.tracker.errors"),
}))
"""


def told(stub: OpenAIStub) -> dict[str, Any]:
    """What the program printed."""
    environment = {**os.environ, **stub.environment()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=Path(__file__).parents[2],
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stderr
    return json.loads(lines[0].removeprefix("TOLD "))


def test_run_until_and_run_until_async() -> None:
    answers = [f"A thorough analysis, number {number}." for number in range(9)]
    with OpenAIStub(scores=[5, 9, 6, 8], answers=answers) as stub:
        got = told(stub)
    assert got["histories"] == [[5.0, 9.0], [6.0, 8.0]]
    assert got["seen"] == [5.0, 9.0]
    assert (got["runs"], got["errors"]) == (2, [])
    for root, scores in zip(got["tree"], got["histories"], strict=True):
        assert root["name"] == "evaluation_loop writer"
        assert root["scope"] == "otel_loopeval.instrumentation.praisonaiagents"
        assert root["attributes"]["loopeval.health.passed"] is True
        assert [child["attributes"]["loopeval.iteration.score"] for child in root["children"]] == scores
        # The judge's words are content.
        assert "gen_ai.evaluation.explanation" not in repr(root)
