"""A small server with the part of Tempo's interface that is read, from its documentation.

https://grafana.com/docs/tempo/latest/api_docs/: a search gives the first so many traces with spans in a time,
in no order; a trace is asked for by its id, in protobuf or JSON.
"""

import base64
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sources.stored_spans import request

from otel_loopeval.otlp import trace_line
from otel_loopeval.runs.spans import SpanData

_SECOND_NS = 10**9


class TempoServer:
    """A server on loopback. A context manager.

    Args:
        spans: What it has.
        newer: Whether it has ``/api/v2/traces``.
        protobuf: Whether it heeds the Accept header.

    Attributes:
        address: Where it is.
        searches: The parameters of each search.
        headers: The headers of each request.
    """

    def __init__(self, spans: Sequence[SpanData], *, newer: bool = True, protobuf: bool = True) -> None:
        self.searches: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.headers.append(dict(self.headers))
                parts = urlsplit(self.path)
                parameters = {key: values[-1] for key, values in parse_qs(parts.query).items()}
                if parts.path == "/api/search":
                    outer.searches.append(parameters)
                    self.answer("application/json", json.dumps(search(spans, parameters)).encode())
                    return
                route, _, trace_id = parts.path.rpartition("/")
                found = [one for one in spans if f"{one.trace_id:032x}" == trace_id]
                if not found or route not in ("/api/traces", *(["/api/v2/traces"] if newer else [])):
                    self.send_error(404)
                    return
                wrapped = route == "/api/v2/traces"
                if protobuf and self.headers["Accept"] == "application/protobuf":
                    data = request(*found)
                    self.answer("application/protobuf", field(1, data) + b"\x18\x00" if wrapped else data)
                else:
                    self.answer("application/json", json.dumps(as_json(found, wrapped=wrapped)).encode())

            def answer(self, kind: str, data: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any, **kwargs: Any) -> None:
                """Stays quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "TempoServer":  # noqa: PYI034  # Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def search(spans: Sequence[SpanData], parameters: dict[str, str]) -> dict[str, Any]:
    """The answer to a search: by the one condition that is asked, and by time."""
    start, end = int(parameters["start"]) * _SECOND_NS, int(parameters["end"]) * _SECOND_NS
    wanted = parameters["q"]
    found: dict[int, SpanData] = {}
    for one in spans:
        service = json.dumps(one.resource.get("service.name"))
        matches = wanted in ("{}", f"{{ resource.service.name = {service} }}")
        if matches and one.start_ns < end and one.end_ns >= start:
            found.setdefault(one.trace_id, one)
    traces = [
        # Leading zeros are left out, as Tempo does it.
        {"traceID": f"{key:x}", "startTimeUnixNano": str(one.start_ns), "durationMs": 5}
        for key, one in found.items()
    ]
    return {"traces": traces[: int(parameters["limit"])], "metrics": {"totalBlocks": 1}}


def field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message, with its length."""
    length, size = bytearray(), len(data)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


def as_json(spans: Sequence[SpanData], *, wrapped: bool) -> dict[str, Any]:
    """A trace in JSON, with ids in base64."""
    document = json.loads(trace_line(spans))
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for one in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in one:
                        one[key] = base64.b64encode(bytes.fromhex(one[key])).decode()
    return {"trace": document} if wrapped else {"batches": document["resourceSpans"]}
