"""One record → its spans, whichever of the known forms it is in."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from otel_loopeval.otlp.decoding import is_other_signal, read_traces
from otel_loopeval.otlp.files import as_text, parse_json, read_line_quickly
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.protobuf import read_request, read_resource_spans
from otel_loopeval.otlp.values import read_field, read_items
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources import jaeger_json, phoenix_json, tempo_json
from otel_loopeval.sources.records import Form, Record
from otel_loopeval.sources.salvage import salvaged_request, salvaged_resource_spans, salvaged_traces

_FORMS = "OTLP, Jaeger or Phoenix JSON"
_T = TypeVar("_T")


def spans_of(record: Record) -> list[SpanData]:
    """The spans of a record, in order; none for telemetry of another kind.

    Raises:
        Misfit: It is in no form that is known, or not what that form has; a
            :class:`~otel_loopeval.sources.salvage.Damaged` if some of it can be read.
    """
    if record.problem:
        raise Misfit(record.problem, None)
    if record.form is Form.REQUEST:
        return spans_of_request(record.data)
    if record.form is Form.RESOURCE_SPANS:
        return _or_salvaged(read_resource_spans, salvaged_resource_spans, record.data)
    return spans_of_json(record.data)


def spans_of_request(data: bytes) -> list[SpanData]:
    """The spans of one ``ExportTraceServiceRequest`` or ``TracesData``, in order.

    Raises:
        Misfit: It is none, or not all of it can be read.
    """
    return _or_salvaged(read_request, salvaged_request, data)


def _or_salvaged(
    read: Callable[[_T], list[SpanData]], salvage: Callable[[_T], list[SpanData]], found: _T
) -> list[SpanData]:
    """What is read strictly, or where that fails, what can be read of it: salvaging takes its time."""
    try:
        return read(found)
    except Misfit:
        return salvage(found)


def spans_of_json(data: bytes) -> list[SpanData]:
    """The spans of one JSON document, in order.

    Raises:
        Misfit: It is in no form that is known, or not what that form has.
    """
    spans = read_line_quickly(data)
    if spans is not None:
        return spans
    text = as_text(data)
    try:
        return spans_of_parsed(parse_json(text))
    except RecursionError:
        raise Misfit("values that are nested less deeply", text) from None


def spans_of_parsed(document: Any) -> list[SpanData]:
    """The spans of a parsed JSON document, in order.

    Raises:
        Misfit: It is in no form that is known, or not what that form has.
    """
    if isinstance(document, list):
        lists = read_items(cast("list[Any]", document), spans_of_parsed)
        return [span for spans in lists for span in spans]
    if not isinstance(document, dict):
        raise Misfit(f"an object of {_FORMS}", document)
    found = cast("dict[str, Any]", document)
    for key, read in _READERS.items():
        if key in found:
            return read(found)
    if jaeger_json.is_trace(found):
        return jaeger_json.read_trace(found)
    if phoenix_json.is_span(found):
        return [phoenix_json.read_span(found)]
    if isinstance(found.get("spans"), list):
        return read_field(found, "spans", _all)
    if is_other_signal(found):
        return []
    raise Misfit(f"an object of {_FORMS}", document)


def _all(documents: Any) -> list[SpanData]:
    """As a list of documents: the pages of several APIs are one."""
    return spans_of_parsed(documents if documents is not None else [])


def _inside(key: str) -> Callable[[dict[str, Any]], list[SpanData]]:
    return lambda found: read_field(found, key, _all)


def _traces(found: dict[str, Any]) -> list[SpanData]:
    return _or_salvaged(read_traces, salvaged_traces, found)


_READERS: dict[str, Callable[[dict[str, Any]], list[SpanData]]] = {
    "resourceSpans": _traces,
    "data": _inside("data"),  # Jaeger's API and its user interface, Phoenix's API
    "result": _inside("result"),  # Jaeger's newer API
    "batches": tempo_json.read_trace,
    "trace": tempo_json.read_answer,  # its newer API
}
