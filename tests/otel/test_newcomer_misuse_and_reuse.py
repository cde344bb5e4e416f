"""What a newcomer tries that is not meant: an error that names it, or it simply works."""

import asyncio
from typing import Any

import pytest

from otel_loopeval import (
    EvaluationLoop,
    LoopHealthProcessor,
    current_run,
    instrument,
    iteration,
    loop,
)
from otel_loopeval.testing import Capture


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("tracer_provider", "tracer_provider must be a TracerProvider or None, got 'console'"),
        ("meter_provider", "meter_provider must be a MeterProvider or None, got 'console'"),
        ("logger_provider", "logger_provider must be a LoggerProvider or None, got 'console'"),
    ],
)
def test_instrument_refuses_what_is_no_provider(argument: str, message: str) -> None:
    wrong: dict[str, Any] = {argument: "console"}
    with pytest.raises(TypeError) as caught:
        instrument(**wrong)
    assert str(caught.value) == message


def test_the_processor_refuses_what_is_no_provider() -> None:
    with pytest.raises(TypeError) as caught:
        LoopHealthProcessor(meter_provider=3)
    assert str(caught.value) == "meter_provider must be a MeterProvider or None, got 3"


def test_an_async_callback_is_refused_since_nobody_could_await_it() -> None:
    async def on_doom_loop(event: Any, run: Any) -> None: ...

    with pytest.raises(TypeError, match=r"^on_doom_loop must be a function that is not async, got <function"):
        instrument(on_doom_loop=on_doom_loop)


@pytest.mark.parametrize("decorate", [loop("a"), iteration()], ids=["loop", "iteration"])
def test_decorating_what_cannot_be_called_is_refused(decorate: Any) -> None:
    with pytest.raises(TypeError) as caught:
        decorate("agent")
    assert str(caught.value) == "only something callable can be decorated, got 'agent'"


def test_a_decorated_object_with_an_async_call_runs_inside_its_run(capture: Capture) -> None:
    class Agent:
        async def __call__(self) -> str:
            await asyncio.sleep(0)
            run = current_run()
            return "nowhere" if run is None else run.agent

    assert asyncio.run(loop("writer")(Agent())()) == "writer"
    assert capture.outline() == "evaluation_loop writer"


def test_an_iteration_object_used_again_starts_afresh(capture: Capture) -> None:
    again = iteration()
    with loop("a", threshold=8.0) as run:
        for score in (5.0, None, 9.0):
            with again as it:
                if score is not None:
                    it.score, it.output, it.findings = score, "said once", ["better"]

    assert run.scores == [5.0, None, 9.0]
    iterations = capture.spans("evaluation_loop.iteration")
    assert [span["attributes"].get("loopeval.iteration.number") for span in iterations] == [1, 2, 3]
    assert [span["attributes"].get("loopeval.iteration.findings_count") for span in iterations] == [
        1,
        None,
        1,
    ]
    assert [len(span["events"]) for span in iterations] == [1, 0, 1]


def test_an_agent_whose_name_cannot_be_read_is_followed_under_that_of_its_class(capture: Capture) -> None:
    class Shy:
        @property
        def name(self) -> str:
            raise RuntimeError("not yet")

        def chat(self, prompt: str) -> str:
            return prompt

    EvaluationLoop(agent=Shy(), criteria="", threshold=0.5, metric=lambda _answer: 1.0).run("task")

    assert capture.outline() == "evaluation_loop Shy\n  evaluation_loop.iteration\n    evaluate"


def test_an_agent_that_streams_is_refused_instead_of_judged_by_the_name_of_its_generator() -> None:
    def agent(prompt: str) -> Any:
        yield prompt

    evaluation = EvaluationLoop(agent=agent, criteria="", metric=lambda _answer: 1.0)
    with pytest.raises(TypeError, match=r"^agent must return a whole answer, got <generator object .*join"):
        evaluation.run("task")
