"""Jaeger's query service → spans.

Its API v3 has OTLP, and so every attribute as it was; where it is missing, the API of the user interface is
taken, which has microseconds and texts for lists. https://www.jaegertracing.io/docs/latest/architecture/apis/
"""

from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.documents import spans_of_json
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.sources.http import AnswerTooLongError, Client, NotFoundError
from otel_loopeval.sources.query import Query
from otel_loopeval.sources.windows import Found, Window, newest_first, window_of

_PAGE = 100
_NS_PER_US = 1000

Trace = tuple[SpanData, ...]


def read_jaeger(client: Client, query: Query, report: Reporter) -> Iterator[Trace]:
    """The traces that a Jaeger server has, each whole.

    Raises:
        SourceError: The server does not answer, or what ``report`` raises.
    """
    api = _Api(client)
    services = [query.service] if query.service is not None else api.services()
    seen: set[int] = set()
    for service in services:
        for trace in _of_service(api, service, query, report):
            if trace[0].trace_id not in seen:  # several services may be in one trace
                seen.add(trace[0].trace_id)
                yield trace


def _of_service(api: "_Api", service: str, query: Query, report: Reporter) -> Iterator[Trace]:
    limit = min(_PAGE, query.limit or _PAGE)

    def page(window: Window) -> tuple[list[Found[Trace]], bool]:
        try:
            traces = api.traces(service, window, limit)
        except AnswerTooLongError:
            return [], True
        except Misfit as misfit:
            report(SourceError(api.shown, f"service {service}", str(misfit)))
            return [], False
        found = [Found(trace[0].trace_id, min(one.start_ns for one in trace), trace) for trace in traces]
        return found, len(traces) >= limit

    def cut(window: Window) -> None:
        when = _iso(window.since)
        report(
            SourceError(api.shown, f"service {service}", f"more at {when} than can be asked for: left out")
        )

    found = newest_first(
        window_of(query), page, resolution_ns=_NS_PER_US, all_wanted=query.limit is None, on_cut=cut
    )
    return (one.thing for one in found)


class _Api:
    """The newer API, or the older one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.shown = client.shown
        self._newer = True

    def services(self) -> list[str]:
        """Names of all services.

        Raises:
            SourceError: The server gives none.
        """
        answer = self._client.get_json("/api/services")
        names = cast("dict[str, Any]", answer).get("data") if isinstance(answer, dict) else None
        if names is None and isinstance(answer, dict):
            names = []  # a server without any traces
        if not isinstance(names, list):
            raise SourceError(self.shown, "", "/api/services: no list of services (is this Jaeger?)")
        return [name for name in cast("list[Any]", names) if isinstance(name, str)]

    def traces(self, service: str, window: Window, limit: int) -> list[Trace]:
        """The traces of a service, at most ``limit``.

        Raises:
            SourceError: The server gives none.
            Misfit: What it gives are none.
        """
        if self._newer:
            try:
                return _by_trace(spans_of_json(self._newer_page(service, window, limit)))
            except NotFoundError as error:
                if "No traces found" in error.problem:
                    return []
                self._newer = False
        parameters = [
            ("service", service),
            ("start", window.since // _NS_PER_US),
            ("end", -(-window.until // _NS_PER_US)),
            ("limit", limit),
            ("raw", "true"),  # the times as they were
        ]
        return _by_trace(spans_of_json(self._client.get("/api/traces", parameters)))

    def _newer_page(self, service: str, window: Window, limit: int) -> bytes:
        parameters = [
            ("query.service_name", service),
            ("query.start_time_min", _iso(window.since)),
            ("query.start_time_max", _iso(window.until)),
            ("query.num_traces", limit),
            ("query.raw_traces", "true"),
        ]
        return self._client.get("/api/v3/traces", parameters)


def _by_trace(spans: list[SpanData]) -> list[Trace]:
    key = attrgetter("trace_id")
    return [tuple(group) for _, group in groupby(sorted(spans, key=key), key)]


def _iso(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
