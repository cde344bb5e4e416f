"""Asking the dialects: the first that knows an answer gives it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from otel_loopeval import semconv
from otel_loopeval.runs.dialects.facts import (
    EVALUATION,
    Answer,
    Dialect,
    Look,
    Message,
    Score,
    ToolUse,
)
from otel_loopeval.runs.dialects.genai import GenAI
from otel_loopeval.runs.dialects.messages import answer_in
from otel_loopeval.runs.dialects.openinference import OpenInference, score_of
from otel_loopeval.runs.dialects.openllmetry import OpenLLMetry
from otel_loopeval.runs.dialects.platforms import Langfuse, LangSmith
from otel_loopeval.runs.dialects.values import items_of, text_of
from otel_loopeval.runs.dialects.vercel import Vercel
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.usage import Usage

DIALECTS: Final[tuple[Dialect, ...]] = (
    OpenInference(),
    OpenLLMetry(),
    Vercel(),
    LangSmith(),
    GenAI(),
    Langfuse(),
)
"""The dialects, the most telling first: ``openinference.span.kind`` says more than a model's name."""

MARKS: Final = frozenset(
    {
        semconv.GEN_AI_OPERATION_NAME,
        semconv.OPENINFERENCE_SPAN_KIND,
        semconv.GEN_AI_SYSTEM,
        semconv.GEN_AI_REQUEST_MODEL,
        semconv.GEN_AI_TOOL_NAME,
        semconv.TRACELOOP_SPAN_KIND,
        semconv.LLM_REQUEST_TYPE,
        semconv.VERCEL_OPERATION,
        semconv.LANGSMITH_SPAN_KIND,
        semconv.LANGFUSE_TYPE,
        semconv.PYDANTIC_AGENT_NAME,
    }
)
"""Attributes of which a span has one if it tells of agents, models or tools."""

_MAX_SHAPES: Final = 2_000
_MAX_SHAPE: Final = 4_000
"""Characters in the names of the attributes of a shape that is remembered."""


class _Spoken(NamedTuple):
    """The dialects that a span may tell something in: anything but the others here, usage, content."""

    any: tuple[Dialect, ...]
    usage: tuple[Dialect, ...]
    content: tuple[Dialect, ...]


_ANY: Final = _Spoken(DIALECTS, DIALECTS, DIALECTS)
_TELLING_SCOPES: Final = frozenset(scope for dialect in DIALECTS for scope in dialect.scopes)
_shapes: dict[tuple[str, ...], _Spoken] = {}
_IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}|[0-9a-f]{16,}|\d{6,}", re.IGNORECASE)
_AFFIXES: Final = ("invoke_agent ", "invocation ", "agent_run ", "execute ")
_SUFFIXES: Final = (" run", ".agent", ".workflow", ".run")


def kind_of(look: Look) -> str | None:
    """What a span is, one of :mod:`otel_loopeval.runs.dialects.facts`' kinds; None if nobody knows it."""
    for dialect in _dialects(look.scope, look.attributes):
        kind = dialect.kind(look)
        if kind is not None:
            return kind
    return None


def agent_of(look: Look) -> str:
    """Name of the agent or workflow that a span stands for: told, or the span's own without decoration.

    Names that identify one run, and no agent, are none: they would make a metric series each.
    """
    for dialect in _dialects(look.scope, look.attributes):
        agent = dialect.agent(look)
        if agent is not None and not _IDENTIFIER.search(agent):
            return agent
    name = look.name
    for affix in _AFFIXES:
        name = name.removeprefix(affix)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    name = name.strip("[] ")
    return semconv.AGENT_UNKNOWN if not name or _IDENTIFIER.search(name) else name


def conversation_of(attributes: Mapping[str, Any]) -> str | None:
    """Identifier of the conversation that a span belongs to."""
    for dialect in _spoken_in(attributes).any:
        conversation = dialect.conversation(attributes)
        if conversation is not None:
            return conversation
    return None


def usage_of(attributes: Mapping[str, Any]) -> Usage | None:
    """What a span says that it used, or None if it says nothing."""
    for dialect in _spoken_in(attributes).usage:
        usage = dialect.usage(attributes)
        if usage is not None:
            return usage
    return None


def _spoken_in(attributes: Mapping[str, Any]) -> _Spoken:
    """The dialects that attributes of these names may tell something in.

    Remembered for each combination of names, of which a library has few; where there are too many, all
    dialects are asked.
    """
    shape = tuple(attributes)
    known = _shapes.get(shape)
    if known is None:
        known = _ANY
        if len(_shapes) < _MAX_SHAPES and sum(map(len, shape)) <= _MAX_SHAPE:
            known = _shapes[shape] = _Spoken(
                tuple(dialect for dialect in DIALECTS if not dialect.tells or _has(shape, dialect.tells)),
                tuple(dialect for dialect in DIALECTS if _has(shape, dialect.tells_usage)),
                tuple(dialect for dialect in DIALECTS if _has(shape, dialect.tells_content)),
            )
    return known


def _dialects(scope: str, attributes: Mapping[str, Any]) -> tuple[Dialect, ...]:
    return DIALECTS if scope in _TELLING_SCOPES else _spoken_in(attributes).any


def _has(names: Iterable[str], beginnings: tuple[str, ...]) -> bool:
    return any(name.startswith(beginnings) for name in names)


def _content_dialects(span: SpanData) -> tuple[Dialect, ...]:
    return DIALECTS if span.events else _spoken_in(span.attributes).content


def output_of(span: SpanData) -> Message | None:
    """What a model said, or None where that was not captured."""
    found: Message | None = None
    for dialect in _content_dialects(span):
        message = dialect.output(span)
        if message is None or not (message.text or message.asked):
            continue
        if found is None:
            found = message
        elif not found.asked and message.asked:
            found = found._replace(asked=message.asked)
        if found.asked and found.text:
            break
    return found


def answers_of(span: SpanData) -> list[Answer]:
    """Results of tool calls that a model was told since it last spoke, in order."""
    messages = inputs_of(span)
    last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [answer for message in messages[last + 1 :] for answer in message.answers]


def asks_user(span: SpanData) -> bool:
    """Whether the last message that a model was told is a user's."""
    messages = inputs_of(span)
    return bool(messages) and messages[-1].role == "user" and not messages[-1].answers


def calls_tools(attributes: Mapping[str, Any]) -> bool:
    """Whether a model stopped to have tools called: its span says so even where content is not captured."""
    told = attributes.get(semconv.GEN_AI_RESPONSE_FINISH_REASONS)
    reasons = (*items_of(told), told, attributes.get(semconv.LLM_FINISH_REASON))
    return any(isinstance(reason, str) and reason.lower() in _FOR_TOOLS for reason in reasons)


def inputs_of(span: SpanData) -> list[Message]:
    """What a model was told, in order; nothing where that was not captured."""
    for dialect in _content_dialects(span):
        messages = dialect.inputs(span)
        if messages:
            return messages
    return []


def tool_of(span: SpanData) -> ToolUse:
    """The tool call that a span tells of, from whatever dialects it speaks."""
    name: str | None = None
    identifier: str | None = None
    arguments: Any = None
    result: Any = None
    for dialect in _dialects(span.scope, span.attributes):
        use = dialect.tool(span)
        if use is None:
            continue
        name = name or use.name
        identifier = identifier or use.id
        arguments = use.arguments if arguments is None else arguments
        result = use.result if result is None else result
    answer = None if result is None else answer_in(result)
    if answer is None:
        return ToolUse(name or span.name, arguments, result, identifier)
    return ToolUse(name or span.name, arguments, answer.value, identifier or answer.id, answer.error)


def error_of(span: SpanData) -> str | None:
    """What went wrong in a span: its status text, its exception's message, or its ``error.type``."""
    if not span.error:
        return None
    if span.status_message:
        return span.status_message
    for event in reversed(span.events):
        if event.name == semconv.EXCEPTION_EVENT:
            told = event.attributes.get(semconv.EXCEPTION_MESSAGE) or event.attributes.get(
                semconv.EXCEPTION_TYPE
            )
            if isinstance(told, str):
                return told
    return text_of(span.attributes.get(semconv.ERROR_TYPE)) or "error"


def scores_of(span: SpanData, kind: str | None) -> Iterator[Score]:
    """The judgements that a span tells of: ``gen_ai.evaluation.result`` events, or an evaluator's span."""
    for event in span.events:
        if event.name == semconv.EVENT_EVALUATION_RESULT:
            yield _score(
                event.attributes.get(semconv.GEN_AI_EVALUATION_SCORE_VALUE),
                event.attributes.get(semconv.GEN_AI_EVALUATION_SCORE_LABEL),
            )
    if kind == EVALUATION:
        told = score_of(span)
        if told is not None and ("score" in told or "label" in told):
            yield _score(told.get("score"), told.get("label"))


def _score(value: Any, label: Any) -> Score:
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if number is not None and not abs(number) < float("inf"):
        number = None
    word = label.strip().lower() if isinstance(label, str) else ""
    return Score(number, True if word in _PASSED else False if word in _FAILED else None)


_FOR_TOOLS: Final = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
_PASSED: Final = frozenset({semconv.LABEL_PASS, "passed", "success"})
_FAILED: Final = frozenset({semconv.LABEL_FAIL, "failed", "failure"})
