"""Real PraisonAI agents that call tools, against a stub; prints what there is to see, as a JSON object.

A program, since the framework reads its environment when it is imported.
"""
# Nothing is imported before its environment is set:
# ruff: noqa: PLC0415

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.openai_stub import JsonObject, OpenAIStub, message, prompt_text, tool_call

REPEATS = 8


def script(request: JsonObject) -> str | JsonObject:
    """What the model does, by the word in the prompt."""
    text = prompt_text(request)
    results = sum(item["role"] == "tool" for item in request["messages"])
    if "stubborn" in text and results < REPEATS:
        return message("", tool_calls=[tool_call("look_up", {"what": "the same"}, f"call-{results}")])
    if "parallel" in text and results < 4:
        calls = [tool_call("look_up", {"what": f"{results}-{n}"}, f"call-{results}-{n}") for n in (1, 2)]
        return message("Both at once.", tool_calls=calls)
    if "broken" in text and results < 3:
        name = ("raises", "reports", "look_up")[results]
        return message("", tool_calls=[tool_call(name, {"what": "it"}, f"call-{results}")])
    return "Done."


def look_up(what: str) -> str:
    """Look something up."""
    from otel_loopeval import current_run

    run = current_run()
    seen.append(None if run is None else run.doom_loop_fired)
    return f"All about {what}."


def raises(what: str) -> str:
    """Raise."""
    raise ValueError(f"no {what}")


def reports(what: str) -> dict[str, str]:
    """Report an error."""
    return {"error": f"no {what} either"}


seen: list[bool | None] = []
told: dict[str, Any] = {}


def main(stub: OpenAIStub) -> None:
    os.environ.update(stub.environment())
    from praisonaiagents import Agent

    from otel_loopeval import iteration, loop
    from otel_loopeval.otel import errors
    from otel_loopeval.otel.live import Run
    from otel_loopeval.testing import Capture

    fired: list[Any] = []
    capture = Capture()
    capture.instrument(on_doom_loop=lambda event, run: fired.append((event.rule, event.source, event.tool)))
    steps: list[Any] = []
    observe = Run.observe

    def spy(run: Any, step: Any) -> Any:
        observation = observe(run, step)
        kind = type(step).__name__
        of = getattr(step, "name", None), getattr(step, "arguments", None), getattr(step, "text", None)
        went = getattr(step, "result", None), str(getattr(step, "error", None) or "")
        steps.append([kind, *of, *went, step.agent, step.turn])
        return observation

    Run.observe = spy  # type: ignore[method-assign] # it passes on what it is given

    def agent(**more: Any) -> Any:
        return Agent(
            **more, name="writer", instructions="Write.", output="silent", tools=[look_up, raises, reports]
        )

    def keep(name: str) -> None:
        told[name] = {"tree": capture.tree(), "steps": steps[:], "fired": fired[:], "seen": seen[:]}
        capture.clear()
        steps.clear()
        fired.clear()
        seen.clear()

    def once(word: str, chat: Callable[[Any, str], Any], mode: str = "optimize") -> None:
        with loop("writer", mode=mode), iteration() as it:
            it.output = str(chat(agent(), f"Be {word}."))

    def in_a_task(agent: Any, prompt: str) -> Any:
        return asyncio.run(agent.achat(prompt))

    def in_turn(agent: Any, prompt: str) -> Any:
        return agent.chat(prompt)

    for way in (in_turn, in_a_task):
        once("parallel", way)
        keep(f"parallel {way.__name__}")
    for way in (in_turn, in_a_task):
        once("stubborn", way)
        keep(f"stubborn {way.__name__}")
    for way in (in_turn, in_a_task):
        try:
            once("broken", way)
        except Exception as error:
            told[f"error {way.__name__}"] = type(error).__name__
        keep(f"broken {way.__name__}")
    agent().chat("Be parallel.")
    keep("outside")
    with loop("writer", mode="agent"):
        agent().chat("Be parallel.")
    keep("no iteration")
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    agent().chat("Be parallel.")
    keep("content")
    told["errors"] = dict(errors.counts)


if __name__ == "__main__":
    with OpenAIStub(script) as stub:
        main(stub)
    print("TOLD " + json.dumps(told, default=str), flush=True)
    os._exit(0)  # the framework's threads need not end
