"""What the Collector makes of metrics: processes stay apart, labels fit the rules, spans can stand in."""

import re
from pathlib import Path

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from support import name_table
from support.otlp import OtlpReceiver
from support.servers import (
    COLLECTOR_CONFIG,
    OTLP_METRICS_CONFIG,
    PROMETHEUS_CONFIG,
    REMOTE_WRITE_CONFIG,
    SPANS_ONLY_CONFIG,
    Collector,
    Prometheus,
    await_that,
    free_ports,
    python_app,
)

from otel_loopeval import instrument, iteration, loop, semconv

APP = Path(__file__).with_name("apps") / "on_demand.py"
UNITS = {value.name: value.unit for value in vars(semconv).values() if isinstance(value, semconv.Metric)}
LABELS = {value.replace(".", "_") for value in vars(semconv).values() if isinstance(value, str)}
LINE = re.compile(r"(?P<name>\w+){(?P<labels>.*?)} (?P<value>\S+)(?: # {(?P<exemplar>.*?)} .*)?$")

Sample = tuple[dict[str, str], float, dict[str, str]]


def pairs(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="(.*?)"', text))


def samples(page: str, name: str) -> list[Sample]:
    """Labels, value and exemplar of each series of a name."""
    found = [match for line in page.splitlines() if (match := LINE.match(line)) and match["name"] == name]
    return [
        (pairs(match["labels"]), float(match["value"]), pairs(match["exemplar"] or "")) for match in found
    ]


def total(page: str, name: str) -> float:
    return sum(value for _, value, _ in samples(page, name))


def run_apps(collector: Collector, tmp_path: Path, number: int = 1, **variables: str) -> None:
    """Run the program, several times at once, until all have ended."""
    settings = {
        **collector.exporting(),
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_RESOURCE_ATTRIBUTES": "service.version=7,deployment.environment=prod",
        **variables,
    }
    processes = [python_app(APP, settings, tmp_path / f"app{index}.log") for index in range(number)]
    assert [process.wait(120) for process in processes] == [0] * number


def test_eight_processes_of_one_service_add_up(receiver: OtlpReceiver, tmp_path: Path) -> None:
    with Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{receiver.grpc_port}") as collector:
        collector.start()
        run_apps(collector, tmp_path, number=8, RUNS="3", DOOM="1")
        page = collector.metrics()

    runs = samples(page, "loopeval_runs_total")
    assert total(page, "loopeval_runs_total") == 24
    assert total(page, "loopeval_doom_loop_fired_total") == 8
    assert total(page, "loopeval_iterations_total") == 48
    assert total(page, "loopeval_run_iterations_count") == 24
    assert len({labels["service_instance_id"] for labels, _, _ in runs}) == 8
    labels, _, exemplar = samples(page, "loopeval_doom_loop_fired_total")[0]
    assert int(labels.pop("loopeval_since")) > 1_700_000_000_000
    assert labels.pop("service_instance_id") == labels.pop("instance")
    assert labels == {
        "job": "shop",
        "service_name": "shop",
        "service_version": "7",
        "deployment_environment_name": "prod",
        "gen_ai_agent_name": "writer",
        "loopeval_run_mode": "optimize",
        "loopeval_run_framework": "otel_loopeval",
        "loopeval_run_nested": "false",
        "loopeval_guard_kind": "loop_detected",
        "loopeval_guard_source": "application",
        "loopeval_guard_action": "halt",
    }
    assert set(exemplar) == {"trace_id", "span_id"}


def test_the_rules_ask_for_series_that_the_collector_shows(tmp_path: Path) -> None:
    """Every instrument of ours with a value against every name in the rules: units become part of names."""
    with Collector(tmp_path) as collector:
        collector.start()
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{collector.grpc_port}", insecure=True)
        provider = MeterProvider([PeriodicExportingMetricReader(exporter)])
        meter = provider.get_meter("otel_loopeval")
        for name, (kind, _) in name_table.instruments().items():
            unit = UNITS[name]
            if kind == "histogram":
                meter.create_histogram(name, unit).record(1)
            elif kind == "gauge":
                meter.create_gauge(name, unit).set(1)
            elif kind == "up-down counter":
                meter.create_up_down_counter(name, unit).add(1)
            else:
                meter.create_counter(name, unit).add(1)
        provider.shutdown()
        page = collector.metrics()

    shown = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    rules = "".join(path.read_text() for path in (PROMETHEUS_CONFIG.parent / "rules").glob("*.yml"))
    asked = set(re.findall(r"\bloopeval_\w+(?=[\[{ ])", rules)) - LABELS
    assert asked == {
        "loopeval_cost_USD_total",
        "loopeval_doom_loop_fired_total",
        "loopeval_iterations_total",
        "loopeval_iterations_wasted_total",
        "loopeval_run_idle_max_seconds",
        "loopeval_run_iterations_bucket",
        "loopeval_runs_started_total",
        "loopeval_runs_total",
        "loopeval_token_budget_exceeded_total",
        "loopeval_tokens_total",
        "loopeval_tracker_errors_total",
        "loopeval_wasted_cost_USD_total",
        "loopeval_wasted_tokens_total",
    }
    assert asked - shown == set()
    assert "loopeval_run_open" in shown


def test_processes_that_name_no_instance_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """As with SDKs before 1.43."""
    with Collector(tmp_path) as collector:
        collector.start()
        for _ in range(2):
            exporter = OTLPMetricExporter(f"http://127.0.0.1:{collector.grpc_port}", insecure=True)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=600_000)
            provider = MeterProvider([reader], resource=Resource({"service.name": "shop"}))
            instrument(meter_provider=provider)
            for _ in range(2):
                with loop("writer"), iteration() as it:
                    it.score = 9.0
            provider.shutdown()
        page = collector.metrics()

    assert total(page, "loopeval_runs_total") == 4
    first, second = (labels["service_instance_id"] for labels, _, _ in samples(page, "loopeval_runs_total"))
    assert (first != second, first[:8]) == (True, "started-")


def test_alert_metrics_come_from_spans_where_a_process_exports_nothing_else(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    endpoint = f"127.0.0.1:{receiver.grpc_port}"
    with Collector(tmp_path, COLLECTOR_CONFIG, SPANS_ONLY_CONFIG, JAEGER_OTLP_ENDPOINT=endpoint) as collector:
        collector.start()
        for _ in range(2):
            run_apps(collector, tmp_path, RUNS="3", DOOM="1", OTEL_METRICS_EXPORTER="none")
        page = await_that(
            lambda: page if total(page := collector.metrics(), "loopeval_runs_total") >= 6 else None, "6 runs"
        )

    assert total(page, "loopeval_runs_total") == 6
    assert total(page, "loopeval_iterations_total") == 12
    assert total(page, "loopeval_run_iterations_count") == 6
    assert total(page, "loopeval_run_duration_seconds_count") == 6
    verdicts = {
        (labels["loopeval_health_passed"], labels["loopeval_health_doom_loop_fired"]): value
        for labels, value, _ in samples(page, "loopeval_runs_total")
    }
    assert verdicts == {("true", "false"): 4, ("false", "true"): 2}
    ((labels, value, _),) = samples(page, "loopeval_doom_loop_fired_total")
    assert value == 2
    since = labels.pop("loopeval_since")
    assert since
    assert labels == {
        "job": "shop",
        "service_name": "shop",
        "service_version": "7",
        "deployment_environment_name": "prod",
        "gen_ai_agent_name": "writer",
        "loopeval_run_mode": "optimize",
        "loopeval_run_framework": "otel_loopeval",
        "loopeval_guard_kind": "loop_detected",
        "loopeval_guard_source": "unknown",
        "loopeval_guard_action": "unknown",
    }


def test_metrics_are_pushed_as_otlp(receiver: OtlpReceiver, tmp_path: Path) -> None:
    with Collector(
        tmp_path,
        COLLECTOR_CONFIG,
        OTLP_METRICS_CONFIG,
        JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{receiver.grpc_port}",
        OTLP_METRICS_ENDPOINT=f"http://127.0.0.1:{receiver.http_port}/v1/metrics",
    ) as collector:
        collector.start()
        run_apps(collector, tmp_path, RUNS="3", DOOM="1")
        received = await_that(
            lambda: got if (got := receiver.received()).points("loopeval.runs") else None, "metrics"
        )

    assert received.total("loopeval.runs") == 3
    assert received.total("loopeval.doom_loop.fired") == 1


def test_metrics_are_pushed_by_remote_write_and_wait_for_prometheus(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    prometheus = Prometheus(tmp_path / "prometheus", {}, port=port)
    with (
        prometheus,
        Collector(
            tmp_path,
            COLLECTOR_CONFIG,
            REMOTE_WRITE_CONFIG,
            JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{receiver.grpc_port}",
            REMOTE_WRITE_ENDPOINT=f"http://127.0.0.1:{port}/api/v1/write",
        ) as collector,
    ):
        collector.start()
        run_apps(collector, tmp_path, RUNS="3", DOOM="1")
        prometheus.start()
        await_that(lambda: prometheus.value("sum(loopeval_runs_total)") == 3, "runs in Prometheus")
        await_that(lambda: prometheus.value('count(ALERTS{alertname="LoopDoomLoopFired"})') == 1, "the alert")
        (labels, _), *more = prometheus.query("loopeval_doom_loop_fired_total")

    assert more == []
    assert (labels["service_name"], labels["gen_ai_agent_name"]) == ("shop", "writer")
