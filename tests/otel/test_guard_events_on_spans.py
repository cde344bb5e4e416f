"""``record_guard_event``: any guard's report becomes a ``loopeval.guard`` event where it belongs."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from otel_loopeval import GuardEvent, iteration, loop, record_guard_event
from otel_loopeval.testing import Capture


class LoopType(Enum):
    REPEATED_FAILURE = "repeated_failure"


class Recovery(Enum):
    ABORT = "abort"


@dataclass
class LoopEvent:
    """The shape of praisonaiagents' DoomLoopEvent."""

    loop_type: LoopType = LoopType.REPEATED_FAILURE
    description: str = "words of the user"
    recovery_action: Recovery = Recovery.ABORT


@dataclass
class CheckResult:
    """The shape of praisonaiagents' DoomLoopResult."""

    is_loop: bool
    tool_name: str = "search"
    loop_count: int = 4


BASE = {"loopeval.guard.source": "application", "loopeval.guard.action": "observe"}


@pytest.mark.parametrize(
    ("event", "attributes"),
    [
        (
            {"type": "doom_loop"},
            {"loopeval.guard.kind": "loop_detected", "loopeval.guard.doom_loop": True, **BASE},
        ),
        ({"type": "rate_limit"}, {"loopeval.guard.kind": "other", "loopeval.guard.doom_loop": False, **BASE}),
        (
            LoopEvent(),
            {
                "loopeval.guard.kind": "repeated_failure",
                "loopeval.guard.doom_loop": True,
                "loopeval.guard.source": "application",
                "loopeval.guard.action": "halt",
            },
        ),
        (
            CheckResult(is_loop=True),
            {
                "loopeval.guard.kind": "loop_detected",
                "loopeval.guard.doom_loop": True,
                "loopeval.guard.tool": "search",
                "loopeval.guard.count": 4,
                **BASE,
            },
        ),
        (
            GuardEvent(kind="no_progress", action="warn", tool="grep", count=3, rule="my_rule"),
            {
                "loopeval.guard.kind": "no_progress",
                "loopeval.guard.doom_loop": False,
                "loopeval.guard.source": "application",
                "loopeval.guard.action": "warn",
                "loopeval.guard.tool": "grep",
                "loopeval.guard.count": 3,
                "loopeval.guard.rule": "my_rule",
            },
        ),
        (
            "doom_loop",
            {"loopeval.guard.kind": "other", "loopeval.guard.doom_loop": False, **BASE},
        ),
        (None, {"loopeval.guard.kind": "other", "loopeval.guard.doom_loop": False, **BASE}),
        (
            {"type": "doom_loop", "source": "made up", "action": "made up"},
            {"loopeval.guard.kind": "loop_detected", "loopeval.guard.doom_loop": True, **BASE},
        ),
    ],
)
def test_shapes(capture: Capture, event: Any, attributes: dict[str, Any]) -> None:
    with loop("writer"):
        record_guard_event(event)
    assert capture.span("evaluation_loop")["events"] == [{"name": "loopeval.guard", "attributes": attributes}]


def test_it_goes_on_the_innermost_open_span_of_the_run(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    with loop("writer"):
        record_guard_event({"type": "before"})
        with iteration(), tracer.start_as_current_span("execute_tool"):
            record_guard_event({"type": "inside"})
        with iteration():
            pass
        record_guard_event({"type": "between"})
    root, first, tool, second = capture.spans()
    assert [len(span["events"]) for span in (root, first, tool, second)] == [2, 1, 0, 0]
    assert first["events"][0]["attributes"]["loopeval.guard.iteration"] == 1
    assert "loopeval.guard.iteration" not in root["events"][1]["attributes"]


def test_an_iteration_that_the_event_names_is_kept(capture: Capture) -> None:
    with loop("writer"), iteration(), iteration():
        record_guard_event(GuardEvent(iteration=7))
    events = capture.spans("evaluation_loop.iteration")[1]["events"]
    assert events[0]["attributes"]["loopeval.guard.iteration"] == 7


def test_the_reason_is_content(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with loop("writer"):
        record_guard_event({"type": "doom_loop", "reason": "words of the user"})
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
        record_guard_event({"type": "no_progress", "reason": "words of the user"})
    without, with_reason = capture.span()["events"]
    assert "words of the user" not in repr(without)
    assert with_reason["attributes"]["loopeval.guard.reason"] == "words of the user"


def test_a_flood_of_events_does_not_push_out_the_first(capture: Capture) -> None:
    """A span keeps 128 events and drops the oldest, among which is the one that matters."""
    with loop("writer") as run:
        record_guard_event({"type": "doom_loop"})
        for _ in range(500):
            record_guard_event({"type": "note"})
        record_guard_event({"type": "no_progress"})
        assert run.health.guard_interventions == 502
    events = capture.span()["events"]
    fired = [
        e["attributes"]["loopeval.guard.kind"] for e in events if e["attributes"]["loopeval.guard.doom_loop"]
    ]
    assert fired == ["loop_detected", "no_progress"]
    assert len(events) <= 128
    assert capture.span()["attributes"]["loopeval.health.guard_interventions"] == 502
    assert capture.value("loopeval.guard.interventions") == 502


def test_outside_of_any_run_it_goes_on_the_current_span(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"):
        record_guard_event({"type": "doom_loop"})
    (event,) = capture.span("request")["events"]
    assert event["attributes"]["loopeval.guard.doom_loop"] is True
    assert [(p["attributes"], p["value"]) for p in capture.points("loopeval.doom_loop.fired")] == [
        (
            {
                "loopeval.guard.kind": "loop_detected",
                "loopeval.guard.source": "application",
                "loopeval.guard.action": "observe",
            },
            1,
        )
    ]


def test_outside_of_any_run_and_span_it_is_counted(capture: Capture) -> None:
    record_guard_event({"type": "note"})
    assert capture.spans() == []
    assert capture.value("loopeval.guard.interventions") == 1
    assert capture.value("loopeval.doom_loop.fired") == 0


class Hostile:
    """A guard event whose every field raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_event_that_cannot_be_read_is_an_intervention(capture: Capture) -> None:
    with loop("writer") as run:
        record_guard_event(Hostile())
        assert (run.doom_loop_fired, run.health.guard_interventions) == (False, 1)
    assert capture.span()["events"][0]["attributes"]["loopeval.guard.kind"] == "other"
