"""praisonaiagents' escalation detector: level-triggered there, one event a streak here."""

import gc
import weakref
from typing import Any

import pytest
from praisonaiagents.escalation.doom_loop import DoomLoopConfig, DoomLoopDetector
from praisonaiagents.escalation.loop_guard import LoopGuard
from praisonaiagents.eval.loop import EvaluationLoop

from otel_loopeval import LoopEvaluator, iteration, loop, uninstrument
from otel_loopeval.testing import Capture


def act(detector: Any, tool: str = "read_file", path: str = "a.py", success: bool = True) -> None:
    detector.record_action(tool, {"path": path}, "content", success)


def fired(capture: Capture) -> list[dict[str, Any]]:
    """The guard events of all spans, in order."""
    return [
        event["attributes"]
        for span in capture.spans()
        for event in span["events"]
        if event["name"] == "loopeval.guard"
    ]


def test_a_firing_becomes_a_guard_event_on_the_iteration(capture: Capture) -> None:
    detector = DoomLoopDetector()
    with loop("writer") as run, iteration():
        for _ in range(3):
            assert not run.doom_loop_fired
            act(detector)
        assert run.doom_loop_fired
    assert fired(capture) == [
        {
            "loopeval.guard.kind": "repeated_action",
            "loopeval.guard.doom_loop": True,
            "loopeval.guard.source": "praisonaiagents.escalation",
            "loopeval.guard.action": "recover",
            "loopeval.guard.tool": "read_file",
            "loopeval.guard.count": 3,
            "loopeval.guard.iteration": 1,
            "loopeval.guard.rule": "repeated_action",
        }
    ]
    assert (
        capture.value("loopeval.doom_loop.fired", {"loopeval.guard.source": "praisonaiagents.escalation"})
        == 1
    )


def test_one_event_per_streak(capture: Capture) -> None:
    detector = DoomLoopDetector()
    with loop("writer"):
        for _ in range(10):
            act(detector)
    assert len(fired(capture)) == 1
    assert len(detector._loop_events) == 8  # the package's own count is as it was


def test_the_alarm_is_over_when_an_action_does_not_fire(capture: Capture) -> None:
    detector = DoomLoopDetector(DoomLoopConfig(max_similar_actions=50, max_no_progress_steps=50))
    with loop("writer"):
        for path in ("a.py", "a.py", "a.py", "a.py", "b.py", "b.py", "b.py"):
            act(detector, path=path)
    assert [event["loopeval.guard.count"] for event in fired(capture)] == [3, 3]
    assert capture.value("loopeval.doom_loop.fired") == 2


def test_the_same_streak_again_is_an_intervention(capture: Capture) -> None:
    detector = DoomLoopDetector(DoomLoopConfig(max_similar_actions=50, max_no_progress_steps=50))
    with loop("writer"):
        for path in ("a.py", "a.py", "a.py", "b.py", "a.py", "a.py", "a.py"):
            act(detector, path=path)
    assert len(fired(capture)) == 2
    assert capture.value("loopeval.doom_loop.fired") == 1
    assert capture.value("loopeval.guard.interventions") == 2


def test_failures_and_their_recovery_action(capture: Capture) -> None:
    detector = DoomLoopDetector()
    detector._recovery_attempts = 5
    with loop("writer"):
        for number in range(3):
            act(detector, path=f"{number}.py", success=False)
    (event,) = fired(capture)
    assert event["loopeval.guard.kind"] == "repeated_failure"
    assert event["loopeval.guard.action"] == "halt"


def test_two_detectors_have_alarms_of_their_own(capture: Capture) -> None:
    detectors = DoomLoopDetector(), DoomLoopDetector()
    with loop("writer"):
        for _ in range(5):
            for detector in detectors:
                act(detector)
    assert len(fired(capture)) == 2


def test_asking_whether_it_is_a_doom_loop_counts_nothing(capture: Capture) -> None:
    detector = DoomLoopDetector()
    with loop("writer"):
        for _ in range(3):
            act(detector)
        for _ in range(5):
            assert detector.is_doom_loop()
            assert detector.get_loop_event() is not None
    assert len(fired(capture)) == 1


def test_the_description_is_content(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    detector = DoomLoopDetector()
    with loop("writer"):
        for _ in range(3):
            act(detector)
    assert fired(capture)[0]["loopeval.guard.reason"] == "Same action repeated 3 times"


def test_outside_of_any_run(capture: Capture) -> None:
    detector = DoomLoopDetector()
    tracer = capture.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request"):
        for _ in range(4):
            act(detector)
    assert [event["loopeval.guard.kind"] for event in fired(capture)] == ["repeated_action"]


def test_the_inner_detector_of_a_loop_guard_gives_none(capture: Capture) -> None:
    """Its verdict is ignored by the guard, which warns of idempotent calls and goes on."""
    guard = LoopGuard()
    with loop("writer") as run:
        for number in range(13):
            guard.check("read_file", {"path": "a.py"})
            guard.record("read_file", {"path": "a.py"}, True, result=f"line {number}")
            guard.check("read_file", {"path": "a.py"}, is_pre_execution=False)
        assert not run.doom_loop_fired
    assert [event["loopeval.guard.source"] for event in fired(capture)] == ["praisonaiagents.loop_guard"]
    assert guard.detector._loop_events  # it did fire, and it is as it was


def test_a_detector_beside_a_loop_guard_still_does(capture: Capture) -> None:
    guard, detector = LoopGuard(), DoomLoopDetector()
    with loop("writer"):
        for _ in range(3):
            guard.check("read_file", {})
            guard.record("read_file", {}, True)
            act(detector)
    assert [event["loopeval.guard.source"] for event in fired(capture)] == ["praisonaiagents.escalation"]


def test_detectors_are_garbage_when_their_users_are_done(capture: Capture) -> None:
    detector = DoomLoopDetector()
    with loop("writer"):
        for _ in range(5):
            act(detector)
    seen = weakref.ref(detector)
    del detector
    gc.collect()
    assert seen() is None


def test_a_subclass_of_the_detector(capture: Capture) -> None:
    class Louder(DoomLoopDetector):
        def _handle_loop_detection(self) -> None:
            super()._handle_loop_detection()

    detector = Louder()
    with loop("writer"):
        for _ in range(5):
            act(detector)
    assert len(fired(capture)) == 1


def test_in_an_evaluation_loop_of_the_package(capture: Capture) -> None:
    """The whole story: the agent's own guard fires, and the loop's verdict says so."""

    class Stuck:
        name = "writer"

        def __init__(self) -> None:
            self.detector = DoomLoopDetector()
            self.turn = 0

        def chat(self, prompt: str) -> str:
            self.turn += 1
            act(self.detector)
            return f"answer {self.turn}"

    agent: Any = Stuck()
    result = EvaluationLoop(agent, "", metric=lambda output: 9.0 if output.endswith("4") else 3.0).run("task")
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.passed"] is False
    assert root["loopeval.health.reasons"] == ["doom_loop"]
    assert root["loopeval.health.doom_loop_kinds"] == ["repeated_action"]
    assert root["loopeval.health.guard_interventions"] == 1
    assert [len(span["events"]) for span in capture.spans("evaluation_loop.iteration")] == [1, 1, 2, 1]
    expected = LoopEvaluator().run(result, guard_events=[{"loop_type": "repeated_action"}])
    assert root["loopeval.health.reasoning"] == expected.reasoning


def test_uninstrument_restores_it(plain_capture: Capture) -> None:
    before = {name: vars(DoomLoopDetector)[name] for name in ("record_action", "_handle_loop_detection")}
    guards = {name: vars(LoopGuard)[name] for name in ("check", "record")}
    plain_capture.instrument()
    assert vars(DoomLoopDetector)["record_action"] is not before["record_action"]
    uninstrument()
    assert {name: vars(DoomLoopDetector)[name] for name in before} == before
    assert {name: vars(LoopGuard)[name] for name in guards} == guards
    detector = DoomLoopDetector()
    for _ in range(3):
        act(detector)
    assert plain_capture.metrics() == {}
