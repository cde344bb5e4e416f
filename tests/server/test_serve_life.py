"""Ends and troubles of ``serve``: signals, a next hop that goes and comes, a full disk, a store in use."""

import json
import signal
import sqlite3
import subprocess
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from server.serve_processes import (
    PATIENCE_S,
    PROTOBUF,
    STUCK,
    Serve,
    Sink,
    Traffic,
    as_json,
    await_that,
    sends,
    serving,
)
from support.backends import need
from support.servers import free_ports

from otel_loopeval.cli.main import main
from otel_loopeval.otlp.protobuf import read_request

QUICK = ("--grace", "200ms", "--idle", "1h")


def run_of(turns: bool = True) -> list[bytes]:
    """An agent's spans, each in a request of its own; the last one is the root."""
    traffic = Traffic()
    traffic.agent("writer", turns=STUCK if turns else None)
    return traffic.taken()


def kept(path: Path) -> list[str]:
    """The agents of the runs in a store."""
    connection = sqlite3.connect(path)
    try:
        return [agent for (agent,) in connection.execute("SELECT agent FROM runs ORDER BY agent")]
    finally:
        connection.close()


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_at_the_end_runs_with_their_root_are_judged_sent_on_and_kept(
    signals: list[int], tmp_path: Path
) -> None:
    arguments = ("--store", "runs.db", "--grace", "1h", "--idle", "1h", "--max-age", "1h")
    with Sink() as sink, serving("--forward", sink.url, *arguments, cwd=tmp_path) as server:
        for body in run_of():
            assert server.send(body) == 200
        for number in signals[:-1]:
            server.process.send_signal(number)
        assert server.end(signals[-1]) == 0
        (verdict,) = sink.verdicts()
    assert verdict.attributes["loopeval.health.doom_loop_fired"] is True
    assert kept(tmp_path / "runs.db") == ["writer"]
    assert "Traceback" not in "".join(server.lines)


def test_at_the_end_a_request_under_way_gets_its_answer_and_a_new_one_none(tmp_path: Path) -> None:
    body = run_of()[0]
    with Sink() as sink, serving("--forward", sink.url, cwd=tmp_path) as server:
        sink.delay_s = 1.5
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/traces", body, PROTOBUF)
        await_that(lambda: sink.asked, "the request at the next hop")
        server.process.send_signal(signal.SIGTERM)
        assert connection.getresponse().status == 200
        connection.close()
        assert server.process.wait(PATIENCE_S) == 0
        with pytest.raises(OSError):
            server.send(body)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_after_a_restart_a_run_goes_on_and_none_is_counted_twice(end: int, tmp_path: Path) -> None:
    *inside, root = run_of()
    whole = b"".join(run_of())
    with Sink() as sink:
        arguments = ("--forward", sink.url, "--store", "runs.db", *QUICK)
        with serving(*arguments, cwd=tmp_path) as server:
            assert server.send(whole) == 200
            await_that(lambda: len(sink.verdicts()) == 1, "the first verdict")
            for body in inside:
                assert server.send(body) == 200
            server.end(end)
        with serving(*arguments, cwd=tmp_path) as server:
            assert server.send(root) == 200
            assert server.send(root) == 200  # as its sender, that has heard nothing, does
            assert server.send(whole) == 200
            await_that(
                lambda: len({verdict.span_id for verdict in sink.verdicts()}) == 2, "the second verdict"
            )
            assert server.end() == 0
        verdicts = sink.verdicts()
    assert [verdict.attributes["loopeval.run.outcome"] for verdict in verdicts] == ["completed"] * len(
        verdicts
    )
    assert len({verdict.span_id for verdict in verdicts}) == len({v.trace_id for v in verdicts}) == 2
    assert kept(tmp_path / "runs.db") == ["writer", "writer"]


def test_a_store_that_another_server_has_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving("--store", "runs.db", cwd=tmp_path) as server:
        path = str(tmp_path / "runs.db")
        assert main(["serve", "--http", "127.0.0.1:0", "--grpc", "none", "--store", path]) == 1
        assert f"the store {path!r} is in use by another process" in capfd.readouterr().err
        assert server.request("GET", "/readyz")[0] == 200


def test_a_full_disk_is_told_to_senders_and_what_was_kept_stays(tmp_path: Path) -> None:
    limited = ("prlimit", f"--fsize={500 * 1024}")
    traffic = Traffic()
    statuses: list[int] = []
    with serving("--store", "runs.db", "--idle", "1h", before=limited, cwd=tmp_path) as server:
        for number in range(400):
            traffic.agent(f"writer-{number}", turns=STUCK)
            status, headers, text = server.request("POST", "/v1/traces", traffic.body(), PROTOBUF)
            statuses.append(status)
            if status != 200:
                assert (status, headers["retry-after"]) == (503, "5")
                assert text == b"the store failed"
                break
        assert server.request("GET", "/healthz")[0] == 200
        assert server.request("GET", "/metrics")[0] == 200
        server.end(signal.SIGKILL)
    assert statuses[-1] == 503
    assert len(statuses) > 2
    with serving("--store", "runs.db", *QUICK, cwd=tmp_path) as server:  # there is space again
        assert server.send(b"".join(run_of())) == 200
        assert server.end() == 0
    assert len(kept(tmp_path / "runs.db")) >= len(statuses) - 1


def test_a_next_hop_that_is_away_at_the_start_and_goes_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    first, second = b"".join(run_of()), b"".join(run_of())
    with serving("--forward", f"http://127.0.0.1:{port}", *QUICK, cwd=tmp_path) as server:
        assert server.send(first) == 503
        assert server.request("GET", "/readyz")[0] == 200
        with Sink(port) as sink:
            assert server.send(first) == 200
            await_that(lambda: len(sink.verdicts()) == 1, "the first verdict")
        assert server.send(second) == 503
        with Sink(port) as sink:
            assert server.send(second) == 200
            await_that(lambda: len(sink.verdicts()) == 1, "the second verdict")
        runs = [count for name, count in server.metrics().items() if name.startswith("loopeval_runs_total")]
    assert runs == [2.0]


def test_verdicts_wait_for_a_next_hop_that_is_away(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving("--forward", f"http://127.0.0.1:{port}", "--grace", "2s", cwd=tmp_path) as server:
        with Sink(port):
            assert server.send(b"".join(run_of())) == 200
        await_that(lambda: server.metrics()["loopeval_serve_traces_open"] == 0, "the run judged")
        time.sleep(1)  # it tries, and fails
        with Sink(port) as sink:
            await_that(lambda: len(sink.verdicts()) == 1, "the verdict")
        assert server.metrics()["loopeval_serve_verdicts_lost_total"] == 0


@pytest.mark.parametrize("shift_s", [-86_400, 86_400])
def test_a_clock_that_is_wrong_changes_no_verdict(shift_s: int, tmp_path: Path) -> None:
    document = json.loads(as_json(b"".join(run_of())))
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for key in ("startTimeUnixNano", "endTimeUnixNano"):
                    span[key] = str(int(span[key]) + shift_s * 1_000_000_000)
    with Sink() as sink, serving("--forward", sink.url, "--store", "x.db", *QUICK, cwd=tmp_path) as server:
        assert server.send(json.dumps(document).encode(), content_type="application/json") == 200
        (verdict,) = await_that(sink.verdicts, "a verdict")
        assert server.end() == 0
    assert verdict.attributes["loopeval.run.outcome"] == "completed"
    assert verdict.attributes["loopeval.health.doom_loop_fired"] is True
    assert kept(tmp_path / "x.db") == ["writer"]


QUEUE = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%(collector)d"}}}}
exporters:
  otlp_http:
    endpoint: "http://127.0.0.1:%(serve)d"
    compression: none
    retry_on_failure: {initial_interval: 200ms, max_interval: 500ms, max_elapsed_time: 5m}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
"""


@pytest.mark.e2e
def test_a_collector_in_front_keeps_what_a_killed_server_and_next_hop_did_not_take(tmp_path: Path) -> None:
    collector = need("collector")
    port, hop, in_front = free_ports(3)
    runs = [run_of(bool(number % 2)) for number in range(20)]
    (tmp_path / "queue.yaml").write_text(QUEUE % {"collector": in_front, "serve": port})
    arguments = (
        "--forward",
        f"http://127.0.0.1:{hop}",
        "--store",
        "runs.db",
        "--grace",
        "1s",
        "--idle",
        "1h",
    )

    def start() -> Serve:
        return Serve(*arguments, cwd=tmp_path, http=f"127.0.0.1:{port}")

    sinks = [Sink(hop)]
    sinks[0].__enter__()
    server = start()
    log = (tmp_path / "collector.log").open("wb")
    front = subprocess.Popen([collector, "--config", "queue.yaml"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        await_that(lambda: sends(in_front, b""), "the Collector")
        for number, bodies in enumerate(runs):
            for body in bodies[:-1]:
                assert sends(in_front, body)
            if number == 5:
                sinks[-1].__exit__()
            if number == 8:
                server.end(signal.SIGKILL)
            if number == 11:
                server = start()
            if number == 14:
                sinks.append(Sink(hop))
                sinks[-1].__enter__()
        for bodies in runs:
            assert sends(in_front, bodies[-1])
        sent = {
            (span.trace_id, span.span_id) for bodies in runs for body in bodies for span in read_request(body)
        }
        got = lambda: {  # noqa: E731 - asked again and again
            (span.trace_id, span.span_id)
            for sink in sinks
            for path, _, body in list(sink.requests)
            if path == "/v1/traces"
            for span in read_request(body)
        }
        await_that(lambda: sent <= got(), "every span at the next hop")
        verdicts = lambda: [v for sink in sinks for v in sink.verdicts()]  # noqa: E731 - likewise
        await_that(lambda: len({verdict.trace_id for verdict in verdicts()}) == 20, "all verdicts")
        assert server.end() == 0
        told = verdicts()
    finally:
        front.kill()
        front.wait(30)
        log.close()
        server.end(signal.SIGKILL)
        sinks[-1].__exit__()
    assert len({verdict.span_id for verdict in told}) == 20
    assert {verdict.attributes["loopeval.run.outcome"] for verdict in told} == {"completed"}
    fired = {v.trace_id: v.attributes["loopeval.health.doom_loop_fired"] for v in told}
    assert [fired[read_request(bodies[-1])[0].trace_id] for bodies in runs] == [False, True] * 10
    assert len(kept(tmp_path / "runs.db")) == 20
