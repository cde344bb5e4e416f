"""A framework's guard and the program's own, from zero-code instrumentation to the receiver."""

from pathlib import Path

import pytest
from support.environments import Environment
from support.otlp import OtlpReceiver, typed

APP = Path(__file__).parent / "apps" / "guarded.py"

FRAMEWORKS = {
    "loopeval.guard.kind": "repeated_action",
    "loopeval.guard.doom_loop": True,
    "loopeval.guard.source": "praisonaiagents.escalation",
    "loopeval.guard.action": "recover",
    "loopeval.guard.tool": "search",
    "loopeval.guard.count": 3,
    "loopeval.guard.iteration": 3,
    "loopeval.guard.rule": "repeated_action",
}
OURS = {
    "loopeval.guard.kind": "other",
    "loopeval.guard.doom_loop": False,
    "loopeval.guard.source": "application",
    "loopeval.guard.action": "block",
    "loopeval.guard.tool": "shell",
    "loopeval.guard.count": 7,
    "loopeval.guard.rule": "budget",
}


@pytest.mark.parametrize("events", ["span", "log", "both"])
def test_guard_events_arrive_where_the_option_says(
    environment: Environment, receiver: OtlpReceiver, tmp_path: Path, events: str
) -> None:
    done = environment.run(
        ["opentelemetry-instrument", "python", str(APP)],
        {**receiver.environment("grpc"), "LOOPEVAL_EVENTS": events},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr

    received = receiver.received()
    root = received.span("evaluation_loop ops")
    third = received.children(root)[2]
    on_spans = [
        (span["span_id"], typed(event["attributes"]))
        for span in (third, root)
        for event in span["events"]
        if event["name"] == "loopeval.guard"
    ]
    in_logs = [(log["span_id"], typed(log["attributes"])) for log in received.logs("loopeval.guard")]
    expected = [(third["span_id"], typed(FRAMEWORKS)), (root["span_id"], typed(OURS))]
    assert on_spans == (expected if events != "log" else [])
    assert in_logs == (expected if events != "span" else [])
    scores = received.logs("gen_ai.evaluation.result")
    assert len(scores) == (3 if events != "span" else 0)
    assert {log["trace_id"] for log in received.logs()} <= {root["trace_id"]}

    health = root["attributes"]
    assert health["loopeval.health.doom_loop_fired"] is True
    assert health["loopeval.health.doom_loop_kinds"] == ["repeated_action"]
    assert health["loopeval.health.reasons"] == ["not_converged", "doom_loop"]
    fired = received.point("loopeval.doom_loop.fired")
    assert fired["value"] == 1
    assert fired["exemplars"][0]["span_id"] == root["span_id"]
    assert received.total("loopeval.guard.interventions") == 2
    assert "canary" not in received.text()
