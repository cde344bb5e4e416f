"""Grafana Tempo → spans: a search for traces, then each of them whole.

https://grafana.com/docs/tempo/latest/api_docs/
"""

import json
from collections.abc import Iterator
from typing import Any, cast

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.protobuf import read_request, read_tempo_trace
from otel_loopeval.otlp.values import read_time
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources.documents import spans_of_json
from otel_loopeval.sources.errors import Reporter, SourceError
from otel_loopeval.sources.http import Client, NotFoundError
from otel_loopeval.sources.query import Query
from otel_loopeval.sources.windows import Found, Window, newest_first, window_of

_PAGE = 100
_SECOND_NS = 10**9
_DAY_NS = 86_400 * _SECOND_NS
_PROTOBUF = "application/protobuf"
_HEX = frozenset("0123456789abcdefABCDEF")
_TRACE_DIGITS = 32

Trace = tuple[SpanData, ...]


def read_tempo(client: Client, query: Query, report: Reporter) -> Iterator[Trace]:
    """The traces that a Tempo server has, each whole.

    Raises:
        SourceError: The server does not answer, or what ``report`` raises.
    """
    reader = _Traces(client)
    for trace_id in _found(client, query, report):
        try:
            spans = reader.read(trace_id)
        except (NotFoundError, Misfit) as error:
            problem = error.problem if isinstance(error, SourceError) else str(error)
            report(SourceError(client.shown, f"trace {trace_id}", problem))
            continue
        if spans:
            yield tuple(spans)


def _found(client: Client, query: Query, report: Reporter) -> Iterator[str]:
    limit = min(_PAGE, query.limit or _PAGE)
    wanted = "{}" if query.service is None else f"{{ resource.service.name = {json.dumps(query.service)} }}"

    def page(window: Window) -> tuple[list[Found[str]], bool]:
        start, end = window.since // _SECOND_NS, -(-window.until // _SECOND_NS)
        parameters = [("q", wanted), ("limit", limit), ("spss", 1), ("start", start), ("end", end)]
        found = _listed(client, client.get_json("/api/search", parameters))
        return found, len(found) >= limit

    def cut(window: Window) -> None:
        when = f"second {window.since // _SECOND_NS}"
        report(SourceError(client.shown, when, f"more than {limit} traces: the others are left out"))

    whole = window_of(query)
    seen: set[str] = set()
    # A search over more than a day may be refused (the server's max_duration is 7 days by default).
    until = whole.until
    while until > whole.since:
        since = max(until - _DAY_NS, whole.since)
        for found in newest_first(
            Window(since, until),
            page,
            resolution_ns=_SECOND_NS,
            all_wanted=query.limit is None,
            on_cut=cut,
        ):
            if found.thing not in seen:
                seen.add(found.thing)
                yield found.thing
        until = since


def _listed(client: Client, answer: Any) -> list[Found[str]]:
    traces = cast("dict[str, Any]", answer).get("traces", []) if isinstance(answer, dict) else None
    if not isinstance(traces, list):
        raise SourceError(client.shown, "", "/api/search: no list of traces (is this Tempo?)")
    listed: list[Found[str]] = []
    for trace in cast("list[Any]", traces):
        fields = cast("dict[str, Any]", trace) if isinstance(trace, dict) else {}
        found = fields.get("traceID")
        # It becomes part of an address.
        if not isinstance(found, str) or not 0 < len(found) <= _TRACE_DIGITS or not _HEX.issuperset(found):
            raise SourceError(client.shown, "", f"/api/search: expected a trace id, got {found!r:.60}")
        trace_id = found.rjust(_TRACE_DIGITS, "0")
        try:
            began_ns = read_time(fields.get("startTimeUnixNano"))
        except Misfit as misfit:
            raise SourceError(client.shown, f"trace {trace_id}", f"startTimeUnixNano: {misfit}") from None
        listed.append(Found(trace_id, began_ns, trace_id))
    return listed


class _Traces:
    """One trace after the other, from the newer API where there is one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._newer: bool | None = None  # not known yet

    def read(self, trace_id: str) -> list[SpanData]:
        """The spans of a trace.

        Raises:
            NotFoundError: The server has no such trace.
            SourceError: It does not answer.
            Misfit: What it answers is none.
        """
        if self._newer is not False:
            try:
                data = self._client.get(f"/api/v2/traces/{trace_id}", accept=_PROTOBUF)
            except NotFoundError:
                if self._newer:
                    raise
            else:
                self._newer = True
                return spans_of_json(data) if data[:1] == b"{" else read_tempo_trace(data)
        data = self._client.get(f"/api/traces/{trace_id}", accept=_PROTOBUF)
        self._newer = False
        return spans_of_json(data) if data[:1] == b"{" else read_request(data)
