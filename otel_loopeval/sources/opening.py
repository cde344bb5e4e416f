"""The one way in: a location → its spans."""

from collections.abc import Callable, Iterator
from itertools import islice
from urllib.parse import parse_qs, urlsplit

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.clickhouse import read_chdb, read_clickhouse
from otel_loopeval.sources.errors import Reporter, SourceError, reporter
from otel_loopeval.sources.files import Progress, read_files, read_standard_input
from otel_loopeval.sources.http import Client
from otel_loopeval.sources.jaeger import read_jaeger
from otel_loopeval.sources.phoenix import read_phoenix
from otel_loopeval.sources.query import Query
from otel_loopeval.sources.tempo import read_tempo


def open_source(
    location: str,
    *,
    query: Query | None = None,
    on_error: Callable[[SourceError], object] | None = None,
    on_progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[SpanData]:
    """The spans at a location, one after the other, in bounded memory.

    Args:
        location: A path, a directory, a glob, ``-`` for standard input, or an address:
            ``jaeger+http(s)://``, ``tempo+http(s)://``, ``phoenix+http(s)://``, ``clickhouse(s)://`` or
            ``chdb:///path``.
        query: Which traces are wanted. Servers are asked for these only; files give all they have, to be
            put together into traces and asked of :meth:`Query.selects`.
        on_error: Called with the error of each part (line, frame, trace, file of several) that cannot be
            read, which then loses only itself. By default the first such part raises.
        on_progress: Called now and then with how much has been read and how much there is (None where that
            is not known): bytes of files, traces of servers.

    Raises:
        SourceError: The location cannot be read at all (whatever ``on_error`` is), or a part of it cannot
            and ``on_error`` is not given.
    """
    report = reporter(on_error)
    query = query if query is not None else Query()
    if location == "-":
        return read_standard_input(report, on_progress)
    scheme, separator, _ = location.partition("://")
    if not separator:
        return read_files(location, report, on_progress)
    if scheme in _CLICKHOUSE:
        return read_clickhouse(location, query, report)
    if scheme == "chdb":
        return read_chdb(location, query, report)
    server, _, transport = scheme.partition("+")
    if server not in _SERVERS or transport not in ("http", "https"):
        raise SourceError(f"{scheme}://", "", f"no such kind of source; there are: {', '.join(_KINDS)}")
    return _served(_SERVERS[server](location.partition("+")[2], query, report), query, on_progress)


def _served(
    traces: Iterator[tuple[SpanData, ...]], query: Query, on_progress: Progress | None
) -> Iterator[SpanData]:
    # Servers may take a time's end as within it, or a trace by any of its spans.
    wanted = (trace for trace in traces if query.selects(trace))
    for count, trace in enumerate(islice(wanted, query.limit), start=1):
        yield from trace
        if on_progress is not None:
            on_progress(count, query.limit)


def _jaeger(address: str, query: Query, report: Reporter) -> Iterator[tuple[SpanData, ...]]:
    return read_jaeger(Client(address), query, report)


def _tempo(address: str, query: Query, report: Reporter) -> Iterator[tuple[SpanData, ...]]:
    return read_tempo(Client(address), query, report)


def _phoenix(address: str, query: Query, report: Reporter) -> Iterator[tuple[SpanData, ...]]:
    project = parse_qs(urlsplit(address).query).get("project", [None])[-1]
    return read_phoenix(Client(address), query, report, project)


_SERVERS = {"jaeger": _jaeger, "tempo": _tempo, "phoenix": _phoenix}
_CLICKHOUSE = ("clickhouse", "clickhouses", "clickhouse+http", "clickhouse+https")
_KINDS = [
    *(f"{name}+http(s)://" for name in _SERVERS),
    "clickhouse(s)://",
    "chdb:///path",
    "a path, a directory, a glob",
    "- for standard input",
]
