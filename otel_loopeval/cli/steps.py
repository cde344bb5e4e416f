"""The steps of a run for people: what a model or tool call was about, and which of them repeated.

What was said, asked for and answered is content: it is shown where the trace has it, cut short, and with
nothing in it that could drive a terminal.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_loopeval import semconv
from otel_loopeval.cli.console import printable
from otel_loopeval.reports import words
from otel_loopeval.runs.dialects import reading
from otel_loopeval.runs.dialects.facts import MODEL, TOOL, look_of
from otel_loopeval.runs.spans import SpanData

_LONGEST: Final = 100
_IDENTITY: Final = 10_000
"""Characters by which calls are told apart."""
_REPEATED: Final = 10


def about(span: SpanData) -> str:
    """What a span tells of a step, in less than a line; empty if it tells of none."""
    kind = reading.kind_of(look_of(span))
    parts: list[str] = []
    if kind == TOOL:
        use = reading.tool_of(span)
        name = use.name or span.name
        # Mostly the span's own name has it already.
        text = _call("" if name in span.name else name, use.arguments)
        if use.result is not None:
            text += f" = {_short(use.result)}"
        if text:
            parts.append(text.strip())
        error = reading.error_of(span)
        if error is not None:
            parts.append(f"failed: {_short(error)}")
    elif kind == MODEL:
        usage = reading.usage_of(span.attributes)
        if usage is not None:
            parts.append(words.count(usage.input_tokens + usage.output_tokens, "token"))
        message = reading.output_of(span)
        if message is not None:
            if message.text:
                parts.append(f"says {_short(message.text)}")
            parts += [f"asks for {_call(asked.name, asked.arguments)}" for asked in message.asked[:_REPEATED]]
    return ", ".join(parts)


def repeated_calls(spans: Iterable[SpanData]) -> list[str]:
    """The tool calls that occur more than once among spans, those that occur most first.

    Where there are no spans of tools, the calls that models asked for count.
    """
    called, asked = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for span in spans:
        kind = reading.kind_of(look_of(span))
        if kind == TOOL:
            use = reading.tool_of(span)
            arguments = use.arguments
            if arguments is None:
                arguments = span.attributes.get(semconv.STEP_FINGERPRINT)
            called[use.name or span.name, _text(arguments)] += 1
        elif kind == MODEL:
            message = reading.output_of(span)
            asked.update((call.name, _text(call.arguments)) for call in (message.asked if message else ()))
    return list(_told(called or asked))


def _told(calls: Counter[tuple[str, str]]) -> Iterator[str]:
    repeated = [(call, count) for call, count in calls.most_common() if count > 1]
    for (name, arguments), count in repeated[:_REPEATED]:
        unknown = "" if arguments else ", with arguments that the trace does not tell"
        yield f"{count} times {_call(name, arguments or None)}{unknown}"
    if len(repeated) > _REPEATED:
        yield f"and {words.count(len(repeated) - _REPEATED, 'more call')} more than once"


def _call(name: str, arguments: Any) -> str:
    shown = _short(name)
    return shown if arguments is None else f"{shown}({_short(arguments)})"


def _text(value: Any) -> str:
    """A value as text that is the same for equal values."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_IDENTITY]
    try:
        if isinstance(value, Mapping):
            value = dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)[:_IDENTITY]
    except (TypeError, ValueError, RecursionError):  # keys of mixed types, or a value inside itself
        return str(value)[:_IDENTITY]  # pyright: ignore[reportUnknownArgumentType] - any


def _short(value: Any) -> str:
    line = printable(" ".join(_text(value)[: _LONGEST * 4].split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
