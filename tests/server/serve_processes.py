"""``otel-loopeval serve`` as a process, a next hop for it, and traces to send to it."""

import base64
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.foreign_agents import GENAI, Call, Dialect, Foreign, Turn

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.spans import SpanData

PROTOBUF = {"content-type": "application/x-protobuf"}
PATIENCE_S = 30.0


class Sink:
    """A next hop: keeps what it gets, and answers as it is told. A context manager.

    Attributes:
        requests: Path, headers and body of each request that it took.
        status: What it answers.
        headers: Headers of its answer.
        answer: Body of its answer.
        delay_s: Seconds that it takes for it.
        asked: How many requests have come.

    Args:
        port: Where it listens; any by default.
    """

    def __init__(self, port: int = 0) -> None:
        self.delay_s = 0.0
        self.asked = 0
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.answer = b""
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
                pass

            def setup(self) -> None:
                super().setup()
                sink._connections.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                sink.asked += 1
                time.sleep(sink.delay_s)
                if sink.status == 200:
                    sink.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(sink.status)
                for name, value in {**sink.headers, "content-length": str(len(sink.answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sink.answer)

        self._connections: list[socket.socket] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Sink":  # noqa: PYI034  # Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:  # they would be served for as long as they are open
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def verdicts(self) -> list[SpanData]:
        """The verdict spans that it got."""
        return [
            span
            for path, _, body in list(self.requests)
            if path == "/v1/traces" and b"loopeval.verdict" in body
            for span in read_request(body)
            if span.name == "loopeval.verdict"
        ]


class Serve:
    """The command as a process.

    Attributes:
        port: Where it takes HTTP.
        grpc: Where it takes gRPC; 0 for nowhere.
        lines: What it said on standard error.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        grpc: bool = False,
        grpc_port: int = 0,
        http: str = "127.0.0.1:0",
        before: Sequence[str] = (),
    ) -> None:
        command = [*before, sys.executable, "-m", "otel_loopeval", "serve", "--http", http]
        command += ["--grpc", f"127.0.0.1:{grpc_port}" if grpc or grpc_port else "none", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=cwd)
        self.lines: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(
                r"listening at https?://[0-9.:\[\]]*?:(\d+)(?:, gRPC at 127\.0\.0\.1:(\d+))?$", line
            )
            if found:
                self.port, self.grpc = int(found[1]), int(found[2] or 0)
                break
        else:
            raise AssertionError("".join(self.lines))
        self._reader = threading.Thread(
            target=lambda: self.lines.extend(self.process.stderr or ()), daemon=True
        )
        self._reader.start()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def send(self, body: bytes, **headers: str) -> int:
        """Send traces; the status of the answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/v1/traces", body, {**PROTOBUF, **given})[0]

    def metrics(self, **headers: str) -> dict[str, float]:
        """The metrics, by name and labels."""
        text = self.request("GET", "/metrics", headers=headers)[2].decode()
        samples = (line.rpartition(" ") for line in text.split("\n") if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end, and wait until it has."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status


@contextmanager
def serving(
    *arguments: str, cwd: Path, grpc: bool = False, http: str = "127.0.0.1:0", before: Sequence[str] = ()
) -> Generator[Serve, None, None]:
    """The command as a process, ended at the end."""
    server = Serve(*arguments, cwd=cwd, grpc=grpc, http=http, before=before)
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)
        assert server.process.stderr is not None
        server.process.stderr.close()


def await_that(look: Callable[[], Any], what: str) -> Any:
    """Wait until ``look`` finds something."""
    until = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < until, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return found


class Traffic:
    """Records what agents do, as request bodies."""

    def __init__(self, service: str = "shop") -> None:
        self.exporter = InMemorySpanExporter()
        resource = Resource(
            {"service.name": service, "service.version": "7", "deployment.environment.name": "test"}
        )
        self.provider = TracerProvider(resource=resource)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def agent(
        self, name: str = "writer", *, dialect: Dialect = GENAI, turns: Iterable[Turn] | None = None
    ) -> None:
        """An agent inside of a request of its service."""
        agent = Foreign(self.provider, dialect)
        with self.provider.get_tracer("fastapi").start_as_current_span("POST /chat"), agent.agent(name):
            agent.turns(*(HEALTHY if turns is None else turns))

    def plain(self, count: int = 10) -> None:
        """Requests without agents."""
        tracer = self.provider.get_tracer("fastapi")
        for number in range(count):
            with tracer.start_as_current_span("GET /items", attributes={"url.path": f"/items/{number}"}):
                pass

    def taken(self) -> list[bytes]:
        """One request for each span so far, which are then forgotten."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        return [encode_spans([span]).SerializeToString() for span in spans]

    def body(self) -> bytes:
        """One request for all spans so far, which are then forgotten."""
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        return encode_spans(spans).SerializeToString()


HEALTHY = (Turn(calls=(Call("search", {"q": "a"}, "found"),)), Turn("done"))
STUCK = (*(Turn(calls=(Call("search", {"q": "a"}, "nothing"),)) for _ in range(12)), Turn("gave up"))


def merged(bodies: Iterable[bytes]) -> bytes:
    """Requests as one: of messages, the bytes of one after the other are their sum."""
    return b"".join(bodies)


def as_json(body: bytes) -> bytes:
    """A request as OTLP/JSON."""
    document = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return json.dumps(document).encode()


def sends(port: int, body: bytes) -> bool:
    """Whether a body of traces is taken."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/v1/traces", body, PROTOBUF)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
