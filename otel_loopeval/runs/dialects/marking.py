"""Telling from the outside whether a span may tell of a loop, an agent, a model or a tool."""

from typing import Final

from otel_loopeval import semconv
from otel_loopeval.runs.dialects import own, reading
from otel_loopeval.runs.dialects.facts import look_of
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.spans import SpanData

_TEXTS: Final = (
    semconv.GEN_AI_PREFIX,
    *reading.MARKS,
    *own.NAME_PREFIXES,
    *own.AGENT_PREFIXES,
    semconv.EVENT_GUARD,
)
_EVALUATION: Final = b"\x2a" + bytes([len(semconv.SPAN_EVALUATE)]) + semconv.SPAN_EVALUATE.encode()
"""A span's name as protobuf has it, field and length included: the word alone is everywhere."""

MARKERS: Final = (
    *(text.encode() for text in _TEXTS if not any(other in text for other in _TEXTS if other != text)),
    _EVALUATION,
)
"""Bytes of which an OTLP protobuf span has some if :func:`is_marked` holds, or if a run takes anything from
it but its place in the tree; others may have them too."""

JSON_MARKERS: Final = (
    *(marker for marker in MARKERS if marker.decode().isprintable()),
    semconv.SPAN_EVALUATE.encode() + b'"',  # the others are spelled as in protobuf
)
"""The same of a span in OTLP/JSON."""

_EVENTS: Final = frozenset({semconv.EVENT_GUARD, semconv.EVENT_EVALUATION_RESULT})


def is_marked(span: SpanData) -> bool:
    """Whether a span tells of a loop, an agent, a model or a tool; the others only matter around those."""
    name = span.name
    return (
        is_ai(span.scope)
        or name.startswith((*own.NAME_PREFIXES, *own.AGENT_PREFIXES))
        or own.is_evaluation(name)
        or any(mark in span.attributes for mark in reading.MARKS)
        or any(event.name in _EVENTS for event in span.events)
        or reading.kind_of(look_of(span)) is not None
        or reading.usage_of(span.attributes) is not None
    )
