"""Verdicts as they leave: the ``loopeval.verdict`` span, as OTLP protobuf."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_loopeval import semconv
from otel_loopeval.otlp.pairs import encoded_pairs
from otel_loopeval.otlp.parts import (
    build_event,
    build_request,
    build_resource,
    build_resource_spans,
    build_scope_spans,
    build_span,
)
from otel_loopeval.runs.spelling import end_attributes, guard_event, start_attributes
from otel_loopeval.server.served import ServedRun
from otel_loopeval.version import __version__

_UINT64_MAX: Final = 2**64 - 1


def verdict_id(served: ServedRun) -> int:
    """The span id of a run's verdict: the same for the same run, so that a backend keeps one of two.

    The same spans of two tenants are two runs.
    """
    root = served.root
    # The id of a run whose root is missing is made up, and another one each time that it is judged.
    name = f"{served.run.agent}/{served.run.started_ns}" if root is None else f"{root.span_id:016x}"
    if served.tenant:
        name = f"{name}/{served.tenant}"
    digest = hashlib.blake2b(f"{served.trace_id:032x}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def verdict_request(runs: Iterable[ServedRun]) -> bytes:
    """The verdicts of runs as one ``ExportTraceServiceRequest``."""
    by_resource: dict[int, tuple[Mapping[str, Any], list[bytes]]] = {}
    for served in runs:
        resource = served.root.resource if served.root is not None else served.spans[0].resource
        found = by_resource.get(id(resource))
        if found is None:
            found = by_resource[id(resource)] = resource, []
        found[1].append(_span(served))
    return build_request(
        resource_spans=[
            build_resource_spans(
                resource=[build_resource(attributes=encoded_pairs(resource)).SerializeToString()],
                scope_spans=[build_scope_spans(scope=[_SCOPE], spans=spans)],
            )
            for resource, spans in by_resource.values()
        ]
    ).SerializeToString()


_SCOPE: Final = InstrumentationScope(name=semconv.SCOPE, version=__version__).SerializeToString()


def _span(served: ServedRun) -> bytes:
    run, root = served.run, served.root
    ended_ns = max(run.active_ns, run.started_ns)
    told = start_attributes(run) | end_attributes(run, served.verdict)
    # The operation says what a span is, and this one is no run: whoever reads it shall not count it as one.
    del told[semconv.GEN_AI_OPERATION_NAME]
    return build_span(
        trace_id=served.trace_id.to_bytes(16, "big"),
        span_id=verdict_id(served).to_bytes(8, "big"),
        parent_span_id=b"" if root is None else root.span_id.to_bytes(8, "big"),
        name=semconv.SPAN_VERDICT,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=min(run.started_ns, _UINT64_MAX),
        end_time_unix_nano=min(ended_ns, _UINT64_MAX),
        attributes=encoded_pairs(told),
        events=[
            build_event(
                name=semconv.EVENT_GUARD,
                time_unix_nano=event.time_ns or ended_ns,
                attributes=encoded_pairs(guard_event(event)),
            )
            for event in run.guard_events
        ],
    ).SerializeToString()
