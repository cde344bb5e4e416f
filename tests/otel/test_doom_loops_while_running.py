"""``run.doom_loop_fired``, ``on_doom_loop`` and ``StopLoop``: acting on a doom loop while it goes on."""

import asyncio
import threading
from typing import Any

import pytest

from otel_loopeval import (
    EvaluationLoop,
    GuardEvent,
    StopLoop,
    current_run,
    iteration,
    loop,
    record_guard_event,
)
from otel_loopeval.otel import Run
from otel_loopeval.testing import Capture

DOOM = {"type": "doom_loop", "reason": "same call again"}


class Calls:
    """A callback that keeps what it was called with."""

    def __init__(self, stop: bool = False) -> None:
        self.seen: list[tuple[GuardEvent, Run]] = []
        self._stop = stop

    def __call__(self, event: GuardEvent, run: Run) -> None:
        self.seen.append((event, run))
        if self._stop:
            raise StopLoop


def test_the_callback_gets_the_event_and_the_run(plain_capture: Capture) -> None:
    calls = Calls()
    plain_capture.instrument(on_doom_loop=calls)
    with loop("writer") as run:
        record_guard_event({"type": "warning"})
        assert (run.doom_loop_fired, calls.seen) == (False, [])
        with iteration():
            record_guard_event(DOOM)
        assert run.doom_loop_fired
    ((event, called_with),) = calls.seen
    assert called_with is run
    assert (event.kind, event.doom_loop, event.iteration, event.reason) == (
        "loop_detected",
        True,
        1,
        "same call again",
    )


def test_one_streak_fires_once_and_is_an_intervention_after(plain_capture: Capture) -> None:
    calls = Calls()
    plain_capture.instrument(on_doom_loop=calls)
    with loop("writer"):
        for _ in range(3):
            record_guard_event(DOOM)
        record_guard_event({"loop_type": "repeated_failure"})
    assert [event.kind for event, _ in calls.seen] == ["loop_detected", "repeated_failure"]
    assert plain_capture.value("loopeval.doom_loop.fired") == 2
    assert plain_capture.value("loopeval.guard.interventions") == 4
    root = plain_capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.guard_interventions"] == 4
    assert root["loopeval.health.doom_loop_kinds"] == ["loop_detected", "repeated_failure"]


def test_the_callback_may_use_the_run(plain_capture: Capture) -> None:
    """It is called outside of our locks."""
    healths: list[Any] = []

    def look(event: GuardEvent, run: Run) -> None:
        healths.append(run.health.doom_loop_fired)
        run.record_guard_event({"type": "note"})
        with loop("inside the callback"):
            pass

    plain_capture.instrument(on_doom_loop=look)
    with loop("writer"):
        record_guard_event(DOOM)
    assert healths == [True]
    assert (
        plain_capture.span("evaluation_loop writer")["attributes"]["loopeval.health.guard_interventions"] == 2
    )


def test_stoploop_surfaces_at_the_next_seam(plain_capture: Capture) -> None:
    plain_capture.instrument(on_doom_loop=Calls(stop=True))
    steps: list[str] = []
    with loop("writer"):
        with iteration() as it:
            record_guard_event(DOOM)  # raises nothing here: it may be deep inside an agent
            steps.append("the iteration goes on")
            it.score = 3
        steps.append("never")
    assert steps == ["the iteration goes on"]
    root, child = plain_capture.spans()
    assert root["attributes"]["loopeval.run.outcome"] == "stopped"
    assert child["attributes"]["loopeval.iteration.score"] == 3.0
    assert current_run() is None


def test_stoploop_between_iterations_surfaces_as_the_next_one_begins(plain_capture: Capture) -> None:
    plain_capture.instrument(on_doom_loop=Calls(stop=True))
    steps: list[str] = []
    with loop("writer"):
        record_guard_event(DOOM)
        steps.append("between")
        with iteration():
            steps.append("never")
    assert steps == ["between"]
    assert plain_capture.outline() == "evaluation_loop writer"


def test_stoploop_surfaces_on_the_loops_own_thread(plain_capture: Capture) -> None:
    plain_capture.instrument(on_doom_loop=Calls(stop=True))
    raised: list[BaseException] = []
    after: list[str] = []

    def tool(run: Run) -> None:
        try:
            run.record_guard_event(DOOM)
        except BaseException as error:
            raised.append(error)

    with loop("writer") as run:
        with iteration():
            thread = threading.Thread(target=tool, args=(run,))
            thread.start()
            thread.join()
        after.append("never")
    assert (raised, after) == ([], [])
    assert plain_capture.span("evaluation_loop")["attributes"]["loopeval.run.outcome"] == "stopped"


def test_stoploop_in_decorated_iterations(plain_capture: Capture) -> None:
    plain_capture.instrument(on_doom_loop=Calls(stop=True))
    attempts: list[int] = []

    @iteration
    def attempt(number: int) -> None:
        attempts.append(number)
        record_guard_event(DOOM)

    @loop
    def write() -> str:
        for number in range(5):
            attempt(number)
        return "not reached"

    assert write() is None
    assert attempts == [0]
    assert plain_capture.span("evaluation_loop")["attributes"]["loopeval.run.outcome"] == "stopped"


@pytest.mark.parametrize("way", ["run", "run_async"])
def test_our_own_loop_returns_the_best_result_so_far(plain_capture: Capture, way: str) -> None:
    plain_capture.instrument(on_doom_loop=Calls(stop=True))
    answers = iter(["first try", "second attempt", "third, which is never asked for"])

    def agent(prompt: str) -> str:
        answer = next(answers)
        if answer == "second attempt":
            record_guard_event(DOOM)
        return answer

    scores = {"first try": 6.0, "second attempt": 7.0}
    own = EvaluationLoop(agent, "", metric=lambda output: scores[output])
    result = own.run("go") if way == "run" else asyncio.run(own.run_async("go"))
    assert result.metadata == {"stopped": True}
    assert (result.success, result.best_output) == (False, "second attempt")
    assert result.score_history == [6.0, 7.0]
    root = plain_capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.outcome"] == "stopped"
    assert root["loopeval.health.doom_loop_fired"] is True
    assert root["loopeval.run.best_score"] == 7.0
    assert root["loopeval.run.iterations"] == 2
    assert len(plain_capture.spans("evaluation_loop.iteration")) == 2


@pytest.mark.swallows
def test_an_error_of_the_callback_is_kept_from_the_loop(
    plain_capture: Capture, swallowed: list[tuple[str, Exception]]
) -> None:
    def broken(event: GuardEvent, run: Run) -> None:
        raise ZeroDivisionError

    plain_capture.instrument(on_doom_loop=broken)
    with loop("writer") as run:
        record_guard_event(DOOM)
        assert run.doom_loop_fired
    assert [(place, type(error)) for place, error in swallowed] == [("on_doom_loop", ZeroDivisionError)]
    assert plain_capture.value("loopeval.tracker.errors", {"loopeval.reason": "on_doom_loop"}) == 1


def test_other_base_exceptions_of_the_callback_pass(plain_capture: Capture) -> None:
    def interrupting(event: GuardEvent, run: Run) -> None:
        raise KeyboardInterrupt

    plain_capture.instrument(on_doom_loop=interrupting)
    with pytest.raises(KeyboardInterrupt), loop("writer"):
        record_guard_event(DOOM)
    assert plain_capture.span()["attributes"]["loopeval.run.outcome"] == "interrupted"


def test_run_stop_without_a_callback(capture: Capture) -> None:
    with loop("writer") as run:
        run.stop()
        with iteration():
            pytest.fail("the loop goes on")
    assert capture.span()["attributes"]["loopeval.run.outcome"] == "stopped"


def test_a_childs_doom_loop_marks_spans_around_it_and_not_their_counters(plain_capture: Capture) -> None:
    calls = Calls()
    plain_capture.instrument(on_doom_loop=calls)
    with loop("editor") as outer, iteration() as it:
        with loop("reviewer"), iteration(), loop("writer") as inner, iteration() as inner_it:
            record_guard_event(DOOM)
            inner_it.score = 9
            assert inner.doom_loop_fired
        it.score = 9
        assert outer.doom_loop_fired
    assert [run.agent for _, run in calls.seen] == ["writer"]
    flags = {
        span["name"]: (
            span["attributes"]["loopeval.health.doom_loop_fired"],
            span["attributes"]["loopeval.health.guard_interventions"],
            span["attributes"].get("loopeval.health.doom_loop_kinds"),
        )
        for span in plain_capture.spans("evaluation_loop")
        if span["name"] != "evaluation_loop.iteration"
    }
    assert flags == {
        "evaluation_loop editor": (True, 0, None),
        "evaluation_loop reviewer": (True, 0, None),
        "evaluation_loop writer": (True, 1, ["loop_detected"]),
    }
    points = plain_capture.points("loopeval.doom_loop.fired")
    assert [(p["attributes"]["gen_ai.agent.name"], p["value"]) for p in points] == [("writer", 1)]


def test_the_detector_sees_outputs_of_iterations(plain_capture: Capture) -> None:
    calls = Calls()
    plain_capture.instrument(on_doom_loop=calls)
    with loop("writer") as run:
        for _ in range(12):
            with iteration() as it:
                it.output = "I will try the very same thing once more."
                it.score = 3
            if run.doom_loop_fired:
                break
    assert [(event.kind, event.source) for event, _ in calls.seen] == [("repeated_output", "detector")]


def test_detectors_can_be_switched_off(plain_capture: Capture) -> None:
    plain_capture.instrument(detectors=False)
    with loop("writer") as run:
        for _ in range(12):
            with iteration() as it:
                it.output = "I will try the very same thing once more."
        assert run.observe(None) is None  # type: ignore[arg-type]
    assert run.doom_loop_fired is False


def test_a_run_of_another_process_part_gets_no_events_after_its_end(capture: Capture) -> None:
    with loop("writer") as run:
        pass
    run.record_guard_event(DOOM)
    assert run.doom_loop_fired is False
    assert capture.value("loopeval.guard.interventions") == 0
