"""Calling any agent, from sync and async code, without deadlocks and without blocking the event loop."""

import asyncio
import contextvars
import functools
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from loop_parts import NotingAgent, Run, Verdict, both_ways, series

from otel_loopeval.evaluation import EvaluationLoop, GoalLoop
from otel_loopeval.evaluation.agents import agent_name, output_text


def function(prompt: str) -> str:
    return f"function {prompt}"


async def coroutine_function(prompt: str) -> str:
    await asyncio.sleep(0)
    return f"coroutine {prompt}"


def returns_a_coroutine(prompt: str) -> Any:
    return coroutine_function(prompt)


def with_prefix(prefix: str, prompt: str) -> str:
    return f"{prefix} {prompt}"


async def async_with_prefix(prefix: str, prompt: str) -> str:
    return f"{prefix} {prompt}"


class CallableObject:
    def __call__(self, prompt: str) -> str:
        return f"call {prompt}"


class AsyncCallable:
    async def __call__(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return f"async call {prompt}"

    def __repr__(self) -> str:
        return "AsyncCallable"


class Bound:
    def method(self, prompt: str) -> str:
        return f"method {prompt}"


def having(*names: str) -> Any:
    """An agent with these methods; those of async frameworks are coroutines."""

    def make(name: str) -> Any:
        async def async_method(prompt: str) -> str:
            await asyncio.sleep(0)
            return f"{name} {prompt}"

        def method(prompt: str) -> str:
            return f"{name} {prompt}"

        return async_method if name.startswith("a") or name.endswith("_async") else method

    return SimpleNamespace(**{name: make(name) for name in names})


@both_ways
@pytest.mark.parametrize(
    ("agent", "output"),
    [
        (function, "function task"),
        (coroutine_function, "coroutine task"),
        (returns_a_coroutine, "coroutine task"),
        (functools.partial(with_prefix, "partial"), "partial task"),
        (functools.partial(async_with_prefix, "async partial"), "async partial task"),
        (functools.partial(functools.partial(async_with_prefix, "nested")), "nested task"),
        (CallableObject(), "call task"),
        (AsyncCallable(), "async call task"),
        (Bound().method, "method task"),
        (having("chat"), "chat task"),
        (having("achat"), "achat task"),
        (having("chat_async"), "chat_async task"),
        (having("arun"), "arun task"),
        (having("run"), "run task"),
        (having("invoke"), "invoke task"),
        (having("ainvoke"), "ainvoke task"),
        (having("kickoff"), "kickoff task"),
        (having("kickoff_async"), "kickoff_async task"),
    ],
)
def test_every_kind_of_agent_runs_both_ways(run: Run, agent: Any, output: str):
    result = run(EvaluationLoop(agent, "", metric=series(9)))

    assert result.final_output == output


def test_sync_runs_take_the_first_sync_method_and_async_runs_the_first_async_one():
    agent = having(
        "kickoff_async", "ainvoke", "arun", "achat", "chat_async", "kickoff", "invoke", "run", "chat"
    )
    sync_order: list[str] = []
    async_order: list[str] = []
    while vars(agent):
        loop = EvaluationLoop(agent, "", metric=lambda _: 9)
        taken = (
            loop.run("task").final_output.split()[0],
            asyncio.run(loop.run_async("x")).final_output.split()[0],
        )
        sync_order.append(taken[0])
        async_order.append(taken[1])
        for name in set(taken):
            delattr(agent, name)

    assert sync_order == ["chat", "run", "invoke", "kickoff", "kickoff_async"]
    assert async_order == ["chat_async", "achat", "arun", "ainvoke", "kickoff_async"]


def test_a_method_that_is_no_method_is_passed_over():
    agent = SimpleNamespace(chat=None, run="text", invoke=function)

    assert EvaluationLoop(agent, "", metric=series(9)).run("task").final_output == "function task"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (42, "42"),
        (SimpleNamespace(content="content", text="text"), "content"),
        (SimpleNamespace(output="output", raw="raw"), "output"),
        (SimpleNamespace(final_output="final"), "final"),
        (SimpleNamespace(raw="raw"), "raw"),
        (SimpleNamespace(text="text"), "text"),
        (SimpleNamespace(content=["blocks"], text="text"), "text"),
        ({"input": "x", "output": "dict output"}, "dict output"),
        ({"output": SimpleNamespace(content="nested")}, "nested"),
        ({"answer": 1}, "{'answer': 1}"),
    ],
)
def test_the_text_of_a_result(result: Any, text: str):
    assert output_text(result) == text


def test_an_object_of_no_known_shape_is_its_str():
    class Odd:
        def __str__(self) -> str:
            return "odd"

    assert output_text(Odd()) == "odd"


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (SimpleNamespace(name="writer"), "writer"),
        (SimpleNamespace(name=""), "SimpleNamespace"),
        (SimpleNamespace(name=7), "SimpleNamespace"),
        (function, "function"),
        (functools.partial(with_prefix, "x"), "with_prefix"),
        (functools.partial(NotingAgent().chat), "chat"),
        (CallableObject(), "CallableObject"),
    ],
)
def test_the_name_of_an_agent(agent: Any, name: str):
    assert agent_name(agent) == name


async def test_sync_run_with_an_async_agent_inside_a_running_loop_does_not_deadlock():
    result = EvaluationLoop(coroutine_function, "", metric=series(3, 9)).run("task")

    assert result.score_history == [3.0, 9.0]


async def test_sync_parts_never_block_the_event_loop():
    """Each part waits until the event loop has ticked, which it cannot do if the part blocks it."""
    ticks = 0
    ticked = threading.Condition()
    starved: list[str] = []

    async def ticker() -> None:
        nonlocal ticks
        while True:
            with ticked:
                ticks += 1
                ticked.notify_all()
            await asyncio.sleep(0)

    def wait_for_ticks(part: str) -> None:
        with ticked:
            target = ticks + 5
            if not ticked.wait_for(lambda: ticks >= target, timeout=20):
                starved.append(part)

    def agent(_: str) -> str:
        wait_for_ticks("agent")
        return "out"

    def metric(_: str) -> float:
        wait_for_ticks("metric")
        return 5.0

    class Judge:
        def run(self, *, output: str, criteria: str) -> Verdict:
            wait_for_ticks("judge")
            return Verdict(5)

    def gate(_: str) -> bool:
        wait_for_ticks("gate")
        return False

    def on_iteration(_: Any) -> None:
        wait_for_ticks("callback")

    task = asyncio.create_task(ticker())
    await EvaluationLoop(agent, "", max_iterations=2, metric=metric, on_iteration=on_iteration).run_async(
        "task"
    )
    await EvaluationLoop(agent, "", max_iterations=1, judge=Judge()).run_async("task")
    await GoalLoop(agent, "Reach it.", max_turns=1, judge=gate, on_iteration=on_iteration).run_async("task")
    task.cancel()

    assert starved == []
    assert ticks > 40


_trace = contextvars.ContextVar("_trace", default="none")


@pytest.mark.parametrize("agent_kind", ["sync", "async"])
@pytest.mark.parametrize("way", ["run", "run inside a loop", "run_async"])
def test_agents_see_the_callers_context(agent_kind: str, way: str):
    seen: list[str] = []

    def agent(_: str) -> str:
        seen.append(_trace.get())
        _trace.set("changed by the agent")
        return "out"

    async def async_agent(prompt: str) -> str:
        return agent(prompt)

    loop = EvaluationLoop(agent if agent_kind == "sync" else async_agent, "", metric=series(9))

    def in_context() -> None:
        _trace.set("outer span")
        if way == "run":
            loop.run("task")
        elif way == "run_async":
            asyncio.run(loop.run_async("task"))
        else:

            async def main() -> None:
                loop.run("task")

            asyncio.run(main())

    contextvars.copy_context().run(in_context)

    assert seen == ["outer span"]


def test_the_prompt_reaches_the_agent_as_it_is():
    agent = NotingAgent()
    EvaluationLoop(agent, "", metric=series(9)).run("  two\nlines {braces} ")

    assert agent.prompts == ["  two\nlines {braces} "]
