"""What survives when something on the way breaks: a test for each row of the table in the README there."""

import threading
import time
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from support.otlp import OtlpReceiver
from support.servers import Collector, Jaeger, Prometheus, await_that, free_ports, python_app

APPS = Path(__file__).with_name("apps")
FIRED = 'sum(ALERTS{alertname="LoopDoomLoopFired",alertstate="firing"})'


class Sender:
    """Sends spans one by one, and knows which were taken.

    Args:
        collector: Where to.
        timeout_s: How long the SDK tries.
        scope: Scope of the spans; ours says that they are about loops.

    Attributes:
        taken: Names of the spans that the Collector acknowledged.
        refused: Names of those that it did not.
    """

    def __init__(self, collector: Collector, *, timeout_s: float = 10, scope: str = "otel_loopeval") -> None:
        self._exporter: SpanExporter = OTLPSpanExporter(
            f"http://127.0.0.1:{collector.grpc_port}", insecure=True, timeout=timeout_s
        )
        self._tracer = TracerProvider(resource=Resource({"service.name": "sender"})).get_tracer(scope)
        self.taken: set[str] = set()
        self.refused: set[str] = set()

    def send(self, name: str, **attributes: str) -> None:
        """Send one span."""
        span = self._tracer.start_span(name, attributes=attributes)
        span.end()
        assert isinstance(span, ReadableSpan)
        done = self._exporter.export([span]) is SpanExportResult.SUCCESS
        (self.taken if done else self.refused).add(name)

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


@pytest.fixture
def backend_port() -> int:
    """Where Jaeger is expected, while nothing is there."""
    return free_ports(1)[0]


def names_at(receiver: OtlpReceiver) -> set[str]:
    return {span["name"] for span in receiver.received().spans()}


def watching(collector: Collector, folder: Path) -> Prometheus:
    return Prometheus(folder, {"otel-collector": [f"127.0.0.1:{collector.metrics_port}"]})


def test_collector_killed_under_load(backend_port: int, tmp_path: Path) -> None:
    """Every acknowledged span is there in the end, those sent while Jaeger was away included."""
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{backend_port}") as collector:
        collector.start()
        senders = [Sender(collector, timeout_s=30) for _ in range(4)]
        half_way = threading.Barrier(5)

        def send(number: int) -> None:
            for count in range(200):
                if count == 100:
                    half_way.wait(60)
                senders[number].send(f"span-{number}-{count}")

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        half_way.wait(60)
        collector.kill()
        with OtlpReceiver(backend_port) as receiver:
            collector.start()
            for thread in threads:
                thread.join(120)
            taken = set[str]().union(*(sender.taken for sender in senders))
            await_that(lambda: names_at(receiver) >= taken, "all that was acknowledged")
        for sender in senders:
            sender.close()

    assert len(taken) == 800  # the senders' own retries bridged the gap


def test_collector_killed_while_a_process_lives_and_after_one_has_gone(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    """Counters of the living come back, and are no second alert; those of the gone are gone with it."""
    go_on = tmp_path / "go-on"
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{receiver.grpc_port}") as collector:
        collector.start()
        with watching(collector, tmp_path / "prometheus") as prometheus:
            prometheus.start()
            living = python_app(
                APPS / "on_demand.py",
                {
                    **collector.exporting(),
                    "OTEL_METRIC_EXPORT_INTERVAL": "1000",
                    "OTEL_SERVICE_NAME": "living",
                    "DOOM": "1",
                    "THEN_WAIT_FOR": str(go_on),
                },
                tmp_path / "living.log",
            )
            gone = python_app(
                APPS / "on_demand.py",
                {**collector.exporting(), "OTEL_SERVICE_NAME": "gone"},
                tmp_path / "gone.log",
            )
            assert gone.wait(120) == 0
            one = 'loopeval:doom_loop_fired:increase5m{service_name="living"}'
            runs = 'loopeval_runs_total{service_name="%s"}'
            await_that(
                lambda: prometheus.value(one) == 1 and prometheus.value(runs % "gone") == 1, "both seen"
            )
            collector.kill()
            await_that(lambda: prometheus.value('up{job="otel-collector"}') == 0, "the gap")
            collector.start()
            await_that(lambda: prometheus.value(runs % "living") == 1, "the living is back")
            assert prometheus.value(one) == 1
            assert 'service_name="gone"' not in collector.metrics()
            go_on.touch()
            await_that(lambda: prometheus.value(one) == 2, "the second loop")
            assert living.wait(60) == 0
            assert (
                prometheus.value('sum(loopeval:runs:increase5m{service_name="gone"})') == 1
            )  # it had been seen
        assert names_at(receiver) == {"evaluation_loop writer", "evaluation_loop.iteration"}


def test_collector_killed_while_spans_wait_in_its_sampler(backend_port: int, tmp_path: Path) -> None:
    """Lost for other traffic; what is about loops does not wait there."""
    endpoint = f"127.0.0.1:{backend_port}"
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=endpoint, SAMPLING_PERCENTAGE="100") as collector:
        collector.start(DECISION_WAIT="600s")
        about_loops, others = Sender(collector), Sender(collector, scope="web")
        about_loops.send("run before")
        others.send("request before")
        collector.kill()
        with OtlpReceiver(backend_port) as receiver:
            collector.start(DECISION_WAIT="1s")
            about_loops.send("run after")
            others.send("request after")
            await_that(lambda: len(names_at(receiver)) >= 3, "the spans that are left")
            assert names_at(receiver) == {"run before", "run after", "request after"}
        for sender in (about_loops, others):
            sender.close()


def test_jaeger_is_down_for_a_while(tmp_path: Path) -> None:
    jaeger = Jaeger(tmp_path)
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{jaeger.otlp_port}") as collector, jaeger:
        collector.start()
        sender = Sender(collector)
        for number in range(20):
            sender.send(f"early-{number}")
        collector.stop()  # a restart in between changes nothing
        collector.start()
        for number in range(20):
            sender.send(f"late-{number}")
        jaeger.start()
        found = await_that(
            lambda: found if len(found := jaeger.search("service=sender&limit=100")) >= 40 else None,
            "40 traces",
        )
        sender.close()

    names = {trace["spans"][0]["operationName"] for trace in found}
    assert names == {f"{when}-{number}" for when in ("early", "late") for number in range(20)}


def test_the_queue_on_disk_is_full(
    backend_port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused is told to the program and counted; what was taken arrives; metrics do not care."""
    endpoint = f"127.0.0.1:{backend_port}"
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=endpoint, QUEUE_BYTES="100000") as collector:
        collector.start()
        sender = Sender(collector, timeout_s=0.5)
        for number in range(40):
            sender.send(f"span-{number}", filler="x" * 10_000)
            if len(sender.refused) >= 3:
                break
        assert 3 < len(sender.taken) < 20
        assert "sending queue is full" in caplog.text  # the SDK's words to the program
        caplog.clear()
        assert collector.own_metric("otelcol_exporter_enqueue_failed_spans") >= 3
        app = python_app(
            APPS / "on_demand.py",
            {**collector.exporting(), "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1", "DOOM": "1"},
            tmp_path / "app.log",
        )
        assert app.wait(120) == 0
        assert "loopeval_doom_loop_fired_total{" in collector.metrics()
        with OtlpReceiver(backend_port) as receiver:
            await_that(lambda: names_at(receiver) >= sender.taken, "what was taken")
            sender.send("afterwards")
            await_that(lambda: "afterwards" in names_at(receiver), "room again")
        sender.close()


def test_prometheus_is_down_while_a_process_lives_and_dies(receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Nothing is lost, and the alert comes as soon as Prometheus is back."""
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{receiver.grpc_port}") as collector:
        collector.start()
        with watching(collector, tmp_path / "prometheus") as prometheus:
            prometheus.start()
            await_that(lambda: prometheus.value('up{job="otel-collector"}') == 1, "a scrape")
            prometheus.stop()
            app = python_app(
                APPS / "on_demand.py",
                {**collector.exporting(), "OTEL_SERVICE_NAME": "shop", "RUNS": "3", "DOOM": "1"},
                tmp_path / "app.log",
            )
            assert app.wait(120) == 0
            prometheus.start()
            await_that(lambda: prometheus.value(FIRED) == 1, "the alert")
            prometheus.await_rules()
            assert prometheus.value("sum(loopeval:runs:increase5m)") == 3


def test_a_clock_is_an_hour_fast(tmp_path: Path) -> None:
    """The alert comes in time and its link finds the run, which Jaeger shows an hour late."""
    jaeger = Jaeger(tmp_path)
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{jaeger.otlp_port}") as collector, jaeger:
        jaeger.start()
        collector.start()
        with watching(collector, tmp_path / "prometheus") as prometheus:
            prometheus.start()
            app = python_app(
                APPS / "clock_off.py",
                {**collector.exporting(), "OTEL_SERVICE_NAME": "shop", "DOOM": "1"},
                tmp_path / "app.log",
                instrument=False,  # it does so itself, once its clock is set
            )
            assert app.wait(120) == 0
            await_that(lambda: prometheus.value(FIRED) == 1, "the alert")
            (alert,) = prometheus.alerts()
        link = alert["annotations"]["traces"]
        (trace,) = await_that(lambda: jaeger.search(link.partition("?")[2]), "the run")
        (root,) = (span for span in trace["spans"] if span["operationName"] == "evaluation_loop writer")
        assert root["startTime"] / 1e6 > time.time() + 3_000
