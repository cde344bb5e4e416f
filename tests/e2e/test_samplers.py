"""Metrics do not depend on the sampler: the runs that we instrument are counted one by one."""

from pathlib import Path

import pytest
from support.environments import Environment
from support.otlp import OtlpReceiver, Received

APP = Path(__file__).parent / "apps" / "hundred_runs.py"


@pytest.mark.parametrize(
    ("sampler", "argument"),
    [("always_on", ""), ("always_off", ""), ("traceidratio", "0.1"), ("parentbased_traceidratio", "0.1")],
)
def test_metrics_are_exact_under_any_sampler(
    interpreter: Environment, receiver: OtlpReceiver, tmp_path: Path, sampler: str, argument: str
) -> None:
    done = interpreter.run(
        ["opentelemetry-instrument", "python", str(APP)],
        {
            **receiver.environment("grpc"),
            "OTEL_TRACES_SAMPLER": sampler,
            "OTEL_TRACES_SAMPLER_ARG": argument,
        },
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr

    received = receiver.received()
    assert received.total("loopeval.runs.started") == 100
    assert received.total("loopeval.runs") == 100
    assert received.total("loopeval.runs", loopeval__health__doom_loop_fired=True) == 10
    assert received.total("loopeval.runs", loopeval__health__passed=True) == 90
    assert received.total("loopeval.doom_loop.fired") == 10
    assert received.total("loopeval.guard.interventions") == 30
    assert received.total("loopeval.iterations") == 200
    assert received.total("loopeval.iterations.wasted") == 0
    assert received.point("loopeval.run.iterations")["count"] == 100
    check_spans(received, sampler)


def check_spans(received: Received, sampler: str) -> None:
    """Whole traces arrive, or nothing of them, each with its verdict."""
    roots = received.spans("evaluation_loop worker")
    if sampler == "always_on":
        assert len(roots) == 100
        assert sum(root["attributes"]["loopeval.health.doom_loop_fired"] for root in roots) == 10
        assert sum(len(root["events"]) for root in roots) == 30
    elif sampler == "always_off":
        assert received.spans() == []
    else:
        assert len(roots) < 50
    assert len(received.spans()) == 3 * len(roots)
    for root in roots:
        assert len(received.children(root)) == 2
        assert "loopeval.health.passed" in root["attributes"]
