"""A span is only asked in the dialects that its attributes' names belong to: nothing is lost by that."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import Look, Message
from otel_loopeval.runs.dialects.frameworks import nature_of
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.runs.usage import Usage

SPELT = sorted(
    value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str) and not value.startswith("loopeval.")
)
"""Every name of the conventions, and what some of them are the beginning of."""
FLATTENED = [
    f"{beginning}.{rest}"
    for beginning in ("gen_ai.prompt", "gen_ai.completion", "llm.prompts", "llm.completions")
    for rest in ("0.content", "1.role", "0.tool_calls.0.name", "0.tool_calls.0.arguments")
] + [
    f"llm.{direction}_messages.0.message.{rest}"
    for direction in ("input", "output")
    for rest in ("content", "role", "tool_calls.0.tool_call.function.name", "contents.0.message_content.text")
]
MESSAGES = json.dumps([{"role": "assistant", "content": "words"}, {"role": "tool", "content": "brought"}])
values: st.SearchStrategy[Any] = st.sampled_from(["words", MESSAGES, 7, 7.5, True, json.dumps({"input": 3})])
attributes = st.dictionaries(st.sampled_from([*SPELT, *FLATTENED]), values, max_size=6)
events = st.lists(st.builds(SpanEvent, st.sampled_from(SPELT), st.just(0), attributes), max_size=2).map(tuple)


def usage_in_any_dialect(told: dict[str, Any]) -> Usage | None:
    found = (dialect.usage(told) for dialect in reading.DIALECTS)
    return next((usage for usage in found if usage is not None), None)


def inputs_in_any_dialect(span: SpanData) -> list[Message]:
    return next((told for dialect in reading.DIALECTS if (told := dialect.inputs(span))), [])


def says_something(span: SpanData) -> bool:
    messages = [dialect.output(span) for dialect in reading.DIALECTS]
    return any(message is not None and (message.text or message.asked) for message in messages)


@settings(max_examples=1_000, deadline=None)
@given(told=attributes, happened=events)
def test_what_any_dialect_knows_is_found(told: dict[str, Any], happened: tuple[SpanEvent, ...]) -> None:
    span = SpanData("x", 1, 2, None, 0, 1, told, happened)
    assert reading.usage_of(told) == usage_in_any_dialect(told)
    assert reading.inputs_of(span) == inputs_in_any_dialect(span)
    assert (reading.output_of(span) is not None) is says_something(span)


scopes = st.sampled_from(
    [
        "",
        "x",
        "openinference.instrumentation.langchain",
        "traceloop.tracer",
        "openinference.instrumentation.beeai",
    ]
)
names = st.sampled_from(
    ["x", "my agent", "plan.agent", "search.tool", "execute_tool search", "agent run", "embed"]
)


@settings(max_examples=1_000, deadline=None)
@given(name=names, scope=scopes, told=attributes)
def test_what_any_dialect_knows_of_kinds_names_and_tools_is_found(
    name: str, scope: str, told: dict[str, Any]
) -> None:
    look, span = Look(name, scope, told), SpanData(name, 1, 2, None, 0, 1, told, scope=scope)
    kinds = (dialect.kind(look) for dialect in reading.DIALECTS)
    assert reading.kind_of(look) == next((kind for kind in kinds if kind is not None), None)
    agents = [agent for dialect in reading.DIALECTS if (agent := dialect.agent(look)) is not None]
    assert reading.agent_of(look) == (agents[0] if agents else reading.agent_of(Look(name, "x", {})))
    conversations = (dialect.conversation(told) for dialect in reading.DIALECTS)
    found = next((conversation for conversation in conversations if conversation is not None), None)
    assert reading.conversation_of(told) == found
    uses = [use for dialect in reading.DIALECTS if (use := dialect.tool(span)) is not None]
    use = reading.tool_of(span)
    assert use.name == next((use.name for use in uses if use.name), name)
    assert use.arguments == next((use.arguments for use in uses if use.arguments is not None), None)


def test_scopes() -> None:
    assert {
        scope: nature_of(scope)
        for scope in (
            "opentelemetry.instrumentation.httpx",
            "opentelemetry.instrumentation.django.middleware.otel_middleware",
            "opentelemetry.instrumentation.botocore.bedrock-runtime",
            "opentelemetry.instrumentation.openai_v2",
            "openinference.instrumentation.dspy",
            "httpx",
            "",
        )
    } == {
        "opentelemetry.instrumentation.httpx": "leaf",
        "opentelemetry.instrumentation.django.middleware.otel_middleware": "host",
        "opentelemetry.instrumentation.botocore.bedrock-runtime": "ai",
        "opentelemetry.instrumentation.openai_v2": "ai",
        "openinference.instrumentation.dspy": "ai",
        "httpx": "plain",
        "": "plain",
    }


def test_traces_of_others_are_passed_over_beside_one_with_a_run() -> None:
    spans = [
        SpanData("GET /", 1, 1, None, 0, 10),
        SpanData("SELECT", 1, 2, 1, 1, 5),
        SpanData("evaluation_loop writer", 2, 1, None, 0, 10),
        SpanData("evaluation_loop.iteration", 2, 2, 1, 1, 5, {"loopeval.iteration.score": 9.0}),
        SpanData("invoke_agent helper", 3, 1, None, 20, 30),
    ]
    found = replay(spans, Tracker())
    assert [(run.agent, root and root.trace_id) for run, _, root in found] == [("writer", 2), ("helper", 3)]
    assert replay(spans[:2], Tracker()) == []
