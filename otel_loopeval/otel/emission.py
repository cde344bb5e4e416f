"""Facts of a run on spans and log records, in one go."""

from typing import Any

from opentelemetry._logs import Logger
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, TraceFlags

from otel_loopeval import semconv
from otel_loopeval.health.wire import as_text, encodable
from otel_loopeval.otel import _sdk
from otel_loopeval.otel.options import EVENTS_LOG, EVENTS_SPAN, captures_content
from otel_loopeval.runs.spelling import (
    Attributes,
    end_attributes,
    evaluation_event,
    guard_event,
    health_attributes,
    iteration_attributes,
    start_attributes,
)

__all__ = [
    "emit",
    "end_attributes",
    "error_type",
    "evaluation_event",
    "guard_event",
    "health_attributes",
    "iteration_attributes",
    "links_to",
    "mark_failed",
    "start_attributes",
]


def links_to(trace_id: int, span_id: int) -> list[Link] | None:
    """A link to a span elsewhere, if its ids are real ones."""
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(context)] if context.is_valid else None


def emit(
    events: str,
    span: Span,
    logger: Logger,
    context: Context | None,
    name: str,
    attributes: Attributes,
    time_ns: int,
    content: tuple[str, Any] | None = None,
) -> None:
    """Emit an event where the options want it: on the span, as a log record, or both.

    Args:
        events: Where, one of ``"span"``, ``"log"`` and ``"both"``.
        span: The span that it is about.
        logger: Emits log records.
        context: The context of the span, for log records.
        name: Name of the event.
        attributes: Its attributes.
        time_ns: When it happened, in nanoseconds since the epoch.
        content: An attribute more, name and value, that leaves the process only with content capture.
    """
    if events != EVENTS_LOG:
        told = attributes if content is None else _with_content(attributes, content, on_logs=False)
        _sdk.add_clean_event(span, name, told, time_ns)
    if events != EVENTS_SPAN:
        told = attributes if content is None else _with_content(attributes, content, on_logs=True)
        logger.emit(timestamp=time_ns, context=context, event_name=name, attributes=told)


def _with_content(attributes: Attributes, content: tuple[str, Any], *, on_logs: bool) -> Attributes:
    name, value = content
    if value is None or not captures_content(on_logs=on_logs):
        return attributes
    text = as_text(value)
    return {**attributes, name: text} if text else attributes


def error_type(error: BaseException) -> str:
    """The value of ``error.type`` for an exception: its qualified class name."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def mark_failed(span: Span, error: BaseException, *, record: bool) -> None:
    """Put an error on a span; its message and stack trace only with content capture.

    Args:
        span: The span.
        error: The error.
        record: Whether to record the exception event too, which happens once per error.
    """
    span.set_attribute(semconv.ERROR_TYPE, error_type(error))
    if not captures_content():
        span.set_status(Status(StatusCode.ERROR))
        return
    try:
        message = encodable(str(error))
    except Exception:  # noqa: BLE001 - an exception of somebody else's, whose message cannot be told
        span.set_status(Status(StatusCode.ERROR))
        return
    span.set_status(Status(StatusCode.ERROR, message))
    if record:
        span.record_exception(error)
