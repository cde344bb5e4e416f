"""OpenInference: the conventions of Phoenix and of the instrumentations for many frameworks."""

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
    Asked,
    Look,
    Message,
    Silent,
    ToolUse,
)
from otel_loopeval.runs.dialects.messages import as_one, message_of, messages_in
from otel_loopeval.runs.dialects.values import first_text, listed, mapping_of, text_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage, tokens_of

_KINDS: Final = {
    "AGENT": AGENT,
    "CHAIN": WORKFLOW,
    "LLM": MODEL,
    "TOOL": TOOL,
    "EVALUATOR": EVALUATION,
}
_BEEAI: Final = "openinference.instrumentation.beeai"
_LANGCHAIN: Final = "openinference.instrumentation.langchain"
_CALL: Final = "tool_call."
_BLOCK: Final = "message_content."
_REDACTED: Final = "__REDACTED__"
"""What its instrumentations say in place of content that they are told to hide."""


class OpenInference(Silent):
    """The dialect of OpenInference."""

    tells = (
        semconv.OPENINFERENCE_SPAN_KIND,
        semconv.AGENT_NAME,
        semconv.GRAPH_NODE_ID,
        semconv.SESSION_ID,
    )
    scopes = (_LANGCHAIN,)
    tells_usage = ("llm.token_count.",)
    tells_content = (semconv.LLM_INPUT_MESSAGES, semconv.LLM_OUTPUT_MESSAGES, semconv.OUTPUT_VALUE)

    def kind(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        told = look.attributes.get(semconv.OPENINFERENCE_SPAN_KIND)
        if not isinstance(told, str):
            # The instrumentation of LangChain tells kinds at the end, and calls agents what has that name.
            return AGENT if look.scope == _LANGCHAIN and "agent" in look.name.lower() else None
        kind = _KINDS.get(told.upper(), OTHER)
        return _kind_of_event(kind, look) if look.scope == _BEEAI else kind

    def agent(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(look.attributes, semconv.AGENT_NAME, semconv.GRAPH_NODE_ID)

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, semconv.SESSION_ID)

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        given = attributes.get(semconv.LLM_TOKEN_COUNT_PROMPT)
        taken = attributes.get(semconv.LLM_TOKEN_COUNT_COMPLETION)
        if given is None and taken is None:
            return None
        return Usage(
            tokens_of(given),
            tokens_of(taken),
            tokens_of(attributes.get(semconv.LLM_TOKEN_COUNT_CACHE_READ)),
            tokens_of(attributes.get(semconv.LLM_TOKEN_COUNT_CACHE_WRITE)),
            tokens_of(attributes.get(semconv.LLM_TOKEN_COUNT_REASONING)),
            first_text(attributes, semconv.LLM_MODEL_NAME),
            first_text(attributes, semconv.LLM_PROVIDER),
        )

    def output(self, span: SpanData) -> Message | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        told = _flattened(span, semconv.LLM_OUTPUT_MESSAGES)
        if told:
            if len(told) > 1 and all(not message.asked for message in told):
                # One message in pieces, as a stream brought it.
                return Message("assistant", "".join(message.text or "" for message in told) or None)
            return as_one(told)
        value = _told(span.attributes, semconv.OUTPUT_VALUE)
        if semconv.OPENINFERENCE_SPAN_KIND not in span.attributes or value is None:
            return None
        found = as_one(messages_in(value))
        if found is not None:
            return found
        text = text_of(value)
        return None if text is None or text[:1] in ("{", "[") else Message("assistant", text)

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return _flattened(span, semconv.LLM_INPUT_MESSAGES) or None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.OPENINFERENCE_SPAN_KIND not in attributes:
            return None
        given = _told(attributes, semconv.INPUT_VALUE)
        if given is None:
            given = _told(attributes, semconv.TOOL_PARAMETERS)
            if _is_schema(given):
                given = None
        return ToolUse(
            first_text(attributes, semconv.TOOL_NAME) or _name_of_event(span),
            given,
            _told(attributes, semconv.OUTPUT_VALUE),
            first_text(attributes, semconv.TOOL_CALL_ID),
        )


def _told(attributes: Mapping[str, Any], name: str) -> Any:
    """An attribute, unless it was hidden: then the same word is there for whatever there was to say."""
    value = attributes.get(name)
    return None if value == _REDACTED else value


def _is_schema(parameters: Any) -> bool:
    """Whether a tool's parameters are their definition, and not what it was called with: both are found."""
    told = mapping_of(parameters) or {}
    return told.get("type") == "object" and mapping_of(told.get("properties")) is not None


def _flattened(span: SpanData, prefix: str) -> list[Message]:
    found: list[Message] = []
    for item in listed(span.attributes, prefix):
        parts = {key.removeprefix("message."): value for key, value in item.items()}
        content = _told(parts, "content")
        if content is None:
            content = [
                {key.removeprefix(_BLOCK): value for key, value in block.items() if value != _REDACTED}
                for block in listed(parts, "contents")
            ] or None
        message = message_of(
            {
                "role": parts.get("role") or "assistant",
                "content": content,
                "tool_call_id": parts.get("tool_call_id"),
                "name": parts.get("name"),
            }
        )
        if message is not None:
            asked = tuple(_asked(call) for call in listed(parts, "tool_calls"))
            found.append(message._replace(asked=message.asked + tuple(call for call in asked if call)))
    return found


def _asked(call: Mapping[str, Any]) -> Asked | None:
    name = text_of(call.get(f"{_CALL}function.name"))
    if name is None:
        return None
    # It leaves out arguments that are empty, and tells them otherwise wherever it tells the call.
    return Asked(name, call.get(f"{_CALL}function.arguments", "{}"), text_of(call.get(f"{_CALL}id")))


def _kind_of_event(kind: str, look: Look) -> str:
    """BeeAI tells each event of an emitter as a span: one of them stands for the whole call.

    A model's call is its start, which every call has; a tool's call is how it ended, with what it brought.
    """
    target = _target(look.name, look.attributes)
    if target is None or kind == WORKFLOW:
        return kind
    event = target.rpartition(".")[2]
    ours = (event == "start") if kind == MODEL else kind == TOOL and event in ("success", "error")
    return kind if ours else OTHER


def _target(name: str, attributes: Mapping[str, Any]) -> str | None:
    """What an event is of, ``backend.openai.chat.start``; the span's name says it too."""
    target = text_of(attributes.get(semconv.BEEAI_TARGET)) or name.partition("-")[0]
    return target if "." in target else None


def _name_of_event(span: SpanData) -> str | None:
    """``wikipedia`` of ``tool.search.wikipedia.success-12``."""
    if span.scope != _BEEAI:
        return None
    parts = (_target(span.name, span.attributes) or "").split(".")
    return parts[-2] if len(parts) > 2 else None  # noqa: PLR2004 - tool, name, event


def score_of(span: SpanData) -> Mapping[str, Any] | None:
    """What an evaluator's span says, if it says it as a mapping."""
    return mapping_of(span.attributes.get(semconv.OUTPUT_VALUE))
