"""Arize Phoenix → spans: a list of a project's traces, then their spans.

https://arize.com/docs/phoenix/sdk-api-reference/rest-api/overview. Phoenix keeps no resource: the project
takes the place of the service.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from itertools import chain, islice
from typing import Any, cast
from urllib.parse import quote

from otel_loopeval import semconv
from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import read_array, read_object
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.sources.http import Client, NotFoundError
from otel_loopeval.sources.phoenix_json import read_span
from otel_loopeval.sources.query import Query

_PAGE = 1000
_TRACES = 25  # asked for at once: their ids are in the address

Trace = tuple[SpanData, ...]
_Parameters = list[tuple[str, str | int]]


def read_phoenix(client: Client, query: Query, report: Reporter, project: str | None) -> Iterator[Trace]:
    """The traces that a Phoenix server has, each whole and newest first.

    Args:
        client: The server.
        query: Which traces; its service is a project.
        report: Told of each span that is none.
        project: The one project to read; by default the query's service, or else all.

    Raises:
        SourceError: The server does not answer, or what ``report`` raises.
    """
    project = project or query.service
    projects = dict(_projects(client))
    if project is not None:
        found = {name: key for name, key in projects.items() if project in (name, key)}
        if not found:
            raise SourceError(client.shown, "", f"no project {project!r}; there are: {', '.join(projects)}")
        projects = found
    traces = (_Project(client, name, key, report).traces(query) for name, key in projects.items())
    return chain.from_iterable(traces)


def _projects(client: Client) -> Iterator[tuple[str, str]]:
    """Names and ids: an address cannot hold every name."""
    for page in _pages(client, "/v1/projects", []):
        for found in page:
            project = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            name, key = project.get("name"), project.get("id")
            if isinstance(name, str) and isinstance(key, str):
                yield name, key


class _Project:
    def __init__(self, client: Client, name: str, key: str, report: Reporter) -> None:
        self._client = client
        self._path = f"/v1/projects/{quote(key, safe='')}"
        self._report = report
        self._resource: Mapping[str, Any] = {semconv.SERVICE_NAME: name}

    def traces(self, query: Query) -> Iterator[Trace]:
        """The project's traces."""
        ids = self._trace_ids(query)
        while some := list(islice(ids, _TRACES)):
            spans: defaultdict[int, list[SpanData]] = defaultdict(list)
            for found in _pages(
                self._client, f"{self._path}/spans", [("trace_id", trace_id) for trace_id in some]
            ):
                for span in self._spans(found):
                    spans[span.trace_id].append(span)
            yield from map(tuple, spans.values())

    def _trace_ids(self, query: Query) -> Iterator[str]:
        parameters = _times(query)
        try:
            for page in _pages(self._client, f"{self._path}/traces", parameters):
                for trace in page:
                    found = cast("dict[str, Any]", trace) if isinstance(trace, dict) else {}
                    if isinstance(trace_id := found.get("trace_id"), str):
                        yield trace_id
        except NotFoundError as error:
            if '"Not Found"' not in error.problem:  # no such project
                raise
            yield from self._trace_ids_of_spans(parameters)

    def _trace_ids_of_spans(self, parameters: _Parameters) -> Iterator[str]:
        """As above, from versions that have no list of traces: by their roots."""
        seen: set[str] = set()
        for page in _pages(self._client, f"{self._path}/spans", parameters):
            for span in page:
                context = cast("dict[str, Any]", span).get("context") if isinstance(span, dict) else None
                found = cast("dict[str, Any]", context).get("trace_id") if isinstance(context, dict) else None
                if isinstance(found, str) and found not in seen:
                    seen.add(found)
                    yield found

    def _spans(self, page: list[Any]) -> Iterator[SpanData]:
        for index, found in enumerate(page):
            try:
                yield read_span(read_object(found), self._resource)
            except Misfit as misfit:  # noqa: PERF203 - a span loses only itself
                self._report(SourceError(self._client.shown, f"span {index} of {self._path}", str(misfit)))


def _pages(client: Client, path: str, parameters: _Parameters) -> Iterator[list[Any]]:
    cursor: str | None = None
    while True:
        more: _Parameters = [("cursor", cursor)] if cursor is not None else []
        answer = client.get_json(path, [*parameters, ("limit", _PAGE), *more])
        try:
            body = read_object(answer)
            yield read_array(body.get("data"))
        except Misfit as misfit:
            raise SourceError(client.shown, "", f"{path}: {misfit} (is this Phoenix?)") from None
        following = body.get("next_cursor")
        if not isinstance(following, str) or following == cursor:
            return
        cursor = following


def _times(query: Query) -> _Parameters:
    times: _Parameters = []
    for name, ns in (("start_time", query.since), ("end_time", query.until)):
        if ns is not None:
            # Microseconds; rounded so that none is lost.
            us = ns // 1000 if name == "start_time" else -(-ns // 1000)
            seconds, fraction = divmod(us, 1_000_000)
            moment = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=fraction)
            times.append((name, moment.isoformat()))
    return times
