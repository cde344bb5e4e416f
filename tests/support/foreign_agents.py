"""Agents that somebody else instrumented: what they emit, in each of the dialects, through a tracer."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call that a model asks for."""

    name: str
    arguments: dict[str, Any]
    result: Any = "done"
    error: str | None = None


@dataclass(frozen=True)
class Turn:
    """What a model says, and the tool calls that it asks for."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    tokens: tuple[int, int] = (10, 2)


@dataclass(frozen=True)
class Dialect:
    """How one convention spells a span: its name, and its attributes."""

    name: str
    scope: str
    agent: Callable[[str], tuple[str, Attributes]]
    model: Callable[[Turn, list[tuple[str, Call]], int], tuple[str, Attributes]]
    tool: Callable[[Call, str], tuple[str, Attributes, Attributes]]


def _ids(turn: Turn, number: int) -> list[str]:
    return [f"call_{number}_{position}" for position in range(len(turn.calls))]


def _genai_model(turn: Turn, answers: list[tuple[str, Call]], number: int) -> tuple[str, Attributes]:
    parts: list[Attributes] = [{"type": "text", "content": turn.text}] if turn.text else []
    for identifier, call in zip(_ids(turn, number), turn.calls, strict=True):
        parts.append({"type": "tool_call", "id": identifier, "name": call.name, "arguments": call.arguments})
    told = [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": i, "response": call.error or call.result}],
        }
        for i, call in answers
    ]
    return "chat gpt", {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt",
        "gen_ai.usage.input_tokens": turn.tokens[0],
        "gen_ai.usage.output_tokens": turn.tokens[1],
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": []}, *told]),
    }


GENAI = Dialect(
    "genai",
    "somebody.genai",
    lambda agent: (
        f"invoke_agent {agent}",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, "gen_ai.conversation.id": "c1"},
    ),
    _genai_model,
    lambda call, identifier: (
        f"execute_tool {call.name}",
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": identifier,
            "gen_ai.tool.call.arguments": json.dumps(call.arguments),
        },
        {"gen_ai.tool.call.result": json.dumps(call.result)},
    ),
)


def _openinference_model(turn: Turn, answers: list[tuple[str, Call]], number: int) -> tuple[str, Attributes]:
    attributes: Attributes = {
        "openinference.span.kind": "LLM",
        "llm.token_count.prompt": turn.tokens[0],
        "llm.token_count.completion": turn.tokens[1],
        "llm.output_messages.0.message.role": "assistant",
        "llm.input_messages.0.message.role": "user",
    }
    if turn.text:
        attributes["llm.output_messages.0.message.content"] = turn.text
    for position, (identifier, call) in enumerate(zip(_ids(turn, number), turn.calls, strict=True)):
        start = f"llm.output_messages.0.message.tool_calls.{position}.tool_call."
        attributes[f"{start}id"] = identifier
        attributes[f"{start}function.name"] = call.name
        attributes[f"{start}function.arguments"] = json.dumps(call.arguments)
    for position, (identifier, call) in enumerate(answers, start=1):
        start = f"llm.input_messages.{position}.message."
        attributes[f"{start}role"] = "tool"
        attributes[f"{start}tool_call_id"] = identifier
        attributes[f"{start}content"] = call.error or str(call.result)
    return "ChatCompletion", attributes


OPENINFERENCE = Dialect(
    "openinference",
    "openinference.instrumentation.somebody",
    lambda agent: (
        "Agent.run",
        {"openinference.span.kind": "AGENT", "agent.name": agent, "session.id": "c1"},
    ),
    _openinference_model,
    lambda call, _: (
        call.name,
        {
            "openinference.span.kind": "TOOL",
            "tool.name": call.name,
            "input.value": json.dumps(call.arguments),
        },
        {"output.value": str(call.result)},
    ),
)


def _openllmetry_model(turn: Turn, answers: list[tuple[str, Call]], number: int) -> tuple[str, Attributes]:
    attributes: Attributes = {
        "llm.request.type": "chat",
        "gen_ai.system": "OpenAI",
        "gen_ai.usage.prompt_tokens": turn.tokens[0],
        "gen_ai.usage.completion_tokens": turn.tokens[1],
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "go",
    }
    if turn.text:
        attributes["gen_ai.completion.0.content"] = turn.text
    for position, (identifier, call) in enumerate(zip(_ids(turn, number), turn.calls, strict=True)):
        start = f"gen_ai.completion.0.tool_calls.{position}."
        attributes[f"{start}id"] = identifier
        attributes[f"{start}name"] = call.name
        attributes[f"{start}arguments"] = json.dumps(call.arguments)
    for position, (identifier, call) in enumerate(answers, start=1):
        attributes[f"gen_ai.prompt.{position}.role"] = "tool"
        attributes[f"gen_ai.prompt.{position}.tool_call_id"] = identifier
        attributes[f"gen_ai.prompt.{position}.content"] = call.error or str(call.result)
    return "openai.chat", attributes


OPENLLMETRY = Dialect(
    "openllmetry",
    "traceloop.tracer",
    lambda agent: (
        f"{agent}.agent",
        {
            "traceloop.span.kind": "agent",
            "traceloop.entity.name": agent,
            "traceloop.association.properties.session_id": "c1",
        },
    ),
    _openllmetry_model,
    lambda call, _: (
        f"{call.name}.tool",
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": call.name,
            "traceloop.entity.input": json.dumps({"args": [], "kwargs": call.arguments}),
        },
        {"traceloop.entity.output": json.dumps(call.result)},
    ),
)

DIALECTS = (GENAI, OPENINFERENCE, OPENLLMETRY)


class Foreign:
    """Emits what an agent does.

    Args:
        provider: Where its spans go.
        dialect: How it spells them.
        late: Whether calls say what they are only as they end.
        tools: Whether tools have spans.
    """

    def __init__(self, provider: Any, dialect: Dialect, *, late: bool = False, tools: bool = True) -> None:
        self._tracer = provider.get_tracer(dialect.scope)
        self._dialect = dialect
        self._late = late
        self._tools = tools
        self._turns = 0

    @contextmanager
    def agent(self, name: str, error: str | None = None) -> Generator[Span, None, None]:
        """An agent at work."""
        span_name, attributes = self._dialect.agent(name)
        with self._tracer.start_as_current_span(span_name, attributes=attributes) as span:
            yield span
            if error is not None:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR))

    def turns(self, *turns: Turn) -> None:
        """Turns, one after the other."""
        answers: list[tuple[str, Call]] = []
        for turn in turns:
            self._turns += 1
            name, attributes = self._dialect.model(turn, answers, self._turns)
            self._span(name, attributes, {})
            answers = list(zip(_ids(turn, self._turns), turn.calls, strict=True))
            if self._tools:
                for identifier, call in answers:
                    self._span(*self._dialect.tool(call, identifier), error=call.error)

    def _span(self, name: str, before: Attributes, after: Attributes, error: str | None = None) -> None:
        with self._tracer.start_as_current_span(name, attributes=None if self._late else before) as span:
            if self._late:
                span.set_attributes(before)
            if error is None:
                span.set_attributes(after)
            else:
                span.set_status(Status(StatusCode.ERROR, error))
