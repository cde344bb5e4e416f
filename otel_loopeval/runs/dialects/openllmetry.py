"""OpenLLMetry: the conventions of Traceloop's SDK and instrumentations, old and new."""

from collections.abc import Mapping
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.runs.dialects.facts import (
    AGENT,
    MODEL,
    OTHER,
    TOOL,
    WORKFLOW,
    Look,
    Message,
    Silent,
    ToolUse,
)
from otel_loopeval.runs.dialects.genai import model_of
from otel_loopeval.runs.dialects.messages import as_one, message_of
from otel_loopeval.runs.dialects.values import first_text, listed, mapping_of
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage, tokens_of

_KINDS: Final = {"workflow": WORKFLOW, "agent": AGENT, "tool": TOOL, "task": OTHER}
_SUFFIXES: Final = {".workflow": WORKFLOW, ".agent": AGENT, ".tool": TOOL, ".task": OTHER}
_SCOPE: Final = "traceloop.tracer"
_THREADS: Final = ("session_id", "thread_id", "conversation_id", "chat_id", "user_session_id")


class OpenLLMetry(Silent):
    """The dialect of OpenLLMetry."""

    tells = (
        semconv.TRACELOOP_SPAN_KIND,
        semconv.TRACELOOP_ENTITY_NAME,
        semconv.TRACELOOP_ASSOCIATION,
        semconv.LLM_REQUEST_TYPE,
    )
    scopes = (_SCOPE,)
    tells_usage = ("llm.usage.",)
    tells_content = (
        f"{semconv.GEN_AI_PROMPT}.",
        f"{semconv.GEN_AI_COMPLETION}.",
        semconv.LLM_PROMPTS,
        semconv.LLM_COMPLETIONS,
    )

    def kind(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = look.attributes
        told = attributes.get(semconv.TRACELOOP_SPAN_KIND)
        if isinstance(told, str):
            return _KINDS.get(told, OTHER)
        request = attributes.get(semconv.LLM_REQUEST_TYPE)
        if isinstance(request, str):
            return MODEL if request in ("chat", "completion") else OTHER
        if look.scope == _SCOPE:  # it tells kinds right after the start, and names from the start
            return next((kind for suffix, kind in _SUFFIXES.items() if look.name.endswith(suffix)), None)
        return None

    def agent(self, look: Look) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        name = first_text(look.attributes, semconv.TRACELOOP_ENTITY_NAME)
        if name is None and look.scope == _SCOPE:
            name, _, suffix = look.name.rpartition(".")
            return name if name and f".{suffix}" in _SUFFIXES else None
        return name

    def conversation(self, attributes: Mapping[str, Any]) -> str | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return first_text(attributes, *(semconv.TRACELOOP_ASSOCIATION + thread for thread in _THREADS))

    def usage(self, attributes: Mapping[str, Any]) -> Usage | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        given = attributes.get(semconv.LLM_USAGE_PROMPT_TOKENS)
        taken = attributes.get(semconv.LLM_USAGE_COMPLETION_TOKENS)
        if given is None and taken is None:
            return None
        return Usage(tokens_of(given), tokens_of(taken), model=model_of(attributes))

    def output(self, span: SpanData) -> Message | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return as_one(_flattened(span, semconv.GEN_AI_COMPLETION, semconv.LLM_COMPLETIONS, "assistant"))

    def inputs(self, span: SpanData) -> list[Message] | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        return _flattened(span, semconv.GEN_AI_PROMPT, semconv.LLM_PROMPTS, "user") or None

    def tool(self, span: SpanData) -> ToolUse | None:
        """See :class:`~otel_loopeval.runs.dialects.facts.Dialect`."""
        attributes = span.attributes
        if semconv.TRACELOOP_SPAN_KIND not in attributes and span.scope != _SCOPE:
            return None
        look = Look(span.name, span.scope, attributes)
        given = attributes.get(semconv.TRACELOOP_ENTITY_INPUT)
        return ToolUse(self.agent(look), _arguments(given), attributes.get(semconv.TRACELOOP_ENTITY_OUTPUT))


def _arguments(given: Any) -> Any:
    """What the tool was called with.

    Its decorator tells ``args`` and ``kwargs``; its instrumentation of LangChain tells ``inputs`` among much
    that differs from call to call.
    """
    told = mapping_of(given)
    if told is not None and "inputs" in told and "input_str" in told:
        return told["input_str"] if told["inputs"] is None else told["inputs"]
    if told is None or not set(told) <= {"args", "kwargs"}:
        return given
    args, kwargs = told.get("args"), told.get("kwargs")
    if not args:
        return kwargs or {}
    return told if kwargs else {"args": args}


def _flattened(span: SpanData, prefix: str, older: str, role: str) -> list[Message]:
    found: list[Message] = []
    for item in listed(span.attributes, prefix) or listed(span.attributes, older):
        calls = listed(item, "tool_calls")
        message = message_of({**item, "role": item.get("role") or role, "tool_calls": calls})
        if message is not None:
            found.append(message)
    return found
