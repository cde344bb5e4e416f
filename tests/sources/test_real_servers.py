"""Real servers, filled over OTLP: Jaeger and Phoenix, where they are installed.

Jaeger is the one of ``support.backends``, required in CI. Phoenix is the command ``TEST_PHOENIX``, else the
one in the environment that the end-to-end tests have made, if they have.
"""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, set_span_in_context
from support.backends import need
from support.servers import free_ports

from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources import Query, SourceError, open_source

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

SECOND_NS = 10**9
NOW_NS = time.time_ns() // SECOND_NS * SECOND_NS
TRACES = 230
ATTRIBUTES: dict[str, Any] = {
    "text": "é",
    "count": 3,
    "ratio": 0.5,
    "flag": True,
    "loopeval.health.reasons": ["doom_loop", "not_converged"],
}


def phoenix_command() -> str | None:
    made = sorted(
        (CACHE / "otel-loopeval-ci").glob("phoenix-*/bin/phoenix"), key=lambda path: path.stat().st_mtime
    )
    return os.environ.get("TEST_PHOENIX") or (str(made[-1]) if made else None)


def wait_for(process: "subprocess.Popen[bytes]", address: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"the server did not come up at {address}")


def fill(endpoint: str) -> None:
    """One trace a second, of two spans and two services in turn, each after the one before."""
    providers: list[TracerProvider] = []
    for service in ("writer", "reader"):
        resource = Resource({"service.name": service, "openinference.project.name": service})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=30)
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=4 * TRACES))
        providers.append(provider)
    for number in range(TRACES):
        tracer = providers[number % 2].get_tracer("lib")
        start = NOW_NS - (TRACES - number) * SECOND_NS
        root = tracer.start_span("root", start_time=start, attributes={**ATTRIBUTES, "number": number})
        child = tracer.start_span("child", context=set_span_in_context(root), start_time=start + 1000)
        child.add_event("said", {"word": "hi"}, timestamp=start + 2000)
        child.set_status(Status(StatusCode.ERROR, "no"))
        child.end(start + 3000)
        root.end(start + 5000)
    for provider in providers:
        assert provider.force_flush()
        provider.shutdown()


def started(command: list[str], variables: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        env={**os.environ, **variables},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = need("jaeger")
    query, otlp, *others = free_ports(8)
    folder = tmp_path_factory.mktemp("jaeger")
    (folder / "config.yaml").write_text(
        JAEGER_CONFIG.format(query=query, otlp=otlp, grpc=others[0], health=others[1], metrics=others[2])
    )
    process = started([command, "--config", str(folder / "config.yaml")], {}, folder)
    try:
        wait_for(process, f"http://127.0.0.1:{query}/api/services")
        fill(f"http://127.0.0.1:{otlp}")
        yield f"jaeger+http://127.0.0.1:{query}"
    finally:
        process.terminate()
        process.wait(30)


JAEGER_CONFIG = """
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry:
    metrics: {{level: none}}
extensions:
  healthcheckv2: {{use_v2: true, http: {{endpoint: "127.0.0.1:{health}"}}}}
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{grpc}"}}
  jaeger_storage:
    backends:
      memory: {{memory: {{max_traces: 100000}}}}
receivers:
  otlp:
    protocols:
      http: {{endpoint: "127.0.0.1:{otlp}"}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
"""


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = phoenix_command()
    if command is None:
        pytest.skip("no Phoenix here (this file says how to get it)")
    port, grpc = free_ports(2)
    folder = tmp_path_factory.mktemp("phoenix")
    variables = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    process = started([command, "serve"], variables, folder)
    try:
        wait_for(process, f"http://127.0.0.1:{port}/healthz")
        fill(f"http://127.0.0.1:{port}")
        location = f"phoenix+http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30  # it stores what it took a little later
        while time.monotonic() < deadline and len(list(open_source(location))) < 2 * TRACES:
            time.sleep(0.2)
        yield location
    finally:
        process.terminate()
        process.wait(30)


def by_trace(spans: list[SpanData]) -> dict[int, list[SpanData]]:
    traces: dict[int, list[SpanData]] = {}
    for one in spans:
        traces.setdefault(one.trace_id, []).append(one)
    return traces


def check_all(location: str, *, scope: str, status_message: str) -> None:
    traces = by_trace(list(open_source(location)))
    assert len(traces) == TRACES
    roots: list[SpanData] = []
    for spans in traces.values():
        root, child = sorted(spans, key=lambda one: one.name, reverse=True)
        roots.append(root)
        assert (root.name, root.parent_id, root.error) == ("root", None, False)
        assert (child.name, child.parent_id, child.error) == ("child", root.span_id, True)
        assert (child.start_ns, child.end_ns) == (root.start_ns + 1000, root.start_ns + 3000)
        assert root.end_ns == root.start_ns + 5000
        assert child.status_message == status_message
        (event,) = child.events
        assert (event.name, event.time_ns, event.attributes) == ("said", root.start_ns + 2000, {"word": "hi"})
        assert {root.scope, child.scope} == {scope}
    roots.sort(key=lambda one: one.start_ns)
    for number, root in enumerate(roots):
        assert root.start_ns == NOW_NS - (TRACES - number) * SECOND_NS
        assert root.resource["service.name"] == ("writer", "reader")[number % 2]
        expected = {**ATTRIBUTES, "loopeval.health.reasons": ("doom_loop", "not_converged"), "number": number}
        assert {
            key: value for key, value in root.attributes.items() if key != "openinference.span.kind"
        } == expected


def check_queries(location: str) -> None:
    def numbers(**query: Any) -> list[int]:
        spans = list(open_source(location, query=Query(**query)))
        assert all(len(found) == 2 for found in by_trace(spans).values())
        return sorted(one.attributes["number"] for one in spans if one.name == "root")

    start = NOW_NS - TRACES * SECOND_NS
    assert numbers(service="reader", since=start + 100 * SECOND_NS) == list(range(101, TRACES, 2))
    assert numbers(since=start + 10 * SECOND_NS, until=start + 13 * SECOND_NS) == [10, 11, 12]
    assert numbers(service="writer", limit=3) == [TRACES - 6, TRACES - 4, TRACES - 2]
    assert len(numbers(limit=7)) == 7
    assert numbers(until=start) == []


def test_everything_in_jaeger(jaeger: str):
    check_all(jaeger, scope="lib", status_message="no")


def test_queries_of_jaeger(jaeger: str):
    check_queries(jaeger)
    assert list(open_source(jaeger, query=Query(service="nobody"))) == []


def test_jaegers_older_interface(jaeger: str, tmp_path: Path):
    start = NOW_NS - TRACES * SECOND_NS
    address = f"{jaeger.removeprefix('jaeger+')}/api/traces?service=writer&start={start // 1000}&limit=5"
    file = tmp_path / "saved.json"
    file.write_bytes(urllib.request.urlopen(f"{address}&end={NOW_NS // 1000}").read())
    wanted = by_trace(list(open_source(str(file))))
    assert len(wanted) == 5
    newer = by_trace(list(open_source(jaeger, query=Query(service="writer"))))
    for trace_id, spans in wanted.items():
        assert sorted(spans, key=lambda one: one.span_id) == sorted(
            newer[trace_id], key=lambda one: one.span_id
        )


def test_everything_in_phoenix(phoenix: str):
    check_all(phoenix, scope="", status_message="no")


def test_queries_of_phoenix(phoenix: str):
    check_queries(phoenix)
    with pytest.raises(SourceError, match=r"no project 'nobody'; there are: .*writer"):
        list(open_source(phoenix, query=Query(service="nobody")))
