"""Tempo's traces in JSON: OTLP under an older name, with ids in base64.

https://grafana.com/docs/tempo/latest/api_docs/#query
"""

import base64
import binascii
from typing import Any, cast

from otel_loopeval.otlp.decoding import read_traces
from otel_loopeval.otlp.values import read_field, read_object
from otel_loopeval.runs.spans import SpanData

_IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def read_trace(document: dict[str, Any]) -> list[SpanData]:
    """The spans of one trace, in order.

    Raises:
        Misfit: It is no trace of Tempo's.
    """
    resource_spans = document.get("batches", document.get("resourceSpans"))
    return read_traces({"resourceSpans": _with_hexadecimal_ids(resource_spans)})


def read_answer(document: dict[str, Any]) -> list[SpanData]:
    """The spans of one answer of the newer API, in order.

    Raises:
        Misfit: It is none.
    """
    return read_field(document, "trace", lambda trace: read_trace(read_object(trace)))


def _with_hexadecimal_ids(value: Any) -> Any:
    """As OTLP has it; whatever is no batch stays as it is, for the reader to say so."""
    if isinstance(value, list):
        return [_with_hexadecimal_ids(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    changed = dict(fields)
    for name, size in _IDS.items():
        if name in fields:
            changed[name] = _hexadecimal(fields[name], size)
    for name in ("scopeSpans", "spans"):
        if name in fields:
            changed[name] = _with_hexadecimal_ids(fields[name])
    return changed


def _hexadecimal(text: Any, size: int) -> Any:
    if not isinstance(text, str) or len(text) == 2 * size:
        return text
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text
    return data.hex() if len(data) == size else text
