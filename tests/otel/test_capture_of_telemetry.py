"""The shipped test helpers show what really left the process."""

from otel_loopeval import iteration, loop
from otel_loopeval.testing import Capture


def test_one_run_as_outline_dictionaries_and_metrics(capture: Capture) -> None:
    with loop("writer", threshold=8.0, max_iterations=2) as run:
        for score in (5, 9):
            with iteration() as it:
                it.score = score
    assert run.health.success

    assert capture.outline() == (
        "evaluation_loop writer\n  evaluation_loop.iteration\n  evaluation_loop.iteration"
    )
    root = capture.span("evaluation_loop")
    assert root == {
        "name": "evaluation_loop writer",
        "id": 1,
        "parent_id": None,
        "trace_id": 1,
        "kind": "INTERNAL",
        "status": "UNSET",
        "description": None,
        "attributes": {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": "writer",
            "loopeval.run.mode": "optimize",
            "loopeval.run.framework": "otel_loopeval",
            "loopeval.run.id": "run-1",
            "loopeval.run.threshold": 8.0,
            "loopeval.run.max_iterations": 2,
            "loopeval.run.outcome": "completed",
            "loopeval.run.success": True,
            "loopeval.run.iterations": 2,
            "loopeval.run.final_score": 9.0,
            "loopeval.run.best_score": 9.0,
            "loopeval.run.best_iteration": 2,
            "loopeval.health.passed": True,
            "loopeval.health.converged": True,
            "loopeval.health.doom_loop_fired": False,
            "loopeval.health.iterations_to_success": 2,
            "loopeval.health.wasted_iterations": 0,
            "loopeval.health.guard_interventions": 0,
            "loopeval.health.total_duration_s": 0.0,
            "loopeval.health.threshold": 8.0,
            "loopeval.health.score_delta_per_iteration": [4.0],
            "loopeval.health.reasoning": "Converged in 2 iteration(s).",
            "loopeval.health.evidence": "none",
        },
        "events": [],
        "scope": "otel_loopeval",
    }
    assert [span["parent_id"] for span in capture.spans("evaluation_loop.iteration")] == [1, 1]
    assert capture.value("loopeval.runs", {"loopeval.run.outcome": "completed"}) == 1
    assert capture.value("loopeval.iterations") == 2


def test_reset_leaves_nothing_to_the_next_capture() -> None:
    with Capture() as first:
        first.instrument(threshold=3.0)
        with loop("writer"), iteration() as it:
            it.score = 4
    with Capture() as second:
        second.instrument()
        with loop("writer"), iteration() as it:
            it.score = 4
    assert [c.span("evaluation_loop")["attributes"]["loopeval.health.passed"] for c in (first, second)] == [
        True,
        False,
    ]
    assert first.span("evaluation_loop")["id"] == second.span("evaluation_loop")["id"] == 1
