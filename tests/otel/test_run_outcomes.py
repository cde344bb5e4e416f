"""How a run ended: outcome, status and verdict for every way out of a loop."""

# ruff: noqa: PT012 - the block that raises is the loop under test

import asyncio
import builtins
import sys
from typing import Any

import pytest

from otel_loopeval import StopLoop, current_run, iteration, loop, record_guard_event
from otel_loopeval.testing import Capture


def ended(capture: Capture) -> tuple[str, str, Any]:
    root = capture.spans("evaluation_loop")[0]
    attributes = root["attributes"]
    return attributes["loopeval.run.outcome"], root["status"], attributes.get("loopeval.health.passed")


def run_scores(*scores: float, **settings: Any) -> None:
    with loop("writer", threshold=8, **settings):
        for score in scores:
            with iteration() as it:
                it.score = score


@pytest.mark.parametrize(
    ("scores", "settings", "outcome", "passed", "reasons"),
    [
        ((5, 9), {"max_iterations": 5}, "completed", True, None),
        ((5, 9), {"max_iterations": 2}, "completed", True, None),
        ((5, 6), {"max_iterations": 2}, "limit", False, ["not_converged"]),
        ((5, 6), {"max_iterations": 5}, "completed", False, ["not_converged"]),
        ((9, 5, 5), {}, "completed", False, ["wasted_iterations"]),
        ((9, 5), {"max_wasted_iterations": 1}, "completed", True, None),
        ((9, 5), {"mode": "review"}, "completed", True, None),
        ((5, 5), {"mode": "review", "max_iterations": 2}, "completed", False, ["not_converged"]),
        ((), {}, "completed", False, ["not_converged"]),
        ((), {"max_iterations": 0}, "limit", False, ["not_converged"]),
    ],
)
def test_loops_that_end_by_themselves(
    capture: Capture,
    scores: tuple[float, ...],
    settings: dict[str, Any],
    outcome: str,
    passed: bool,
    reasons: list[str] | None,
) -> None:
    run_scores(*scores, **settings)
    assert ended(capture) == (outcome, "UNSET", passed)
    root = capture.span("evaluation_loop")["attributes"]
    assert root.get("loopeval.health.reasons") == reasons


class AppError(Exception):
    """An error of the application's own."""


def test_a_failed_run(capture: Capture) -> None:
    error = AppError("the secret prompt")
    with pytest.raises(AppError) as caught, loop("writer"):
        with iteration() as it:
            it.score = 5
        with iteration():
            raise error
    assert caught.value is error
    assert ended(capture) == ("failed", "ERROR", False)
    spans = capture.spans()
    assert [span["status"] for span in spans] == ["ERROR", "UNSET", "ERROR"]
    for span in (spans[0], spans[2]):
        assert span["attributes"]["error.type"] == f"{AppError.__module__}.AppError"
        assert span["description"] is None
        assert span["events"] == []
    assert spans[0]["attributes"]["loopeval.run.iterations"] == 2
    assert "the secret prompt" not in repr(spans)


def test_an_error_that_the_loop_handles_marks_its_iteration_only(capture: Capture) -> None:
    with loop("writer"):
        try:
            with iteration():
                raise ValueError("x")
        except ValueError:
            pass
        with iteration() as it:
            it.score = 9
    assert [span["status"] for span in capture.spans()] == ["UNSET", "ERROR", "UNSET"]
    assert ended(capture) == ("completed", "UNSET", True)


def test_an_exception_group_is_a_failure(capture: Capture) -> None:
    group_type: Any = vars(builtins).get("ExceptionGroup")
    if group_type is None:
        pytest.skip("Python 3.10 has no exception groups")
    with pytest.raises(group_type), loop("writer"):
        raise group_type("many", [ValueError(), KeyError()])
    assert ended(capture) == ("failed", "ERROR", False)
    assert capture.span()["attributes"]["error.type"] == "ExceptionGroup"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(3), "interrupted"),
    ],
)
def test_ends_that_are_no_failure(capture: Capture, error: BaseException, outcome: str) -> None:
    with pytest.raises(type(error)) as caught, loop("writer"), iteration() as it:
        it.score = 9
        raise error
    assert caught.value is error
    assert ended(capture) == (outcome, "UNSET", None)
    for span in capture.spans():
        assert span["status"] == "UNSET"
        assert "error.type" not in span["attributes"]
    root = capture.span("evaluation_loop")["attributes"]
    assert "loopeval.health.converged" not in root
    assert "loopeval.health.reasons" not in root
    assert root["loopeval.run.iterations"] == 1


def test_a_cancel_scope_of_another_library_is_recognised_by_name(capture: Capture) -> None:
    class Cancelled(BaseException):
        """trio has one of its own."""

    with pytest.raises(Cancelled), loop("writer"):
        raise Cancelled
    assert ended(capture) == ("cancelled", "UNSET", None)


def test_a_timeout_is_a_failure(capture: Capture) -> None:
    async def main() -> None:
        with loop("writer"):
            await asyncio.wait_for(asyncio.sleep(60), 0.001)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    assert ended(capture) == ("failed", "ERROR", False)


def test_a_paused_run(capture: Capture) -> None:
    with loop("writer") as run:
        with iteration() as it:
            it.score = 5
        run.paused("approval")
    assert ended(capture) == ("paused", "UNSET", None)
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.completion_reason"] == "approval"


def test_a_pause_that_is_told_by_an_exception(capture: Capture) -> None:
    class Interrupt(Exception):  # noqa: N818 - the name that the framework uses
        """As LangGraph's: it leaves the loop and is no failure."""

    with pytest.raises(Interrupt), loop("writer") as run:
        run.paused("interrupt")
        raise Interrupt
    outcome, _status, passed = ended(capture)
    assert (outcome, passed) == ("paused", None)


def test_a_pause_told_by_an_exception_is_no_error_on_the_span(capture: Capture) -> None:
    with pytest.raises(ValueError), loop("writer") as run:
        run.paused()
        raise ValueError
    assert capture.span()["status"] == "UNSET"
    assert "error.type" not in capture.span()["attributes"]


def test_the_reason_of_a_pause_is_text(capture: Capture) -> None:
    with loop("writer") as run:
        run.paused(7)  # type: ignore[arg-type]  # users may have no type checker
    assert capture.span()["attributes"]["loopeval.run.completion_reason"] == "7"


def test_stoploop_leaves_the_block_quietly(capture: Capture) -> None:
    reached = False
    with loop("writer"):
        with iteration() as it:
            it.score = 5
            raise StopLoop
        reached = True  # pyright: ignore[reportUnreachable]
    assert not reached
    assert ended(capture) == ("stopped", "UNSET", False)
    assert [span["status"] for span in capture.spans()] == ["UNSET", "UNSET"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups came with Python 3.11")
@pytest.mark.parametrize("way", ["block", "decorator"])
async def test_stoploop_out_of_a_task_group_is_quiet_too(capture: Capture, way: str) -> None:
    task_group: Any = vars(asyncio)["TaskGroup"]

    async def work() -> None:
        run = current_run()
        assert run is not None
        run.stop()
        with iteration():
            raise AssertionError("the beginning of an iteration is a seam")

    async def body() -> None:
        async with task_group() as tasks:
            tasks.create_task(work())

    if way == "block":
        async with loop("writer"):
            await body()
    else:
        await loop("writer")(body)()
    assert ended(capture) == ("stopped", "UNSET", False)


def test_leaving_after_a_doom_loop_is_stopped(capture: Capture) -> None:
    with loop("writer", max_iterations=5) as run:
        for _ in range(5):
            with iteration() as it:
                it.score = 3
                record_guard_event({"type": "doom_loop"})
            if run.doom_loop_fired:
                break
    assert ended(capture) == ("stopped", "UNSET", False)
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.health.reasons"] == ["not_converged", "doom_loop"]
    assert root["loopeval.health.doom_loop_kinds"] == ["loop_detected"]


def test_a_run_is_judged_once(capture: Capture) -> None:
    with loop("writer") as run:
        run.end()
    assert len(capture.spans("evaluation_loop")) == 1
    assert capture.value("loopeval.runs") == 1


def test_iterations_left_open_end_with_their_run(capture: Capture) -> None:
    with loop("writer"):
        iteration().__enter__()
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration"


def test_over_the_token_budget(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("app")
    with loop("writer", token_budget=100), iteration() as it:
        with tracer.start_as_current_span("chat", attributes={"gen_ai.usage.input_tokens": 90}) as span:
            span.set_attribute("gen_ai.usage.output_tokens", 20)
        it.score = 9
    root = capture.span("evaluation_loop")["attributes"]
    assert root["loopeval.run.tokens.input"] == 90
    assert root["loopeval.run.tokens.output"] == 20
    assert root["loopeval.health.over_token_budget"] is True
    assert root["loopeval.health.passed"] is False
    assert root["loopeval.health.reasons"] == ["over_token_budget"]
    assert root["loopeval.health.reasoning"] == "Converged in 1 iteration(s). Over the token budget."
