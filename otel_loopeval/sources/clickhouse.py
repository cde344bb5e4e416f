"""ClickHouse with the tables of the Collector's exporter → spans.

One table (``otel_traces``), a span a row, attributes as maps of texts or, in newer tables, as JSON:
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/clickhouseexporter
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from otel_loopeval import semconv
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import (
    read_field,
    read_id,
    read_items,
    read_object,
    read_required_id,
    read_text,
    read_time,
)
from otel_loopeval.runs.spans import SpanData, SpanEvent
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.sources.flat import flat_attributes
from otel_loopeval.sources.http import Client
from otel_loopeval.sources.query import Query
from otel_loopeval.sources.records import MAX_RECORD
from otel_loopeval.sources.typed import typed

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_MAX_RESOURCES = 1000
_ERRORS = frozenset({"Error", "STATUS_CODE_ERROR"})
_LONGEST_TRACE_NS = 7 * 86_400 * 10**9
_SETTINGS = "output_format_json_quote_64bit_integers = 1, output_format_json_validate_utf8 = 1"
_COLUMNS = (
    "TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ResourceAttributes, ScopeName, SpanAttributes, "
    "toUnixTimestamp64Nano(Timestamp) AS Start, Duration, StatusCode, StatusMessage, "
    "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp) AS EventTimes, "
    "Events.Name AS EventNames, Events.Attributes AS EventAttributes"
)


def sql(table: str, query: Query) -> str:
    """The statement that gives the rows of the wanted traces, each trace's together.

    Args:
        table: What follows FROM, as SQL.
        query: Which traces.
    """
    conditions = ["1"]
    if query.since is not None:
        conditions.append(f"began >= fromUnixTimestamp64Nano(toInt64({query.since}))")
    if query.until is not None:
        conditions.append(f"began < fromUnixTimestamp64Nano(toInt64({query.until}))")
    if query.service is not None:
        conditions.append(f"countIf(ServiceName = {_literal(query.service)}) > 0")
    # The table is partitioned by day: what is older than any trace can be need not be looked at.
    earliest = 0 if query.since is None else max(query.since - _LONGEST_TRACE_NS, 0)
    limit = "" if query.limit is None else f" LIMIT {query.limit}"
    recent = f"Timestamp >= fromUnixTimestamp64Nano(toInt64({earliest}))"
    having = " AND ".join(conditions)
    traces = f"TraceId, min(Timestamp) AS began FROM {table} WHERE {recent} GROUP BY TraceId"
    return " ".join(
        (
            f"SELECT {_COLUMNS} FROM {table} WHERE {recent} AND TraceId IN (",  # noqa: S608 - numbers, checked names, quoted texts
            f"SELECT TraceId FROM (SELECT {traces} HAVING {having} ORDER BY began DESC{limit})",  # noqa: S608
            f") ORDER BY TraceId, Timestamp SETTINGS {_SETTINGS} FORMAT JSONEachRow",
        )
    )


def read_clickhouse(location: str, query: Query, report: Reporter) -> Iterator[SpanData]:
    """The spans that a ClickHouse server has, trace by trace.

    Args:
        location: ``clickhouse://user:password@host:port/database?table=otel_traces``; ``clickhouses://`` for
            HTTPS.
        query: Which traces.
        report: Told of each row that is no span.

    Raises:
        SourceError: The server does not answer, or what ``report`` raises.
    """
    scheme, _, rest = location.partition("://")
    secure = scheme in ("clickhouses", "clickhouse+https")
    parts = urlsplit(f"{'https' if secure else 'http'}://{rest}")
    database = _identifier(location, unquote(parts.path.strip("/")) or "default")
    table = _identifier(location, parse_qs(parts.query).get("table", ["otel_traces"])[-1])
    try:
        port = parts.port or (8443 if secure else 8123)
    except ValueError as error:
        raise SourceError(location.rpartition("@")[2], "", f"no address: {error}") from None
    login, at, _ = parts.netloc.rpartition("@")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    client = Client(f"{parts.scheme}://{login}{at}{host}:{port}")
    statement = sql(f"`{database}`.`{table}`", query)
    return _spans(client.lines("/", statement.encode(), MAX_RECORD + 1), client.shown, report)


def read_chdb(location: str, query: Query, report: Reporter) -> Iterator[SpanData]:
    """The spans in ClickHouse data on this machine, with chdb.

    Args:
        location: ``chdb:///path?database=default&table=otel_traces`` for a directory of chdb's, or
            ``chdb:///path/file.parquet`` for a file that ClickHouse can read.
        query: Which traces.
        report: Told of each row that is no span.

    Raises:
        SourceError: It is none, or what ``report`` raises.
    """
    parts = urlsplit(location)
    path = Path(unquote(parts.path))
    options = parse_qs(parts.query)
    database = _identifier(location, options.get("database", ["default"])[-1])
    table = _identifier(location, options.get("table", ["otel_traces"])[-1])
    if not path.exists():
        raise SourceError(location, "", "no such file or directory")
    try:
        from chdb import session  # noqa: PLC0415 - an extra, and half a gigabyte  # type: ignore[import]
    except ImportError:
        raise SourceError(location, "", "chdb is needed: pip install 'otel-loopeval[clickhouse]'") from None
    inside = path.is_dir()
    source = f"`{database}`.`{table}`" if inside else f"file({_literal(str(path.resolve()))})"
    opened: Any = cast("Any", session).Session(str(path) if inside else None)
    try:
        rows = opened.send_query(sql(source, query), "JSONEachRow")
        yield from _spans(_lines(_chunks(rows)), location, report)
    except RuntimeError as error:
        raise SourceError(location, "", " ".join(str(error).split())[:300]) from None
    finally:
        opened.close()


def _chunks(rows: Any) -> Iterator[bytes]:
    for chunk in rows:
        data = chunk.data() if hasattr(chunk, "data") else chunk
        yield data.encode() if isinstance(data, str) else bytes(data)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _spans(lines: Iterable[bytes], source: str, report: Reporter) -> Iterator[SpanData]:
    resources: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield span_of_row(_row(line), resources)
        except Misfit as misfit:
            report(SourceError(source, f"row {number}", str(misfit)))
        if len(resources) > _MAX_RESOURCES:
            resources.clear()


def _row(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_RECORD:
        raise Misfit(f"at most {MAX_RECORD} bytes", line)
    try:
        return read_object(json.loads(line))
    except (ValueError, RecursionError):
        raise Misfit("a row of JSON", line) from None


def span_of_row(row: dict[str, Any], resources: dict[str, dict[str, Any]]) -> SpanData:
    """The span of a row.

    Args:
        row: The row, with the names that :func:`sql` gives its columns.
        resources: The resources of earlier rows, for equal ones to be one mapping.

    Raises:
        Misfit: It is no span.
    """
    start_ns = read_field(row, "Start", read_time)
    service = read_field(row, "ServiceName", read_text)
    resource = read_field(row, "ResourceAttributes", _attributes)
    if service:
        resource.setdefault(semconv.SERVICE_NAME, service)
    return SpanData(
        name=read_field(row, "SpanName", read_text),
        trace_id=read_field(row, "TraceId", lambda text: read_required_id(text, _TRACE_ID_BYTES)),
        span_id=read_field(row, "SpanId", lambda text: read_required_id(text, _SPAN_ID_BYTES)),
        parent_id=read_field(row, "ParentSpanId", lambda text: read_id(text, _SPAN_ID_BYTES)),
        start_ns=start_ns,
        end_ns=start_ns + read_field(row, "Duration", read_time),
        attributes=read_field(row, "SpanAttributes", _attributes),
        events=_events(row),
        error=read_field(row, "StatusCode", read_text) in _ERRORS,
        scope=read_field(row, "ScopeName", read_text),
        resource=resources.setdefault(repr(resource), resource),
        status_message=read_field(row, "StatusMessage", read_text),
    )


def _events(row: dict[str, Any]) -> tuple[SpanEvent, ...]:
    times = read_field(row, "EventTimes", lambda value: read_items(value, read_time))
    names = read_field(row, "EventNames", lambda value: read_items(value, read_text))
    attributes = read_field(row, "EventAttributes", lambda value: read_items(value, _attributes))
    return tuple(
        SpanEvent(name, time_ns, found)
        for name, time_ns, found in zip_longest(names, times, attributes[: len(names)], fillvalue=None)
        if name is not None and time_ns is not None and found is not None
    )


def _attributes(value: Any) -> dict[str, Any]:
    return {
        key: typed(key, item) if isinstance(item, str) else item
        for key, item in flat_attributes(value).items()
    }


def _identifier(location: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        shown = location.rpartition("@")[2]
        raise SourceError(shown, "", f"expected a name of letters, digits and underscores, got {name!r:.60}")
    return name


def _literal(text: str) -> str:
    """A text in SQL: https://clickhouse.com/docs/sql-reference/syntax#string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
