"""What a program does while one of our functions raises. Each scenario asserts what the program itself sees.

The assertions hold with and without a fault: a scenario never looks at our telemetry, only at its own
results, exceptions and control flow.
"""

import asyncio
import contextlib
import gc
import io
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar

from opentelemetry import trace
from opentelemetry.context import attach, detach, get_current, set_value
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode
from support.foreign_agents import DIALECTS, Call, Foreign, Turn

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
from otel_loopeval.instrumentation import setup
from otel_loopeval.otel.pipeline import registry
from otel_loopeval.testing import Capture


class UserError(Exception):
    """What the program itself raises."""


@contextlib.contextmanager
def raises(error: UserError | StopLoop) -> Generator[None]:
    """The block must raise this very exception."""
    caught = None
    try:
        yield
    except (UserError, StopLoop) as raised:
        caught = raised
    assert caught is error


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
    def span(self, name: str) -> Generator[trace.Span]:
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


class Agent:
    """An agent of PraisonAI's kind.

    Args:
        name: Its name.
        work: What it does when asked.
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self._work = work

    def chat(self, prompt: str) -> str:
        """Answer."""
        self._work()
        return "answer"


@dataclass(frozen=True)
class Scenario:
    """A scenario and how it is set up.

    Attributes:
        play: Plays it.
        prepare: Does before what the program does when it sets up its telemetry, where errors may show.
        options: Options of ``instrument()``.
        environment: Variables that are set meanwhile.
        in_children: Patterns of our functions that run in its forked children only. Where there are any,
            faults go into these, and the child reports by its exit status, not by what it counted.
        only: Patterns of our functions that faults go into, where the others are left to other scenarios;
            all that it reaches if empty.
    """

    play: Callable[[Stage], None]
    prepare: Callable[[Stage], None] | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    in_children: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    options: dict[str, Any] | None = None,
    *,
    prepare: Callable[[Stage], None] | None = None,
    in_children: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    **environment: str,
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register a scenario."""
    loud = {"events": "both", "iteration_metrics": True, "console": True, "token_budget": 20}

    def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENARIOS[play.__name__] = Scenario(
            play, prepare, {**loud, **(options or {})}, environment, in_children, only
        )
        return play

    return register


def play(name: str) -> tuple[Stage, str]:
    """Play a scenario on a stage of its own; returns the stage, and what it wrote to stderr."""
    chosen = SCENARIOS[name]
    if chosen.in_children:
        gc.collect()  # or the child flushes the providers of all plays before
    stderr = io.StringIO()
    before = get_current()
    with Capture() as capture, contextlib.redirect_stderr(stderr), environment(chosen.environment):
        capture.instrument(**chosen.options)
        stage = Stage(capture)
        if chosen.prepare is not None:
            chosen.prepare(stage)
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
def armed(arm: Callable[[], Any]) -> Generator[None]:
    """Have the next plays happen inside ``arm()``, entered when everything is set up."""
    _armed["arm"] = arm
    try:
        yield
    finally:
        del _armed["arm"]


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Generator[None]:
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


# Loop classes -----------------------------------------------------------------------------------------


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

    with raises(error):
        EvaluationLoop(stage.agent(["good", "bad"]), "criteria", judge=Judge()).run("prompt")
    assert len(error.partial_result.iterations) == 1  # type: ignore[attr-defined]


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

        with raises(error):
            await EvaluationLoop(failing, "", metric=lambda _: 10).run_async("prompt")
        assert get_current() is before

    asyncio.run(program())


@scenario(only=("instrumentation.seams:*", "otel.node:*"))
def own_loop_whose_async_methods_are_plain(stage: Stage) -> None:
    class Mine(EvaluationLoop):
        def run_async(self, prompt: str) -> Any:  # type: ignore[override] # awaitable all the same
            return super().run_async(prompt)

        def _get_agent_output_async(self, *args: Any) -> Any:  # type: ignore[override]
            return super()._get_agent_output_async(*args)

        def _score_async(self, *args: Any) -> Any:  # type: ignore[override]
            return super()._score_async(*args)

    class Task(EvaluationLoop):
        def run_async(self, prompt: str) -> Any:  # type: ignore[override]
            return asyncio.ensure_future(super().run_async(prompt))

    async def program() -> None:
        with stage.span("request"):
            result = await Mine(stage.agent(["answer"]), "", metric=lambda _: 9).run_async("prompt")
            assert result.final_output == "answer"
            task = Task(stage.agent(["answer"]), "", metric=lambda _: 9).run_async("prompt")
            assert isinstance(task, asyncio.Task)
            assert (await task).final_output == "answer"

    asyncio.run(program())


@scenario()
def goal_loop(stage: Stage) -> None:
    verdicts = iter([GoalVerdict(met=False, reason="not yet", readable=False), GoalVerdict(met=True)])
    result = run_until(stage.agent(["a", "b"]), "prompt", goal="done", judge=lambda output: next(verdicts))
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

    def work() -> None:
        with stage.span("chat model"):
            for _ in range(4):
                detector.record_action("search", {"q": "same"}, "same", success=True)
            detector.is_doom_loop()
            detector.start_session()
            guard.check("search", {"q": "same"})

    agent: Any = Agent("writer", work)

    class Mine(TheirLoop):
        returned: Any = None

        def run(self, prompt: str) -> Any:
            self.returned = super().run(prompt)
            return self.returned

    scores = iter([3, 9.5])
    mine = Mine(agent, "criteria", metric=lambda _: next(scores))
    with stage.span("request"):
        result = mine.run("prompt")
    assert result is mine.returned
    assert (result.success, result.score_history) == (True, [3.0, 9.5])

    error = UserError("metric")

    def metric(output: str) -> float:
        raise error

    async def program() -> None:
        result = await TheirLoop(agent, "", max_iterations=1, metric=lambda _: 2).run_async("x")
        assert (result.success, result.score_history) == (False, [2.0])
        with raises(error):
            await TheirLoop(agent, "", metric=metric).run_async("prompt")

    asyncio.run(program())


@scenario({"on_doom_loop": _raise})
def praisonai_agent(stage: Stage) -> None:
    from praisonaiagents import Agent as TheirAgent  # noqa: PLC0415

    class Writer(TheirAgent):
        answers: ClassVar[Iterator[Any]] = iter(())
        verdicts: ClassVar[Iterator[Any]] = iter(())

        def chat(self, prompt: str, *_: Any, **__: Any) -> Any:
            with stage.span("chat model"):
                answer = next(self.answers)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        async def achat(self, prompt: str, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(0)
            return self.chat(prompt)

        def _goal_gate(self, response: str) -> Any:
            return next(self.verdicts, None)

    autonomy = {"level": "full_auto", "mode": "iterative", "track_changes": False}
    writer = Writer(name="writer", instructions="Write", output="silent", autonomy=autonomy)
    task = "Refactor the whole auth module and then write the tests"

    Writer.answers = iter(["Step 1 of the work", "All done."])
    result = writer.run_autonomous(task)
    assert (result.output, result.completion_reason, result.iterations) == ("All done.", "goal", 2)

    Writer.answers = iter(["Step 1 of the work", UserError("chat")])
    result = writer.run_autonomous(task)
    assert (result.error, result.completion_reason, result.iterations) == ("chat", "error", 2)

    Writer.answers, Writer.verdicts = iter(["a", "b"]), iter([("continue", "not yet"), ("done", "met")])
    result = asyncio.run(writer.run_goal_async(task, "a goal", max_turns=5))
    assert (result.output, result.completion_reason, result.iterations) == ("b", "goal_met", 2)

    stop = StopLoop()
    Writer.answers = iter(["Step 1 of the work", stop])
    with raises(stop):
        writer.run_autonomous(task)
    assert stop.partial is None or stop.partial.iterations in (0, 1, 2)


@scenario({"on_doom_loop": _raise, "detectors": False})
def praisonai_guards(stage: Stage) -> None:
    import praisonaiagents.agent.loop_detection as tool_loops  # noqa: PLC0415
    from praisonaiagents import Agent as TheirAgent  # noqa: PLC0415
    from praisonaiagents.agent.autonomy import DoomLoopTracker  # noqa: PLC0415
    from praisonaiagents.escalation.loop_guard import LoopGuard  # noqa: PLC0415
    from praisonaiagents.escalation.observability import EventType, ObservabilityHooks  # noqa: PLC0415
    from praisonaiagents.eval.loop import EvaluationLoop as TheirLoop  # noqa: PLC0415
    from praisonaiagents.eval.loop_eval import LoopEvaluator as TheirEvaluator  # noqa: PLC0415
    from praisonaiagents.permissions.doom_loop import DoomLoopDetector  # noqa: PLC0415

    writer = TheirAgent(name="writer", instructions="Write", output="silent", autonomy={"observe": True})

    class Manager:
        """Like the package's, and it lets critical tool loops go on."""

        def __init__(self) -> None:
            self._doom_detector = DoomLoopDetector()

        def check_doom_loop(self, tool: str, arguments: Any) -> Any:
            return self._doom_detector.record_and_check(tool, arguments)

        def resolve_tool_action(self, _tool: str, _agent: Any) -> Any:
            from praisonaiagents.permissions.rules import PermissionAction  # noqa: PLC0415

            return PermissionAction.ALLOW

    class Denying:
        def check_doom_loop(self, _tool: str, _arguments: Any) -> Any:
            return DoomLoopDetector(loop_threshold=0).check("any", None)

    def trackers() -> list[Any]:
        tracker, told = DoomLoopTracker(), []
        for _ in range(3):
            tracker.record("search", {}, "same", success=True)
            told.append(tracker.is_doom_loop())
        told += [tracker.get_recovery_action() for _ in range(4)]
        for number in range(2):
            writer._record_action("chat", {}, number, success=True)
        for _ in range(2):
            writer._record_action("chat", {}, "same", success=False)
            writer._record_action("chat", {}, "same", success=False)
            told.append(writer._get_doom_recovery())
        hooks: Any = writer._observability_hooks
        hooks.emit(EventType.STEP_END, {"doom_loop": True})
        ObservabilityHooks().emit(EventType.STEP_END, {"doom_loop": True})
        return told

    def tools() -> list[Any]:
        guard, told = LoopGuard(), []
        for number in (0, 0, 0, 0, 0, 1):
            told.append(guard.check("search", {}).code)
            guard.record("search", {}, success=True, result=number)
        guard.reset_turn()
        for manager in (Manager(), Denying()):
            writer._permission_manager = manager
            for tool in ("search", "search", "search", "search", "write"):
                denial = writer._check_permission_manager_doom_loop(tool, {})
                told.append(denial is not None)
        writer._permission_manager = Manager()
        writer._loop_detector_config = tool_loops.LoopDetectionConfig(
            enabled=True, warn_threshold=2, critical_threshold=3
        )
        writer._loop_detector_history = []
        verdict: Any = None
        for tool in ("search",) * 4:
            history, config = writer._ensure_loop_detector()
            tool_loops.record_tool_call(history, tool, {}, config)
            verdict = tool_loops.detect_tool_loop(history, tool, {}, config)
            told.append(verdict.get("level"))
            if verdict.get("level") == "critical":
                told.append(writer._doom_loop_approved(tool, {}, verdict))
                told.append(asyncio.run(writer._doom_loop_approved_async(tool, {}, verdict)))
                tool_loops.reset_matching_history(history, tool, {})
        return told

    agent: Any = Agent("writer", lambda: None)
    result: Any = None
    with stage.span("request"), loop("writer"):
        assert trackers() == [
            *(False, False, True),
            *("retry_different", "escalate_model", "request_help", "abort"),
            *("retry_different", "escalate_model"),
        ]
        assert tools() == [
            *("idempotent_allow", "idempotent_allow", "idempotent_allow", "idempotent_allow"),
            *("no_progress_warn", "no_progress_warn"),
            *(False, False, False, True, False),
            *(True, True, True, True, True),
            *(None, "warning", "critical", True, True, None),
        ]
        result = TheirLoop(agent, "", metric=lambda _: 9.0).run("prompt")
        plugin = _plugin()
        plugin.reset_history()
        call = SimpleNamespace(tool_name="search", tool_input={}, extra={})
        decisions = [plugin._loop_detection_hook(call).decision for _ in range(21)]
        assert decisions == ["allow"] * 20 + ["block"]
    health = TheirEvaluator().run(result)
    assert (health.converged, health.guard_interventions) == (True, 0)
    assert TheirEvaluator().run(result, [{"type": "doom_loop"}]).doom_loop_fired


@scenario()
def praisonai_loop_that_is_stopped(stage: Stage) -> None:
    from praisonaiagents.eval.loop import EvaluationLoop as TheirLoop  # noqa: PLC0415

    stop = StopLoop()

    def metric(output: str) -> float:
        if not stage.expected["judged"]:
            with stage.span("judged"):
                return 3.0
        raise stop

    agent: Any = Agent("writer", lambda: None)
    with raises(stop):
        TheirLoop(agent, "", metric=metric).run("prompt")
    assert stop.partial is None or len(stop.partial.iterations) in (0, 1)


def _framework_modules() -> list[Any]:
    import praisonaiagents  # noqa: PLC0415
    import praisonaiagents.agent.agent as agent_module  # noqa: PLC0415
    import praisonaiagents.eval.loop as loop_module  # noqa: PLC0415
    from praisonaiagents.agent import autonomy, loop_detection  # noqa: PLC0415
    from praisonaiagents.escalation import doom_loop, loop_guard, observability  # noqa: PLC0415
    from praisonaiagents.eval import loop_eval  # noqa: PLC0415
    from praisonaiagents.permissions import doom_loop as permissions  # noqa: PLC0415

    for model_api in ("litellm", "openai.resources.chat.completions", "openai.resources.responses"):
        import_module(model_api)
    modules = [loop_module, loop_eval, doom_loop, loop_guard, observability, autonomy, loop_detection]
    return [*modules, permissions, agent_module, _plugin(), praisonaiagents]


def _plugin() -> Any:
    """The plugin's module, without the hook that its import registers for the whole process."""
    from praisonaiagents.hooks import remove_hook  # noqa: PLC0415
    from praisonaiagents.plugins import loop_detection_plugin  # noqa: PLC0415

    remove_hook(loop_detection_plugin._hook_id)
    return loop_detection_plugin


def _forget_the_framework(stage: Stage) -> None:
    _framework_modules()
    otel_loopeval.uninstrument()
    setup._state.active = True


@scenario(prepare=_forget_the_framework)
def patching_a_framework_on_import(stage: Stage) -> None:
    modules = _framework_modules()
    setup._imported(SimpleNamespace(__name__="praisonaiagents.escalation.loop_guard"))  # without its class
    for module in modules:
        setup._imported(module)

    class Mine(modules[0].EvaluationLoop):
        pass

    result = Mine(Agent("writer", lambda: None), "", metric=lambda _: 9).run("prompt")
    assert result.score_history == [9.0]


# Hand-written loops -----------------------------------------------------------------------------------


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
                with it.evaluating(), stage.span("judge"):
                    it.score = score
                assert isinstance(it.number, int)
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
        assert run.iteration is None or run.iteration.run is run
        assert (type(run.id), type(run.agent), type(run.mode)) == (str, str, str)
        run.success = True
        assert run.success is True
    with raises(error), loop("writer"), iteration(), loop("inner", mode="agent"), stage.span("step"):
        raise error
    with loop("stopped") as run, stage.span("step"):
        assert current_run() in (run, None)
        run.stop()
        with iteration():
            pass
        raise StopLoop


@scenario({"token_budget": None}, only=("otel.live:*", "otel.loops:*", "otel.emission:*", "runs.resume:*"))
def loop_in_segments(stage: Stage) -> None:
    token = ""
    with loop("writer", token_budget=10) as run:
        for score in (3.0, 5.0):
            with iteration() as it, stage.span("chat model") as chat:
                chat.set_attribute(semconv.GEN_AI_OPERATION_NAME, "chat")
                chat.set_attribute(semconv.GEN_AI_USAGE_INPUT_TOKENS, 10)
                it.score = score
        assert run.over_token_budget in (True, False, None)
        record_guard_event({"type": "doom_loop"})
        token = run.paused("approval")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ValueError):  # a fault may keep us from giving a token
            stack.enter_context(loop("writer", resume=token))
            assert token
        with iteration() as it, stage.span("step"):
            it.score = 9.0
    with loop("writer", resume=f"00-{1:032x}-{1:016x}-01"), iteration(), stage.span("step"):
        pass
    refused = ""
    try:
        loop("writer", resume="nonsense")
    except ValueError as error:
        refused = str(error)
    assert "W3C traceparent" in refused or not refused


@scenario()
def loop_by_hand_async(stage: Stage) -> None:
    error = UserError("by hand")

    async def one(n: int) -> int:
        async with loop("writer", mode="goal", conversation_id="c") as run:
            async with iteration(n + 1) as it:
                await asyncio.sleep(0)
                async with it.evaluating():
                    with stage.span("step"):
                        it.score = float("nan")
            run.success = True
            run.paused("approval")
        return n

    async def program() -> None:
        before = get_current()
        assert await asyncio.gather(*(one(n) for n in range(3))) == [0, 1, 2]
        with raises(error):
            async with loop("writer"), iteration() as it:
                it.score = "no number"
                raise error
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
        with raises(error):
            await failing_coroutine()

    assert function() is answer
    with raises(error):
        failing()
    with contextlib.suppress(StopLoop):  # a decorator that failed has left the function as it was
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
            with raises(error):
                yield 2
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
            with raises(error):
                yield 2
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

    with loop("outer"), raises(error):
        list(failing())


# Spans ------------------------------------------------------------------------------------------------


SEARCH = Call("search", {"q": "weather"}, "It is sunny, with twenty-five degrees in the afternoon.")
FETCH = Call("fetch", {"url": "u"}, error="connection refused")
TURNS = (*[Turn("Looking.", (SEARCH,))] * 5, Turn(calls=(FETCH, SEARCH)), Turn("Sunny."))


@scenario()
def agents_of_others(stage: Stage) -> None:
    provider = stage.capture.tracer_provider
    for dialect in DIALECTS:
        for late, tools in ((False, True), (True, False)):
            foreign = Foreign(provider, dialect, late=late, tools=tools)
            with stage.span("server"), foreign.agent("team") as span:
                foreign.turns(*TURNS)
                span.add_event(
                    semconv.EVENT_EVALUATION_RESULT,
                    {
                        semconv.GEN_AI_EVALUATION_SCORE_VALUE: 0.5,
                        semconv.GEN_AI_EVALUATION_SCORE_LABEL: semconv.LABEL_PASS,
                    },
                )
                with foreign.agent("inner", error="ValueError"):
                    foreign.turns(*TURNS[4:])


@scenario()
def clients_in_loops_by_hand(stage: Stage) -> None:
    provider = stage.capture.tracer_provider
    foreign = Foreign(provider, DIALECTS[0])
    with stage.span("server"), stage.span("step"):
        foreign.turns(*TURNS)
    with stage.span("server"), stage.span("agent") as span:
        foreign.turns(*TURNS)
        span.set_attribute(semconv.GEN_AI_OPERATION_NAME, semconv.OPERATION_INVOKE_AGENT)
    with stage.span("server"), stage.span("agent") as span:
        span.set_attribute(semconv.GEN_AI_OPERATION_NAME, semconv.OPERATION_INVOKE_AGENT)
    chains = Foreign(provider, DIALECTS[1], late=True)
    with stage.span("server"):
        chains.turns(*TURNS)
    with loop("own", mode="agent"), iteration(), stage.span("step"):
        foreign.turns(*TURNS)
    with foreign.agent("team"), foreign.agent("only agents inside"):
        pass
    with foreign.agent("wrapped"):
        for _ in range(2):
            with stage.span("wrapper") as span:
                with stage.span("call") as inner:
                    inner.set_attribute(semconv.GEN_AI_OPERATION_NAME, "chat")
                span.set_attribute(semconv.GEN_AI_OPERATION_NAME, "chat")


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


def _without_a_pipeline(stage: Stage) -> None:
    """As if the program had set its provider after ``instrument()``: the first run finds it."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(stage.capture.exporter))
    stage.capture.tracer_provider = provider
    registry._providers = (provider, stage.capture.meter_provider, stage.capture.logger_provider)


def _with_a_processor_of_the_programs_own(stage: Stage) -> None:
    _without_a_pipeline(stage)
    stage.capture.tracer_provider.add_span_processor(
        LoopHealthProcessor(meter_provider=stage.capture.meter_provider, on_doom_loop=_raise)
    )


def _play_with_a_late_pipeline(stage: Stage) -> None:
    with stage.span("evaluation_loop foreign"), stage.span("evaluation_loop.iteration") as span:
        span.set_attribute(semconv.ITERATION_SCORE, 9.0)
        record_guard_event({"type": "doom_loop"})
    with loop("own"), iteration() as it, stage.span("step"):
        it.score = 9.0
    with stage.span("evaluation_loop foreign"), loop("own"), stage.span("step"):
        pass


@scenario(prepare=_without_a_pipeline)
def provider_that_is_set_late(stage: Stage) -> None:
    _play_with_a_late_pipeline(stage)


@scenario(prepare=_with_a_processor_of_the_programs_own)
def processor_of_the_programs_own(stage: Stage) -> None:
    _play_with_a_late_pipeline(stage)


class NoTracers:
    """A provider that gives no tracer."""

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        """Raise."""
        raise UserError("no tracer")


def _without_tracers(stage: Stage) -> None:
    registry._providers = (NoTracers(), *registry._providers[1:])


@scenario(prepare=_without_tracers)
def provider_without_tracers(stage: Stage) -> None:
    with loop("writer") as run, stage.span("step"):
        for score in (3.0, 9.0):
            with iteration() as it:
                it.score = score
            if it.score >= 8:
                break
        assert it.score == 9.0
        assert isinstance(run.health.success, bool)


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


# Ends of the process ----------------------------------------------------------------------------------


@scenario(LOOPEVAL_MAX_OPEN_RUNS="2")
def more_runs_than_are_followed(stage: Stage) -> None:
    with loop("one"), loop("two"), loop("three"), loop("four"), stage.span("step"):
        pass


@scenario(LOOPEVAL_MAX_IDLE_S="0.000001")
def runs_that_are_idle(stage: Stage) -> None:
    with loop("one"):
        for name in ("two", "three"):
            with loop(name), stage.span("step"):
                pass


def raise_in_callback(event: Any, run: Any) -> None:
    """Named by ``LOOPEVAL_ON_DOOM_LOOP``."""
    raise UserError("callback")


@scenario(LOOPEVAL_ON_DOOM_LOOP="fault_scenarios:raise_in_callback")
def callback_that_the_environment_names(stage: Stage) -> None:
    with loop("writer"), stage.span("step"):
        record_guard_event({"type": "doom_loop"})


@scenario()
def inner_run_that_is_never_left(stage: Stage) -> None:
    before = get_current()
    with loop("outer"), iteration(), stage.span("step"):
        loop("inner").__enter__()
        iteration().__enter__()
    assert get_current() is before


@scenario()
def one_object_that_is_entered_twice(stage: Stage) -> None:
    before = get_current()
    twice = loop("writer")
    with twice, twice, iteration(), stage.span("step"):
        pass
    assert get_current() is before


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
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # pytest may have threads; the child does not care
        child = os.fork()
    if child == 0:
        status = 1
        try:
            program()
            status = 0
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.__stderr__)
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@scenario(
    in_children=(
        "otel.lifecycle:_forget_what_is_the_parents",
        "otel.lifecycle:note_run",
        "otel.live:Run.disown",
        "otel.pipeline:Pipeline.forget",
        "otel.pipeline:Registry.renew_lock",
        "runs.tracker:Tracker.forget",
        "instrumentation.setup:_State.renew_lock",
    )
)
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


@scenario(
    in_children=(
        "otel.lifecycle:_on_sigterm",
        "otel.lifecycle:_finish_and_flush",
        "otel.lifecycle:finish_open_runs",
        "otel.live:Run.end",
        "otel.pipeline:Pipeline.flush",
        "runs.tracker:Tracker.open_runs",
    )
)
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
        token = attach(set_value("program", "value"))
        with iteration(), stage.span("step"):
            assert get_current()["program"] == "value"
        assert get_current()["program"] == "value"
        detach(token)
