"""Tempo, as a small server that follows its documentation (the real one cannot be had as a package)."""

import pytest
from sources.stored_spans import START_NS, read_all, span
from sources.tempo_server import TempoServer

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources import Query, SourceError, open_source

SECOND_NS = 10**9
UNTIL = START_NS + 3600 * SECOND_NS


def trace(number: int, service: str = "app", start_ns: int = START_NS) -> list[SpanData]:
    return [
        span(
            index,
            trace_id=number,
            parent_id=None if index == 1 else 1,
            start_ns=start_ns + index,
            end_ns=start_ns + 100 + index,
            resource={"service.name": service},
        )
        for index in (1, 2)
    ]


def ids(server: TempoServer, query: Query) -> list[int]:
    found = list(open_source(f"tempo+http://{server.address}", query=query))
    keys = [found[index].trace_id for index in range(0, len(found), 2)]
    assert [one.trace_id for one in found] == [key for key in keys for _ in (1, 2)], "whole traces"
    return keys


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize("protobuf", [True, False])
def test_traces_are_found_and_read_whole(newer: bool, protobuf: bool):
    spans = [*trace(1), *trace(2**127 + 5)]
    with TempoServer(spans, newer=newer, protobuf=protobuf) as server:
        found = list(open_source(f"tempo+http://{server.address}", query=Query(since=START_NS, until=UNTIL)))
    assert sorted(found, key=lambda one: (one.trace_id, one.span_id)) == spans


def test_only_a_services_traces_are_asked_for():
    with TempoServer([*trace(1), *trace(2, 'the "other"')]) as server:
        query = Query(service='the "other"', since=START_NS, until=UNTIL)
        assert ids(server, query) == [2]
        assert server.searches[0]["q"] == '{ resource.service.name = "the \\"other\\"" }'


def test_more_traces_than_one_search_gives_are_found_by_time():
    spans = [one for n in range(1, 351) for one in trace(n, start_ns=START_NS + n * SECOND_NS)]
    with TempoServer(spans) as server:
        assert sorted(ids(server, Query(since=START_NS, until=UNTIL))) == list(range(1, 351))
        assert {search["limit"] for search in server.searches} == {"100"}


def test_a_limit_takes_the_newest():
    spans = [one for n in range(1, 31) for one in trace(n, start_ns=START_NS + n * SECOND_NS)]
    with TempoServer(spans) as server:
        assert ids(server, Query(since=START_NS, until=UNTIL, limit=7)) == [30, 29, 28, 27, 26, 25, 24]
        assert server.searches[0]["limit"] == "7"


def test_longer_times_are_asked_for_by_the_day_from_the_newest_on():
    day = 86_400 * SECOND_NS
    spans = [one for n in range(3) for one in trace(n + 1, start_ns=START_NS + n * day)]
    with TempoServer(spans) as server:
        query = Query(since=START_NS - day // 2, until=START_NS + 3 * day)
        assert ids(server, query) == [3, 2, 1]
        times = [(int(search["start"]), int(search["end"])) for search in server.searches]
    assert all(end - start <= 86_401 for start, end in times)
    assert times == sorted(times, reverse=True)


def test_what_cannot_be_told_apart_by_time_is_told():
    spans = [one for n in range(1, 150) for one in trace(n)]
    second = START_NS // SECOND_NS
    with TempoServer(spans) as server:
        errors: list[SourceError] = []
        query = Query(since=second * SECOND_NS, until=(second + 1) * SECOND_NS)
        found = list(open_source(f"tempo+http://{server.address}", query=query, on_error=errors.append))
    assert len({one.trace_id for one in found}) == 100
    assert [str(error) for error in errors] == [
        f"http://{server.address}, second {second}: more than 100 traces: the others are left out"
    ]


def test_a_server_without_traces():
    with TempoServer([]) as server:
        assert read_all(f"tempo+http://{server.address}") == ([], [])
