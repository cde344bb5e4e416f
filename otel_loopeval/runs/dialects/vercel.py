"""The Vercel AI SDK's own attributes (``ai.*``), which it emits beside those of the conventions."""

from collections.abc import Mapping
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.runs.dialects.facts import MODEL, OTHER, TOOL, WORKFLOW, Look, Message, Silent, ToolUse
from otel_loopeval.runs.dialects.genai import model_of
from otel_loopeval.runs.dialects.messages import asked_of, messages_in
from otel_loopeval.runs.dialects.values import first_text, items_of, parsed
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage, tokens_of


class Vercel(Silent):
    """The dialect of the Vercel AI SDK."""

    tells = (
        semconv.VERCEL_OPERATION,
        semconv.VERCEL_FUNCTION,
        semconv.VERCEL_SESSION,
        semconv.VERCEL_TOOL_NAME,
    )
    tells_usage = ("ai.usage.",)
    tells_content = ("ai.response.", "ai.prompt.")

    def kind(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        operation = look.attributes.get(semconv.VERCEL_OPERATION)
        if not isinstance(operation, str):
            return None
        _, _, rest = operation.partition("ai.")
        call, _, inner = rest.partition(".")
        if call == "toolCall":
            return TOOL
        if call.startswith(("generate", "stream")):
            return MODEL if inner.startswith("do") else WORKFLOW
        return OTHER

    def agent(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(look.attributes, semconv.VERCEL_FUNCTION)

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, semconv.VERCEL_SESSION)

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        given = attributes.get(semconv.VERCEL_USAGE_INPUT, attributes.get(semconv.VERCEL_USAGE_PROMPT))
        taken = attributes.get(semconv.VERCEL_USAGE_OUTPUT, attributes.get(semconv.VERCEL_USAGE_COMPLETION))
        if given is None and taken is None:
            return None
        return Usage(tokens_of(given), tokens_of(taken), model=model_of(attributes))

    def output(self, span: SpanData) -> Message | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        text = first_text(attributes, semconv.VERCEL_RESPONSE_TEXT)
        calls = items_of(parsed(attributes.get(semconv.VERCEL_RESPONSE_TOOL_CALLS)))
        asked = tuple(call for entry in calls if (call := asked_of(entry)) is not None)
        return Message("assistant", text, asked) if text or asked else None

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return messages_in(span.attributes.get(semconv.VERCEL_PROMPT_MESSAGES)) or None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.VERCEL_TOOL_NAME not in attributes:
            return None
        return ToolUse(
            first_text(attributes, semconv.VERCEL_TOOL_NAME),
            attributes.get(semconv.VERCEL_TOOL_ARGUMENTS),
            attributes.get(semconv.VERCEL_TOOL_RESULT),
            first_text(attributes, semconv.VERCEL_TOOL_ID),
        )
