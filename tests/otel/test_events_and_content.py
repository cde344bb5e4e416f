"""Where scores and guard events go (span, log or both), and what stays in the process."""

# ruff: noqa: PT012 - the block that raises is the loop under test

import contextlib
from typing import Any

import pytest

from otel_loopeval import iteration, loop, record_guard_event
from otel_loopeval.testing import Capture

RESULT = {
    "gen_ai.evaluation.name": "loopeval.score",
    "gen_ai.evaluation.score.value": 9.0,
    "gen_ai.evaluation.score.label": "pass",
}
GUARD = {
    "loopeval.guard.kind": "loop_detected",
    "loopeval.guard.doom_loop": True,
    "loopeval.guard.source": "application",
    "loopeval.guard.action": "observe",
    "loopeval.guard.iteration": 1,
}


def one_scored_iteration(**instrument: Any) -> Capture:
    capture = Capture()
    capture.instrument(**instrument)
    with loop("writer"), iteration() as it:
        record_guard_event({"type": "doom_loop"})
        it.reasoning = "because of the words"
        it.score = 9
    return capture


def span_events(capture: Capture) -> list[dict[str, Any]]:
    return capture.span("evaluation_loop.iteration")["events"]


def log_events(capture: Capture) -> list[tuple[str, dict[str, Any]]]:
    return [(record["event_name"], record["attributes"]) for record in capture.logs()]


def test_on_the_span_by_default() -> None:
    capture = one_scored_iteration()
    assert span_events(capture) == [
        {"name": "loopeval.guard", "attributes": GUARD},
        {"name": "gen_ai.evaluation.result", "attributes": RESULT},
    ]
    assert capture.logs() == []


def test_as_log_records() -> None:
    capture = one_scored_iteration(events="log")
    assert span_events(capture) == []
    assert log_events(capture) == [("loopeval.guard", GUARD), ("gen_ai.evaluation.result", RESULT)]
    guard, result = capture.logs()
    span = capture.span("evaluation_loop.iteration")
    assert (result["trace_id"], result["span_id"]) == (span["trace_id"], span["id"])
    assert (guard["trace_id"], guard["span_id"]) == (span["trace_id"], span["id"])


def test_both() -> None:
    capture = one_scored_iteration(events="both")
    assert [event["name"] for event in span_events(capture)] == ["loopeval.guard", "gen_ai.evaluation.result"]
    assert log_events(capture) == [("loopeval.guard", GUARD), ("gen_ai.evaluation.result", RESULT)]


def test_guard_events_outside_of_runs_as_log_records(plain_capture: Capture) -> None:
    plain_capture.instrument(events="log")
    tracer = plain_capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"):
        record_guard_event({"type": "doom_loop"})
    (record,) = plain_capture.logs("loopeval.guard")
    assert record["span_id"] == plain_capture.span("request")["id"]
    assert plain_capture.span("request")["events"] == []


def test_a_score_below_the_threshold_is_labelled_fail(capture: Capture) -> None:
    with loop("writer", threshold=9.5), iteration() as it:
        it.score = 9
    (event,) = span_events(capture)
    assert event["attributes"]["gen_ai.evaluation.score.label"] == "fail"


def test_no_score_no_event(capture: Capture) -> None:
    with loop("writer"), iteration() as it:
        it.reasoning = "no score"
    assert span_events(capture) == []


@pytest.mark.parametrize(
    ("value", "on_span", "on_log"),
    [
        ("true", True, True),
        ("True", True, True),
        ("1", True, True),
        ("span_and_event", True, True),
        ("span_only", True, False),
        ("EVENT_ONLY", False, True),
    ],
)
def test_explanations_with_content_capture(
    monkeypatch: pytest.MonkeyPatch, value: str, *, on_span: bool, on_log: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    capture = one_scored_iteration(events="both")
    explained = {**RESULT, "gen_ai.evaluation.explanation": "because of the words"}
    assert span_events(capture)[1]["attributes"] == (explained if on_span else RESULT)
    assert log_events(capture)[1] == ("gen_ai.evaluation.result", explained if on_log else RESULT)


@pytest.mark.parametrize("value", ["", "false", "0", "no_content", "perhaps"])
def test_explanations_without(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    capture = one_scored_iteration(events="both")
    assert "because of the words" not in repr((capture.spans(), capture.logs()))


def failing(capture: Capture) -> dict[str, Any]:
    with pytest.raises(ValueError), loop("writer"), iteration():
        raise ValueError("the words")
    return capture.span("evaluation_loop.iteration")


def test_an_exception_without_content_capture_is_a_type(capture: Capture) -> None:
    span = failing(capture)
    assert (span["status"], span["description"], span["events"]) == ("ERROR", None, [])
    assert span["attributes"]["error.type"] == "ValueError"
    assert "the words" not in repr((capture.spans(), capture.metrics()))


def test_an_exception_with_content_capture_is_recorded_once(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    inner = failing(capture)
    outer = capture.span("evaluation_loop writer")
    assert (outer["status"], outer["description"]) == ("ERROR", "the words")
    assert [event["name"] for event in inner["events"]] == ["exception"]
    assert outer["events"] == []
    assert inner["events"][0]["attributes"]["exception.message"] == "the words"


def test_an_exception_through_nested_runs_is_recorded_once(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with pytest.raises(ValueError), loop("editor"), iteration(), loop("writer"), iteration():
        raise ValueError("the words")
    spans = capture.spans()
    assert [span["status"] for span in spans] == ["ERROR"] * 4
    assert [len(span["events"]) for span in spans] == [0, 0, 0, 1]


def test_two_exceptions_are_recorded_each(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    first, second = ValueError("the words"), KeyError("other words")
    with pytest.raises(KeyError), loop("writer"):
        try:
            with iteration():
                raise first
        except ValueError:
            raise second from None
    root, child = capture.spans()
    assert [span["events"][0]["attributes"]["exception.type"] for span in (root, child)] == [
        "KeyError",
        "ValueError",
    ]


def test_an_exception_at_the_address_of_an_earlier_one_is_recorded(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with loop("writer"):
        for _ in range(5):
            with contextlib.suppress(ValueError), iteration():
                raise ValueError("the words")
    assert [len(span["events"]) for span in capture.spans("evaluation_loop.iteration")] == [1] * 5


def test_an_exception_between_iterations_is_recorded_on_the_root(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with pytest.raises(ValueError), loop("writer"):
        with iteration():
            pass
        raise ValueError("the words")
    root, child = capture.spans()
    assert [event["name"] for event in root["events"]] == ["exception"]
    assert child["events"] == []


def test_content_never_goes_out_uncaptured(capture: Capture) -> None:
    """Every place of the public API that takes words."""
    canary = "canary-in-the-mine"
    with loop("writer", mode="review") as run:
        with iteration() as it:
            it.output = it.reasoning = f"output {canary}"
            it.findings = [canary]
            it.score = f"score {canary}"
            record_guard_event(
                {"type": "doom_loop", "reason": canary, "description": canary, "message": canary}
            )
            record_guard_event({"type": canary, "source": canary, "action": canary, "severity": canary})
        with pytest.raises(KeyError), iteration():
            raise KeyError(canary)
        run.stop()
    assert canary not in repr((capture.spans(), capture.logs(), capture.metrics()))
