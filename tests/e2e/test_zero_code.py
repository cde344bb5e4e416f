"""``opentelemetry-instrument python app.py``, where app.py is a Quick Start of PraisonAI, unchanged.

The package is the built wheel in an environment of its own. The model is a stub over HTTP; the agent, its
judge and the loop are the framework's. What is asserted is what arrived at an OTLP receiver.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.environments import ROOT, Environment
from support.otlp import Line, OtlpReceiver, Received, typed
from support.processes import StubProcess

from otel_loopeval import __version__

APPS = Path(__file__).with_name("apps")
QUICK_START = ROOT / "examples" / "praisonai_zero_code.py"

BASE = {
    "gen_ai.agent.name": "writer",
    "loopeval.run.mode": "optimize",
    "loopeval.run.framework": "praisonaiagents",
    "loopeval.run.nested": False,
}


def run(
    app: Path, environment: Environment, receiver: OtlpReceiver, stub: StubProcess, cwd: Path, protocol: str
) -> tuple[subprocess.CompletedProcess[str], Received]:
    done = environment.run(
        ["opentelemetry-instrument", "python", str(app)],
        {**stub.environment(), **receiver.environment(protocol), "OTEL_SERVICE_NAME": "quick-start"},
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done, receiver.received()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_quick_start_arrives_as_a_trace_with_a_verdict(
    environment: Environment, receiver: OtlpReceiver, stub: StubProcess, tmp_path: Path, protocol: str
) -> None:
    done, received = run(QUICK_START, environment, receiver, stub, tmp_path, protocol)

    assert "**Final Score**: 9.0/10" in done.stdout  # the program's own output is as ever
    assert received.protocols == {protocol}
    root = received.span("evaluation_loop writer")
    check_root(root)
    check_iterations(root, received)
    check_metrics(root, received)
    check_content(received)
    assert received.logs() == []


def check_root(root: Line) -> None:
    attributes = dict(root["attributes"])
    duration = attributes.pop("loopeval.health.total_duration_s")
    assert isinstance(duration, float)
    assert duration == pytest.approx((root["end_ns"] - root["start_ns"]) / 1e9)
    run_id = attributes.pop("loopeval.run.id")
    assert len(run_id) == 16
    assert int(run_id, 16)
    for who in ("tokens", "judge_tokens"):
        tokens = [attributes.pop(f"loopeval.run.{who}.{kind}") for kind in ("input", "output")]
        assert min(tokens) > 0
    assert typed(attributes) == typed(
        {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": "writer",
            "loopeval.run.mode": "optimize",
            "loopeval.run.framework": "praisonaiagents",
            "loopeval.run.threshold": 8.0,
            "loopeval.run.max_iterations": 5,
            "loopeval.run.outcome": "completed",
            "loopeval.run.success": True,
            "loopeval.run.iterations": 3,
            "loopeval.run.final_score": 9.0,
            "loopeval.run.best_score": 9.0,
            "loopeval.run.best_iteration": 3,
            "loopeval.health.passed": True,
            "loopeval.health.converged": True,
            "loopeval.health.doom_loop_fired": False,
            "loopeval.health.iterations_to_success": 3,
            "loopeval.health.wasted_iterations": 0,
            "loopeval.health.guard_interventions": 0,
            "loopeval.health.threshold": 8.0,
            "loopeval.health.score_delta_per_iteration": [2.0, 2.0],
            "loopeval.health.reasoning": "Converged in 3 iteration(s).",
            "loopeval.health.evidence": "full",
        }
    )
    assert root["parent_id"] is None
    assert root["kind"] == 1  # INTERNAL
    assert root["status"] == 0  # UNSET
    assert root["events"] == []
    assert root["scope"] == "otel_loopeval.instrumentation.praisonaiagents"
    assert root["scope_version"] == __version__
    assert root["resource"]["service.name"] == "quick-start"


def check_iterations(root: Line, received: Received) -> None:
    iterations = received.children(root)
    assert [span["name"] for span in iterations] == ["evaluation_loop.iteration"] * 3
    assert {span["trace_id"] for span in received.spans()} == {root["trace_id"]}
    assert len(received.spans()) == 13
    calls = received.spans("chat gpt-4o-mini")
    for kind in ("input", "output"):
        served = sum(call["attributes"][f"gen_ai.usage.{kind}_tokens"] for call in calls)
        told = [root["attributes"][f"loopeval.run.{who}.{kind}"] for who in ("tokens", "judge_tokens")]
        assert sum(told) == served
    expected: list[dict[str, Any]] = [
        {"number": 1, "score": 5.0, "threshold_met": False, "findings_count": 1},
        {"number": 2, "score": 7.0, "threshold_met": False, "findings_count": 1, "score_delta": 2.0},
        {"number": 3, "score": 9.0, "threshold_met": True, "findings_count": 1, "score_delta": 2.0},
    ]
    for span, facts, label in zip(iterations, expected, ["fail", "fail", "pass"], strict=True):
        chat, evaluate = received.children(span)
        assert (chat["name"], evaluate["name"]) == ("chat gpt-4o-mini", "evaluate")
        assert [judge["name"] for judge in received.children(evaluate)] == ["chat gpt-4o-mini"]
        tokens = {
            f"tokens.{kind}": chat["attributes"][f"gen_ai.usage.{kind}_tokens"]
            for kind in ("input", "output")
        }
        assert typed(span["attributes"]) == typed(
            {f"loopeval.iteration.{name}": value for name, value in {**facts, **tokens}.items()}
        )
        (event,) = span["events"]
        assert event["name"] == "gen_ai.evaluation.result"
        assert typed(event["attributes"]) == typed(
            {
                "gen_ai.evaluation.name": "loopeval.score",
                "gen_ai.evaluation.score.value": facts["score"],
                "gen_ai.evaluation.score.label": label,
            }
        )
        assert root["start_ns"] <= span["start_ns"] <= event["time_ns"] <= span["end_ns"] <= root["end_ns"]


def check_metrics(root: Line, received: Received) -> None:
    for name, unit, value, more in (
        ("loopeval.runs.started", "{run}", 1, {}),
        (
            "loopeval.runs",
            "{run}",
            1,
            {
                "loopeval.run.outcome": "completed",
                "loopeval.health.passed": True,
                "loopeval.health.converged": True,
                "loopeval.health.doom_loop_fired": False,
            },
        ),
        ("loopeval.iterations", "{iteration}", 3, {}),
    ):
        point = received.point(name)
        assert (point["kind"], point["monotonic"], point["unit"]) == ("sum", True, unit)
        assert typed(point["value"]) == typed(value)
        assert typed(point["attributes"]) == typed({**BASE, **more})
        check_exemplar(point, root)
    for name, unit, total, bucket in (
        ("loopeval.run.iterations", "{iteration}", 3.0, 2),
        ("loopeval.run.duration", "s", root["attributes"]["loopeval.health.total_duration_s"], None),
        ("loopeval.run.score_ratio", "1", 1.125, 6),
    ):
        point = received.point(name)
        assert (point["kind"], point["unit"], point["count"]) == ("histogram", unit, 1)
        assert point["sum"] == pytest.approx(total)
        assert len(point["buckets"]) <= 8
        assert bucket is None or point["buckets"][bucket] == 1
        assert typed(point["attributes"]) == typed(BASE)
        check_exemplar(point, root)
    assert received.point("loopeval.run.open")["value"] == 0
    assert received.point("loopeval.run.idle_max")["value"] == 0
    assert "loopeval.doom_loop.fired" not in received.metric_names()
    assert "loopeval.tracker.errors" not in received.metric_names()
    for point in received.points("loopeval.runs"):
        assert (point["scope"], point["scope_version"]) == ("otel_loopeval", __version__)


def check_content(received: Received) -> None:
    """Criteria, prompt, instructions, answers, reasoning and suggestions stay in the process."""
    text = received.text()
    assert "evaluation_loop writer" in text
    for content in ("engaging", "product description", "compelling", "draft", "Worth", "Improve"):
        assert content not in text


def check_exemplar(point: Line, root: Line) -> None:
    """The exemplar leads from the metric to the run's root span."""
    (exemplar,) = point["exemplars"]
    assert exemplar["trace_id"] == root["trace_id"]
    assert exemplar["span_id"] == root["span_id"]


def test_the_other_quick_starts(
    newest: Environment, receiver: OtlpReceiver, stub: StubProcess, tmp_path: Path
) -> None:
    """``Agent.run_until`` with and without a callback, and with a goal."""
    done, received = run(APPS / "quick_starts.py", newest, receiver, stub, tmp_path, "grpc")

    assert done.stdout.splitlines() == [
        "Score: 9.0/10",
        "Success: True",
        "Iteration 1: 9.0/10",
        "goal_met",
    ]
    analyzer, coder = (received.span(f"evaluation_loop {agent}") for agent in ("analyzer", "coder"))
    assert analyzer["trace_id"] != coder["trace_id"]
    assert [len(received.children(root)) for root in (analyzer, coder)] == [3, 1]
    goal = received.span("goal_loop ops")
    assert goal["attributes"]["loopeval.run.completion_reason"] == "goal_met"
    turns = len(received.children(goal))
    assert turns == 2
    assert received.total("loopeval.runs", loopeval__health__passed=True) == 3
    assert received.total("loopeval.iterations") == 4 + turns


def test_gzip(newest: Environment, receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Compressed OTLP over HTTP says the same."""
    done = newest.run(
        ["opentelemetry-instrument", "python", str(APPS / "own_loop.py")],
        {**receiver.environment("http/protobuf"), "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    received = receiver.received()
    assert received.protocols == {"http/protobuf+gzip"}
    assert len(received.children(received.span("evaluation_loop writer"))) == 2
