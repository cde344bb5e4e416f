"""Packs: what comes out is what verdicts are made of."""

from typing import Any

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")
pytest.importorskip("pyarrow", reason="the extra [spark] is not installed")

from sources.stored_spans import request
from spark.fleet import Fleet, exported

from otel_loopeval.pricing import prices_of_stored_calls
from otel_loopeval.reports import record_of
from otel_loopeval.runs.reconstruct import replay_trace
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.runs.tracker import Tracker
from otel_loopeval.server.traces.intake import Intake
from otel_loopeval.sources import Query
from otel_loopeval.spark.judging import Judge, Judging
from otel_loopeval.spark.packing import Pack, Packer, unpack
from otel_loopeval.spark.reading import undecoded

TRACE = (7).to_bytes(16, "big")


def span(span_id: int = 1, **changes: Any) -> SpanData:
    fields: dict[str, Any] = {
        "name": "work",
        "trace_id": 7,
        "span_id": span_id,
        "parent_id": None,
        "start_ns": 1,
        "end_ns": 2,
        **changes,
    }
    return SpanData(**fields)


def packs(*spans: SpanData) -> list[Pack]:
    packer = Packer()
    for one in spans:
        packer.add(one)
    return list(packer.take())


def test_a_telling_span_comes_back_as_it_was() -> None:
    whole = span(
        2**64 - 1,
        parent_id=2**63,
        start_ns=2**64 - 1,
        end_ns=2**64 - 1,
        attributes={
            "gen_ai.operation.name": "chat",
            "http.route": "/x",
            "list": ("a", ("b", 1)),
            "map": {"inner": (1, {"x": (2,)})},
            "bytes": b"\x00\xff",
            "none": None,
            "big": 2**63 - 1,
            "small": -(2**63),
            "ratio": 0.1,
            "flag": True,
        },
        events=(SpanEvent("said", 2**64 - 1, {"words": ("a",)}),),
        error=True,
        scope="lib",
        resource={"service.name": "app", "tags": "x"},
        status_message="no",
    )
    (pack,) = packs(whole)
    assert (pack.trace_id, pack.telling, pack.rooted, pack.spans) == (TRACE, True, False, 1)
    assert unpack(TRACE, [pack.payload], 10) == ([whole], False)


def test_types_of_numbers_and_flags_survive() -> None:
    (pack,) = packs(span(attributes={"gen_ai.system": "x", "flag": True, "one": 1, "real": 1.0}))
    ((back,), _) = unpack(TRACE, [pack.payload], 10)
    assert [type(back.attributes[key]) for key in ("flag", "one", "real")] == [bool, int, float]


def test_what_no_verdict_is_made_of_is_left_out_of_other_spans() -> None:
    told = {"http.route": "/x", "db.system": "sqlite", "error.type": "E", "app.order": 3}
    (pack,) = packs(span(attributes=told, parent_id=None))
    ((back,), _) = unpack(TRACE, [pack.payload], 10)
    assert back.attributes == {"error.type": "E", "app.order": 3}
    assert (pack.telling, pack.rooted) == (False, True)


@pytest.mark.parametrize(
    "telling",
    [
        {"name": "evaluation_loop writer"},
        {"name": "goal_loop writer"},
        {"name": "agent_loop writer"},
        {"name": "invoke_agent helper"},
        {"name": "execute_tool search"},
        {"scope": "openinference.instrumentation.langchain"},
        {"attributes": {"gen_ai.request.model": "gpt-4o"}},
        {"attributes": {"openinference.span.kind": "AGENT"}},
        {"attributes": {"traceloop.span.kind": "task"}},
    ],
    ids=str,
)
def test_spans_of_loops_and_agents_are_telling(telling: dict[str, Any]) -> None:
    assert [pack.telling for pack in packs(span(**telling))] == [True]


def test_spans_are_told_apart_by_trace_and_resource() -> None:
    found = packs(
        span(1, trace_id=1, resource={"service.name": "a"}),
        span(2, trace_id=2, resource={"service.name": "b"}),
        span(3, trace_id=1, resource={"service.name": "c"}),
        span(4, trace_id=1, resource={}),
    )
    assert [(pack.trace_id[-1], pack.spans) for pack in found] == [(1, 3), (2, 1)]
    back, _ = unpack(found[0].trace_id, [found[0].payload], 10)
    assert [one.resource for one in back] == [{"service.name": "a"}, {"service.name": "c"}, {}]


def test_the_last_version_of_a_repeated_span_counts_at_its_first_place() -> None:
    first, again = packs(span(1), span(2)), packs(span(1, name="later"))
    back, more = unpack(TRACE, [first[0].payload, again[0].payload], 2)
    assert ([one.name for one in back], [one.span_id for one in back], more) == (
        ["later", "work"],
        [1, 2],
        False,
    )


def test_a_trace_that_is_too_large_is_cut() -> None:
    (pack,) = packs(span(1), span(2), span(3), span(4))
    back, more = unpack(TRACE, [pack.payload], 2)
    assert (len(back), more) == (3, True)


def test_spans_that_repeat_each_other_take_little() -> None:
    told = {"gen_ai.system": "openai", "note": "the same in each " * 20}
    (pack,) = packs(*(span(number, attributes=told) for number in range(1, 51)))
    assert len(pack.payload) < 1000  # of 20,000 as they are


def test_what_msgpack_cannot_say_is_said_as_well_as_it_can() -> None:
    (pack,) = packs(span(attributes={"gen_ai.system": "half \ud800", "huge": 2**70, "list": (-(2**70),)}))
    ((back,), _) = unpack(TRACE, [pack.payload], 10)
    assert back.attributes == {"gen_ai.system": "half \ufffd", "huge": 2.0**70, "list": (-(2.0**70),)}


def test_packed_traces_of_a_fleet_have_the_verdicts_of_whole_ones() -> None:
    verdicts = 0
    for trace in Fleet(seed=3, loops=0.7).traces(60):
        runs = replay_trace(trace, Tracker(price=prices_of_stored_calls()))
        expected = [record_of(run, trace[0].trace_id) for run in runs]
        (pack,) = packs(*trace)
        judged = Judge(Judging()).judge(pack.trace_id, [pack.payload])
        assert judged is not None
        assert judged.records == expected
        verdicts += len(expected)
    assert verdicts > 30


def test_spans_that_nobody_decoded_give_the_same_verdicts() -> None:
    traces = list(Fleet(seed=8, loops=0.6).traces(60))
    packer, intake = Packer(), Intake()
    for body in exported(traces, per_body=300):
        batch = intake.read(request(*body))
        for one in batch.marked:
            packer.add(one)
        for trace_id, others in batch.others.items():
            packer.add_undecoded(undecoded(trace_id, others))
    found = {pack.trace_id: pack for pack in packer.take()}
    verdicts = 0
    for trace in traces:
        pack = found[trace[0].trace_id.to_bytes(16, "big")]
        runs = replay_trace(trace, Tracker(price=prices_of_stored_calls()))
        judged = Judge(Judging()).judge(pack.trace_id, [pack.payload])
        assert judged is not None
        assert judged.records == [record_of(run, trace[0].trace_id) for run in runs]
        assert (pack.spans, pack.rooted, pack.telling) == (len(trace), True, bool(runs))
        verdicts += len(runs)
    assert verdicts > 25


def test_an_undecoded_span_loses_only_what_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    good, bad, none = span(3, name="good"), span(4, name="bad"), span(6, name="none", parent_id=1)
    body = request(good, bad, none).replace(b"bad", b"b\xff\xfe")
    body = body.replace(b"\x22\x08" + (1).to_bytes(8, "big"), b"\x22\x09" + (1).to_bytes(8, "big"))
    packer = Packer()
    packer.add(span(5))
    for trace_id, others in Intake().read(body).others.items():
        packer.add_undecoded(undecoded(trace_id, others))
    (pack,) = packer.take()
    back, more = unpack(TRACE, [pack.payload], 10)
    assert ([(one.span_id, one.name) for one in back], more) == ([(5, "work"), (3, "good"), (4, "")], False)
    assert "skipped a span: " in caplog.text


def test_a_trace_without_a_telling_span_has_no_run() -> None:
    for trace in Fleet(seed=4, loops=0.5).traces(60):
        (pack,) = packs(*trace)
        runs = replay_trace(trace, Tracker())
        assert pack.telling == bool(runs)


def test_judging_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="max_trace_spans must be at least 1, got 0"):
        Judging(max_trace_spans=0)
    with pytest.raises(ValueError, match="limit must be None: a cluster has no first traces, got 3"):
        Judging(query=Query(limit=3))
