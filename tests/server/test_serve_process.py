"""The command as a process: what comes in goes on, is judged, and is told."""

import gzip
import shutil
import signal
import ssl
import subprocess
import zlib
from base64 import b64encode
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from server.serve_processes import STUCK, Sink, Traffic, as_json, await_that, serving

QUICK = ("--grace", "200ms", "--idle", "500ms")


def test_a_request_goes_on_byte_for_byte_and_its_run_is_judged(tmp_path: Path) -> None:
    with Sink() as sink, serving("--forward", sink.url, *QUICK, cwd=tmp_path) as server:
        traffic = Traffic()  # what began before the server did may be incomplete
        traffic.agent("writer", turns=STUCK)
        body = traffic.body()
        assert server.send(body) == 200
        path, headers, forwarded = sink.requests[0]
        verdict = await_that(sink.verdicts, "a verdict")[0]
        metrics = server.metrics()

    assert (path, forwarded) == ("/v1/traces", body)
    assert headers["content-type"] == "application/x-protobuf"
    assert verdict.attributes["gen_ai.agent.name"] == "writer"
    assert verdict.attributes["loopeval.health.passed"] is False
    assert verdict.attributes["loopeval.health.doom_loop_fired"] is True
    assert verdict.attributes["loopeval.run.outcome"] == "completed"
    assert verdict.resource["service.name"] == "shop"
    assert [event.name for event in verdict.events] == ["loopeval.guard"] * len(verdict.events) != []
    run = {name: value for name, value in metrics.items() if name.startswith("loopeval_runs_total")}
    assert run == {
        'loopeval_runs_total{deployment_environment_name="test",gen_ai_agent_name="writer",job="shop",'
        'loopeval_health_converged="true",'
        'loopeval_health_doom_loop_fired="true",loopeval_health_passed="false",'
        'loopeval_run_framework="client",loopeval_run_mode="agent",loopeval_run_nested="false",'
        'loopeval_run_outcome="completed",service_name="shop",service_version="7"}': 1.0
    }


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate-json"])
def test_compressed_and_json_requests_go_on_as_they_came(encoding: str, tmp_path: Path) -> None:
    content_type = "application/x-protobuf"
    with Sink() as sink, serving("--forward", sink.url, *QUICK, cwd=tmp_path) as server:
        traffic = Traffic()
        traffic.agent()
        plain = traffic.body()
        if encoding == "gzip":
            body = gzip.compress(plain)
        elif encoding == "zstd":
            body = zstandard.compress(plain)
        else:
            encoding, content_type, body = (
                "deflate",
                "application/json; charset=utf-8",
                zlib.compress(as_json(plain)),
            )
        assert server.send(body, content_type=content_type, content_encoding=encoding) == 200
        _, headers, forwarded = sink.requests[0]
        verdict = await_that(sink.verdicts, "a verdict")[0]

    assert forwarded == body
    assert headers["content-encoding"] == encoding
    assert verdict.attributes["loopeval.health.passed"] is True


def test_metrics_and_logs_go_on_too(tmp_path: Path) -> None:
    with Sink() as sink, serving("--forward", sink.url, cwd=tmp_path) as server:
        for signal_name in ("metrics", "logs"):
            status, _, _ = server.request(
                "POST", f"/v1/{signal_name}", b"\x0a\x00", {"content-type": "application/x-protobuf"}
            )
            assert status == 200
        assert [(path, body) for path, _, body in sink.requests] == [
            ("/v1/metrics", b"\x0a\x00"),
            ("/v1/logs", b"\x0a\x00"),
        ]


@pytest.mark.parametrize(
    ("said", "told"), [(503, 503), (429, 429), (500, 503), (502, 503), (401, 503), (404, 503), (400, 400)]
)
def test_a_sender_keeps_what_the_next_hop_does_not_take(said: int, told: int, tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    with Sink() as sink, serving("--forward", sink.url, *QUICK, cwd=tmp_path) as server:
        sink.status = said
        status, headers, _ = server.request(
            "POST", "/v1/traces", body, {"content-type": "application/x-protobuf"}
        )
        sink.status = 200
        assert status == told
        assert headers.get("retry-after") == ("5" if told != 400 else None)
        assert server.metrics()["loopeval_serve_spans_total"] == 0
        assert server.send(body) == 200  # the sender tries again
        assert len(await_that(sink.verdicts, "a verdict")) == 1


def test_a_next_hop_that_is_not_there_is_a_503(tmp_path: Path) -> None:
    with serving("--forward", "http://127.0.0.1:9", cwd=tmp_path) as server:
        status, headers, body = server.request(
            "POST", "/v1/logs", b"", {"content-type": "application/x-protobuf"}
        )
    assert (status, headers["retry-after"], body) == (503, "5", b"the next hop does not answer")


def test_grpc_and_its_statuses(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    with Sink() as sink, serving("--forward", sink.url, *QUICK, cwd=tmp_path, grpc=True) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            export = channel.unary_unary(method)
            assert ExportTraceServiceResponse.FromString(export(body)) == ExportTraceServiceResponse()
            assert sink.requests[0][2] == body
            with pytest.raises(grpc.RpcError) as malformed:
                export(b"\xff\xff\xff")
            sink.status = 503
            with pytest.raises(grpc.RpcError) as unavailable:
                export(body)
            sink.status = 200
        assert len(await_that(sink.verdicts, "a verdict")) == 1
    assert malformed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert unavailable.value.code() == grpc.StatusCode.UNAVAILABLE
    trailing: Any = unavailable.value.trailing_metadata()
    assert [name for name, _ in trailing] == ["grpc-status-details-bin"]


def test_what_is_open_is_judged_at_the_end(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent()
    *inside, _ = traffic.taken()  # its root has not ended
    with Sink() as sink, serving("--forward", sink.url, "--idle", "1h", cwd=tmp_path) as server:
        for body in inside:
            assert server.send(body) == 200
        assert server.end(signal.SIGTERM) == 0
        assert len(sink.verdicts()) == 1


def test_open_runs_survive_kill_nine(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent("writer", turns=STUCK)
    *inside, root = traffic.taken()
    with serving("--store", "runs.db", *QUICK, "--idle", "1h", cwd=tmp_path) as server:
        for body in inside:
            assert server.send(body) == 200
        server.end(signal.SIGKILL)
    with serving("--store", "runs.db", *QUICK, "--idle", "1h", cwd=tmp_path) as server:
        assert server.send(root) == 200
        found = await_that(
            lambda: [name for name in server.metrics() if name.startswith("loopeval_runs_total")], "a run"
        )
    assert len(found) == 1
    assert 'loopeval_health_doom_loop_fired="true"' in found[0]
    assert 'loopeval_run_outcome="completed"' in found[0]


def test_health_checks(tmp_path: Path) -> None:
    with Sink() as sink, serving("--forward", sink.url, cwd=tmp_path) as server:
        assert server.request("GET", "/healthz")[0] == 200
        assert server.request("GET", "/readyz")[0] == 200
        assert server.request("GET", "/nowhere/at/all")[0] == 404
        assert server.request("POST", "/metrics")[0] == 405


def test_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# comment\nred:secret-1\nsecret-2\n*:secret-3\n")
    with (
        Sink() as sink,
        serving(
            "--forward", sink.url, "--forward-header", "x-key=abc", "--token-file", "tokens", cwd=tmp_path
        ) as server,
    ):
        assert server.send(b"") == 401
        assert server.send(b"", authorization="Bearer wrong") == 401
        assert server.send(b"", authorization="Bearer secret-1") == 200
        assert server.send(b"", authorization="bearer secret-2") == 200
        status, _, told = server.request(
            "POST", "/v1/logs", b"", {"authorization": "Bearer secret-3", "content-type": "application/json"}
        )
        assert (status, told) == (
            403,
            b"the token of the tenant * shows all runs and sends none: a tenant's sends",
        )
        _, headers, _ = sink.requests[0]
        requests = {
            name: value
            for name, value in server.metrics(authorization="Bearer secret-3").items()
            if "serve_requests" in name
        }
    assert len(sink.requests) == 2
    assert headers["x-key"] == "abc"
    assert "authorization" not in headers
    told = ("traces", "401", ""), ("traces", "200", "red"), ("traces", "200", "default"), ("logs", "403", "*")
    assert requests == {
        f'loopeval_serve_requests_total{{loopeval_serve_signal="{signal_name}",'
        f'loopeval_serve_status="{status}",loopeval_serve_tenant="{tenant}"}}': count
        for (signal_name, status, tenant), count in zip(told, (2.0, 1.0, 1.0, 1.0), strict=True)
    }


def test_metrics_tell_of_all_tenants_and_are_for_the_token_of_all(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("red:secret-1\n*:secret-2\n")
    with serving("--store", "runs.db", "--token-file", "tokens", cwd=tmp_path) as server:

        def metrics(authorization: str) -> tuple[int, bytes]:
            status, _, text = server.request("GET", "/metrics", headers={"authorization": authorization})
            return status, text[: 16 if status == 200 else 30]

        assert metrics("") == (401, b"a bearer token is needed")
        assert metrics("Bearer secret-3") == (401, b"a bearer token is needed")
        assert metrics("Bearer secret-1") == (403, b"metrics tell of all tenants: t")
        assert metrics("Bearer secret-2") == (200, b"# HELP loopeval_")
        password = b64encode(b"prometheus:secret-2").decode()
        assert metrics(f"Basic {password}") == (200, b"# HELP loopeval_")
        assert server.request("GET", "/healthz")[0] == server.request("GET", "/readyz")[0] == 200
    (tmp_path / "tokens").write_text("secret-1\nsecret-2\n")
    with serving("--store", "runs.db", "--token-file", "tokens", cwd=tmp_path) as server:
        assert metrics("") == (401, b"a bearer token is needed")
        assert metrics("Bearer secret-1") == (200, b"# HELP loopeval_")


def test_tls_for_http_and_grpc(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "key",
            "-out",
            "cert",
            *subject,
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    certificate = (tmp_path / "cert").read_bytes()
    arguments = ("--tls-cert", "cert", "--tls-key", "key", *QUICK)
    with Sink() as sink, serving("--forward", sink.url, *arguments, cwd=tmp_path, grpc=True) as server:
        context = ssl.create_default_context(cadata=certificate.decode())
        connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
        connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
        assert connection.getresponse().status == 200
        connection.close()
        credentials = grpc.ssl_channel_credentials(certificate)
        with grpc.secure_channel(f"localhost:{server.grpc}", credentials) as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            assert export(body) == b""
        assert len(await_that(sink.verdicts, "a verdict")) == 1
    assert [sent for _, _, sent in sink.requests[:2]] == [body, body]
