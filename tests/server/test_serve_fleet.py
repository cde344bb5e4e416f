"""Runs across processes, and servers beside one another of which one is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from server import serve_worker
from server.serve_processes import HEALTHY, PROTOBUF, STUCK, Serve, Sink, Traffic, await_that, serving
from support.backends import need
from support.environments import ROOT
from support.servers import free_ports

from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.tracker import Tracker

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
def test_of_two_servers_one_is_killed_and_no_verdict_is_wrong(tmp_path: Path) -> None:
    collector = need("collector")
    http, grpc_in, first_port, second_port = free_ports(4)
    with Sink() as sink:
        arguments = ("--forward", sink.url, "--grace", "3s", "--idle", "60s")

        def start(number: int, port: int) -> Serve:
            return Serve(*arguments, "--store", f"runs-{number}.db", cwd=tmp_path, grpc_port=port)

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
        try:
            await_that(lambda: _sends(http, b""), "the Collector")
            expected: dict[int, bool] = {}
            rests: list[list[bytes]] = []
            for number in range(40):
                traffic = Traffic()
                traffic.agent(turns=STUCK if number % 2 else HEALTHY)
                *begin, agent, root = traffic.taken()
                expected[read_request(root)[0].trace_id] = number % 2 == 0
                for body in begin:
                    assert _sends(http, body)
                rests.append([agent, root])
                if number == 20:
                    servers[1].end(signal.SIGKILL)
                if number == 30:
                    servers[1] = start(2, second_port)
            for rest in rests:
                for body in rest:
                    assert _sends(http, body)
            await_that(lambda: len({v.trace_id for v in sink.verdicts()}) == 40, "all verdicts")
            balancing.terminate()
            balancing.wait(30)
            for server in servers:
                assert server.end() == 0
            verdicts = sink.verdicts()
            spread = [_runs_in(tmp_path / f"runs-{number}.db") for number in (1, 2)]
        finally:
            balancing.kill()
            balancing.wait(30)
            log.close()
            for server in servers:
                server.end(signal.SIGKILL)

    assert len({verdict.span_id for verdict in verdicts}) == 40  # sent again is the same span
    told = {verdict.trace_id: verdict.attributes for verdict in verdicts}
    for trace_id, passed in expected.items():
        attributes = told[trace_id]
        assert attributes["loopeval.run.outcome"] in ("completed", "incomplete")
        if attributes["loopeval.run.outcome"] == "completed":
            assert attributes["loopeval.health.passed"] is passed
    judged = [a for a in told.values() if a["loopeval.run.outcome"] == "completed"]
    assert len(judged) == 40  # the store had what the killed one had acknowledged
    assert sum(spread) == 40
    assert min(spread) > 0


def _runs_in(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    finally:
        connection.close()


def _sends(port: int, body: bytes) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/traces", body, PROTOBUF)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
