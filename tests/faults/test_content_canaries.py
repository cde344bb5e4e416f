"""No word of what the program reads and writes leaves the process unless it says so.

Every place that holds content has a word of its own. The words are looked for in everything that goes out:
spans, events, log records, metrics, the console line, and what we log at WARNING and above.
"""

import asyncio
import io
import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import redirect_stderr, suppress
from typing import Any

import pytest
from praisonaiagents.escalation.doom_loop import DoomLoopDetector
from praisonaiagents.eval.loop import EvaluationLoop as PraisonLoop

from otel_loopeval import (
    EvaluationLoop,
    GoalCriteria,
    GuardEvent,
    ModelOutput,
    ToolCall,
    UserMessage,
    iteration,
    loop,
    record_guard_event,
    run_until,
    run_until_async,
    semconv,
)
from otel_loopeval.evaluation.verdicts import GoalVerdict
from otel_loopeval.testing import Capture

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def word(place: str) -> str:
    """The word of a place."""
    return f"canary-{place}"


class CanaryError(Exception):
    """An exception whose message is content."""


class Verdict:
    """A judge's verdict, as duck-typed as verdicts are."""

    def __init__(self, score: float) -> None:
        self.score = score
        self.reasoning = word("reasoning")
        self.suggestions = [word("suggestion")]


class Judge:
    """Judges 3, then 9, or raises."""

    def __init__(self, *, fails: bool = False) -> None:
        self._scores = iter([3.0, 9.0])
        self._fails = fails

    def run(self, *, output: str, criteria: str) -> Any:
        if self._fails:
            raise CanaryError(word("judge-error"))
        return Verdict(next(self._scores))

    async def run_async(self, *, output: str, criteria: str) -> Any:
        return self.run(output=output, criteria=criteria)


class Agent:
    """Answers, or raises; reports its tool calls to a detector, and a guard event of its own."""

    name = "writer"

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def chat(self, prompt: str) -> str:
        record_guard_event({"type": "doom_loop", "reason": word("guard-reason"), "note": word("guard-note")})
        detector = DoomLoopDetector()
        detector.start_session()
        for _ in range(5):
            detector.record_action("search", {"q": word("argument")}, word("result"), success=True)
            detector.is_doom_loop()
        if self._fails:
            raise CanaryError(word("agent-error"))
        return word("output")

    async def chat_async(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return self.chat(prompt)


def on_iteration(result: Any) -> None:
    raise CanaryError(word("callback-error"))


def own_loop() -> None:
    for agent, judge in ((Agent(), Judge()), (Agent(fails=True), Judge()), (Agent(), Judge(fails=True))):
        with suppress(CanaryError):
            EvaluationLoop(agent, word("criteria"), judge=judge, on_iteration=on_iteration).run(
                word("prompt")
            )
    with suppress(ValueError):
        EvaluationLoop(Agent(), "", metric=lambda output: word("bad-score")).run(word("prompt"))


async def own_loop_async() -> None:
    for agent, judge in ((Agent(), Judge()), (Agent(fails=True), Judge()), (Agent(), Judge(fails=True))):
        with suppress(CanaryError):
            await EvaluationLoop(agent, word("criteria"), judge=judge).run_async(word("prompt"))


def praisonai_loop() -> None:
    for agent, judge in ((Agent(), Judge()), (Agent(fails=True), Judge()), (Agent(), Judge(fails=True))):
        with suppress(CanaryError):
            PraisonLoop(agent, word("criteria"), judge=judge).run(word("prompt"))  # type: ignore[arg-type]


async def praisonai_loop_async() -> None:
    for agent, judge in ((Agent(), Judge()), (Agent(fails=True), Judge()), (Agent(), Judge(fails=True))):
        with suppress(CanaryError):
            await PraisonLoop(agent, word("criteria"), judge=judge).run_async(word("prompt"))  # type: ignore[arg-type]


def gate(output: str) -> GoalVerdict:
    return GoalVerdict(met=False, reason=word("reasoning"))


def goal_loop() -> None:
    criteria = GoalCriteria(outcome=word("criteria"), verification=word("criteria"))
    for agent in (Agent(), Agent(fails=True)):
        with suppress(CanaryError):
            run_until(
                agent,
                word("prompt"),
                goal=word("goal"),
                goal_criteria=criteria,
                judge=gate,
                max_iterations=2,
            )


async def goal_loop_async() -> None:
    for agent in (Agent(), Agent(fails=True)):
        with suppress(CanaryError):
            await run_until_async(agent, word("prompt"), goal=word("goal"), judge=gate, max_iterations=2)


class Unreadable:
    """A guard event of somebody else's that cannot be read."""

    @property
    def loop_type(self) -> str:
        raise CanaryError(word("guard-error"))


def hand_written() -> None:
    with loop("writer") as run:
        for number in range(6):
            with iteration() as it:
                it.output = word("output")
                it.reasoning = word("reasoning")
                it.findings = [word("suggestion")]
                it.score = 3.0
                run.observe(UserMessage())
                run.observe(ModelOutput(word("output")))
                for _ in range(4):
                    run.observe(ToolCall("search", {"q": word("argument")}, result=word("result")))
                    run.observe(ToolCall("fetch", {"n": number}, error=word("tool-error")))
                record_guard_event(
                    {"is_loop": True, "reason": word("guard-reason"), "message": word("guard-note")}
                )
                record_guard_event({"type": word("guard-note"), "action": word("guard-note")})
                record_guard_event(Unreadable())
                record_guard_event(
                    GuardEvent(
                        kind=word("guard-note"),
                        doom_loop=True,
                        source=word("guard-note"),
                        action=word("guard-note"),
                        reason=word("guard-reason"),
                        key=word("argument"),
                    )
                )
    record_guard_event({"type": "doom_loop", "reason": word("guard-reason")})
    with suppress(CanaryError), loop("writer"), iteration() as it:
        it.score = word("bad-score")
        raise CanaryError(word("agent-error")) from CanaryError(word("cause"))
    with suppress(CanaryError), loop("writer"):
        raise CanaryError(word("agent-error"))


async def hand_written_async() -> None:
    async def one() -> None:
        async with loop("writer"), iteration() as it:
            it.output = word("output")
            it.reasoning = word("reasoning")
            it.score = 3.0
            await asyncio.sleep(0)
            raise CanaryError(word("agent-error"))

    await asyncio.gather(one(), one(), return_exceptions=True)


def decorated() -> None:
    @iteration
    def step(prompt: str) -> str:
        if prompt == word("prompt"):
            raise CanaryError(word("agent-error"))
        return word("output")

    @loop("writer")
    def program(prompt: str) -> str:
        return step(prompt)

    @loop("writer")
    def stream(prompt: str) -> Generator[str, str, str]:
        with suppress(CanaryError):
            yield word("output")
        step(word("prompt"))
        return word("result")

    assert program("") == word("output")
    with suppress(CanaryError):
        program(word("prompt"))
    chunks = stream(word("prompt"))
    next(chunks)
    with suppress(CanaryError):
        chunks.throw(CanaryError(word("tool-error")))


async def decorated_async() -> None:
    @loop("writer")
    async def stream(prompt: str) -> AsyncGenerator[str, str]:
        yield word("output")
        raise CanaryError(word("agent-error"))

    @loop("writer")
    async def program(prompt: str) -> str:
        raise CanaryError(word("agent-error"))

    with suppress(CanaryError):
        async for _ in stream(word("prompt")):
            pass
    with suppress(CanaryError):
        await program(word("prompt"))


PROGRAMS: list[Callable[[], Any]] = [
    own_loop,
    own_loop_async,
    praisonai_loop,
    praisonai_loop_async,
    goal_loop,
    goal_loop_async,
    hand_written,
    hand_written_async,
    decorated,
    decorated_async,
]


def on_doom_loop(event: Any, run: Any) -> None:
    raise CanaryError(word("callback-error"))


def words_in(text: str) -> set[str]:
    """The words of which there is a trace in a text."""
    return set(re.findall(r"canary-([a-z-]+)", text))


def perform(program: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> dict[str, set[str]]:
    """Run a program; the words that went out, by the way that they took."""
    stderr = io.StringIO()
    with Capture() as capture, redirect_stderr(stderr), caplog.at_level(logging.WARNING):
        capture.instrument(events="both", iteration_metrics=True, console=True, on_doom_loop=on_doom_loop)
        result = program()
        if asyncio.iscoroutine(result):
            asyncio.run(result)
        assert len(capture.spans()) > 1
        assert capture.value("loopeval.runs") >= 1
        formatter = logging.Formatter()
        ours = [record for record in caplog.get_records("call") if record.name.startswith("otel_loopeval")]
        return {
            "spans": words_in("".join(span.to_json() for span in capture.finished_spans)),
            "metrics": words_in(repr(capture.metrics())),
            "logs": words_in(repr(capture.logs())),
            "console": words_in(stderr.getvalue()),
            "our logger": words_in("".join(map(formatter.format, ours))),
        }


NOWHERE: dict[str, set[str]] = {
    "spans": set(),
    "metrics": set(),
    "logs": set(),
    "console": set(),
    "our logger": set(),
}


@pytest.mark.swallows
@pytest.mark.parametrize("value", ["", "false"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_leaves_without_content_capture(
    program: Callable[[], Any], value: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value:
        monkeypatch.setenv(CAPTURE, value)
    assert perform(program, caplog) == NOWHERE


@pytest.mark.swallows
def test_what_leaves_with_content_capture(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    assert perform(own_loop, caplog) == {
        **NOWHERE,
        "spans": {"reasoning", "guard-reason", "agent-error", "judge-error", "bad-score"},
        "logs": {"reasoning", "guard-reason"},
    }


@pytest.mark.swallows
def test_what_leaves_with_content_capture_of_a_hand_written_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    assert perform(hand_written, caplog) == {
        **NOWHERE,
        # The cause is in the stack trace of the exception.
        "spans": {"reasoning", "guard-reason", "agent-error", "cause"},
        "logs": {"reasoning", "guard-reason"},
    }


def test_content_of_foreign_spans_stays_where_it_was(
    capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = capture.tracer_provider.get_tracer("foreign")
    with tracer.start_as_current_span("evaluation_loop foreign") as root:
        root.set_attribute("gen_ai.input.messages", word("prompt"))
        with tracer.start_as_current_span("evaluation_loop.iteration") as span:
            span.set_attribute(semconv.ITERATION_SCORE, 3.0)
            span.add_event(
                semconv.EVENT_GUARD,
                {
                    semconv.GUARD_KIND: word("guard-note"),
                    semconv.GUARD_DOOM_LOOP: True,
                    semconv.GUARD_SOURCE: word("guard-note"),
                    semconv.GUARD_ACTION: word("guard-note"),
                    semconv.GUARD_REASON: word("guard-reason"),
                },
            )
            with tracer.start_as_current_span("chat model") as chat:
                chat.set_attribute("gen_ai.output.messages", word("output"))
    spans = {span["name"]: span for span in capture.spans()}
    root_says = spans["evaluation_loop foreign"]
    assert root_says["attributes"].pop("gen_ai.input.messages") == word("prompt")
    assert words_in(repr(root_says)) == set()
    assert words_in(repr(capture.metrics())) == set()
    assert words_in(repr(capture.logs())) == set()
    assert words_in(caplog.text) == set()
