"""Runs across processes, and servers beside one another of which one is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from server import serve_worker
from server.serve_processes import HEALTHY, STUCK, Serve, Sink, Traffic, await_that, sends, serving
from support.backends import need
from support.environments import ROOT
from support.servers import free_ports

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.tracker import Tracker

RUNS = 40
BEFORE = 21
"""Runs that are under way when a server is killed."""
AWAY = 10
"""Those that begin while it is away."""
FLEET = ROOT / "collector-config" / "otel-collector-serve-fleet.yaml"


@pytest.mark.e2e
def test_a_run_over_eight_processes_is_one_run(tmp_path: Path) -> None:
    with Sink() as sink, serving("--forward", sink.url, "--grace", "1s", cwd=tmp_path) as server:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.port}"}
        subprocess.run(
            [sys.executable, serve_worker.__file__], env={**os.environ, **endpoint}, check=True, timeout=120
        )
        (verdict,) = await_that(sink.verdicts, "a verdict")
        bodies = [body for path, _, body in sink.requests if path == "/v1/traces"]
    spans = [span for body in bodies for span in read_request(body)]

    assert len({str(span.resource) for span in spans}) == 8
    assert verdict.attributes["gen_ai.agent.name"] == "spread"
    assert verdict.attributes["loopeval.run.outcome"] == "completed"
    (scored,) = replay(spans, Tracker())
    assert verdict.attributes["loopeval.run.iterations"] == scored.run.iteration_count == 7
    assert verdict.attributes["loopeval.run.tokens.input"] == 70
    assert verdict.resource["service.name"] == "service-0"


@pytest.mark.e2e
@pytest.mark.parametrize("stored", [True, False])
def test_of_two_servers_one_is_killed_and_no_verdict_is_wrong(stored: bool, tmp_path: Path) -> None:
    collector = need("collector")
    http, grpc_in, first_port, second_port = free_ports(4)
    ended = threading.Event()
    with Sink() as sink:
        arguments = ("--forward", sink.url, "--grace", "3s", "--idle", "60s")

        def start(number: int, port: int) -> Serve:
            store = f"runs-{number}.db" if stored else "none"
            return Serve(*arguments, "--store", store, cwd=tmp_path, grpc_port=port)

        servers = [start(1, first_port), start(2, second_port)]
        variables = {
            "OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http}",
            "OTLP_GRPC_ENDPOINT": f"127.0.0.1:{grpc_in}",
            "SERVE_1": f"127.0.0.1:{first_port}",
            "SERVE_2": f"127.0.0.1:{second_port}",
        }
        log = (tmp_path / "collector.log").open("wb")
        balancing = subprocess.Popen(
            [collector, "--config", str(FLEET)], env={**os.environ, **variables}, stdout=log, stderr=log
        )
        load = threading.Thread(target=_load, args=(http, ended))
        sent = 0
        try:
            await_that(lambda: sends(http, b""), "the Collector")
            load.start()
            kept = 0
            expected: dict[int, bool] = {}
            rests: list[list[bytes]] = []
            for number in range(RUNS):
                traffic = Traffic()
                traffic.agent(turns=STUCK if number % 2 else HEALTHY)
                *begin, agent, root = traffic.taken()
                expected[read_request(root)[0].trace_id] = number % 2 == 0
                for body in begin:
                    assert sends(http, body)
                sent += len(begin)
                rests.append([agent, root])
                if number == BEFORE - 1:
                    await_that(lambda: _total(servers, "marked_spans_total") >= sent, "all taken in")  # noqa: B023 - now
                    kept = int(servers[0].metrics()["loopeval_serve_traces_open"])
                    servers[1].end(signal.SIGKILL)
                if number == BEFORE + AWAY - 1:
                    servers[1] = start(2, second_port)
            for rest in rests:
                for body in rest:
                    assert sends(http, body)
            await_that(lambda: len({v.trace_id for v in sink.verdicts()}) == RUNS, "all verdicts")
            ended.set()
            load.join(30)
            counted = _total(servers, "loopeval_runs_total")
            balancing.terminate()
            balancing.wait(30)
            for server in servers:
                assert server.end() == 0
            verdicts = sink.verdicts()
            spread = [_runs_in(tmp_path / f"runs-{number}.db") for number in (1, 2)] if stored else []
        finally:
            ended.set()
            balancing.kill()
            balancing.wait(30)
            log.close()
            for server in servers:
                server.end(signal.SIGKILL)

    assert len({verdict.span_id for verdict in verdicts}) == RUNS  # sent again is the same span
    told = {verdict.trace_id: verdict.attributes for verdict in verdicts}
    assert told.keys() == expected.keys()
    complete = [t for t, attributes in told.items() if attributes["loopeval.run.outcome"] == "completed"]
    incomplete = [t for t, attributes in told.items() if attributes["loopeval.run.outcome"] == "incomplete"]
    for trace_id in complete:
        assert told[trace_id]["loopeval.health.passed"] is expected[trace_id]
    assert counted == RUNS
    if stored:
        assert len(complete) == RUNS  # the store had what the killed one had acknowledged
        assert sum(spread) == RUNS
        assert min(spread) > 0
    else:
        # What the killed one had taken in is nowhere. Of what comes while it is away nobody can tell whether
        # it had some of that too.
        began = list(expected)
        assert BEFORE - kept <= len(incomplete) <= BEFORE + AWAY - kept
        assert set(incomplete) <= set(began[: BEFORE + AWAY])
        assert len(complete) == RUNS - len(incomplete)
        assert not any("loopeval.health.passed" in told[trace_id] for trace_id in incomplete)


def _total(servers: list[Serve], name: str) -> float:
    return sum(
        count
        for server in servers
        for metric, count in server.metrics().items()
        if name in metric.partition("{")[0]
    )


def _load(port: int, ended: threading.Event) -> None:
    """Requests without agents, until told to end."""
    traffic = Traffic()
    while not ended.wait(0.02):
        traffic.plain(100)
        sends(port, traffic.body())


def _runs_in(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    finally:
        connection.close()
