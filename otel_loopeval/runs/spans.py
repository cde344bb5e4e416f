"""Neutral spans: what the core knows of a span, wherever it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event on a span.

    Attributes:
        name: Its name.
        time_ns: When it happened, in nanoseconds since the epoch.
        attributes: Its attributes.
    """

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SpanData:
    """A span that has ended.

    Attributes:
        name: Its name.
        trace_id: 128-bit trace id.
        span_id: 64-bit span id.
        parent_id: 64-bit id of the parent span, or None for a root.
        start_ns: Start, in nanoseconds since the epoch.
        end_ns: End, in nanoseconds since the epoch.
        attributes: Attributes; values are str, bool, int, float, or sequences of them. Where a span was
            stored, bytes, None and mappings are possible too.
        events: Events, in order.
        error: Whether its status is ERROR.
        scope: Name of its instrumentation scope.
        resource: Attributes of what emitted it, such as ``service.name``. Spans of one resource share one
            mapping: treat it as read-only.
        status_message: Text of its status, empty where it has none. Content.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: tuple[SpanEvent, ...] = ()
    error: bool = False
    scope: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status_message: str = ""
