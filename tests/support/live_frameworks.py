"""Frameworks for the live tests: how each is installed, what its spans show, and the model's side."""

import json
from typing import Any, NamedTuple

from support.openai_stub import JsonObject, message, tool_call


class Framework(NamedTuple):
    """How a framework is installed, and what its spans show.

    Attributes:
        app: The app, in ``tests/e2e/apps/frameworks``.
        requirements: What it needs beside the wheel.
        constraints: Versions to keep to.
        shown: Variables with which it captures content.
        hidden: Variables with which it does not.
        name: What our metrics call it.
        run: Name of the span of an agent's run, and of the agent.
        kind: Kind of the trace's root.
        workflow: Name of the workflow around the agent; None where the agent's run is the root.
        model: What its spans around model calls are named with.
        tool: Name of its spans around tools; None where it has none.
        gave_up: The exception of its own limit.
        outcome: Outcome of a run that this ended.
        wasted: Turns of the loop that only repeat the first.
        wasted_tokens: Their tokens.
        seen_hidden: In how many of the ways it is a run with content hidden too.
    """

    app: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    shown: dict[str, str]
    hidden: dict[str, str]
    name: str
    run: tuple[str, str]
    kind: int
    workflow: str | None
    model: str
    tool: str | None
    gave_up: str
    outcome: str = "limit"
    wasted: int = 7
    wasted_tokens: int = 1057
    seen_hidden: int = 3


INTERNAL, SERVER = 1, 2
HIDE_OPENINFERENCE = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
# What a loop by hand gives the model is told with the next call of the model, and after the last is none.
BY_HAND: dict[str, Any] = {
    "app": "openai_client_app.py",
    "name": "client",
    "run": ("forecast", "forecast"),
    "kind": SERVER,
    "workflow": None,
    "tool": None,
    "gave_up": "OutOfTurnsError",
    "outcome": "failed",
    "wasted": 6,
    "wasted_tokens": 873,
}
FRAMEWORKS = {
    "pydantic-ai": Framework(
        "pydantic_ai_app.py",
        ("pydantic-ai-slim[openai]",),
        (),
        shown={},
        hidden={"PRIVATE": "1"},
        name="pydantic_ai",
        run=("invoke_agent forecaster", "forecaster"),
        kind=INTERNAL,
        workflow=None,
        model="chat gpt-4o-mini",
        tool="execute_tool get_weather",
        gave_up="UsageLimitExceeded",
    ),
    "openai-agents": Framework(
        "openai_agents_app.py",
        ("openai-agents", "openinference-instrumentation-openai-agents"),
        (),
        shown={},
        hidden=HIDE_OPENINFERENCE,
        name="openai_agents",
        run=("forecaster", "forecaster"),
        kind=INTERNAL,
        workflow="Agent workflow",
        model="response",
        tool="get_weather",
        gave_up="MaxTurnsExceeded",
    ),
    "langgraph": Framework(
        "langgraph_app.py",
        ("langgraph", "langchain-openai", "openinference-instrumentation-langchain"),
        (),
        shown={},
        hidden=HIDE_OPENINFERENCE,
        name="langchain",
        run=("forecaster", "forecaster"),
        kind=INTERNAL,
        workflow=None,
        model="ChatOpenAI",
        tool="get_weather",
        gave_up="GraphRecursionError",
    ),
    "langgraph-openllmetry": Framework(
        "langgraph_app.py",
        ("langgraph", "langchain", "langchain-openai", "opentelemetry-instrumentation-langchain"),
        (),
        shown={},
        hidden={"TRACELOOP_TRACE_CONTENT": "false"},
        name="langchain",
        run=("invoke_agent forecaster", "forecaster"),
        kind=INTERNAL,
        workflow=None,
        model="ChatOpenAI.chat",
        tool="execute_tool get_weather",
        gave_up="GraphRecursionError",
    ),
    "openai-v2": Framework(
        # It imports modules that its dependency has dropped since and that the client does without since, and
        # asks for neither; opentelemetry-instrument passes over it then.
        requirements=("openai", "opentelemetry-instrumentation-openai-v2", "httpx"),
        constraints=("opentelemetry-util-genai<1.2",),
        shown={
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
            "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        },
        hidden={},
        model="chat gpt-4o-mini",
        # Of a stream it does not tell without content why the model stopped: calls with nothing in common.
        seen_hidden=2,
        **BY_HAND,
    ),
    "openllmetry": Framework(
        requirements=("openai", "opentelemetry-instrumentation-openai"),
        constraints=(),
        shown={},
        hidden={"TRACELOOP_TRACE_CONTENT": "false"},
        model="openai.chat",
        **BY_HAND,
    ),
}
WAYS = 3
ANSWER = "It is warmest in Paris."


def script(request: JsonObject) -> JsonObject:
    """The model's side: by the results that it has been told, with tokens that differ from turn to turn."""
    told = sum(item["role"] == "tool" for item in request["messages"])
    usage = (100 + 10 * told, 7 + told)
    if "warm in Paris?" in json.dumps(request["messages"]):
        return message(tool_calls=[tool_call("get_weather", {"city": "Paris"}, f"call_{told}")], usage=usage)
    cities = {0: ("Paris", "Rome"), 2: ("Oslo",)}.get(told, ())
    calls = [
        tool_call("get_weather", {"city": city}, f"call_{told + position}")
        for position, city in enumerate(cities)
    ]
    return message(None if calls else ANSWER, tool_calls=calls, usage=usage)
