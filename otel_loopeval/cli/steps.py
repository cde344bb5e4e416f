"""The steps of a run on a terminal: what a model or tool call was about, and which of them repeated.

What was said, asked for and answered is content: it is shown where the trace has it, cut short, and with
nothing in it that could drive a terminal.
"""

from collections.abc import Iterable
from typing import Final

from otel_loopeval.cli.console import printable
from otel_loopeval.reports import words
from otel_loopeval.reports.steps import repeated, step_of, steps_of, tool_calls
from otel_loopeval.runs.spans import SpanData

_LONGEST: Final = 100
_REPEATED: Final = 10


def about(span: SpanData) -> str:
    """What a span tells of a step, in less than a line; empty if it tells of none."""
    step = step_of(span)
    if step is None:
        return ""
    parts: list[str] = []
    if step.tokens is not None:
        parts.append(words.count(step.tokens, "token"))
    if step.kind == "tool":
        # Mostly the span's own name has the tool's already.
        text = _call("" if step.name in span.name else step.name, step.arguments)
        if step.text is not None:
            text += f" = {_short(step.text)}"
        if text:
            parts.append(text.strip())
        if step.error is not None:
            parts.append(f"failed: {_short(step.error)}")
    elif step.text is not None:
        parts.append(f"says {_short(step.text)}")
    parts += [f"asks for {_call(call.name, call.arguments)}" for call in step.asked]
    return ", ".join(parts)


def repeated_calls(spans: Iterable[SpanData]) -> list[str]:
    """The tool calls that occur more than once among spans, those that occur most first.

    Where there are no spans of tools, the calls that models asked for count.
    """
    groups = repeated(tool_calls(steps_of(list(spans))))
    told: list[str] = []
    for group in groups[:_REPEATED]:
        first = group[0]
        # Of arguments that were not captured there may be a fingerprint.
        arguments = first.arguments if first.arguments is not None else first.identity
        unknown = "" if arguments else ", with arguments that the trace does not tell"
        told.append(f"{len(group)} times {_call(first.name, arguments or None)}{unknown}")
    if len(groups) > _REPEATED:
        told.append(f"and {words.count(len(groups) - _REPEATED, 'more call')} more than once")
    return told


def _call(name: str, arguments: str | None) -> str:
    shown = _short(name)
    return shown if arguments is None else f"{shown}({_short(arguments)})"


def _short(text: str) -> str:
    line = printable(" ".join(text[: _LONGEST * 4].split()))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
