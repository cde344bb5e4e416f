"""/metrics of ``serve``: valid, named as ever, and bounded whatever spans say."""

import asyncio
import re
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from server.serve_processes import STUCK, Serve, Traffic, await_that, serving
from support import name_table
from support.backends import need
from support.served_runs import served

from otel_loopeval import semconv
from otel_loopeval.server import run_metrics
from otel_loopeval.server.core import Core
from otel_loopeval.server.http.exposition import Exposition
from otel_loopeval.server.options import ServeOptions
from otel_loopeval.server.run_metrics import MAX_KINDS
from otel_loopeval.server.self_metrics import SelfMetrics

NAMES = sorted(
    value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str) and value.startswith(("loopeval.", "gen_ai."))
)
SERVES = {
    "loopeval_serve_already_judged_total",
    "loopeval_serve_dropped_total",
    "loopeval_serve_held_bytes",
    "loopeval_serve_marked_spans_total",
    "loopeval_serve_requests_total",
    "loopeval_serve_runs_lost_total",
    "loopeval_serve_runs_waiting",
    "loopeval_serve_spans_total",
    "loopeval_serve_traces_closed_total",
    "loopeval_serve_traces_open",
    "loopeval_serve_verdicts_lost_total",
}


def hostile(batch: int) -> bytes:
    """A hundred agents, each with a name of its own, that say whatever they like of themselves."""
    traffic = Traffic(f'shop"\\\n\u2028{{}} {batch}' + "x" * 100_000)
    tracer = traffic.provider.get_tracer('somebody"\n.genai')
    for number in range(100):
        word = f'"\\\n}} \u202e {"abcdefghij"[batch]}{"abcdefghij"[number // 10]}{"abcdefghij"[number % 10]}'
        said = {name: word for position, name in enumerate(NAMES) if (position + number) % 3 == 0}
        said |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": word + "x" * 10_000}
        with tracer.start_as_current_span(f"invoke_agent {word}", attributes=said) as span:
            span.add_event("loopeval.guard", dict.fromkeys(NAMES, word))
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": word}
            with tracer.start_as_current_span("execute_tool", attributes=tool):
                pass
    return traffic.body()


def test_metrics_are_valid_and_bounded_whatever_spans_say(tmp_path: Path) -> None:
    promtool = need("promtool")
    (tmp_path / "tokens").write_text('re"d\\:secret-1\n*:secret-2\n')
    all_of_them = {"authorization": "Bearer secret-2"}
    with serving("--store", "runs.db", "--token-file", "tokens", "--grace", "0s", cwd=tmp_path) as server:
        for batch in range(3):
            assert server.send(hostile(batch), authorization="Bearer secret-1") == 200
        assert server.send(b"", authorization="Bearer \xff") == 401
        await_that(
            lambda: server.metrics(**all_of_them)["loopeval_serve_traces_open"] == 0, "all of them judged"
        )
        _, headers, text = server.request("GET", "/metrics", headers=all_of_them)
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    assert headers["content-type"].startswith("text/plain")
    assert len(text) < 6_000_000  # 300 agents, of which names are long

    values: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in text.decode().split("\n"):
        if line and not line.startswith("#"):
            names.add(line.partition("{")[0].partition(" ")[0])
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line):
                values.setdefault(label, set()).add(value)
    assert {name for name in names if name.startswith("loopeval_serve_")} == SERVES
    assert not {name for name in names if name.endswith("_created")}
    assert len(values["gen_ai_agent_name"]) == 201  # a third of them say that they are judged already
    assert max(map(len, values["gen_ai_agent_name"])) < 250  # with what is escaped
    assert len(values["job"]) == 3
    assert values["loopeval_serve_tenant"] == {"", 're\\"d\\\\'}
    assert values["loopeval_run_mode"] == {"agent"}
    assert values["loopeval_guard_kind"] == {"other"}
    assert values["loopeval_guard_action"] == {"observe"}


def runs_of(service: str, agents: Iterable[str]) -> bytes:
    """Runs of a service, one of each agent, in a framework of its own."""
    traffic = Traffic(service)
    tracer = traffic.provider.get_tracer("otel_loopeval")
    for agent in agents:
        said = {"gen_ai.agent.name": agent, "loopeval.run.framework": f"framework {service} {agent}"}
        with tracer.start_as_current_span(f"evaluation_loop {agent}", attributes=said):
            pass
    return traffic.body()


def runs_on(server: Serve) -> dict[str, float]:
    """How many runs the metrics tell of, by labels, once all are judged."""
    await_that(lambda: server.metrics()["loopeval_serve_traces_open"] == 0, "all of them judged")
    return {name: count for name, count in server.metrics().items() if name.startswith("loopeval_runs_total")}


def different(label: str, runs: Iterable[str]) -> set[str]:
    """The values of a label."""
    return {value for name in runs for value in re.findall(rf'{label}="([^"]*)"', name)}


def test_metrics_have_the_labels_and_exemplars_that_rules_and_dashboards_go_by(tmp_path: Path) -> None:
    traffic = Traffic("shop")
    traffic.agent("writer", turns=STUCK)
    (context, *_) = (span.get_span_context() for span in traffic.exporter.get_finished_spans())
    assert context is not None
    with serving("--store", "runs.db", "--grace", "0s", cwd=tmp_path) as server:
        assert server.send(traffic.body()) == 200
        runs = runs_on(server)
        accept = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        _, headers, text = server.request("GET", "/metrics", headers=accept)

    (run,) = runs
    assert dict(re.findall(r'(\w+)="([^"]*)"', run)) == {
        "job": "shop",
        "service_name": "shop",
        "service_version": "7",
        "deployment_environment_name": "test",
        "gen_ai_agent_name": "writer",
        "loopeval_run_mode": "agent",
        "loopeval_run_framework": "client",
        "loopeval_run_nested": "false",
        "loopeval_run_outcome": "completed",
        "loopeval_health_passed": "false",
        "loopeval_health_converged": "true",
        "loopeval_health_doom_loop_fired": "true",
    }
    assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    lines = text.decode().splitlines()
    assert lines[-1] == "# EOF"
    for name in (
        "doom_loop_fired_total",
        "runs_total",
        "iterations_wasted_total",
        "run_duration_seconds_bucket",
    ):
        found = [line for line in lines if line.startswith(f"loopeval_{name}{{")]
        assert [line for line in found if f'trace_id="{context.trace_id:032x}"' in line], name
    (doom_loop,) = (line for line in lines if line.startswith("loopeval_doom_loop_fired_total{"))
    (since,) = different("loopeval_since", [doom_loop])
    assert 0 <= time.time() - int(since) / 1_000 < 60


@pytest.mark.parametrize(
    ("accept", "openly"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;q=0.6;version=1.0.0, text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0", False),
        ("text/plain;q=1,application/openmetrics-text;q=0.1", False),
        ("x-application/openmetrics-textual", False),
        ("application/openmetrics-text;q=many", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_openmetrics_is_for_who_takes_it(accept: str, openly: bool) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be received")

    exposition = Exposition(CollectorRegistry())
    asyncio.run(exposition({"headers": [(b"accept", accept.encode())]}, receive, send))
    assert (dict(sent[0]["headers"])[b"content-type"].startswith(b"application/openmetrics")) is openly


def test_the_table_of_names_tells_which_of_the_server_s_metrics_are_gauges() -> None:
    families = list(SelfMetrics(Core(ServeOptions())).collect())
    assert len(families) == len(SERVES)
    gauges = {family.name.removesuffix("_bytes") for family in families if family.type == "gauge"}
    assert gauges == {name.replace(".", "_") for name in name_table.SERVE_GAUGES}


def test_a_kind_without_runs_for_an_hour_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_metrics, "MAX_KINDS", 2)
    registry = CollectorRegistry()
    metrics = run_metrics.RunMetrics(registry)

    def shown() -> dict[str, float]:
        samples = [sample for metric in registry.collect() for sample in metric.samples]
        runs = {s.labels["service_name"]: s.value for s in samples if s.name == "loopeval_runs_total"}
        doom_loops = {s.labels["service_name"] for s in samples if s.name == "loopeval_doom_loop_fired_total"}
        assert doom_loops == set(runs)
        return runs

    for service in ("a", "b", "a", "c"):
        metrics.ended(served([5.0, 5.0], service=service, doom_loop=True))
    assert shown() == {"a": 2, "b": 1, "_other": 1}
    monkeypatch.setattr(run_metrics, "_QUIET_S", 0.0)
    metrics.ended(served([5.0, 5.0], service="d", doom_loop=True))
    assert shown() == {"a": 2, "_other": 1, "d": 1}


def test_many_kinds_of_runs_fill_no_memory_and_keep_nobody_waiting(tmp_path: Path) -> None:
    agents = [f"agent {number}" for number in range(90)]
    services = 25
    with serving("--store", "runs.db", "--grace", "0s", cwd=tmp_path) as server:
        for number in range(services):
            assert server.send(runs_of(f"service {number}", agents)) == 200
        runs = runs_on(server)
        assert sum(runs.values()) == services * len(agents)
        assert len(runs) == MAX_KINDS + 1 == 2_001
        assert [count for name, count in runs.items() if 'job="_other"' in name] == [250]

        with (
            socket.create_connection(("127.0.0.1", server.port)) as scraper,
            socket.create_connection(("127.0.0.1", server.port)) as other,
        ):
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            other.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert other.recv(1_000).startswith(b"HTTP/1.1 200")
            scraper.setblocking(False)
            with pytest.raises(BlockingIOError):  # the metrics are not there yet
                scraper.recv(1)
            scraper.setblocking(True)
            assert scraper.recv(1_000).startswith(b"HTTP/1.1 200")
