"""OTLP with something wrong in it → what can be read of it all the same.

A span of which its place can be read (ids and times) is kept, without the parts that cannot; any other loses
only itself. What is wrong with a span that tells of no loop, agent, model or tool is not told: of those,
readers of many spans look at nothing but the place, and a verdict is the same whoever reads.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from otel_loopeval.otlp import decoding
from otel_loopeval.otlp.decoding import SPAN_ID_BYTES, TRACE_ID_BYTES, Emitter, Status
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.parts import ResourceParts
from otel_loopeval.otlp.protobuf import (
    parts_of_request,
    parts_of_resource_spans,
    read_resource,
    read_resource_loosely,
    read_scope_name,
    read_span,
    read_span_loosely,
)
from otel_loopeval.otlp.values import (
    read_attributes,
    read_field,
    read_id,
    read_object,
    read_required_id,
    read_text,
    read_time,
)
from otel_loopeval.runs.dialects.frameworks import is_ai
from otel_loopeval.runs.dialects.marking import JSON_MARKERS, MARKERS
from otel_loopeval.runs.spans import SpanData

_T = TypeVar("_T")


class Damaged(Misfit):
    """A record of which not all could be read.

    Attributes:
        spans: What could be read, in order.
    """

    def __init__(self, problems: Sequence[Misfit], spans: list[SpanData]) -> None:
        super().__init__("", None)
        self._first, self._others = problems[0], len(problems) - 1
        self.spans = spans

    def inside(self, place: str) -> "Damaged":
        """Note the place it is inside of."""
        self._first.inside(place)
        return self

    def __str__(self) -> str:
        more = f", and {self._others} more like it" if self._others else ""
        return f"{self._first}{more}; all else of it is kept"


class _Salvage:
    """What has been saved of one record, and what is wrong with it."""

    def __init__(self) -> None:
        self.spans: list[SpanData] = []
        self.problems: list[Misfit] = []

    def result(self) -> list[SpanData]:
        """The spans.

        Raises:
            Damaged: Something that would be told is wrong.
            Misfit: The same, and there are none.
        """
        if self.problems and not self.spans:
            raise self.problems[0]
        if self.problems:
            raise Damaged(self.problems, self.spans)
        return self.spans


# --- JSON -----------------------------------------------------------------------------------------------


def salvaged_traces(document: dict[str, Any]) -> list[SpanData]:
    """The spans of a ``TracesData`` object in which something is wrong, in order.

    Raises:
        Misfit: There is no list of ``resourceSpans`` in it.
        Damaged: Something of it is left out that may matter.
    """
    salvage = _Salvage()
    _within(document, "resourceSpans", salvage, _resource_spans)
    return salvage.result()


def _each(value: Any, salvage: _Salvage, read: Callable[[Any, _Salvage], None]) -> None:
    """The items of an array, whatever is wrong with one."""
    if value is None:
        return
    if not isinstance(value, list):
        raise Misfit("an array", value)
    for index, item in enumerate(cast("list[Any]", value)):
        before = len(salvage.problems)
        try:
            read(item, salvage)
        except Misfit as misfit:
            salvage.problems.append(misfit)
        for problem in salvage.problems[before:]:
            problem.inside(f"[{index}]")


def _within(
    parent: dict[str, Any], key: str, salvage: _Salvage, read: Callable[[Any, _Salvage], None]
) -> None:
    """The items of a field that is an array."""
    before = len(salvage.problems)
    try:
        _each(parent.get(key), salvage, read)
    except Misfit as misfit:
        salvage.problems.append(misfit)
    for problem in salvage.problems[before:]:
        problem.inside(key)


def _resource_spans(value: Any, salvage: _Salvage) -> None:
    found = read_object(value)
    resource: dict[str, Any] = {}
    problem: Misfit | None = None
    try:
        resource = read_field(found, "resource", decoding.read_resource)
    except Misfit as misfit:
        problem = misfit
        told = found["resource"]
        resource = _attributes(cast("dict[str, Any]", told)) if isinstance(told, dict) else {}
    telling: list[bool] = []

    def scope_spans(value: Any, salvage: _Salvage) -> None:
        telling.append(_scope_spans(value, resource, salvage, asks=problem is not None))

    _within(found, "scopeSpans", salvage, scope_spans)
    if problem is not None and any(telling):
        salvage.problems.append(problem)


def _scope_spans(value: Any, resource: dict[str, Any], salvage: _Salvage, *, asks: bool) -> bool:
    """Reads those of one scope; tells whether one of them tells of a loop, if asked."""
    found = read_object(value)
    try:
        scope = read_field(found, "scope", decoding.read_scope_name)
    except Misfit as misfit:
        salvage.problems.append(misfit)
        scope = ""
    emitter = Emitter(resource, scope)
    _within(found, "spans", salvage, lambda span, salvage: _span(span, emitter, salvage))
    spans = found.get("spans")
    return asks and isinstance(spans, list) and any(_tells(one, scope) for one in cast("list[Any]", spans))


def _span(value: Any, emitter: Emitter, salvage: _Salvage) -> None:
    try:
        salvage.spans.append(decoding.read_span(value, emitter))
    except Misfit as misfit:
        found = read_object(value)
        salvage.spans.append(_place(found, emitter))
        if _tells(found, emitter.scope):
            salvage.problems.append(misfit)


def _place(span: dict[str, Any], emitter: Emitter) -> SpanData:
    """A span without the parts that cannot be read.

    Raises:
        Misfit: Not even its place can be read.
    """
    status = _or_else(Status(error=False, message=""), decoding.read_status, span.get("status"))
    return SpanData(
        name=_or_else("", read_text, span.get("name")),
        trace_id=read_field(span, "traceId", lambda text: read_required_id(text, TRACE_ID_BYTES)),
        span_id=read_field(span, "spanId", lambda text: read_required_id(text, SPAN_ID_BYTES)),
        parent_id=read_field(span, "parentSpanId", lambda text: read_id(text, SPAN_ID_BYTES)),
        start_ns=read_field(span, "startTimeUnixNano", read_time),
        end_ns=read_field(span, "endTimeUnixNano", read_time),
        attributes=_attributes(span),
        events=tuple(_readable(span.get("events"), decoding.read_event)),
        error=status.error,
        scope=emitter.scope,
        resource=emitter.resource,
        status_message=status.message,
    )


def _attributes(parent: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in _readable(parent.get("attributes"), lambda pair: read_attributes([pair])):
        found.update(one)
    return found


def _readable(value: Any, read: Callable[[Any], _T]) -> list[_T]:
    """The items of what may be an array that can be read."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    found = (_or_else(None, read, item) for item in items)
    return [item for item in found if item is not None]


def _or_else(otherwise: Any, read: Callable[[Any], _T], value: Any) -> _T:
    try:
        return read(value)
    except Misfit:
        return otherwise


def _tells(span: Any, scope: str) -> bool:
    """Whether a span may tell of a loop: at least those that a search over their text would find."""
    text = json.dumps(span, ensure_ascii=False).encode()
    return is_ai(scope) or any(marker in text for marker in JSON_MARKERS)


# --- Protobuf -------------------------------------------------------------------------------------------


def salvaged_request(data: bytes) -> list[SpanData]:
    """The spans of an ``ExportTraceServiceRequest`` in which something is wrong, in order.

    Raises:
        Misfit: It is none.
        Damaged: Something of it is left out that may matter.
    """
    salvage = _Salvage()
    for index, resource_spans in enumerate(parts_of_request(data)):
        before = len(salvage.problems)
        _encoded_resource_spans(resource_spans, salvage)
        for problem in salvage.problems[before:]:
            problem.inside(f"[{index}]").inside("resource_spans")
    return salvage.result()


def salvaged_resource_spans(data: bytes) -> list[SpanData]:
    """The spans of one ``ResourceSpans`` in which something is wrong, in order.

    Raises:
        Misfit: It is none.
        Damaged: Something of it is left out that may matter.
    """
    salvage = _Salvage()
    _encoded_resource_spans(parts_of_resource_spans(data), salvage)
    return salvage.result()


def _encoded_resource_spans(found: ResourceParts, salvage: _Salvage) -> None:
    data = b"".join(found.resource)
    problem: Misfit | None = None
    try:
        resource = read_resource(data)
    except Misfit as misfit:
        problem = misfit.inside("resource")
        resource = read_resource_loosely(data)
    telling = False
    for scope_index, scope_spans in enumerate(found.scope_spans):
        before = len(salvage.problems)
        scope = ""
        try:
            scope = read_scope_name(b"".join(scope_spans.scope))
        except Misfit as misfit:
            salvage.problems.append(misfit.inside("scope"))
        for index, span in enumerate(scope_spans.spans):
            told = is_ai(scope) or any(marker in span for marker in MARKERS)
            telling = telling or told
            for misfit in _encoded_span(span, scope, resource, salvage, told=told):
                salvage.problems.append(misfit.inside(f"[{index}]").inside("spans"))
        for one in salvage.problems[before:]:
            one.inside(f"scope_spans[{scope_index}]")
    if problem is not None and telling:
        salvage.problems.append(problem)


def _encoded_span(
    data: bytes, scope: str, resource: dict[str, Any], salvage: _Salvage, *, told: bool
) -> list[Misfit]:
    """Reads a span; gives what is to be told of it."""
    try:
        salvage.spans.append(read_span(data, scope, resource))
    except Misfit as misfit:
        try:
            salvage.spans.append(read_span_loosely(data, scope, resource))
        except Misfit as nothing:
            return [nothing] if told or not _has_ids(data) else []
        return [misfit] if told else []
    return []


def _has_ids(data: bytes) -> bool:
    """Whether the ids are where every exporter writes them: such a span is looked into no further."""
    usual = data[:2] == b"\x0a\x10" and data[18:20] == b"\x12\x08" and len(data) >= 20 + SPAN_ID_BYTES
    return usual and data[2:18] != bytes(TRACE_ID_BYTES)
