"""What a program does while one of our functions raises. Each scenario asserts what the program itself sees.

The assertions hold with and without a fault: a scenario never looks at our telemetry, only at its own
results, exceptions and control flow.
"""

import asyncio
import contextlib
import io
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.context import attach, get_current, set_value
from opentelemetry.trace import Status, StatusCode

import otel_loopeval
from otel_loopeval import (
    EvaluationLoop,
    LoopHealthProcessor,
    ModelOutput,
    StopLoop,
    ToolCall,
    UserMessage,
    current_run,
    iteration,
    loop,
    record_guard_event,
    run_until,
    semconv,
)
from otel_loopeval.evaluation.verdicts import GoalVerdict, JudgeResult
from otel_loopeval.testing import Capture


class UserError(Exception):
    """What the program itself raises."""


@dataclass
class Stage:
    """Where a scenario plays.

    Attributes:
        capture: Telemetry in memory.
        expected: Names of the program's own spans, which must all be exported.
    """

    capture: Capture
    expected: Counter[str] = field(default_factory=Counter[str])

    @property
    def tracer(self) -> trace.Tracer:
        """The program's own tracer."""
        return self.capture.tracer_provider.get_tracer("program")

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[trace.Span]:
        """A span of the program's own."""
        self.expected[name] += 1
        with self.tracer.start_as_current_span(name) as span:
            yield span

    def agent(self, answers: list[str]) -> Callable[[str], str]:
        """An agent that gives these answers, each inside a span of its own."""
        rest = iter(answers)

        def writer(prompt: str) -> str:
            with self.span("chat model") as span:
                span.set_attribute(semconv.GEN_AI_USAGE_INPUT_TOKENS, 10)
                span.set_attribute(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, 5)
                return next(rest)

        return writer


@dataclass(frozen=True)
class Scenario:
    """A scenario and how it is set up.

    Attributes:
        play: Plays it.
        options: Options of ``instrument()``; None to leave everything uninstrumented.
        environment: Variables that are set meanwhile.
        counts: Whether errors can be counted where the test sees it, which is not so in a forked child.
    """

    play: Callable[[Stage], None]
    options: dict[str, Any] | None = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    counts: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    options: dict[str, Any] | None = None, *, instrumented: bool = True, counts: bool = True, **environment: str
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register a scenario."""
    loud = {"events": "both", "iteration_metrics": True, "console": True, "token_budget": 20}

    def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        chosen = {**loud, **(options or {})} if instrumented else None
        SCENARIOS[play.__name__] = Scenario(play, chosen, environment, counts)
        return play

    return register


def play(name: str) -> tuple[Stage, str]:
    """Play a scenario on a stage of its own; returns the stage, and what it wrote to stderr."""
    chosen = SCENARIOS[name]
    stderr = io.StringIO()
    before = get_current()
    with Capture() as capture, contextlib.redirect_stderr(stderr), environment(chosen.environment):
        if chosen.options is not None:
            capture.instrument(**chosen.options)
        stage = Stage(capture)
        yield_to_fault = _armed.get("arm", contextlib.nullcontext)
        with yield_to_fault():
            chosen.play(stage)
            after = get_current()
            capture.metrics()
        attach(before)
        assert after is before, f"another context is current than before: {after!r}"
        seen = Counter(span.name for span in capture.finished_spans)
        missing = stage.expected - seen
        assert not missing, f"spans of the program were lost: {missing}"
    return stage, stderr.getvalue()


_armed: dict[str, Any] = {}


@contextlib.contextmanager
def armed(arm: Callable[[], Any]) -> Iterator[None]:
    """Have the next plays happen inside ``arm()``, entered when everything is set up."""
    _armed["arm"] = arm
    try:
        yield
    finally:
        del _armed["arm"]


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# Loop classes --------------------------------------------------------------------------------------------


@scenario()
def own_loop(stage: Stage) -> None:
    class Mine(EvaluationLoop):
        returned: Any = None

        def run(self, prompt: str) -> Any:
            self.returned = super().run(prompt)
            return self.returned

    answers = ["first answer", "second answer", "third"]
    scores = iter([3.0, float("nan"), 9.0])
    mine = Mine(stage.agent(answers), "", metric=lambda _: next(scores))
    with stage.span("request"):
        result = mine.run("prompt")
    assert result is mine.returned
    assert result.success is True
    assert [it.output for it in result.iterations] == answers
    assert all(it.output is answer for it, answer in zip(result.iterations, answers, strict=True))


@scenario()
def own_loop_with_a_judge_that_raises(stage: Stage) -> None:
    error = UserError("judge")

    class Judge:
        def run(self, *, output: str, criteria: str) -> Any:
            if output == "bad":
                raise error
            return JudgeResult(4.0, "reasoning", ["do better"])

    try:
        EvaluationLoop(stage.agent(["good", "bad"]), "criteria", judge=Judge()).run("prompt")
    except UserError as caught:
        assert caught is error
        assert len(caught.partial_result.iterations) == 1  # type: ignore[attr-defined]
    else:
        raise AssertionError("the judge's exception was lost")


@scenario()
def own_loop_async(stage: Stage) -> None:
    async def program() -> None:
        before = get_current()
        scores = iter([3.0, 9.0])
        sync_agent = EvaluationLoop(stage.agent(["a", "b"]), "", metric=lambda _: next(scores))
        with stage.span("request"):
            result = await sync_agent.run_async("prompt")
        assert [it.output for it in result.iterations] == ["a", "b"]

        async def agent(prompt: str) -> str:
            await asyncio.sleep(0)
            with stage.span("chat async"):
                return "async answer"

        concurrent = EvaluationLoop(agent, "", metric=lambda _: 10)
        results = await asyncio.gather(concurrent.run_async("one"), concurrent.run_async("two"))
        assert [r.final_output for r in results] == ["async answer", "async answer"]
        error = UserError("agent")

        async def failing(prompt: str) -> str:
            raise error

        try:
            await EvaluationLoop(failing, "", metric=lambda _: 10).run_async("prompt")
        except UserError as caught:
            assert caught is error
        else:
            raise AssertionError("the agent's exception was lost")
        assert get_current() is before

    asyncio.run(program())


@scenario()
def goal_loop(stage: Stage) -> None:
    verdicts = iter([GoalVerdict(met=False, reason="not yet"), GoalVerdict(met=True)])
    result = run_until(
        stage.agent(["a", "b"]), "prompt", goal="done", judge=lambda output: next(verdicts)
    )
    assert (result.success, result.output, result.completion_reason) == (True, "b", "goal_met")


def _stop(event: Any, run: Any) -> None:
    raise StopLoop


@scenario({"on_doom_loop": _stop})
def loop_stopped_by_the_callback(stage: Stage) -> None:
    def agent(prompt: str) -> str:
        with stage.span("tool"):
            record_guard_event({"type": "doom_loop", "reason": "again"})
        return "same answer"

    result = EvaluationLoop(agent, "", max_iterations=2, metric=lambda _: 1).run("prompt")
    # A fault may keep the callback from being called: the loop then runs as it would have without us.
    assert len(result.iterations) in (0, 1, 2)
    assert all(it.output == "same answer" for it in result.iterations)


def _raise(event: Any, run: Any) -> None:
    raise UserError("callback")


@scenario({"on_doom_loop": _raise})
def praisonai_loop(stage: Stage) -> None:
    from praisonaiagents.escalation.doom_loop import DoomLoopDetector  # noqa: PLC0415
    from praisonaiagents.escalation.loop_guard import LoopGuard  # noqa: PLC0415
    from praisonaiagents.eval.loop import EvaluationLoop as TheirLoop  # noqa: PLC0415

    detector, guard = DoomLoopDetector(), LoopGuard()
    detector.start_session()

    class Agent:
        name = "writer"

        def chat(self, prompt: str) -> str:
            with stage.span("chat model"):
                for _ in range(4):
                    detector.record_action("search", {"q": "same"}, "same", success=True)
                detector.is_doom_loop()
                detector.start_session()
                guard.check("search", {"q": "same"})
                return "answer"

    class Mine(TheirLoop):
        returned: Any = None

        def run(self, prompt: str) -> Any:
            self.returned = super().run(prompt)
            return self.returned

    scores = iter([3, 9.5])
    mine = Mine(Agent(), "criteria", metric=lambda _: next(scores))  # type: ignore[arg-type]
    with stage.span("request"):
        result = mine.run("prompt")
    assert result is mine.returned
    assert (result.success, result.score_history) == (True, [3.0, 9.5])

    error = UserError("metric")

    def metric(output: str) -> float:
        raise error

    async def program() -> None:
        result = await TheirLoop(Agent(), "", max_iterations=1, metric=lambda _: 2).run_async("x")  # type: ignore[arg-type]
        assert (result.success, result.score_history) == (False, [2.0])
        try:
            await TheirLoop(Agent(), "", metric=metric).run_async("prompt")  # type: ignore[arg-type]
        except UserError as caught:
            assert caught is error
        else:
            raise AssertionError("the metric's exception was lost")

    asyncio.run(program())


@scenario()
def patching_a_framework_on_import(stage: Stage) -> None:
    import praisonaiagents.eval.loop as module  # noqa: PLC0415
    from praisonaiagents.escalation import doom_loop, loop_guard  # noqa: PLC0415

    from otel_loopeval.instrumentation import setup  # noqa: PLC0415

    otel_loopeval.uninstrument()
    setup._state.active = True
    for imported in (module, doom_loop, loop_guard):
        setup._imported(imported)
    result = module.EvaluationLoop(lambda: None, "", metric=lambda _: 9, max_iterations=0).run("x")  # type: ignore[arg-type]
    assert result.success is False


# Hand-written loops ----------------------------------------------------------------------------------------


@scenario({"on_doom_loop": _raise})
def loop_by_hand(stage: Stage) -> None:
    error = UserError("by hand")
    seen: list[float] = []
    with stage.span("request"), loop("writer", threshold=8.0, max_iterations=5) as run:
        n = -1
        for n, score in enumerate([3.0, 5.5, 8.5, 9.0]):
            with iteration() as it, stage.span("step"):
                it.output = f"answer {n}"
                it.reasoning = "reasoning"
                it.findings = ["finding"]
                it.score = score
                record_guard_event({"type": "warning", "tool": "search"})
                record_guard_event({"type": "doom_loop", "reason": "again", "count": 3})
            seen.append(it.score)
            if it.score >= 8:
                break
        assert (n, seen) == (2, [3.0, 5.5, 8.5])
        assert run.doom_loop_fired in (True, False)
        assert isinstance(run.health.success, bool)
        assert isinstance(run.threshold, float)
        assert isinstance(run.scores, list)
        assert run.iteration in (None, it)
        assert (type(run.id), type(run.agent), type(run.mode)) == (str, str, str)
        run.success = True
    caught = None
    try:
        with loop("writer"), iteration(), loop("inner", mode="agent"), stage.span("step"):
            raise error
    except UserError as raised:
        caught = raised
    assert caught is error
    with loop("stopped") as run, stage.span("step"):
        assert current_run() in (run, None)
        run.stop()
        with iteration():
            pass
        raise StopLoop


@scenario()
def loop_by_hand_async(stage: Stage) -> None:
    error = UserError("by hand")

    async def one(n: int) -> int:
        async with loop("writer", mode="goal", conversation_id="c") as run:
            async with iteration(n) as it:
                await asyncio.sleep(0)
                with stage.span("step"):
                    it.score = float("nan")
            run.success = True
            run.paused("approval")
        return n

    async def program() -> None:
        before = get_current()
        assert await asyncio.gather(*(one(n) for n in range(3))) == [0, 1, 2]
        try:
            async with loop("writer"), iteration() as it:
                it.score = "no number"
                raise error
        except UserError as caught:
            assert caught is error
        else:
            raise AssertionError("the exception was lost")
        assert get_current() is before

    asyncio.run(program())


@scenario()
def steps_shown_to_the_detector(stage: Stage) -> None:
    with loop("worker", mode="agent") as run:
        for _ in range(6):
            with iteration(), stage.span("execute_tool search"):
                run.observe(ToolCall("search", {"q": "same"}, result="same"))
        with iteration():
            run.observe(UserMessage())
            for _ in range(4):
                run.observe(ModelOutput("the same long message, said again and again"))
            for n in range(4):
                run.observe(ToolCall("fetch", {"n": n}, error="timeout after 30 s"))
            run.observe(ToolCall("fetch", None))


@scenario()
def decorated_functions(stage: Stage) -> None:
    answer, error = object(), UserError("decorated")

    @iteration
    def step() -> object:
        with stage.span("step"):
            return answer

    @loop
    def function() -> object:
        return step()

    @loop("failing")
    def failing() -> None:
        with iteration():
            raise error

    @loop("stopped")
    def stopped() -> None:
        raise StopLoop

    @loop("coroutine")
    async def coroutine() -> object:
        await asyncio.sleep(0)
        return step()

    @loop("coroutine")
    async def failing_coroutine() -> object:
        raise error

    async def program() -> None:
        assert await coroutine() is answer
        try:
            await failing_coroutine()
        except UserError as caught:
            assert caught is error
        else:
            raise AssertionError("the exception was lost")

    assert function() is answer
    try:
        failing()
    except UserError as caught:
        assert caught is error
    else:
        raise AssertionError("the exception was lost")
    assert stopped() is None
    asyncio.run(program())


@scenario()
def decorated_generators(stage: Stage) -> None:
    before = get_current()
    error, answer = UserError("thrown in"), object()
    closed: list[str] = []

    @loop("generator")
    def generate() -> Generator[int, object, object]:
        try:
            with iteration() as it, stage.span("step"):
                it.score = 3.0
            got = yield 1
            assert got is answer
            try:
                yield 2
            except UserError as caught:
                assert caught is error
            yield 3
            return answer
        finally:
            closed.append("generator")

    def delegate() -> Generator[int, object, None]:
        result = yield from generate()
        assert result is answer

    items = delegate()
    assert next(items) == 1
    assert get_current() is before
    assert items.send(answer) == 2
    assert items.throw(error) == 3
    assert get_current() is before
    assert list(items) == []

    left = generate()
    assert next(left) == 1
    left.close()
    assert closed == ["generator", "generator"]
    assert get_current() is before

    @loop("async generator")
    async def generate_async() -> AsyncGenerator[int, object]:
        try:
            async with iteration():
                await asyncio.sleep(0)
            got = yield 1
            assert got is answer
            try:
                yield 2
            except UserError as caught:
                assert caught is error
            yield 3
        finally:
            closed.append("async generator")

    async def program() -> None:
        before = get_current()
        items = generate_async()
        assert await items.__anext__() == 1
        assert get_current() is before
        assert await items.asend(answer) == 2
        assert await items.athrow(error) == 3
        assert [item async for item in items] == []
        left = generate_async()
        assert await left.__anext__() == 1
        await left.aclose()
        assert closed[2:] == ["async generator", "async generator"]
        assert get_current() is before

    asyncio.run(program())

    @iteration(1)
    def failing() -> Generator[int, None, None]:
        yield 1
        raise error

    caught = None
    with loop("outer"):
        try:
            list(failing())
        except UserError as raised:
            caught = raised
    assert caught is error


# Spans -----------------------------------------------------------------------------------------------------


@scenario()
def spans_under_our_names(stage: Stage) -> None:
    with loop("makes the pipeline"):
        pass
    with (
        stage.span("evaluation_loop foreign") as root,
        stage.span("between"),
    ):
        root.set_attribute(semconv.RUN_THRESHOLD, 7.0)
        for number, score in ((1, 3.0), (2, 9.0), (3, 4.0)):
            with stage.span("evaluation_loop.iteration") as span, stage.span("chat model") as chat:
                span.set_attribute(semconv.ITERATION_NUMBER, number)
                span.set_attribute(semconv.ITERATION_SCORE, score)
                span.add_event(
                    semconv.EVENT_GUARD,
                    {semconv.GUARD_KIND: semconv.KIND_NO_PROGRESS, semconv.GUARD_DOOM_LOOP: True},
                )
                chat.set_attribute(semconv.GEN_AI_USAGE_INPUT_TOKENS, 10)
        late = stage.tracer.start_span("late")
        stage.expected["late"] += 1
    late.end()
    with stage.span("goal_loop foreign"), stage.span("agent_loop inner") as inner:
        inner.set_status(Status(StatusCode.ERROR))


@scenario(instrumented=False)
def processor_of_the_programs_own(stage: Stage) -> None:
    stage.capture.tracer_provider.add_span_processor(
        LoopHealthProcessor(meter_provider=stage.capture.meter_provider, on_doom_loop=_raise)
    )
    with stage.span("evaluation_loop foreign"), stage.span("evaluation_loop.iteration") as span:
        span.set_attribute(semconv.ITERATION_SCORE, 9.0)
    stage.capture.instrument()
    with loop("own"), stage.span("step"):
        pass
    with stage.span("evaluation_loop foreign"):
        pass


@scenario()
def unrelated_spans(stage: Stage) -> None:
    with loop("makes the pipeline"):
        pass
    for _ in range(3):
        with stage.span("http request") as span, stage.span("db query"):
            span.set_attribute("http.status", 200)


@scenario()
def guard_event_outside_of_a_run(stage: Stage) -> None:
    with stage.span("request"):
        assert record_guard_event({"type": "doom_loop"}) is None
        assert record_guard_event(object()) is None
    assert current_run() is None


# Ends of the process -----------------------------------------------------------------------------------------


@scenario(LOOPEVAL_MAX_OPEN_RUNS="2")
def more_runs_than_are_followed(stage: Stage) -> None:
    with loop("one"), loop("two"), loop("three"), loop("four"), stage.span("step"):
        pass


@scenario()
def runs_open_at_exit(stage: Stage) -> None:
    from otel_loopeval.otel import lifecycle  # noqa: PLC0415

    foreign = stage.tracer.start_span("evaluation_loop foreign")
    stage.expected["evaluation_loop foreign"] += 1
    with loop("open"), iteration(), stage.span("step"):
        lifecycle.finish_open_runs()
    foreign.end()


def _in_child(program: Callable[[], None]) -> int:
    """Run a program in a forked child; its wait status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest may have threads; the child does not care
        child = os.fork()
    if child == 0:
        status = 1
        try:
            program()
            status = 0
        except BaseException as error:
            sys.__stderr__.write(f"in the child: {error!r}\n")
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@scenario(counts=False)
def forked_children(stage: Stage) -> None:
    def program() -> None:
        with stage.span("in the child"), loop("child") as run, iteration() as it:
            it.score = 9.0
        assert run.scores in ([9.0], [])
        assert get_current() is before

    before = get_current()
    with loop("parent"):
        before = get_current()
        assert _in_child(program) == 0
    before = get_current()
    assert _in_child(program) == 0
    stage.expected.clear()


@scenario(counts=False)
def sigterm_with_open_runs(stage: Stage) -> None:
    def program() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with loop("open"), stage.span("step"):
            os.kill(os.getpid(), signal.SIGTERM)

    assert _in_child(program) == signal.SIGTERM
    stage.expected.clear()


@scenario()
def baggage_of_the_program(stage: Stage) -> None:
    with loop("writer"):
        attach(set_value("program", "value"))
        with iteration(), stage.span("step"):
            assert get_current()["program"] == "value"
