"""``otel-loopeval serve`` under load, beside the Collector: spans and requests a second of one core.

    python tests/benchmarks/bench_serve.py [--seconds 10] [--rounds 3] [--soak 1800]

One process takes OTLP over HTTP and sends it on to a sink; the load and the sink are another process. Large
requests have 1,000 spans of 10 attributes, of which 50 are of agents (in 5 traces, judged); small ones have 6
spans. Every request has traces of its own. A rate is per second of the server's CPU time, all its threads
together, so that it is that of one core whatever else the machine does; beside it is what came through in
wall-clock time. The best and the median of the rounds are told. A run is judged a while after its end: so
each round begins with nothing to judge, and its CPU time is taken once all that it sent has been judged, or
it would pay for what another one had sent. ``--soak`` sends large requests at half that rate and prints the
memory minute by minute.
"""

import argparse
import asyncio
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.backends import MissingError, find
from support.servers import free_ports

CONNECTIONS = 8
JUDGED_S = 3.0  # seconds after which all runs have been judged, with a grace of one
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = resource.getpagesize()

VARIES = (
    "ANOTHER-EACH-ONE"  # in every span, so that nothing which remembers values has it easier than in life
)

HTTP = (
    ("http.request.method", "GET"),
    ("url.path", "/api/items/1234"),
    ("url.scheme", "https"),
    ("server.address", "shop.example.com"),
    ("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64)"),
    ("network.protocol.version", "1.1"),
    ("http.route", "/api/items/{id}"),
    ("client.address", "10.2.3.4"),
    ("http.response.status_code", 200),
    ("server.port", 443),
)
MODEL = (
    ("gen_ai.operation.name", "chat"),
    ("gen_ai.provider.name", "openai"),
    ("gen_ai.request.model", "gpt-4o"),
    ("gen_ai.response.model", "gpt-4o-2024-08-06"),
    ("gen_ai.response.id", f"chatcmpl-{VARIES}"),
    ("gen_ai.conversation.id", VARIES),
    ("server.address", "api.openai.com"),
    ("gen_ai.usage.input_tokens", 1200),
    ("gen_ai.usage.output_tokens", 80),
    ("server.port", 443),
)
TOOL = (
    ("gen_ai.operation.name", "execute_tool"),
    ("gen_ai.tool.name", "search"),
    ("gen_ai.tool.type", "function"),
    ("gen_ai.tool.call.id", f"call_{VARIES}"),
    ("gen_ai.tool.call.arguments", f'{{"query": "{VARIES}"}}'),
    ("gen_ai.tool.call.result", f'{{"found": "{VARIES}"}}'),
    *HTTP[2:6],
)
AGENT = (
    ("gen_ai.operation.name", "invoke_agent"),
    ("gen_ai.agent.name", "writer"),
    ("gen_ai.provider.name", "openai"),
    ("gen_ai.conversation.id", VARIES),
    *HTTP[2:8],
)
LINE = b"\r\n"
LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
Attributes = tuple[tuple[str, str | int], ...]


class Template:
    """A request whose trace ids can be made anew.

    Args:
        traces: How many traces it has.
        agents: How many of them are of agents.
        length: Spans of each.
    """

    def __init__(self, traces: int, agents: int, length: int) -> None:
        self._random = random.Random(7)
        request = ExportTraceServiceRequest()
        marks: list[bytes] = []
        for number in range(traces):
            mark = b"TRACE-ID" + number.to_bytes(8, "big")
            marks.append(mark)
            found = request.resource_spans.add()
            found.resource.attributes.add(key="service.name").value.string_value = "shop"
            is_agent = number * agents // traces != (number - 1) * agents // traces if agents else False
            scope_spans = found.scope_spans.add()
            scope_spans.scope.name = "somebody.genai" if is_agent else "opentelemetry.instrumentation.fastapi"
            root = self._span_id()
            for position in range(1, length):
                name, attributes = self._inner(position) if is_agent else ("GET /api/items/{id}", HTTP)
                span = self._span(scope_spans.spans.add(), mark, name, attributes, position)
                span.parent_span_id = root
            name, attributes = ("invoke_agent writer", AGENT) if is_agent else ("GET /api/items/{id}", HTTP)
            self._span(scope_spans.spans.add(), mark, name, attributes, 0).span_id = root
        self.spans = traces * length
        self._parts = re.split(
            b"(TRACE-ID.{8}|%b)" % VARIES.encode(), request.SerializeToString(), flags=re.DOTALL
        )
        order = {mark: number for number, mark in enumerate(marks)}
        found = self._parts[1::2]
        self._numbers = [order.get(mark) for mark in found]
        assert len(found) - self._numbers.count(None) == self.spans
        self._traces = traces

    def _span_id(self) -> bytes:
        return self._random.getrandbits(64).to_bytes(8, "big")

    def _inner(self, position: int) -> tuple[str, Attributes]:
        return ("chat gpt-4o", MODEL) if position % 2 else ("execute_tool search", TOOL)

    def _span(self, span: Span, trace_id: bytes, name: str, attributes: Attributes, position: int) -> Span:
        span.trace_id, span.span_id, span.name = trace_id, self._span_id(), name
        start = 1_767_323_045_000_000_000 + position * 1_000_000
        span.start_time_unix_nano = start
        span.end_time_unix_nano = start + (900_000 if position else 100_000_000)
        for key, value in attributes:
            target = span.attributes.add(key=key).value
            if isinstance(value, int):
                target.int_value = value
            else:
                target.string_value = value
        return span

    def body(self) -> bytes:
        """A request with new trace ids and values."""
        ids = [self._random.getrandbits(128).to_bytes(16, "big") for _ in range(self._traces)]
        parts = self._parts.copy()
        parts[1::2] = [
            b"%016x" % self._random.getrandbits(64) if number is None else ids[number]
            for number in self._numbers
        ]
        return b"".join(parts)


class Sink(asyncio.Protocol):
    """Takes whatever comes, and says that it is well."""

    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._left = 0
        self._head = b""

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                used = min(self._left, len(data))
                self._left -= used
                data = data[used:]
                if not self._left:
                    self._transport.write(self.ANSWER)  # type: ignore[reportAttributeAccessIssue]
                continue
            head, end, rest = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                self._head = head
                return
            self._head, data = b"", rest
            found = LENGTH.search(head)
            self._left = int(found[1]) if found else 0
            if not self._left:
                self._transport.write(self.ANSWER)  # type: ignore[reportAttributeAccessIssue]


class Sender(asyncio.Protocol):
    """Sends requests one after the other over one connection. Lean, or it would be what is measured.

    Args:
        template: What it sends.
        until: When it ends.
        pause: Seconds from one request to the next; None for none.
    """

    def __init__(self, template: Template, until: float, pause: float | None) -> None:
        self.taken = self.refused = 0
        self.over = asyncio.get_running_loop().create_future()
        self._template = template
        self._until = until
        self._pause = pause
        self._due = time.monotonic()
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.refused += 1
            print(f"the server hung up: {exc}", file=sys.stderr)
            self.over.set_result(None)

    def data_received(self, data: bytes) -> None:
        data = self._answer + data
        head, end, body = data.partition(b"\r\n\r\n")
        found = LENGTH.search(head)
        if not end or len(body) < (int(found[1]) if found else 0):
            self._answer = data
            return
        self._answer = b""
        if head.startswith(b"HTTP/1.1 200"):
            self.taken += 1
        else:
            self.refused += 1
            print(
                f"refused: {head.partition(LINE)[0].decode()}: {body.decode(errors='replace')}",
                file=sys.stderr,
            )
        if self._pause is None:
            self._send()
        else:
            self._due += self._pause
            asyncio.get_running_loop().call_later(max(self._due - time.monotonic(), 0), self._send)

    def _send(self) -> None:
        if time.monotonic() >= self._until:
            self.over.set_result(None)
            self._transport.close()
            return
        body = self._template.body()
        self._transport.writelines(  # type: ignore[reportAttributeAccessIssue]
            (
                b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
                b"content-length: %d\r\n\r\n" % len(body),
                body,
            )
        )


async def load(port: int, template: Template, seconds: float, rate: float | None) -> tuple[int, int]:
    """Send requests; how many were taken, and how many not."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + seconds
    pause = None if rate is None else CONNECTIONS / rate
    senders = [
        (await loop.create_connection(lambda: Sender(template, until, pause), "127.0.0.1", port))[1]
        for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(sender.over for sender in senders))
    return sum(sender.taken for sender in senders), sum(sender.refused for sender in senders)


def cpu_s(pid: int) -> float:
    """CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


@contextmanager
def process(command: list[str], port: int) -> Generator[subprocess.Popen[bytes], None, None]:
    """A server, from when it listens."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with_socket = subprocess.run(
                [sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"],
                stderr=subprocess.DEVNULL,
                check=False,
            )
            if with_socket.returncode == 0:
                break
            time.sleep(0.1)
        yield server
    finally:
        server.kill()  # the sink is in this process, and cannot answer while it waits
        server.wait(60)


def serve_command(port: int, sink: int, grace: str = "1s") -> list[str]:
    """Our server."""
    return [
        *(sys.executable, "-m", "otel_loopeval", "serve", "--http", f"127.0.0.1:{port}", "--grpc", "none"),
        *("--forward", f"http://127.0.0.1:{sink}", "--grace", grace),
    ]


def collector_command(port: int, sink: int, folder: Path) -> list[str]:
    """The Collector, as a forwarder that judges nothing."""
    config = folder / "collector.yaml"
    config.write_text(
        f"""
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters:
  otlp_http:
    {{endpoint: "http://127.0.0.1:{sink}", compression: none, sending_queue: {{enabled: false}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [otlp_http]}}}}
"""
    )
    return [str(find("collector", build=False)), "--config", str(config)]


async def measure(
    name: str,
    command: Callable[[int, int], list[str]],
    templates: dict[str, Template],
    seconds: float,
    rounds: int,
) -> dict[str, list[float]]:
    """Requests per CPU second of a server in each round, by the kind of requests."""
    port, sink_port = free_ports(2)
    sink = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", sink_port)
    rates: dict[str, list[float]] = {kind: [] for kind in templates}
    with process(command(port, sink_port), port) as server:
        for kind, template in templates.items():
            await load(port, template, 1.0, None)
            await asyncio.sleep(JUDGED_S)
            for _ in range(rounds):
                before, began = cpu_s(server.pid), time.monotonic()
                taken, refused = await load(port, template, seconds / rounds, None)
                wall = time.monotonic() - began
                await asyncio.sleep(JUDGED_S)
                used = cpu_s(server.pid) - before
                rates[kind].append(taken / used)
                print(
                    f"{name:10} {kind:6} {taken * template.spans / used:10,.0f} spans/s a core "
                    f"{taken / used:7,.0f} requests/s a core; wall: {taken * template.spans / wall:9,.0f} "
                    f"spans/s, {refused} refused, {memory_mib(server.pid):.0f} MiB",
                    flush=True,
                )
    sink.close()
    return rates


async def soak(template: Template, rate: float, seconds: float) -> None:
    """Print the memory of our server over time, at a rate of requests a second."""
    port, sink_port = free_ports(2)
    sink = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", sink_port)
    with process(serve_command(port, sink_port, grace="10s"), port) as server:
        print(
            f"\nsoak at {rate * template.spans:,.0f} spans/s\nminute    MiB  spans/s  CPU  refused",
            flush=True,
        )
        began = time.monotonic()
        step = min(60.0, max(seconds / 20, 5.0))
        while (gone := time.monotonic() - began) < seconds:
            before, at = cpu_s(server.pid), time.monotonic()
            taken, refused = await load(port, template, min(step, seconds - gone), rate)
            wall = time.monotonic() - at
            used = cpu_s(server.pid) - before
            print(
                f"{(time.monotonic() - began) / 60:6.1f} {memory_mib(server.pid):6.1f} "
                f"{taken / wall * template.spans:8,.0f} {used / wall:4.0%} {refused:8}",
                flush=True,
            )
    sink.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind of requests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    templates = {"large": Template(100, 5, 10), "small": Template(1, 0, 6)}
    rates = {"serve": await measure("serve", serve_command, templates, options.seconds, options.rounds)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            find("collector", build=False)
        except MissingError as error:
            print(f"no Collector: {error}")
        else:
            rates["collector"] = await measure(
                "collector",
                lambda port, sink: collector_command(port, sink, Path(folder)),
                templates,
                options.seconds,
                options.rounds,
            )
    for what, of in (("best", max), ("median", median)):
        print(f"\n{what + ', a core':15} large spans/s  small requests/s")
        for name, found in rates.items():
            large = of(found["large"]) * templates["large"].spans
            print(f"{name:15} {large:13,.0f} {of(found['small']):17,.0f}")
    if options.soak:
        await soak(templates["large"], max(rates["serve"]["large"]) / 2, options.soak)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
