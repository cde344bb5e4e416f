"""What each dialect reads out of a span."""

import json
from typing import Any

import pytest

from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import Answer, Asked, Look, Message, ToolUse
from otel_loopeval.runs.dialects.frameworks import framework_of
from otel_loopeval.runs.dialects.messages import as_one, messages_in
from otel_loopeval.runs.following import kind_of
from otel_loopeval.runs.spans import SpanData, SpanEvent


def span(
    name: str = "x", attributes: dict[str, Any] | None = None, events: tuple[SpanEvent, ...] = (), **more: Any
) -> SpanData:
    return SpanData(name, 1, 2, None, 0, 1, attributes or {}, events, **more)


@pytest.mark.parametrize(
    ("name", "scope", "attributes", "kind"),
    [
        ("GET /", "fastapi", {"http.request.method": "GET"}, None),
        ("chat gpt", "", {}, None),
        ("chat gpt", "x", {"gen_ai.operation.name": "chat"}, "model"),
        ("x", "x", {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}, "other"),
        ("x", "x", {"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "a"}, "other"),
        ("x", "x", {"gen_ai.operation.name": "invoke_workflow"}, "workflow"),
        ("invoke_agent a", "x", {}, "agent"),
        ("openai.chat", "x", {"gen_ai.system": "openai", "gen_ai.request.model": "gpt"}, "model"),
        ("qa_agent run", "pydantic-ai", {"agent_name": "qa_agent"}, "agent"),
        ("running tool: f", "pydantic-ai", {"gen_ai.tool.name": "f"}, "tool"),
        ("running 2 tools", "pydantic-ai", {"tools": ["f", "g"]}, None),
        (
            "execute_tool (merged tools)",
            "gcp.vertex.agent",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"},
            "other",
        ),
        ("x", "x", {"openinference.span.kind": "AGENT"}, "agent"),
        ("x", "x", {"openinference.span.kind": "chain"}, "workflow"),
        ("x", "x", {"openinference.span.kind": "RETRIEVER"}, "other"),
        ("x", "x", {"openinference.span.kind": "EVALUATOR"}, "evaluation"),
        ("call_llm", "x", {"openinference.span.kind": "LLM", "gen_ai.system": "gcp.vertex.agent"}, "model"),
        ("math_agent", "openinference.instrumentation.langchain", {}, "agent"),
        ("LangGraph", "openinference.instrumentation.langchain", {}, None),
        (
            "agent.react.update-3",
            "openinference.instrumentation.beeai",
            {"openinference.span.kind": "AGENT", "target": "agent.react.update"},
            "other",
        ),
        (
            "backend.openai.chat.start-1",
            "openinference.instrumentation.beeai",
            {"openinference.span.kind": "LLM", "target": "backend.openai.chat.start"},
            "model",
        ),
        (
            "backend.openai.chat.success-1",
            "openinference.instrumentation.beeai",
            {"openinference.span.kind": "LLM"},
            "other",
        ),
        ("joke.workflow", "traceloop.tracer", {}, "workflow"),
        ("joke.agent", "traceloop.tracer", {"traceloop.span.kind": "agent"}, "agent"),
        ("joke.task", "traceloop.tracer", {"traceloop.span.kind": "task"}, "other"),
        ("openai.chat", "x", {"llm.request.type": "chat"}, "model"),
        ("openai.embeddings", "x", {"llm.request.type": "embedding"}, "other"),
        ("x", "ai", {"ai.operationId": "ai.generateText"}, "workflow"),
        ("x", "ai", {"ai.operationId": "ai.streamText.doStream", "gen_ai.system": "o"}, "model"),
        ("x", "ai", {"ai.operationId": "ai.toolCall"}, "tool"),
        ("x", "ai", {"ai.operationId": "ai.embed.doEmbed"}, "other"),
        ("x", "langsmith", {"langsmith.span.kind": "llm", "gen_ai.operation.name": "chat"}, "model"),
        ("x", "langsmith", {"langsmith.span.kind": "chain"}, "workflow"),
        ("x", "langfuse-sdk", {"langfuse.observation.type": "generation"}, "model"),
        ("x", "langfuse-sdk", {"langfuse.observation.type": "span"}, None),
        ("x", "x", {"gen_ai.operation.name": 7, "openinference.span.kind": None}, None),
    ],
)
def test_kinds(name: str, scope: str, attributes: dict[str, Any], kind: str | None) -> None:
    assert kind_of(Look(name, scope, attributes)) == kind


@pytest.mark.parametrize(
    ("look", "agent"),
    [
        (Look("invoke_agent writer", "", {}), "writer"),
        (Look("agent_run [hello]", "", {}), "hello"),
        (Look("x", "", {"gen_ai.agent.name": "writer", "agent_name": "other"}), "writer"),
        (Look("x", "", {"graph.node.id": "planner"}), "planner"),
        (Look("joke.agent", "traceloop.tracer", {}), "joke"),
        (Look("run.6f8d2449-33ed-4c7c-82e7-5410e34ee4e6", "", {}), "unknown"),
        (Look("agent", "", {"gen_ai.agent.name": "agent-0123456789abcdef01"}), "agent"),
        (Look("", "", {}), "unknown"),
    ],
)
def test_names_of_agents(look: Look, agent: str) -> None:
    """An identifier is no name: every run would be a series of its own."""
    assert reading.agent_of(look) == agent


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3},
        {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3},
        {"llm.usage.prompt_tokens": 7, "llm.usage.completion_tokens": 3},
        {"llm.token_count.prompt": 7, "llm.token_count.completion": 3},
        {"llm.token_count.prompt": "7", "llm.token_count.completion": "3"},
        {"ai.usage.promptTokens": 7, "ai.usage.completionTokens": 3},
        {"ai.usage.inputTokens": 7, "ai.usage.outputTokens": 3},
        {"langfuse.observation.usage_details": '{"input": 7, "output": 3, "total": 10}'},
    ],
)
def test_tokens(attributes: dict[str, Any]) -> None:
    usage = reading.usage_of(attributes)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (7, 3)


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.conversation.id",
        "session.id",
        "traceloop.association.properties.thread_id",
        "gcp.vertex.agent.session_id",
        "langsmith.metadata.session_id",
        "langfuse.session.id",
        "ai.telemetry.metadata.sessionId",
    ],
)
def test_conversations(name: str) -> None:
    assert reading.conversation_of({name: "c1"}) == "c1"


CALL = Asked("search", {"q": 1}, "id1")
TEXT_CALL = Asked("search", '{"q": 1}', "id1")

OUTPUTS: dict[str, tuple[Any, Asked]] = {
    "OpenAI's chat": (
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "Looking.",
                        "tool_calls": [
                            {
                                "id": "id1",
                                "type": "function",
                                "function": {"name": "search", "arguments": '{"q": 1}'},
                            }
                        ],
                    }
                }
            ]
        },
        TEXT_CALL,
    ),
    "OpenAI's responses": (
        {
            "output": [
                {"type": "reasoning", "summary": []},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Looking."}],
                },
                {
                    "type": "function_call",
                    "id": "fc1",
                    "call_id": "id1",
                    "name": "search",
                    "arguments": '{"q": 1}',
                },
            ]
        },
        TEXT_CALL,
    ),
    "Anthropic": (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "id1", "name": "search", "input": {"q": 1}},
            ],
        },
        CALL,
    ),
    "Bedrock": (
        {
            "message": {
                "role": "assistant",
                "content": [
                    {"text": "Looking."},
                    {"toolUse": {"toolUseId": "id1", "name": "search", "input": {"q": 1}}},
                ],
            }
        },
        CALL,
    ),
    "Gemini": (
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Looking."},
                    {"function_call": {"id": "id1", "name": "search", "args": {"q": 1}}},
                ],
            }
        },
        CALL,
    ),
    "the GenAI conventions": (
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "Looking."},
                    {"type": "tool_call", "id": "id1", "name": "search", "arguments": {"q": 1}},
                ],
            }
        ],
        CALL,
    ),
    "LangChain": (
        {
            "generations": [
                [
                    {
                        "message": {
                            "lc": 1,
                            "id": ["langchain", "schema", "messages", "AIMessage"],
                            "kwargs": {
                                "content": "Looking.",
                                "tool_calls": [{"name": "search", "args": {"q": 1}, "id": "id1"}],
                            },
                        }
                    }
                ]
            ]
        },
        CALL,
    ),
    "Koog": (
        [
            {"role": "assistant", "content": "Looking."},
            {
                "role": "assistant",
                "content": '[{"function": {"name": "search", "arguments": "{\\"q\\": 1}"}, "id": "id1"}]',
            },
        ],
        TEXT_CALL,
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("as_text", [False, True])
def test_what_models_said(name: str, as_text: bool) -> None:
    value, call = OUTPUTS[name]
    message = as_one(messages_in(json.dumps(value) if as_text else value))
    assert message is not None
    assert (message.text, message.asked) == ("Looking.", (call,))


ANSWERS: dict[str, Any] = {
    "OpenAI's chat": {"role": "tool", "tool_call_id": "id1", "content": "sunny"},
    "OpenAI's responses": {"type": "function_call_output", "call_id": "id1", "output": "sunny"},
    "Anthropic": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "id1", "content": "sunny"}],
    },
    "the GenAI conventions": {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "id1", "response": "sunny"}],
    },
    "Pydantic AI": {
        "role": "user",
        "parts": [{"type": "tool_call_response", "id": "id1", "result": "sunny"}],
    },
    "the Vercel AI SDK": {
        "role": "tool",
        "content": [
            {"type": "tool-result", "toolCallId": "id1", "output": {"type": "text", "value": "sunny"}}
        ],
    },
}


@pytest.mark.parametrize("name", ANSWERS)
def test_results_in_messages(name: str) -> None:
    (message,) = messages_in(ANSWERS[name])
    assert message.answers == (Answer("id1", None, "sunny"),)


def test_errors_in_messages() -> None:
    (message,) = messages_in(
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}],
        }
    )
    assert message.answers == (Answer("a", None, None, "no"),)


def test_only_the_answers_since_the_model_last_spoke() -> None:
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "old"},
        {"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "new"},
    ]
    told = span(attributes={"gen_ai.input.messages": json.dumps(messages)})
    assert reading.answers_of(told) == [Answer("b", None, "new")]


@pytest.mark.parametrize(
    "events",
    [
        (
            SpanEvent(
                "gen_ai.choice",
                0,
                {"index": 0, "message": json.dumps({"role": "assistant", "content": "Hello"})},
            ),
        ),
        (
            SpanEvent(
                "gen_ai.content.completion", 0, {"gen_ai.completion": '[{"role": "a", "content": "Hello"}]'}
            ),
        ),
        (
            SpanEvent(
                "gen_ai.client.inference.operation.details",
                0,
                {
                    "gen_ai.output.messages": json.dumps(
                        [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}]
                    )
                },
            ),
        ),
    ],
)
def test_messages_as_events(events: tuple[SpanEvent, ...]) -> None:
    message = reading.output_of(span(attributes={"gen_ai.operation.name": "chat"}, events=events))
    assert message is not None
    assert message.text == "Hello"


def test_a_message_that_came_in_pieces() -> None:
    pieces = {
        f"llm.output_messages.{n}.message.{key}": value
        for n, word in enumerate(["It", " is", " sunny"])
        for key, value in (("role", "assistant"), ("content", word))
    }
    message = reading.output_of(span(attributes={"openinference.span.kind": "LLM", **pieces}))
    assert message == Message("assistant", "It is sunny")


@pytest.mark.parametrize(
    ("attributes", "use"),
    [
        (
            {
                "gen_ai.tool.name": "f",
                "gen_ai.tool.call.id": "a",
                "gen_ai.tool.call.arguments": "{}",
                "gen_ai.tool.call.result": "r",
            },
            ToolUse("f", "{}", "r", "a"),
        ),
        (
            {"gen_ai.tool.name": "f", "tool_arguments": '{"a": 1}', "tool_response": "r"},
            ToolUse("f", '{"a": 1}', "r"),
        ),
        (
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "f",
                "tool.parameters": '{"a": 1}',
                "output.value": "r",
            },
            ToolUse("f", '{"a": 1}', "r"),
        ),
        (
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "f",
                "traceloop.entity.input": '{"args": [], "kwargs": {"a": 1}}',
                "traceloop.entity.output": '"r"',
            },
            ToolUse("f", {"a": 1}, '"r"'),
        ),
        (
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "f",
                "ai.toolCall.id": "a",
                "ai.toolCall.args": "{}",
                "ai.toolCall.result": "r",
            },
            ToolUse("f", "{}", "r", "a"),
        ),
        (
            {  # two dialects in one span: what one leaves out, the other tells
                "openinference.span.kind": "TOOL",
                "tool.name": "f",
                "output.value": "r",
                "gen_ai.tool.call.id": "a",
                "gcp.vertex.agent.tool_call_args": '{"a": 1}',
            },
            ToolUse("f", '{"a": 1}', "r", "a"),
        ),
    ],
)
def test_tool_calls(attributes: dict[str, Any], use: ToolUse) -> None:
    assert reading.tool_of(span("t", attributes)) == use


@pytest.mark.parametrize(
    "value",
    [
        "[" * 100_000,
        '{"a": ',
        "[1, 2, null]",
        [None, 7, {"role": 3}, {"role": "user", "content": {"deep": [1]}}],
        {"choices": {"message": 7}},
        {"role": "assistant", "tool_calls": "no", "content": 7},
        {"role": "assistant", "tool_calls": [{"function": 7}, None, {"function": {"name": ""}}]},
        "\ud800",
    ],
)
def test_junk_in_messages_is_no_error(value: Any) -> None:
    for message in messages_in(value):
        assert message.asked == ()


def test_frameworks_are_a_bounded_set() -> None:
    assert framework_of("pydantic-ai") == "pydantic_ai"
    assert framework_of("openinference.instrumentation.openai_agents") == "openai_agents"
    assert framework_of("opentelemetry.instrumentation.openai_v2") == "client"
    assert framework_of("my.company.agents") is None
