"""The attributes of platforms' own SDKs: LangSmith's (``langsmith.*``) and Langfuse's (``langfuse.*``)."""

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
from otel_loopeval.runs.dialects.values import first_text, mapping_of, parsed, text_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage, tokens_of

_LANGSMITH_KINDS: Final = {"llm": MODEL, "tool": TOOL, "chain": WORKFLOW}
_LANGFUSE_KINDS: Final = {
    "generation": MODEL,
    "agent": AGENT,
    "tool": TOOL,
    "chain": WORKFLOW,
    "evaluator": EVALUATION,
    "embedding": OTHER,
    "retriever": OTHER,
    "guardrail": OTHER,
}


class LangSmith(Silent):
    """The dialect of LangSmith's exporter; inputs and outputs are in ``gen_ai.prompt`` and its kin."""

    tells = (semconv.LANGSMITH_SPAN_KIND, semconv.LANGSMITH_SESSION, semconv.LANGSMITH_THREAD)

    def kind(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        told = look.attributes.get(semconv.LANGSMITH_SPAN_KIND)
        return _LANGSMITH_KINDS.get(told, OTHER) if isinstance(told, str) else None

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, semconv.LANGSMITH_SESSION, semconv.LANGSMITH_THREAD)

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.LANGSMITH_SPAN_KIND not in attributes:
            return None
        given, brought = attributes.get(semconv.GEN_AI_PROMPT), attributes.get(semconv.GEN_AI_COMPLETION)
        return ToolUse(span.name, given, brought)


class Langfuse(Silent):
    """The dialect of Langfuse's SDK."""

    tells = (semconv.LANGFUSE_TYPE, semconv.LANGFUSE_SESSION)
    tells_usage = (semconv.LANGFUSE_USAGE,)
    tells_content = (semconv.LANGFUSE_INPUT, semconv.LANGFUSE_OUTPUT)

    def kind(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        told = look.attributes.get(semconv.LANGFUSE_TYPE)
        return _LANGFUSE_KINDS.get(told.lower()) if isinstance(told, str) else None

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, semconv.LANGFUSE_SESSION)

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        told = mapping_of(attributes.get(semconv.LANGFUSE_USAGE))
        if told is None or not ("input" in told or "output" in told):
            return None
        return Usage(
            tokens_of(told.get("input")),
            tokens_of(told.get("output")),
            model=first_text(attributes, semconv.LANGFUSE_MODEL),
        )

    def output(self, span: SpanData) -> Message | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        value = parsed(span.attributes.get(semconv.LANGFUSE_OUTPUT))
        text = text_of(value)
        return Message("assistant", text) if text is not None else as_one(messages_in(value))

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return messages_in(span.attributes.get(semconv.LANGFUSE_INPUT)) or None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.LANGFUSE_TYPE not in attributes:
            return None
        given, brought = attributes.get(semconv.LANGFUSE_INPUT), attributes.get(semconv.LANGFUSE_OUTPUT)
        return ToolUse(span.name, given, brought)
