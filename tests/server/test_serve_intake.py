"""Reading without decoding gives what reading everything gives, and never fails otherwise."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from server.serve_processes import HEALTHY, Traffic, as_json
from support.foreign_agents import DIALECTS, Dialect

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.dialects.marking import is_marked
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.server.traces.intake import Batch, Group, Intake, find_plainly, ids_of


def all_of(intake: Intake, batch: Batch) -> list[SpanData]:
    """The spans of a batch, decoded, by id."""
    others = [intake.decode(group, data) for _, group, data in each_other(batch)]
    return by_id([*batch.marked, *batch.decoded, *others])


def each_other(batch: Batch) -> list[tuple[bytes, Group, bytes]]:
    """The undecoded spans of a batch, each with the id of its trace and what it shares with others."""
    return [
        (trace_id, group, data)
        for trace_id, found in batch.others.items()
        for group, several in found
        for data in several
    ]


def by_id(spans: list[SpanData]) -> list[SpanData]:
    return sorted(spans, key=lambda span: (span.trace_id, span.span_id, repr(span)))  # ids may repeat


ids8 = st.binary(min_size=8, max_size=8).filter(any)
ids16 = st.sampled_from([b"a" * 16, b"b" * 16]) | st.binary(min_size=16, max_size=16).filter(any)
keys = st.sampled_from(
    ["a", "gen_ai.operation.name", "openinference.span.kind", "agent_name", "url.path", "traceloop.span.kind"]
)
names = st.sampled_from(
    ["GET /", "invoke_agent x", "evaluate", "evaluation_loop w", "evaluation_loop.iteration", "x" * 200]
)
span_parts = st.tuples(ids16, ids8, st.none() | ids8, names, st.lists(st.tuples(keys, st.text()), max_size=4))
scopes = st.sampled_from(["", "fastapi", "openinference.instrumentation.x", "otel_loopeval"])
requests = st.lists(st.tuples(st.text(), scopes, st.lists(span_parts, max_size=5)), max_size=4)


def request_of(parts: Any) -> bytes:
    request = ExportTraceServiceRequest()
    for service, scope, spans in parts:
        found = request.resource_spans.add()
        found.resource.attributes.add(key="service.name").value.string_value = service
        scope_spans = found.scope_spans.add(schema_url="s")
        scope_spans.scope.name = scope
        for trace_id, span_id, parent_id, name, attributes in spans:
            span = scope_spans.spans.add(trace_id=trace_id, span_id=span_id, name=name)
            if parent_id is not None:
                span.parent_span_id = parent_id
                span.trace_state = "a=b"
            for key, value in attributes:
                span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


@given(requests, st.sampled_from([None, find_plainly]))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_and_nothing_of_interest_is_missed(parts: Any, find: Any) -> None:
    intake = Intake(find)
    body = request_of(parts)
    expected = read_request(body)

    batch = intake.read(body)

    assert all_of(intake, batch) == by_id(expected)
    assert batch.total == len(expected)
    assert not batch.decoded  # it was walked
    marked = {(span.trace_id, span.span_id) for span in batch.marked}
    assert marked >= {(span.trace_id, span.span_id) for span in expected if is_marked(span)}
    for trace_id, group, data in each_other(batch):
        span_id, parent_id = ids_of(data)
        span = intake.decode(group, data)
        assert span.trace_id == int.from_bytes(trace_id, "big")
        assert span.span_id == int.from_bytes(span_id, "big")
        assert span.parent_id == (int.from_bytes(parent_id, "big") or None)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("find", [None, find_plainly], ids=["quick", "plain"])
def test_spans_of_agents_are_of_interest_in_every_dialect(dialect: Dialect, find: Any) -> None:
    traffic = Traffic()
    traffic.agent(dialect=dialect, turns=HEALTHY)
    traffic.plain(3)

    batch = Intake(find).read(traffic.body())

    assert len(batch.marked) == 4  # the agent, two turns, a tool
    assert len(each_other(batch)) == 4


def test_json_is_split_the_same_way() -> None:
    traffic = Traffic()
    traffic.agent()
    traffic.plain(3)
    body = traffic.body()
    intake = Intake()

    in_json, in_protobuf = intake.read_json(as_json(body)), intake.read(body)

    assert by_id(in_json.marked) == by_id(in_protobuf.marked)
    assert all_of(intake, in_json) == all_of(intake, in_protobuf)


def test_odd_framing_is_decoded_as_a_whole() -> None:
    """The scope after the spans, and the resource after the scopes: valid, and no exporter writes it."""
    traffic = Traffic()
    traffic.agent()
    request = ExportTraceServiceRequest.FromString(traffic.body())
    resource_spans = request.resource_spans[0]
    resource = (
        b"\x0a" + bytes([resource_spans.resource.ByteSize()]) + resource_spans.resource.SerializeToString()
    )
    del resource_spans.scope_spans[1:]
    resource_spans.ClearField("resource")
    turned = resource_spans.SerializeToString() + resource
    size = len(turned)
    body = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + turned

    batch = Intake().read(body)

    assert by_id([*batch.marked, *batch.decoded]) == by_id(read_request(body)) != []
    assert batch.marked[0].resource["service.name"] == "shop"


@pytest.mark.parametrize(
    ("trace_id", "span_id"), [(b"", b"12345678"), (bytes(16), b"12345678"), (b"1" * 16, b""), (b"1", b"2")]
)
def test_bad_ids_are_refused(trace_id: bytes, span_id: bytes) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=trace_id, span_id=span_id)
    with pytest.raises(Misfit):
        Intake().read(request.SerializeToString())


WHOLE = Traffic()
WHOLE.agent()
WHOLE.plain(5)
BODY = WHOLE.body()


@given(st.integers(0, len(BODY)), st.integers(0, len(BODY)), st.binary(max_size=30))
@settings(max_examples=400, deadline=None)
def test_damaged_bodies_are_read_or_refused(start: int, end: int, instead: bytes) -> None:
    body = BODY[:start] + instead + BODY[end:]
    intake = Intake()
    try:
        batch = intake.read(body)
    except Misfit:
        with pytest.raises(Misfit):  # and so does the reader of the whole
            read_request(body)
        return
    for _, group, data in each_other(batch):
        assert len(ids_of(data)[0]) == 8
        try:
            intake.decode(group, data)
        except Misfit:
            continue


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (Intake().read, Intake().read_json):
        try:
            count = read(body).total
        except Misfit:
            continue
        assert count >= 0
