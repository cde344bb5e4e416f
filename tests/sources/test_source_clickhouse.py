"""The tables of the Collector's ClickHouse exporter, in a real ClickHouse: chdb, also behind HTTP.

The tables are made as the exporter makes them (its ``internal/sqltemplates``), less codecs and indices.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sources.stored_spans import read_all

from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources import Query, SourceError, open_source

session: Any = pytest.importorskip(
    "chdb.session", reason="chdb is not installed (the clickhouse extra, half a gigabyte)"
)

TRACE_ID = "5b8efff798038103d269b633813fc60c"
TABLE = """
CREATE TABLE {name} (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes {map}, ScopeName String, ScopeVersion String, SpanAttributes {map}, Duration UInt64,
    StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes {map}),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes {map})
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
"""
MAP = "Map(LowCardinality(String), String)"
ROW = """
INSERT INTO {name} VALUES ('{time}', '{trace}', '{span}', '{parent}', '', 'it''s', 'Internal', '{service}',
    {resource}, 'lib', '1', {attributes}, 1500, 'Error', 'no',
    ['2026-01-02 03:04:05.5'], ['said'], [{event}], [], [], [], [])
"""
TEXTS = {
    "resource": "{'service.name':'app','host':'h'}",
    "attributes": "{'loopeval.run.threshold':'8.5','loopeval.health.reasons':'[\"x\"]','n':'5','t':'a\"b'}",
    "event": "{'loopeval.guard.doom_loop':'true'}",
}
OBJECTS = {
    "resource": '\'{"service.name":"app","host":"h"}\'',
    "attributes": (
        '\'{"loopeval":{"run":{"threshold":8.5},"health":{"reasons":["x"]}},"n":"5","t":"a\\\\"b"}\''
    ),
    "event": '\'{"loopeval":{"guard":{"doom_loop":true}}}\'',
}


def row(name: str, values: dict[str, str], **changes: str) -> str:
    fields = {
        "name": name,
        "time": "2026-01-02 03:04:05.123456789",
        "trace": TRACE_ID,
        "span": "eee19b7ec3c1b174",
        "parent": "",
        "service": "app",
        **values,
    }
    return ROW.format(**{**fields, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clickhouse")
    opened = session.Session(str(folder))
    opened.query("SET allow_experimental_json_type = 1")
    opened.query(TABLE.format(name="otel_traces", map=MAP))
    opened.query(TABLE.format(name="with_objects", map="JSON"))
    opened.query(row("otel_traces", TEXTS))
    opened.query(row("with_objects", OBJECTS))
    opened.query(TABLE.format(name="many", map=MAP))
    for day in range(1, 6):
        for part, parent in (("1", ""), ("2", "000000000000000a")):
            opened.query(
                row(
                    "many",
                    TEXTS,
                    time=f"2026-01-0{day} 0{part}:00:00",
                    trace=f"{day:032x}",
                    span=f"{day}{part}".rjust(16, "0"),
                    parent=parent,
                    service="app" if part == "1" else f"it\\'s {day}",
                )
            )
    opened.query(TABLE.format(name="broken", map=MAP))
    opened.query(row("broken", TEXTS, span="xyz"))
    opened.query(row("broken", TEXTS, trace="1" * 32))
    opened.close()
    return folder


class Server:
    """ClickHouse's HTTP interface over chdb: a statement in a POST, rows or an error in the answer."""

    def __init__(self, data: Path) -> None:
        opened = session.Session(str(data))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                statement = self.rfile.read(int(self.headers["Content-Length"])).decode()
                try:
                    status, answer = 200, bytes(opened.query(statement, "JSONEachRow").bytes())
                except RuntimeError as error:
                    status, answer = 404, str(error).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any, **kwargs: Any) -> None:
                """Stays quiet."""

        self._session = opened
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._session.close()


@pytest.fixture(params=["chdb", "http"])
def location(request: pytest.FixtureRequest, data: Path) -> Iterator[str]:
    if request.param == "chdb":
        yield f"chdb://{data}?database=default"
        return
    server = Server(data)
    yield f"clickhouse://{server.address}/default?"
    server.close()


EXPECTED = SpanData(
    name="it's",
    trace_id=int(TRACE_ID, 16),
    span_id=0xEEE19B7EC3C1B174,
    parent_id=None,
    start_ns=1767323045123456789,
    end_ns=1767323045123458289,
    attributes={"loopeval.run.threshold": 8.5, "loopeval.health.reasons": ("x",), "n": "5", "t": 'a"b'},
    events=(SpanEvent("said", 1767323045500000000, {"loopeval.guard.doom_loop": True}),),
    error=True,
    scope="lib",
    resource={"service.name": "app", "host": "h"},
    status_message="no",
)


@pytest.mark.parametrize("table", ["otel_traces", "with_objects"])
def test_a_span_with_what_its_texts_mean(table: str, location: str):
    assert read_all(f"{location}&table={table}") == ([EXPECTED], [])


DAY_NS = 86_400 * 10**9
FIRST_NS = 1767225600 * 10**9  # 2026-01-01
QUERIES: list[tuple[Query, list[int]]] = [
    (Query(), [1, 2, 3, 4, 5]),
    (Query(limit=2), [4, 5]),
    (Query(since=FIRST_NS + DAY_NS), [2, 3, 4, 5]),
    # The second span of the first day's trace is in this time; its trace is not.
    (Query(since=FIRST_NS + 3600 * 10**9 + 1, until=FIRST_NS + 2 * DAY_NS), [2]),
    (Query(service="it's 3"), [3]),
    (Query(service="' OR 1 --"), []),
    (Query(service="\\"), []),
]


@pytest.mark.parametrize(("query", "days"), QUERIES)
def test_whole_traces_by_time_service_and_number(query: Query, days: list[int], location: str):
    found = list(open_source(f"{location}&table=many", query=query))
    assert [one.trace_id for one in found] == [day for day in days for _ in (1, 2)]


def test_a_row_that_is_no_span_loses_only_itself(location: str):
    spans, errors = read_all(f"{location}&table=broken")
    assert [one.trace_id for one in spans] == [int("1" * 32, 16)]
    (error,) = errors
    assert error.endswith("row 2: SpanId: expected 16 hexadecimal digits, got 'xyz'")


def test_a_table_that_is_not_there(location: str):
    with pytest.raises(SourceError, match="Unknown table expression identifier"):
        list(open_source(f"{location}&table=none"))


def test_a_file_that_clickhouse_reads(data: Path, tmp_path: Path):
    opened = session.Session(str(data))
    opened.query(f"SELECT * FROM otel_traces INTO OUTFILE '{tmp_path}/spans.parquet' FORMAT Parquet")
    opened.close()
    assert read_all(f"chdb://{tmp_path}/spans.parquet") == ([EXPECTED], [])
