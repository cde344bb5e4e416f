"""The one way in: a location → its spans."""

from collections.abc import Callable, Iterator

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.errors import SourceError, reporter
from otel_loopeval.sources.files import read_files, read_standard_input
from otel_loopeval.sources.query import Query


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
    _ = query
    if location == "-":
        return read_standard_input(report, on_progress)
    return read_files(location, report, on_progress)
