"""Real spans of many frameworks as neutral spans, from a corpus that is read where it is, if it is there."""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from otel_loopeval.runs.spans import SpanData, SpanEvent

VARIABLE = "LOOPEVAL_CORPUS"
"""Names the folder of the corpus, which is not part of the project. Tests run without such variables: it is
read once."""

_FILE = Path(os.environ.get(VARIABLE, "")) / "otel_spans.jsonl.gz"

_STEP_NS = 1_000_000


def is_there() -> bool:
    """Whether there is a corpus to read."""
    return _FILE.is_file()


def traces() -> Iterator[tuple[str, list[SpanData]]]:
    """Name of the framework and spans of each trace."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            record: dict[str, Any] = json.loads(line)
            trace_id = _number(record["trace_id"], 16)
            spans: list[dict[str, Any]] = record["spans"]
            yield (
                record["agent_system"],
                [
                    _span(trace_id, span) if "name" in span and "start" in span else _vercel(span)
                    for span in spans
                ],
            )


def _span(trace_id: int, span: dict[str, Any]) -> SpanData:
    """A span as a platform exports it: it took input, output and usage out of the attributes."""
    attributes: dict[str, Any] = dict(span["attributes"])
    start_ns = _time_ns(span["start"])
    for name, key in (("type", "langfuse_type"), ("input", "input"), ("output", "output")):
        if span.get(key) not in (None, "null"):
            attributes[f"langfuse.observation.{name}"] = span[key]
    if span.get("usage"):
        attributes["langfuse.observation.usage_details"] = span["usage"]
    if span.get("model"):
        attributes["langfuse.observation.model.name"] = span["model"]
    return SpanData(
        name=span["name"],
        trace_id=trace_id,
        span_id=_number(span["span_id"], 8),
        parent_id=None if span["parent_id"] is None else _number(span["parent_id"], 8),
        start_ns=start_ns,
        end_ns=start_ns if span["end"] is None else _time_ns(span["end"]),
        attributes=attributes,
        error=span.get("level") == "ERROR",
        scope=span["scope"] or "",
        status_message=span.get("status_message") or "",
    )


def _vercel(span: dict[str, Any]) -> SpanData:
    """A span as the Vercel AI SDK's own tests keep it."""
    context = span["spanContext"]
    return SpanData(
        name=span["name"],
        trace_id=int(context["traceId"], 16),
        span_id=int(context["spanId"], 16),
        parent_id=None,
        start_ns=_pair_ns(span["startTime"]),
        end_ns=_pair_ns(span["endTime"]),
        attributes=span["attributes"],
        events=tuple(
            SpanEvent(event["name"], _pair_ns(event["time"]), event.get("attributes") or {})
            for event in span["events"]
        ),
        error=span["status"]["code"] == 2,
        scope="ai",
    )


def _pair_ns(time: list[int]) -> int:
    return time[0] * 1_000_000_000 + time[1]


def _time_ns(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1_000) * _STEP_NS


def _number(text: str, size: int) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big")
