"""What others name and report cannot keep a batch of spans from being encoded for OTLP."""

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from otel_loopeval import EvaluationLoop, GuardEvent, instrument, iteration, loop, record_guard_event
from otel_loopeval.testing import Capture

SURROGATE = "file-\udcff"
ESCAPED = r"file-\udcff"


def encoded_names(capture: Capture) -> list[str]:
    """Names of the spans as an OTLP exporter sends them; the SDK logs attributes that it must leave out."""
    request = encode_spans(capture.finished_spans)
    return [span.name for span in request.resource_spans[0].scope_spans[0].spans]


def test_names_with_lone_surrogates_are_sent_as_escapes(capture: Capture) -> None:
    with loop(SURROGATE, framework=SURROGATE, conversation_id=SURROGATE, id=SURROGATE) as run, iteration():
        run.paused(SURROGATE)

    assert encoded_names(capture) == ["evaluation_loop.iteration", f"evaluation_loop {ESCAPED}"]
    attributes = capture.span(f"evaluation_loop {ESCAPED}")["attributes"]
    assert attributes["gen_ai.agent.name"] == ESCAPED
    assert attributes["loopeval.run.framework"] == ESCAPED
    assert attributes["gen_ai.conversation.id"] == ESCAPED
    assert run.id == ESCAPED
    assert attributes["loopeval.run.completion_reason"] == ESCAPED


def test_the_agent_of_an_instrumented_loop_may_have_such_a_name(capture: Capture) -> None:
    class Agent:
        name = SURROGATE

        def chat(self, prompt: str) -> str:
            return prompt

    result = EvaluationLoop(
        agent=Agent(), criteria="", threshold=0.5, max_iterations=10**30, metric=lambda _answer: 1.0
    ).run("task")

    assert result.success
    spans = capture.finished_spans
    names = [span.name for span in spans]
    assert names == ["evaluate", "evaluation_loop.iteration", f"evaluation_loop {ESCAPED}"]
    assert "loopeval.run.max_iterations" not in (spans[2].attributes or {})
    encode_spans(spans)


@pytest.mark.parametrize("time_ns", [-5, 0, 10**30, "noon"])
def test_a_guard_event_of_no_time_happens_now(capture: Capture, time_ns: Any) -> None:
    with loop("a", threshold=8.0) as run, iteration() as it:
        record_guard_event(GuardEvent(kind="no_progress", doom_loop=True, time_ns=time_ns))
        record_guard_event({"type": "no_progress", "time_ns": time_ns})
        it.score = 9.0

    assert run.doom_loop_fired
    assert len(encoded_names(capture)) == 2
    span = capture.finished_spans[0]
    guards = [event for event in span.events if event.name == "loopeval.guard"]
    start, end = span.start_time or 0, span.end_time or 0
    assert [start <= event.timestamp <= end for event in guards] == [True, True]


def test_fields_of_a_guard_event_that_otlp_cannot_carry_are_absent(capture: Capture) -> None:
    wild: Any = object()
    with loop("a") as run, iteration():
        record_guard_event(
            GuardEvent(doom_loop=True, tool=wild, count=10**30, rule=wild, agent=wild, reason=wild, key=wild)
        )

    assert run.doom_loop_fired
    assert dict(capture.finished_spans[0].events[0].attributes or {}) == {
        "loopeval.guard.kind": "other",
        "loopeval.guard.doom_loop": True,
        "loopeval.guard.source": "application",
        "loopeval.guard.action": "observe",
        "loopeval.guard.iteration": 1,
    }


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "description"),
    [(ValueError(SURROGATE), ESCAPED), (_UnprintableError(), None)],
    ids=["surrogate", "unprintable"],
)
def test_any_exception_marks_its_spans_as_failed_with_content_captured(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, description: str | None
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with pytest.raises(type(error)), loop("a"):
        raise error

    (span,) = capture.finished_spans
    assert (span.status.status_code.name, span.status.description) == ("ERROR", description)


def test_a_reasoning_that_is_no_text_is_left_out(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    wild: Any = {"why": object()}
    with loop("a"), iteration() as it:
        it.score, it.reasoning = 9.0, wild

    assert dict(capture.finished_spans[0].events[0].attributes or {}) == {
        "gen_ai.evaluation.name": "loopeval.score",
        "gen_ai.evaluation.score.value": 9.0,
        "gen_ai.evaluation.score.label": "pass",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 10**400}, "threshold must be a finite number, got 1000"),
        ({"max_iterations": 2**63}, r"max_iterations must be a whole number below 2\*\*63, got 922337"),
    ],
)
def test_numbers_beyond_all_bounds_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        loop("a", **arguments)


def test_an_evaluation_loop_refuses_a_threshold_beyond_the_floats() -> None:
    with pytest.raises(ValueError, match=r"^threshold must be a finite number, got 1000"):
        EvaluationLoop(agent=str.upper, criteria="", threshold=10**400)


def test_instrument_refuses_what_cannot_be_shown_by_its_type() -> None:
    class Wild:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    wild: Any = Wild()
    with pytest.raises(TypeError, match=r"^threshold must be a finite number, got a Wild$"):
        instrument(threshold=wild)
