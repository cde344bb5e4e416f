"""The steps of a run, read out of its spans: calls of models and tools, and which of them are the same.

What was said, asked for and answered is there only where the spans have it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import MODEL, TOOL, Asked, look_of
from otel_loopeval.runs.spans import SpanData

_LONGEST: Final = 4_000
"""Characters of an argument or an answer that a step has."""
_LONGEST_NAME: Final = 200
_IDENTITY: Final = 10_000
"""Characters by which calls are told apart."""
_MOST_ASKED: Final = 10

_T = TypeVar("_T", bound="Call | Step")


class Call(NamedTuple):
    """A tool call that a model asked for.

    Attributes:
        name: Name of the tool.
        arguments: Its arguments; None where they were not captured.
        identity: What tells it apart from other calls of the tool; empty where that is not known.
    """

    name: str
    arguments: str | None
    identity: str


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a model or a tool.

    Attributes:
        kind: ``"model"`` or ``"tool"``.
        name: Name of the model or the tool.
        arguments: What a tool was given; None where it was not captured.
        text: What a model said or a tool brought; None where it was not captured.
        error: What went wrong; None where nothing did.
        asked: The calls that a model asked for, at most ten.
        tokens: Input plus output tokens of a model's call; None where they are unknown.
        start_ns: When it began, in nanoseconds since the epoch.
        duration_s: How long it took, in seconds.
        identity: What tells it apart from other calls of the tool; empty where that is not known.
    """

    kind: str
    name: str
    arguments: str | None
    text: str | None
    error: str | None
    asked: tuple[Call, ...]
    tokens: int | None
    start_ns: int
    duration_s: float
    identity: str


def step_of(span: SpanData) -> Step | None:
    """The step that a span tells of, if it tells of one."""
    kind = reading.kind_of(look_of(span))
    return _tool(span) if kind == TOOL else _model(span) if kind == MODEL else None


def steps_of(spans: Sequence[SpanData]) -> list[Step]:
    """The steps in spans, in the order in which they began; of nested wrappers of one call, the innermost."""
    return [step for _, span in step_spans(spans) if (step := step_of(span)) is not None]


def step_spans(spans: Sequence[SpanData]) -> list[tuple[str, SpanData]]:
    """The kinds and spans of the steps that :func:`steps_of` gives: to read all of each step takes longer."""
    parents = {span.span_id: span.parent_id for span in spans}
    kinds = {span.span_id: reading.kind_of(look_of(span)) for span in spans}
    around: defaultdict[int, set[str]] = defaultdict(set)  # span → kinds of the steps inside it
    for span_id, kind in kinds.items():
        if kind not in (MODEL, TOOL):
            continue
        parent = parents[span_id]
        while parent is not None and kind not in around[parent]:  # each is marked once: cycles end
            around[parent].add(kind)
            parent = parents.get(parent)
    return [
        (kind, span)
        for span in sorted(spans, key=attrgetter("start_ns"))
        if (kind := kinds[span.span_id]) in (MODEL, TOOL) and kind not in around[span.span_id]
    ]


def tool_calls(steps: Iterable[Step]) -> "list[Step] | list[Call]":
    """The tool calls among steps; where there are none, those that models asked for."""
    steps = list(steps)
    called = [step for step in steps if step.kind == TOOL]
    return called or [call for step in steps for call in step.asked]


def repeated(calls: Iterable[_T]) -> list[list[_T]]:
    """Calls of one tool with the same arguments, where there are several; the most first.

    Those whose arguments nobody can tell have an empty identity, and are one group for each tool.
    """
    groups: defaultdict[tuple[str, str], list[_T]] = defaultdict(list)
    for call in calls:
        groups[call.name, call.identity].append(call)
    return sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)


def text_of(value: Any) -> str:
    """A value as text that is the same for equal values; empty for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_IDENTITY]
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)[:_IDENTITY]
    except (TypeError, ValueError, RecursionError):  # keys of mixed types, or a value inside itself
        return str(value)[:_IDENTITY]


def _tool(span: SpanData) -> Step:
    use = reading.tool_of(span)
    error = _error(span)
    fingerprint = span.attributes.get(semconv.STEP_FINGERPRINT)
    return Step(
        kind=TOOL,
        name=_shown(use.name or span.name, _LONGEST_NAME),
        arguments=None if use.arguments is None else _shown(use.arguments),
        text=None if use.result is None else _shown(use.result),
        error=error if error or use.error is None else _shown(use.error),
        asked=(),
        tokens=None,
        start_ns=span.start_ns,
        duration_s=_seconds(span),
        identity=text_of(fingerprint if use.arguments is None else use.arguments),
    )


def _model(span: SpanData) -> Step:
    usage = reading.usage_of(span.attributes)
    message = reading.output_of(span)
    return Step(
        kind=MODEL,
        name=_shown((usage.model if usage is not None else None) or span.name, _LONGEST_NAME),
        arguments=None,
        text=_shown(message.text) if message is not None and message.text else None,
        error=_error(span),
        asked=() if message is None else tuple(_call(asked) for asked in message.asked[:_MOST_ASKED]),
        tokens=None if usage is None else usage.input_tokens + usage.output_tokens,
        start_ns=span.start_ns,
        duration_s=_seconds(span),
        identity="",
    )


def _call(asked: Asked) -> Call:
    arguments = None if asked.arguments is None else _shown(asked.arguments)
    return Call(_shown(asked.name, _LONGEST_NAME), arguments, text_of(asked.arguments))


def _error(span: SpanData) -> str | None:
    error = reading.error_of(span)
    return None if error is None else _shown(error)


def _shown(value: Any, most: int = _LONGEST) -> str:
    text = text_of(value)
    if len(text) <= most:
        return text
    length = f"{len(text):,}" if len(text) < _IDENTITY else f"{_IDENTITY:,} or more"
    return f"{text[:most]}… ({length} characters)"


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else str(value)


def _seconds(span: SpanData) -> float:
    return max(span.end_ns - span.start_ns, 0) / 1e9
