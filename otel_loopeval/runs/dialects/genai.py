"""The GenAI semantic conventions: v0.1.0, the names before it, and what frameworks add to them.

Earlier names that are still in the field: ``gen_ai.system``, ``gen_ai.usage.prompt_tokens``, messages as
span events (``gen_ai.choice`` and its kin) and as one JSON attribute. Pydantic AI and Google's ADK emit the
conventions with names of their own for messages, arguments and results.
"""

from collections.abc import Mapping
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.runs.dialects.facts import (
    AGENT,
    EVALUATION,
    MODEL,
    OTHER,
    TOOL,
    WORKFLOW,
    Look,
    Message,
    Silent,
    ToolUse,
)
from otel_loopeval.runs.dialects.messages import as_one, messages_in
from otel_loopeval.runs.dialects.values import first_text, items_of, mapping_of, parsed
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.usage import Usage, read_usage, tokens_of

_KINDS: Final = {
    "chat": MODEL,
    "text_completion": MODEL,
    "generate_content": MODEL,
    "completion": MODEL,
    "response": MODEL,
    semconv.OPERATION_INVOKE_AGENT: AGENT,
    semconv.OPERATION_INVOKE_WORKFLOW: WORKFLOW,
    "chain": WORKFLOW,
    "execute_tool": TOOL,
    semconv.OPERATION_EVALUATE: EVALUATION,
}
_MERGED_TOOLS: Final = "(merged tools)"
_ROLES: Final = {
    semconv.GEN_AI_CHOICE: "assistant",
    semconv.GEN_AI_ASSISTANT_MESSAGE: "assistant",
    semconv.GEN_AI_USER_MESSAGE: "user",
    semconv.GEN_AI_TOOL_MESSAGE: "tool",
}
_AGENT_SUFFIX: Final = " run"


class GenAI(Silent):
    """The dialect of the GenAI semantic conventions."""

    tells_usage = (semconv.GEN_AI_USAGE_INPUT_TOKENS.removesuffix("input_tokens"),)  # and all beside it
    tells_content = (
        semconv.GEN_AI_INPUT_MESSAGES,
        semconv.GEN_AI_OUTPUT_MESSAGES,
        semconv.GEN_AI_PROMPT,
        semconv.GEN_AI_COMPLETION,
        semconv.PYDANTIC_EVENTS,
        semconv.ADK_LLM_REQUEST,
        semconv.ADK_LLM_RESPONSE,
    )

    def kind(self, look: Look) -> str | None:  # noqa: PLR0911 - a list of signs
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes, name = look.attributes, look.name
        operation = attributes.get(semconv.GEN_AI_OPERATION_NAME)
        if isinstance(operation, str) and operation:
            if attributes.get(semconv.GEN_AI_TOOL_NAME) == _MERGED_TOOLS:
                return OTHER  # the ADK tells parallel calls once more in one
            return _KINDS.get(operation, OTHER)
        if semconv.GEN_AI_TOOL_NAME in attributes or semconv.GEN_AI_TOOL_CALL_ID in attributes:
            return TOOL
        if name.startswith(semconv.OPERATION_INVOKE_AGENT):
            return AGENT
        if name.startswith(("execute_tool ", "running tool: ")):
            return TOOL
        if semconv.PYDANTIC_AGENT_NAME in attributes and name.endswith(_AGENT_SUFFIX):
            return AGENT
        if name.startswith("embed"):
            return OTHER
        if semconv.GEN_AI_REQUEST_MODEL in attributes:
            return MODEL
        if semconv.GEN_AI_SYSTEM in attributes or semconv.GEN_AI_PROVIDER_NAME in attributes:
            return MODEL if read_usage(attributes) is not None else OTHER
        return None

    def agent(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(look.attributes, semconv.GEN_AI_AGENT_NAME, semconv.PYDANTIC_AGENT_NAME)

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, semconv.GEN_AI_CONVERSATION_ID, semconv.ADK_SESSION)

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        usage = read_usage(attributes)
        if usage is not None:
            return usage
        given = attributes.get(semconv.GEN_AI_USAGE_PROMPT_TOKENS)
        taken = attributes.get(semconv.GEN_AI_USAGE_COMPLETION_TOKENS)
        if given is None and taken is None:
            return None
        return Usage(tokens_of(given), tokens_of(taken), model=model_of(attributes))

    def output(self, span: SpanData) -> Message | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        for name in (semconv.GEN_AI_OUTPUT_MESSAGES, semconv.ADK_LLM_RESPONSE):
            if name in attributes:
                return as_one(messages_in(attributes[name]))
        for event in span.events:
            if event.name == semconv.GEN_AI_OPERATION_DETAILS:
                return as_one(messages_in(event.attributes.get(semconv.GEN_AI_OUTPUT_MESSAGES)))
            if event.name == semconv.GEN_AI_CONTENT_COMPLETION:
                return as_one(messages_in(event.attributes.get(semconv.GEN_AI_COMPLETION)))
        chosen = [_message(event) for event in _events(span) if event.name == semconv.GEN_AI_CHOICE]
        if chosen:
            return as_one([message for message in chosen if message is not None])
        return as_one(messages_in(attributes.get(semconv.GEN_AI_COMPLETION)))

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.GEN_AI_INPUT_MESSAGES in attributes:
            return messages_in(attributes[semconv.GEN_AI_INPUT_MESSAGES])
        for event in span.events:
            if event.name == semconv.GEN_AI_OPERATION_DETAILS:
                return messages_in(event.attributes.get(semconv.GEN_AI_INPUT_MESSAGES))
            if event.name == semconv.GEN_AI_CONTENT_PROMPT:
                return messages_in(event.attributes.get(semconv.GEN_AI_PROMPT))
        told = [_message(event) for event in _events(span) if event.name != semconv.GEN_AI_CHOICE]
        if told:
            return [message for message in told if message is not None]
        if semconv.ADK_LLM_REQUEST in attributes:
            request = mapping_of(attributes[semconv.ADK_LLM_REQUEST]) or {}
            return messages_in(request.get("contents"))
        return messages_in(attributes.get(semconv.GEN_AI_PROMPT)) or None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        name = first_text(attributes, semconv.GEN_AI_TOOL_NAME)
        if name is None:
            operation, _, rest = span.name.partition(" ")
            name = rest if operation == "execute_tool" and rest else None
        return ToolUse(
            name,
            _first(
                attributes,
                semconv.GEN_AI_TOOL_CALL_ARGUMENTS,
                semconv.PYDANTIC_TOOL_ARGUMENTS,
                semconv.ADK_TOOL_ARGUMENTS,
            ),
            _first(
                attributes,
                semconv.GEN_AI_TOOL_CALL_RESULT,
                semconv.PYDANTIC_TOOL_RESPONSE,
                semconv.ADK_TOOL_RESPONSE,
            ),
            first_text(attributes, semconv.GEN_AI_TOOL_CALL_ID),
        )


def model_of(attributes: Mapping[str, Any]) -> str | None:
    """The model that answered, else the one that was asked for."""
    return first_text(attributes, semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL)


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _events(span: SpanData) -> list[SpanEvent]:
    """The events that are messages; Pydantic AI has them in a JSON attribute."""
    found = [event for event in span.events if event.name in _ROLES]
    if found:
        return found
    for item in items_of(parsed(span.attributes.get(semconv.PYDANTIC_EVENTS))):
        event = mapping_of(item)
        name = None if event is None else event.get("event.name")
        if event is not None and isinstance(name, str) and name in _ROLES:
            found.append(SpanEvent(name, 0, event))
    return found


def _message(event: SpanEvent) -> Message | None:
    attributes = event.attributes
    inner = mapping_of(attributes.get("message"))
    content = {**attributes, **(inner or {})}
    if inner is None and isinstance(attributes.get("message"), str):
        content["content"] = attributes["message"]
    content["role"] = content.get("role") or _ROLES[event.name]
    return as_one(messages_in(content))
