"""Programs whose telemetry goes nowhere: none is set up, or the endpoint does not answer."""

import socket
import sys
from pathlib import Path

import pytest
from lifecycle_programs import Ended, Program

pytestmark = pytest.mark.e2e

WORK = """
import time
from otel_loopeval import EvaluationLoop, iteration, loop
def agent(prompt):
    time.sleep(0.001)
    return "answer"
def work(runs):
    began = time.perf_counter()
    for _ in range(runs):
        assert EvaluationLoop(agent, "", metric=lambda _: 9).run("prompt").success
        with loop("writer"), iteration() as it:
            it.score = 9.0
    print(f"{time.perf_counter() - began:.3f}")
"""


def test_without_any_provider(tmp_path: Path) -> None:
    source = WORK + "from otel_loopeval import instrument; instrument(); work(2)"
    ended = Program(source, tmp_path).ended()
    assert ended.status == 0, ended.stderr
    lines = [line.rsplit(",", 1)[0] for line in ended.stderr.splitlines()]
    assert (
        lines
        == [
            "loopeval: HEALTHY agent [optimize] 1 iteration(s), best 9 of 8",
            "loopeval: HEALTHY writer [optimize] 1 iteration(s), best 9 of 8",
        ]
        * 2
    )


def test_with_the_sdk_switched_off(tmp_path: Path) -> None:
    source = "telemetry()\n" + WORK + "from otel_loopeval import instrument; instrument(); work(2)"
    ended = Program(source, tmp_path, OTEL_SDK_DISABLED="true").ended()
    assert ended.status == 0, ended.stderr
    assert ended.records == []


def test_a_provider_that_is_set_after_instrument(tmp_path: Path) -> None:
    source = WORK + "from otel_loopeval import instrument; instrument()\ntelemetry()\nwork(2)"
    ended = Program(source, tmp_path).ended()
    assert (ended.status, ended.stderr) == (0, "")
    assert len(ended.spans("evaluation_loop writer")) == 2
    assert list(ended.counted().values()) == [4]


ENDPOINT_DOWN = (
    """
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=1), schedule_delay_millis=50))
trace.set_tracer_provider(provider)
reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=1), export_interval_millis=50)
metrics.set_meter_provider(MeterProvider([reader]))
"""
    + WORK
)

SPANS_OF_THE_PROGRAMS_OWN = """
tracer = trace.get_tracer("program")
counter = metrics.get_meter("program").create_counter("runs")
for _ in range(200):
    with tracer.start_as_current_span("run"), tracer.start_as_current_span("iteration"):
        counter.add(1)
"""


@pytest.fixture
def closed_port() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_an_endpoint_that_is_down(tmp_path: Path, closed_port: str) -> None:
    """Neither the loops nor the exit take longer than in a program with spans and metrics of its own."""

    def run(name: str, source: str) -> Ended:
        folder = tmp_path / name
        folder.mkdir()
        ended = Program(source, folder, sys.executable, OTEL_EXPORTER_OTLP_ENDPOINT=closed_port).ended()
        assert ended.status == 0, ended.stderr
        return ended

    quiet = run("quiet", WORK + "work(100)")
    own = run("own", ENDPOINT_DOWN + SPANS_OF_THE_PROGRAMS_OWN)
    ours = run("ours", ENDPOINT_DOWN + "from otel_loopeval import instrument; instrument(); work(100)")
    seconds_of_work = float(ours.stdout) - float(quiet.stdout)
    assert seconds_of_work < 1.0
    assert ours.seconds - seconds_of_work < own.seconds + 3.0
