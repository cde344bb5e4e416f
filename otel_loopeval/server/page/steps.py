"""The steps of a run, read out of its spans: calls of models and tools, and which of them repeated.

What was said, asked for and answered is there only where the spans have it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import MODEL, TOOL, Asked, look_of
from otel_loopeval.runs.spans import SpanData

_LONGEST: Final = 4_000
_IDENTITY: Final = 10_000
"""Characters by which calls are told apart."""
_MOST_GROUPS: Final = 10
_MOST_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a model or a tool.

    Attributes:
        kind: ``"model"`` or ``"tool"``.
        name: Name of the model or the tool.
        arguments: What a tool was given; None where it was not captured.
        text: What a model said or a tool brought; None where it was not captured.
        error: What went wrong; None where nothing did.
        asked: The calls that a model asked for, as text.
        tokens: Input plus output tokens of a model's call; None where they are unknown.
        start_ns: When it began, in nanoseconds since the epoch.
        duration_s: How long it took, in seconds.
        identity: What tells it apart from other calls of the tool; empty where that is not known.
        iteration: Number of the iteration that it is in; None where it is in none.
    """

    kind: str
    name: str
    arguments: str | None
    text: str | None
    error: str | None
    asked: tuple[str, ...]
    tokens: int | None
    start_ns: int
    duration_s: float
    identity: str
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One of the calls that are the same.

    Attributes:
        step: The call.
        position: Which one it is, from 1.
        same: Whether it brought what the first one brought; None where that is not known.
    """

    step: Step
    position: int
    same: bool | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Calls of one tool with the same arguments.

    Attributes:
        name: Name of the tool.
        arguments: The arguments; None where they were not captured.
        count: How many calls there are.
        shown: The first of them, and the last.
    """

    name: str
    arguments: str | None
    count: int
    shown: tuple[Occurrence, ...]


def steps_of(spans: Sequence[SpanData]) -> list[Step]:
    """The steps in spans, in the order in which they began; of nested wrappers of one call, the innermost."""
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
    steps: list[Step] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        kind = kinds[span.span_id]
        if kind in around[span.span_id]:
            continue
        if kind == TOOL:
            steps.append(_tool(span))
        elif kind == MODEL:
            steps.append(_model(span))
    return steps


def repeats_in(steps: Iterable[Step]) -> list[Repeat]:
    """The tool calls that occur more than once with the same arguments, those that occur most first.

    Calls whose arguments nobody can tell are not compared.
    """
    groups: defaultdict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        if step.kind == TOOL and step.identity:
            groups[step.name, step.identity].append(step)
    repeated = sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)
    return [_repeat(group) for group in repeated[:_MOST_GROUPS]]


def numbered(steps: Iterable[Step], iterations: Sequence[tuple[int, int]]) -> list[Step]:
    """The steps, each with the iteration that it began in.

    Args:
        steps: The steps, in the order in which they began.
        iterations: Start (nanoseconds since the epoch) and number of each iteration, by start.
    """
    found: list[Step] = []
    position = -1
    for step in steps:
        while position + 1 < len(iterations) and iterations[position + 1][0] <= step.start_ns:
            position += 1
        found.append(replace(step, iteration=iterations[position][1]) if position >= 0 else step)
    return found


def _tool(span: SpanData) -> Step:
    use = reading.tool_of(span)
    fingerprint = span.attributes.get(semconv.STEP_FINGERPRINT)
    error = reading.error_of(span) or (None if use.error is None else text_of(use.error))
    result = use.result
    return Step(
        kind=TOOL,
        name=use.name or span.name,
        arguments=None if use.arguments is None else _shown(use.arguments),
        text=None if result is None else _shown(result),
        error=error,
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
        name=(usage.model if usage is not None else None) or span.name,
        arguments=None,
        text=_shown(message.text) if message is not None and message.text else None,
        error=reading.error_of(span),
        asked=() if message is None else tuple(_asked(call) for call in message.asked[:_MOST_GROUPS]),
        tokens=None if usage is None else usage.input_tokens + usage.output_tokens,
        start_ns=span.start_ns,
        duration_s=_seconds(span),
        identity="",
    )


def _repeat(group: Sequence[Step]) -> Repeat:
    first = group[0]
    positions = range(len(group))
    if len(group) > _MOST_SHOWN:
        positions = [*range(_MOST_SHOWN - 1), len(group) - 1]
    return Repeat(
        first.name,
        first.arguments,
        len(group),
        tuple(
            Occurrence(group[at], at + 1, None if at == 0 else _same(first, group[at])) for at in positions
        ),
    )


def _same(first: Step, other: Step) -> bool | None:
    told = (first.text, first.error), (other.text, other.error)
    return None if (None, None) in told else told[0] == told[1]


def _asked(call: Asked) -> str:
    return f"{call.name}({'' if call.arguments is None else _shown(call.arguments)})"


def _shown(value: Any) -> str:
    text = text_of(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


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


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else str(value)


def _seconds(span: SpanData) -> float:
    return max(span.end_ns - span.start_ns, 0) / 1e9
