"""Spans ``evaluate``: judges at work, of our loops and PraisonAI's, and of hand-written ones."""

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from instrumented_loops import Agent, Family, both_ways, series
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_loopeval import EvaluationLoop, StopLoop, current_run, iteration, loop
from otel_loopeval.evaluation import GoalLoop
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.iterations import Iteration
from otel_loopeval.otel.judging import Judging
from otel_loopeval.otel.pipeline import open_spans
from otel_loopeval.testing import Capture

ONE = "evaluation_loop writer\n  evaluation_loop.iteration\n    evaluate"


class Verdict:
    """What a judge returns."""

    reasoning = "because of the words"
    suggestions = ("say more",)

    def __init__(self, score: float) -> None:
        self.score = score


def model_call(capture: Capture, name: str, input_tokens: int, output_tokens: int) -> None:
    """A model call that somebody else traces."""
    tracer = capture.tracer_provider.get_tracer("somebody.else")
    with tracer.start_as_current_span(name) as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": input_tokens,
                "gen_ai.usage.output_tokens": output_tokens,
            }
        )


def current_node() -> Any:
    from opentelemetry.context import get_current  # noqa: PLC0415 - for one helper

    return get_current().get(_sdk.RUN_KEY)


def tokens(capture: Capture) -> dict[str, Any]:
    root = capture.span("evaluation_loop")["attributes"]
    return {name: root.get(f"loopeval.run.{name}") for name in ("tokens.input", "judge_tokens.input")}


@both_ways
def test_the_judge_of_an_instrumented_loop(capture: Capture, family: Family, run: Any) -> None:
    """Its model calls are children of the span, and their tokens are not the agent's."""
    places: list[Any] = []

    class Judge:
        def run(self, *, output: str, criteria: str) -> Verdict:
            node = current_node()
            found = current_run()
            assert found is not None
            assert found.iteration is not None
            places.append((node.judging, node.run is found, found.iteration.number))
            model_call(capture, "chat of the judge", 30, 3)
            return Verdict(9.0)

    class Writer(Agent):
        def chat(self, prompt: str) -> str:
            assert current_node().judging is False
            model_call(capture, "chat of the agent", 10, 1)
            return super().chat(prompt)

    run(family.loop(Writer(), "is good", judge=Judge()))
    assert places == [(True, True, 1)]
    assert capture.outline() == (
        "evaluation_loop writer\n"
        "  evaluation_loop.iteration\n"
        "    chat of the agent\n"
        "    evaluate\n"
        "      chat of the judge"
    )
    span = capture.span("evaluate")
    assert (span["kind"], span["scope"], span["status"]) == ("INTERNAL", family.scope, "UNSET")
    assert span["attributes"] == {"gen_ai.operation.name": "evaluate"}
    assert tokens(capture) == {"tokens.input": 10, "judge_tokens.input": 30}
    in_iteration = capture.span("evaluation_loop.iteration")["attributes"]
    assert in_iteration["loopeval.iteration.tokens.input"] == 10
    # The score stays where what was evaluated is.
    assert [event["name"] for event in capture.span("evaluation_loop.iteration")["events"]] == [
        "gen_ai.evaluation.result"
    ]
    assert len(open_spans) == 0


def test_an_async_judge(capture: Capture, family: Family) -> None:
    class Judge:
        async def run_async(self, *, output: str, criteria: str) -> Verdict:
            await asyncio.sleep(0)
            model_call(capture, "chat of the judge", 30, 3)
            return Verdict(9.0)

    asyncio.run(family.loop(Agent(), "is good", judge=Judge()).run_async("task"))
    assert capture.outline() == ONE + "\n      chat of the judge"
    assert tokens(capture) == {"tokens.input": None, "judge_tokens.input": 30}


def test_a_blocking_judge_of_our_async_loop_works_in_a_thread(capture: Capture) -> None:
    threads: list[Any] = []

    class Judge:
        def run(self, *, output: str, criteria: str) -> Verdict:
            threads.append(threading.current_thread() is threading.main_thread())
            model_call(capture, "chat of the judge", 30, 3)
            return Verdict(9.0)

    asyncio.run(EvaluationLoop(Agent(), "is good", judge=Judge()).run_async("task"))
    assert threads == [False]
    assert capture.outline() == ONE + "\n      chat of the judge"


@both_ways
def test_a_metric_is_a_judge(capture: Capture, family: Family, run: Any) -> None:
    def metric(_output: str) -> float:
        assert current_node().judging is True
        return 9.0

    run(family.loop(Agent(), "", metric=metric))
    assert capture.outline() == ONE


@both_ways
def test_the_callback_of_a_loop_is_no_judge(capture: Capture, family: Family, run: Any) -> None:
    seen: list[Any] = []
    run(family.loop(Agent(), "", metric=series(9.0), on_iteration=lambda _: seen.append(current_node())))
    assert isinstance(seen[0], Iteration)
    assert seen[0].judging is False


@both_ways
def test_a_gate(capture: Capture, run: Any) -> None:
    class Gate:
        def gate(self, *, output: str, goal: str, criteria: Any) -> bool:
            model_call(capture, "chat of the judge", 30, 3)
            return True

    run(GoalLoop(Agent(), "a PR is open", judge=Gate()))
    assert capture.outline() == (
        "goal_loop writer\n  evaluation_loop.iteration\n    evaluate\n      chat of the judge"
    )


@both_ways
def test_a_judge_that_raises(capture: Capture, family: Family, run: Any, content: None) -> None:
    error = ConnectionError("words of the judge")
    with pytest.raises(ConnectionError):
        run(family.loop(Agent(), "", metric=series(error)))
    spans = capture.spans()
    assert [(span["name"].split(" ")[0], span["status"]) for span in spans] == [
        ("evaluation_loop", "ERROR"),
        ("evaluation_loop.iteration", "ERROR"),
        ("evaluate", "ERROR"),
    ]
    assert {span["attributes"]["error.type"] for span in spans} == {"ConnectionError"}
    # Recorded once, where it came from.
    assert [[event["name"] for event in span["events"]] for span in spans] == [[], [], ["exception"]]


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")


@pytest.mark.parametrize("error", [StopLoop(), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_judge_that_is_stopped_did_not_fail(capture: Capture, family: Family, error: BaseException) -> None:
    try:
        family.loop(Agent(), "", metric=series(error)).run("task")
    except BaseException as raised:
        assert raised is error  # noqa: PT017 - our own loops end quietly on StopLoop
    assert capture.outline() == ONE
    assert {span["status"] for span in capture.spans()} == {"UNSET"}


def test_praisonaiagents_own_judge_that_fails_says_so_in_words(capture: Capture) -> None:
    from praisonaiagents.eval.loop import EvaluationLoop as TheirLoop  # noqa: PLC0415 - late

    class Judge:
        def run(self, *, output: str, criteria: str) -> Any:
            verdict = Verdict(0.0)
            verdict.reasoning = "Evaluation error: no such model"
            return verdict

    TheirLoop(Agent(), "is good", judge=Judge(), max_iterations=1).run("task")  # type: ignore[arg-type]  # it takes any
    span = capture.span("evaluate")
    assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "judge_unavailable")
    assert capture.span("evaluation_loop")["status"] == "UNSET"
    assert "no such model" not in repr(capture.spans())


def test_our_gate_that_cannot_be_read(capture: Capture) -> None:
    from otel_loopeval.evaluation.errors import UnreadableVerdictError  # noqa: PLC0415 - for one test

    class Gate:
        def gate(self, *, output: str, goal: str, criteria: Any) -> bool:
            raise UnreadableVerdictError("nonsense")

    result = GoalLoop(Agent(), "a PR is open", max_turns=5, judge=Gate()).run("task")
    assert result.iterations == 3
    assert [span["attributes"]["error.type"] for span in capture.spans("evaluate")] == [
        "judge_unreadable"
    ] * 3
    assert capture.span("goal_loop")["attributes"]["loopeval.run.outcome"] == "stopped"


# Hand-written loops ------------------------------------------------------------------------------------


def test_the_judge_of_a_hand_written_loop(capture: Capture) -> None:
    with loop("writer") as run, iteration() as it:
        model_call(capture, "chat of the agent", 10, 1)
        with it.evaluating() as judging:
            assert (judging.iteration, judging.judging, run.iteration) == (it, True, it)
            model_call(capture, "chat of the judge", 30, 3)
            it.score = 9
        assert current_node() is it
        model_call(capture, "another chat", 5, 1)
    assert capture.outline() == (
        "evaluation_loop writer\n"
        "  evaluation_loop.iteration\n"
        "    chat of the agent\n"
        "    evaluate\n"
        "      chat of the judge\n"
        "    another chat"
    )
    assert tokens(capture) == {"tokens.input": 15, "judge_tokens.input": 30}
    assert capture.value("loopeval.tokens", {"gen_ai.token.type": "input"}) == 15
    assert capture.value("loopeval.judge_tokens", {"gen_ai.token.type": "input"}) == 30


def test_with_async_with(capture: Capture) -> None:
    async def play() -> None:
        async with loop("writer"), iteration() as it, it.evaluating():
            await asyncio.sleep(0)
            it.score = 9

    asyncio.run(play())
    assert capture.outline() == ONE


def test_a_jury(capture: Capture) -> None:
    """Judges at once and inside one another, in threads and tasks."""

    async def judge(it: Iteration, number: int) -> None:
        async with it.evaluating():
            await asyncio.sleep(0)
            model_call(capture, f"chat {number}", 1, 1)

    async def play(number: int) -> None:
        with iteration() as it:
            await asyncio.gather(judge(it, number), judge(it, number))
            with it.evaluating(), it.evaluating():
                assert current_node().iteration is it

    async def main() -> None:
        with loop("writer"):
            await asyncio.gather(*(play(number) for number in range(3)))

    asyncio.run(main())
    (root,) = capture.tree()
    assert [[child["name"] for child in turn["children"]] for turn in root["children"]] == [
        ["evaluate", "evaluate", "evaluate"]
    ] * 3
    for number, turn in enumerate(root["children"]):
        inside = [[child["name"] for child in judged["children"]] for judged in turn["children"]]
        assert inside == [[f"chat {number}"], [f"chat {number}"], ["evaluate"]]
    assert tokens(capture) == {"tokens.input": None, "judge_tokens.input": 6}


def test_in_a_thread_that_knows_nothing_of_the_iteration(capture: Capture) -> None:
    def judge(it: Iteration) -> None:
        with it.evaluating():
            it.score = 9
        assert current_node() is None

    with loop("writer"), iteration() as it, ThreadPoolExecutor(1) as pool:
        pool.submit(judge, it).result()
    assert capture.outline() == ONE


def test_in_a_span_of_the_programs(capture: Capture) -> None:
    tracer = capture.tracer_provider.get_tracer("somebody.else")
    with loop("writer"), iteration() as it, tracer.start_as_current_span("check"), it.evaluating():
        it.score = 9
    assert capture.outline() == (
        "evaluation_loop writer\n  evaluation_loop.iteration\n    check\n      evaluate"
    )


def test_a_judge_that_is_a_loop_itself(capture: Capture) -> None:
    with loop("writer"), iteration() as it:
        with it.evaluating(), loop("critic"), iteration() as inner:
            model_call(capture, "chat", 30, 3)
            inner.score = 9
        it.score = 9
    assert capture.outline() == (
        "evaluation_loop writer\n"
        "  evaluation_loop.iteration\n"
        "    evaluate\n"
        "      evaluation_loop critic\n"
        "        evaluation_loop.iteration\n"
        "          chat"
    )
    outer, inner_run = capture.spans("evaluation_loop")
    assert "loopeval.run.tokens.input" not in outer["attributes"]
    assert outer["attributes"]["loopeval.run.judge_tokens.input"] == 30
    assert inner_run["attributes"]["loopeval.run.tokens.input"] == 30


def test_an_exception_passes_and_is_recorded_once(capture: Capture, content: None) -> None:
    with pytest.raises(KeyError), loop("writer"), iteration() as it, it.evaluating():
        raise KeyError("words")
    assert [[event["name"] for event in span["events"]] for span in capture.spans()] == [
        [],
        [],
        ["exception"],
    ]


def test_where_nothing_can_come_of_it(capture: Capture) -> None:
    with iteration() as outside, outside.evaluating():
        outside.score = 9
    kept: list[Iteration] = []
    with loop("writer"), iteration() as it:
        kept.append(it)
    with kept[0].evaluating():  # the run is over
        assert current_node() is None
    kept[0].evaluating().end()  # never begun
    assert outside.score == 9
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration"
    assert len(open_spans) == 0


def test_a_run_that_ends_while_its_judge_is_at_work(
    capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the end of a process: no span is lost, and the judge may still come to its end."""
    begun, ended = threading.Event(), threading.Event()

    def judge(it: Iteration) -> None:
        with it.evaluating():
            begun.set()
            ended.wait(10)
            assert isinstance(current_node(), Judging)
        assert current_node() is None

    with ThreadPoolExecutor(1) as pool, loop("writer") as run, iteration() as it:
        judged = pool.submit(judge, it)
        begun.wait(10)
        run.end(None, "interrupted")
        ended.set()
        judged.result()
    assert capture.outline() == ONE
    assert len(open_spans) == 0
    assert "ended span" not in caplog.text


def test_without_a_provider_and_unsampled(plain_capture: Capture) -> None:
    with loop("writer"), iteration() as it, it.evaluating() as judging:
        assert current_node() is judging
        it.score = 9
    assert current_node() is None
    with Capture(sampler=ALWAYS_OFF) as unsampled:
        unsampled.instrument()
        with loop("writer") as run, iteration() as it, it.evaluating():
            it.score = 9
        assert run.scores == [9.0]
        assert unsampled.spans() == []
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_that_is_forked_inside_of_a_judge(capture: Capture) -> None:
    """The span is the parent's: the child, which leaves the block too, tells nothing of it."""
    reading, writing = os.pipe()
    child = 0
    with loop("writer"), iteration() as it, it.evaluating():
        child += os.fork()
        it.score = 9
    if child == 0:
        os.write(writing, json.dumps([span.name for span in capture.exporter.spans]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert json.loads(told.read()) == []
    assert capture.outline() == ONE


@pytest.mark.swallows
def test_a_tracer_that_raises(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with loop("writer") as run, iteration() as it:

        class Broken:
            def start_span(self, *_: Any, **__: Any) -> Any:
                raise RuntimeError

        monkeypatch.setattr(run, "tracer", Broken())
        with it.evaluating():
            it.score = 9
    assert capture.outline() == "evaluation_loop writer\n  evaluation_loop.iteration"
    assert capture.span("evaluation_loop.iteration")["attributes"]["loopeval.iteration.score"] == 9.0


def test_only_judges_are_judging() -> None:
    assert (Iteration(None).judging, Judging(Iteration(None)).judging) == (False, True)
