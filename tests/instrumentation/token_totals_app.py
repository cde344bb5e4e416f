"""Loops of real PraisonAI agents against a stub that says what it served, and what their runs counted.

A program, since the framework reads its environment when it is imported. It takes a JSON object (see
``Case``) and prints one.
"""
# Nothing is imported before its environment is set:
# ruff: noqa: PLC0415

import asyncio
import json
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.openai_stub import JsonObject, OpenAIStub, asks_for_score, message, prompt_text, tool_call

MARK = re.compile(r"conversation-\d+")


@dataclass(frozen=True)
class Case:
    """What to run.

    Attributes:
        model: Model of the agents: a bare name goes through the OpenAI SDK, ``openai/...`` through LiteLLM.
        how: ``run_until``, or ``chat``, ``achat`` or ``iter_stream`` in a hand-written loop.
        stream: Whether answers are streamed.
        loops: How many loops run at once, in threads or, for ``achat``, tasks.
        sampler: ``always_on``, ``always_off`` or ``ratio``.
        others: Instrumentations of others to set up, by their names below.
        late: Whether they are set up after ours.
        tool: Whether the agent calls a tool before it answers.
        traced: Whether to print the spans.
        request_span: Whether LiteLLM's callback is told to make spans of its own.
    """

    model: str = "gpt-4o-mini"
    how: str = "run_until"
    stream: bool = False
    loops: int = 1
    sampler: str = "always_on"
    others: tuple[str, ...] = ()
    late: bool = False
    tool: bool = True
    traced: bool = False
    request_span: bool = False


class Tokens(NamedTuple):
    input: int
    output: int


class Conversations:
    """The script of the stub: two iterations a conversation, each reply with a usage of its own."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._lock = threading.Lock()
        self._scored: defaultdict[str, int] = defaultdict(int)
        self._number = 0

    def __call__(self, request: JsonObject) -> str | JsonObject:
        text = prompt_text(request)
        found = MARK.search(text)
        mark = "stray" if found is None else found[0]
        with self._lock:
            self._number += 1
            usage = (100 + self._number, 10 + self._number % 7)
            if asks_for_score(request):
                self._scored[mark] += 1
        if asks_for_score(request):
            score = 5 if self._scored[mark] == 1 else 9
            return message(f"SCORE: {score}\nREASONING: seen {mark}.\nSUGGESTIONS:\n- None.", usage=usage)
        messages: list[JsonObject] = request["messages"]
        if self._case.tool and request.get("tools") and messages[-1]["role"] != "tool":
            calls = [
                tool_call("look_up", {"what": f"{mark}-{number}"}, f"call-{number}") for number in (1, 2)
            ]
            return message(f"Looking into {mark}.", tool_calls=calls, usage=usage)
        return message(f"The answer of {mark}, version {self._number}.", usage=usage)


def look_up(what: str) -> str:
    """Look something up."""
    return f"All about {what}."


INSTRUMENTORS = {
    "openai-v2": ("opentelemetry.instrumentation.openai_v2", "OpenAIInstrumentor"),
    "openllmetry": ("opentelemetry.instrumentation.openai", "OpenAIInstrumentor"),
    "openinference-openai": ("openinference.instrumentation.openai", "OpenAIInstrumentor"),
    "openinference-litellm": ("openinference.instrumentation.litellm", "LiteLLMInstrumentor"),
}


def instrument_others(case: Case, provider: Any) -> None:
    """Set up other people's instrumentations."""
    for name in case.others:
        if name == "litellm-callback":
            # The first LLM drops the callbacks that it does not know.
            import_module("praisonaiagents.llm.llm").LLM(model=case.model)
            litellm: Any = import_module("litellm")
            litellm.callbacks = ["otel"]
        else:
            module, instrumentor = INSTRUMENTORS[name]
            getattr(import_module(module), instrumentor)().instrument(tracer_provider=provider)


class Counted:
    """What runs counted, by their conversations."""

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}

    def keep(self, mark: str) -> None:
        from otel_loopeval import current_run

        run = current_run()
        assert run is not None
        self.runs[mark] = run.state

    def told(self) -> dict[str, Any]:
        return {
            mark: {
                "run": _sum(state.spending),
                "judge": _sum(state.judge_spending),
                "iterations": [_sum(iteration.spending) for iteration in state.iterations],
            }
            for mark, state in self.runs.items()
        }


def _sum(spending: Any) -> list[int]:
    return [0, 0] if spending is None else [spending.input_tokens, spending.output_tokens]


def run_one(case: Case, mark: str, counted: Counted) -> None:
    """One loop, in this thread."""
    from praisonaiagents import Agent
    from praisonaiagents.eval.judge import Judge

    from otel_loopeval import iteration, loop

    agent: Any = Agent(name="writer", instructions="Write.", output="silent", tools=[look_up], llm=case.model)
    agent.stream = case.stream
    if case.how == "run_until":
        agent.run_until(f"Tell of {mark}.", criteria="is complete", on_iteration=lambda _: counted.keep(mark))
        return
    judge: Any = Judge(criteria="is complete", model="gpt-4o-mini")
    with loop("writer", framework="praisonaiagents"):
        for _ in range(2):
            with iteration() as it:
                counted.keep(mark)
                if case.how == "iter_stream":
                    answer = "".join(agent.iter_stream(f"Tell of {mark}."))
                else:
                    answer = agent.chat(f"Tell of {mark}.", stream=case.stream)
                with it.evaluating():
                    it.score = judge.run(output=f"{mark}: {answer}").score


async def run_one_async(case: Case, mark: str, counted: Counted) -> None:
    """One loop, in this task."""
    from praisonaiagents import Agent
    from praisonaiagents.eval.judge import Judge

    from otel_loopeval import iteration, loop

    agent: Any = Agent(name="writer", instructions="Write.", output="silent", tools=[look_up], llm=case.model)
    judge: Any = Judge(criteria="is complete", model="gpt-4o-mini")
    async with loop("writer", framework="praisonaiagents"):
        for _ in range(2):
            async with iteration() as it:
                counted.keep(mark)
                answer = await agent.achat(f"Tell of {mark}.", stream=case.stream)
                async with it.evaluating():
                    it.score = (await judge.run_async(output=f"{mark}: {answer}")).score


def run_all(case: Case, counted: Counted) -> None:
    """All loops at once."""
    marks = [f"conversation-{number}" for number in range(case.loops)]
    if case.how == "achat":

        async def all_of_them() -> None:
            await asyncio.gather(*(run_one_async(case, mark, counted) for mark in marks))

        asyncio.run(all_of_them())
        return
    one: Callable[[str], None] = lambda mark: run_one(case, mark, counted)  # noqa: E731
    with ThreadPoolExecutor(case.loops) as pool:
        list(pool.map(one, marks))


def served(stub: OpenAIStub) -> dict[str, Any]:
    """What the stub served, by conversation: to the agent in each iteration, and to the judge."""
    told: dict[str, Any] = {}
    for reply in stub.served:
        found = MARK.search(prompt_text(reply.request))
        mark = "stray" if found is None else found[0]
        of = told.setdefault(mark, {"run": [0, 0], "judge": [0, 0], "iterations": [[0, 0]]})
        judging = asks_for_score(reply.request)
        for sums in (of["judge"],) if judging else (of["run"], of["iterations"][-1]):
            sums[0] += reply.input_tokens
            sums[1] += reply.output_tokens
        if judging:  # an iteration ends with its judge
            of["iterations"].append([0, 0])
    for of in told.values():
        of["iterations"].pop()
    return told


def main(case: Case) -> dict[str, Any]:
    """Run a case.

    Returns:
        What was served and counted, by conversation, and what telemetry there is.
    """
    with OpenAIStub(Conversations(case)) as stub:
        os.environ.update(stub.environment())
        if case.request_span:
            os.environ["USE_OTEL_LITELLM_REQUEST_SPAN"] = "true"
        from opentelemetry import trace
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBasedTraceIdRatio

        from otel_loopeval.otel import errors
        from otel_loopeval.testing import Capture

        sampler = {"always_on": ALWAYS_ON, "always_off": ALWAYS_OFF, "ratio": ParentBasedTraceIdRatio(0.1)}
        ids = RandomIdGenerator() if case.sampler == "ratio" else None
        capture = Capture(sampler=sampler[case.sampler], ids=ids)
        trace.set_tracer_provider(capture.tracer_provider)
        if not case.late:
            instrument_others(case, capture.tracer_provider)
        capture.instrument()
        if case.late:
            instrument_others(case, capture.tracer_provider)
        counted = Counted()
        run_all(case, counted)
        if "litellm-callback" in case.others:
            pool = import_module("litellm.litellm_core_utils.thread_pool_executor").executor
            pool.shutdown(wait=True)  # it makes its spans there
        return {
            "served": served(stub),
            "counted": counted.told(),
            "tokens": capture.value("loopeval.tokens"),
            "judge_tokens": capture.value("loopeval.judge_tokens"),
            "requests": len(stub.requests),
            "errors": dict(errors.counts),
            "tree": capture.tree() if case.traced else [],
        }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given["others"] = tuple(given.get("others", ()))
    print("TOLD " + json.dumps(main(Case(**given))), flush=True)
    os._exit(0)  # the framework's threads need not end
