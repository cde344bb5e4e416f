"""Health reaches every exporter, whatever the order and kind of the processors, over the wire."""

import itertools
from pathlib import Path

import pytest
from support.environments import Environment
from support.otlp import OtlpReceiver, typed

APP = Path(__file__).parent / "apps" / "processors.py"

HEALTH = {
    "loopeval.health.passed": False,
    "loopeval.health.converged": True,
    "loopeval.health.doom_loop_fired": True,
    "loopeval.health.iterations_to_success": 2,
    "loopeval.health.wasted_iterations": 1,
    "loopeval.health.guard_interventions": 1,
    "loopeval.health.threshold": 8.0,
    "loopeval.health.score_delta_per_iteration": [3.0, -2.0],
    "loopeval.health.reasons": ["wasted_iterations", "doom_loop"],
    "loopeval.health.doom_loop_kinds": ["repeated_action"],
}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_health_reaches_the_exporter_in_every_combination(
    interpreter: Environment, receiver: OtlpReceiver, tmp_path: Path, protocol: str
) -> None:
    done = interpreter.run(["python", str(APP), protocol], receiver.environment(protocol), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

    received = receiver.received()
    assert received.protocols == {protocol}
    for combination in itertools.product(("before", "after"), ("simple", "batch"), ("sync", "concurrent")):
        name = " ".join(combination)
        spans = [span for span in received.spans() if span["resource"]["combination"] == name]
        assert len(spans) == 11, name
        for agent in ("ours", "foreign"):
            (root,) = (span for span in spans if span["name"] == f"evaluation_loop {agent}")
            health = {key: root["attributes"].get(key) for key in HEALTH}
            assert typed(health) == typed(HEALTH), (name, agent)
            iterations = [span for span in spans if span["parent_id"] == root["span_id"]]
            assert [span["attributes"]["loopeval.iteration.number"] for span in iterations] == [1, 2, 3]
        (ours,) = (span for span in spans if span["name"] == "evaluation_loop ours")
        tokens = {key: value for key, value in ours["attributes"].items() if "tokens" in key}
        assert typed(tokens) == typed(
            {
                "loopeval.run.tokens.input": 30,
                "loopeval.run.tokens.output": 15,
                "loopeval.health.wasted_tokens": 15,
            }
        ), name
