"""What the detectors could see of a run, and the limits that a run brings itself."""

from typing import Any

import pytest

from otel_loopeval import ModelOutput, ToolCall, UserMessage, iteration, loop
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.run import MAX_ITERATIONS_KEPT
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.testing import Capture


def evidence_of(capture: Capture, *steps: Any) -> str:
    with loop("writer") as run:
        for step in steps:
            run.observe(step)
    return capture.span("evaluation_loop writer")["attributes"]["loopeval.health.evidence"]


@pytest.mark.parametrize(
    ("steps", "evidence"),
    [
        ((), "none"),
        ((UserMessage(),), "none"),
        ((ToolCall("search", None, result="found"),), "none"),
        ((ModelOutput(None),), "none"),
        ((ToolCall("search", {"q": 1}),), "arguments"),
        ((ToolCall("search", {"q": 1}, result="found"),), "full"),
        ((ToolCall("search", {"q": 1}, error="no"),), "full"),
        ((ModelOutput("text"),), "full"),
        ((ModelOutput("text"), ToolCall("search", {"q": 1}), UserMessage()), "full"),
    ],
)
def test_evidence_is_the_most_that_was_seen(capture: Capture, steps: tuple[Any, ...], evidence: str) -> None:
    assert evidence_of(capture, *steps) == evidence


def test_without_detectors_there_is_no_evidence(plain_capture: Capture) -> None:
    plain_capture.instrument(detectors=False, console=False)
    assert evidence_of(plain_capture, ModelOutput("text")) == "none"


def test_limits_of_the_run_itself_are_on_its_span_and_decide_a_replay_too(capture: Capture) -> None:
    with loop("writer", threshold=5.0, max_wasted_iterations=1, token_budget=100):
        for score in (6.0, 7.0):
            with iteration() as it:
                it.score = score
    attributes = capture.span("evaluation_loop writer")["attributes"]
    assert attributes["loopeval.run.max_wasted_iterations"] == 1
    assert attributes["loopeval.run.token_budget"] == 100
    assert attributes["loopeval.health.passed"] is True

    ((run, verdict, _),) = replay(capture.neutral_spans(), Tracker())
    assert (run.max_wasted_iterations, run.token_budget) == (1, 100)
    assert (verdict.passed, verdict.health.wasted_iterations) == (True, 1)


def test_iterations_that_a_very_long_run_dropped_still_count(capture: Capture) -> None:
    with loop("writer", threshold=5.0) as run:
        for _ in range(MAX_ITERATIONS_KEPT + 50):
            state = run.state.begin_iteration(1)
            state.score = 6.0 if state.number == 3 else 1.0
    attributes = capture.span("evaluation_loop writer")["attributes"]
    assert attributes["loopeval.run.iterations"] == 10_050
    assert attributes["loopeval.health.iterations_to_success"] == 3
    assert attributes["loopeval.health.wasted_iterations"] == 10_047


@pytest.mark.parametrize("number", [0, -1])
def test_iterations_are_numbered_from_one(number: int) -> None:
    with pytest.raises(ValueError, match="number must be a whole number of at least 1, got"):
        iteration(number)
