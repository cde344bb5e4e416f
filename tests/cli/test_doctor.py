"""``otel-loopeval doctor`` in real processes: what it finds, and what it says to do."""

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, environment
from support.otlp import OtlpReceiver

from otel_loopeval.doctor import BAD, GOOD, WARNING
from otel_loopeval.doctor.environment import check_variables
from otel_loopeval.doctor.round_trip import (
    check_endpoint,
    read_back_from_jaeger,
    read_back_from_prometheus,
)

NOBODY = "http://127.0.0.1:9"


def doctor(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "doctor", *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def levels(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in json.loads(done.stdout)["findings"]}


@contextmanager
def answering(bodies: dict[str, tuple[int, str]]) -> Generator[str, None, None]:
    """A server that answers requests whose path contains a key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = next((found for key, found in bodies.items() if key in self.path), (404, ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Any, Any], None, None]:
    with OtlpReceiver() as receiver:
        done = doctor(
            "--json",
            cwd=tmp_path_factory.mktemp("healthy"),
            env={**receiver.environment("grpc"), "OTEL_SERVICE_NAME": "app"},
        )
        yield done, receiver.received()


def test_a_set_up_in_order(healthy: tuple[Any, Any]) -> None:
    done, _ = healthy
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["ok"] is True
    found = levels(done)
    assert {check for check, level in found.items() if level not in (GOOD, "note")} == set()
    assert found.keys() >= {
        "versions",
        "distro",
        "processor",
        "span exporter",
        "sampler",
        "service.name",
        "service.instance.id",
        "meter provider",
        "content",
        "traces endpoint",
        "metrics endpoint",
        "export",
    }


def test_the_test_run_arrives(healthy: tuple[Any, Any]) -> None:
    done, received = healthy
    root = received.span("evaluation_loop otel-loopeval-doctor")
    assert root["attributes"]["loopeval.health.passed"] is True
    assert root["resource"]["service.name"] == "app"
    assert received.total("loopeval.runs") == 1
    (export,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "export"]
    assert export["text"] == f"a test run was exported, trace {root['trace_id']}"


def test_nothing_listens(tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    done = doctor(cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert "✘ traces endpoint: nothing answers at http://127.0.0.1:9: Connection refused" in done.stdout
    assert "    Start the Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT to where it is." in done.stdout
    assert "✘ export: the SDK complained while the test run was exported" in done.stdout
    assert "▲ service.name: is not set: you would look for unknown_service" in done.stdout
    assert done.stdout.rstrip().endswith("3 thing(s) to mend: see above.")
    assert done.stderr == ""


def test_an_sdk_that_is_disabled(tmp_path: Path) -> None:
    done = doctor("--no-send", "--json", cwd=tmp_path, env={"OTEL_SDK_DISABLED": "true"})
    assert done.returncode == 1
    assert levels(done)["OTEL_SDK_DISABLED"] == BAD


def test_an_instrumentation_that_is_disabled(tmp_path: Path) -> None:
    env = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "loopeval", "OTEL_SERVICE_NAME": "app"}
    done = doctor("--no-send", "--json", cwd=tmp_path, env=env)
    assert done.returncode == 1
    found = levels(done)
    assert found["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] == BAD
    assert found["processor"] == BAD


def test_samplers_and_exporters(tmp_path: Path) -> None:
    env = {
        "OTEL_TRACES_SAMPLER": "always_off",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
    }
    done = doctor("--no-send", "--json", cwd=tmp_path, env=env)
    found = levels(done)
    assert found["sampler"] == WARNING
    assert found["span exporter"] == BAD
    assert found["OTEL_TRACES_EXPORTER"] == found["OTEL_METRICS_EXPORTER"] == WARNING
    assert done.returncode == 1


def test_the_environment_is_read_in_full() -> None:
    found = list(
        check_variables(
            {
                "LOOPEVAL_THRESHHOLD": "8",
                "LOOPEVAL_THRESHOLD": "8",
                "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "DELTA",
                "GUNICORN_CMD_ARGS": "--workers 4 --preload",
            }
        )
    )
    assert [(finding.level, finding.check) for finding in found] == [
        ("note", "temporality"),
        (WARNING, "LOOPEVAL_THRESHHOLD"),
        (WARNING, "fork order"),
    ]
    assert list(check_variables({})) == []


@pytest.mark.parametrize("endpoint", ["http://", "localhost", "http://127.0.0.1:port"])
def test_endpoints_that_are_none(endpoint: str) -> None:
    assert check_endpoint("traces", endpoint).level == BAD


def jaeger_answer(**tags: Any) -> str:
    spans = [{"tags": [{"key": key, "value": value} for key, value in tags.items()]}]
    return json.dumps({"data": [{"spans": spans}]})


@pytest.mark.parametrize(
    ("status", "body", "level", "said"),
    [
        (200, jaeger_answer(**{"loopeval.health.passed": True}), GOOD, "arrived with its verdict"),
        (200, jaeger_answer(other=True), BAD, "(it is not there)"),
        (200, '{"data": []}', BAD, "(the answer is not what its query API gives)"),
        (200, "<html>", BAD, "(the answer is not what its query API gives)"),
        (404, "", BAD, "(status 404)"),
    ],
)
def test_reading_back_from_jaeger(status: int, body: str, level: str, said: str) -> None:
    with answering({"/api/traces/abc": (status, body)}) as url:
        finding = read_back_from_jaeger(url, "abc", 0.1)
    assert finding.level == level
    assert said in finding.text


def test_reading_back_from_prometheus() -> None:
    counted = '{"data": {"result": [{"value": [0, "1"]}]}}'
    with answering({"otel-loopeval-doctor": (200, counted)}) as url:
        assert read_back_from_prometheus(url, "app", 0.1).level == GOOD
    with answering({"otel-loopeval-doctor": (200, '{"data": {"result": []}}')}) as url:
        assert read_back_from_prometheus(url, "app", 0.1).level == BAD
    finding = read_back_from_prometheus(NOBODY, "app", 0.1)
    assert finding.level == BAD
    assert "Connection refused" in finding.text


def test_bad_options(tmp_path: Path) -> None:
    done = doctor("--timeout", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "must be above 0 and below 86400, got 0" in done.stderr


def test_help_is_quick() -> None:
    code = (
        "import sys; from otel_loopeval.cli import doctor; import argparse; "
        "doctor.add_arguments(argparse.ArgumentParser()); "
        "print([m for m in ('opentelemetry.sdk', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
