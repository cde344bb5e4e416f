"""The tour of PraisonAI's loops: its whole span tree, its guard events and its tokens, to the token.

Once with the telemetry in memory, and once as a user runs it: ``opentelemetry-instrument python
praisonai_tour.py`` in an environment with nothing but the wheel, over OTLP to a receiver.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.environments import ROOT, Environment
from support.openai_stub import OpenAIStub
from support.otlp import Line, OtlpReceiver, Received
from support.processes import this_environment
from support.tour import tour_stub

TOUR = ROOT / "examples" / "praisonai_tour.py"

MODEL = "chat gpt-4o-mini"
JUDGED = ["    evaluate", f"      {MODEL}"]
PLAIN = ["  evaluation_loop.iteration", f"    {MODEL}"]
SEARCHING = [*PLAIN, "    execute_tool search_web", f"    {MODEL}"]

TREE = [
    "evaluation_loop writer",
    *[*PLAIN, *JUDGED] * 2,
    "evaluation_loop reviewer",
    *[*PLAIN, "    evaluate"] * 2,
    "goal_loop ops",
    *PLAIN,
    "    execute_tool open_pull_request",
    f"    {MODEL}",
    *JUDGED,
    "agent_loop worker",
    *SEARCHING,
    "agent_loop insister",
    *SEARCHING * 9,
    "evaluation_loop searcher",
    *[*SEARCHING, *JUDGED] * 4,
    "evaluation_loop polisher",
    *[*PLAIN, *JUDGED] * 2,
    "evaluation_loop approver",
    "  evaluation_loop.iteration",
    "evaluation_loop approver",
    "  evaluation_loop.iteration",
]

SAID = [
    "improve: [6.0, 9.0]",
    "  healthy: True",
    "review: [0.7, 0.7]",
    "goal: goal_met",
    "autonomous: goal",
    "in circles: max_iterations after 9 iterations",
    "  doom loop: repeated_action of search_web",
    "stopped after 4 of 9 iterations",
    "suite passed: False",
    "resumed: order-7",
]

VERDICTS = [
    ("writer", "completed", True, None),
    ("reviewer", "completed", True, None),
    ("ops", "completed", True, None),
    ("worker", "completed", True, None),
    ("insister", "limit", False, ["not_converged", "doom_loop"]),
    ("searcher", "stopped", False, ["not_converged", "doom_loop"]),
    ("polisher", "limit", False, ["not_converged"]),
    ("approver", "paused", None, None),
    ("approver", "completed", True, None),
]

GUARDS = [
    ("insister", "detector", "repeated_action", "observe", 4),
    ("insister", "praisonaiagents.autonomy", "repeated_action", "recover", 5),
    ("searcher", "detector", "repeated_action", "observe", 4),
]


def outline(received: Received) -> list[str]:
    lines: list[str] = []

    def walk(span: Line, depth: int) -> None:
        lines.append("  " * depth + span["name"])
        for child in received.children(span):
            walk(child, depth + 1)

    for root in received.spans():
        if root["parent_id"] is None:
            walk(root, 0)
    return lines


def check(done: subprocess.CompletedProcess[str], stub: OpenAIStub, received: Received) -> None:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stdout.splitlines()
    assert [line for line in said if line in SAID] == SAID
    assert outline(received) == TREE
    roots = [span for span in received.spans() if span["parent_id"] is None]
    assert [
        (
            root["attributes"]["gen_ai.agent.name"],
            root["attributes"]["loopeval.run.outcome"],
            root["attributes"].get("loopeval.health.passed"),
            root["attributes"].get("loopeval.health.reasons"),
        )
        for root in roots
    ] == VERDICTS
    check_guards(roots, received)
    check_tokens(roots, stub, received)


def check_guards(roots: list[Line], received: Received) -> None:
    agents = {root["trace_id"]: root["attributes"]["gen_ai.agent.name"] for root in roots}
    guards = [
        (agents[span["trace_id"]], event["attributes"])
        for span in received.spans()
        for event in span["events"]
        if event["name"] == "loopeval.guard"
    ]
    assert [
        (
            agent,
            guard["loopeval.guard.source"],
            guard["loopeval.guard.kind"],
            guard["loopeval.guard.action"],
            guard["loopeval.guard.iteration"],
        )
        for agent, guard in guards
    ] == GUARDS


def check_tokens(roots: list[Line], stub: OpenAIStub, received: Received) -> None:
    """What the stub served, on the spans of the calls, on the runs, and on the metrics."""
    served = [sum(each.input_tokens for each in stub.served), sum(each.output_tokens for each in stub.served)]
    assert min(served) > 0
    calls = received.spans(MODEL)
    assert len(calls) == len(stub.served) == len(stub.requests)
    usage = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    assert [sum(call["attributes"][name] for call in calls) for name in usage] == served
    on_runs = [
        sum(root["attributes"].get(f"loopeval.run.{who}.{kind}", 0) for root in roots for who in WHO)
        for kind in ("input", "output")
    ]
    assert on_runs == served
    counted = [
        received.total("loopeval.tokens", gen_ai__token__type=kind)
        + received.total("loopeval.judge_tokens", gen_ai__token__type=kind)
        for kind in ("input", "output")
    ]
    assert counted == served


WHO = ("tokens", "judge_tokens")


@pytest.fixture
def model() -> Any:
    with tour_stub() as stub:
        yield stub


def run(environment: Environment, stub: OpenAIStub, receiver: OtlpReceiver, cwd: Path) -> Any:
    return environment.run(
        ["opentelemetry-instrument", "python", str(TOUR)],
        {
            **stub.environment(),
            **receiver.environment("http/protobuf"),
            "OTEL_SERVICE_NAME": "tour",
            # Whatever else is installed: this is about what ours records by itself.
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai,openai-v2,litellm,httpx,urllib3,requests",
        },
        cwd=cwd,
    )


def test_the_tour_here(model: OpenAIStub, receiver: OtlpReceiver, tmp_path: Path) -> None:
    check(run(this_environment(), model, receiver, tmp_path), model, receiver.received())


def test_the_tour_as_a_user_installs_it(
    newest: Environment, model: OpenAIStub, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    check(run(newest, model, receiver, tmp_path), model, receiver.received())


def test_no_content_leaves_the_process(model: OpenAIStub, receiver: OtlpReceiver, tmp_path: Path) -> None:
    run(this_environment(), model, receiver, tmp_path)
    text = json.dumps(receiver.received().lines)
    for content in ("Fix a typo", "Nothing found", "Describe the product", "vivid", "Not found yet"):
        assert content not in text
