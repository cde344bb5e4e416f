"""Alertmanager's configuration, and the example webhook on payloads that the real path does not show."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest
from support.backends import need
from support.environments import clean_environment
from support.servers import ALERTMANAGER_CONFIG, WEBHOOK, Webhook, await_that

_spec = spec_from_file_location("webhook", WEBHOOK)
assert _spec is not None
assert _spec.loader is not None
webhook = module_from_spec(_spec)
_spec.loader.exec_module(webhook)


def amtool(*arguments: str) -> str:
    done = subprocess.run(
        [need("amtool"), *arguments], capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_configuration_is_valid_and_routes_by_severity():
    amtool("check-config", str(ALERTMANAGER_CONFIG))
    routes = ("config", "routes", "test", f"--config.file={ALERTMANAGER_CONFIG}")
    assert amtool(*routes, "alertname=LoopTokenVelocity", "severity=page") == "page"
    assert amtool(*routes, "alertname=LoopDoomLoopFired", "severity=ticket") == "ticket"


class FakePrometheus(HTTPServer):
    """Answers every query for exemplars with the same, and keeps what it was asked."""

    answer: Any = None
    asked: list[dict[str, list[str]]]


class _Handler(BaseHTTPRequestHandler):
    server: FakePrometheus  # pyright: ignore[reportIncompatibleVariableOverride] # only ever made by it

    def do_GET(self) -> None:
        self.server.asked.append(parse_qs(urlsplit(self.path).query))
        body = json.dumps(self.server.answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
        pass


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    server = FakePrometheus(("127.0.0.1", 0), _Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def exemplar(trace: str | None, timestamp: float) -> dict[str, Any]:
    return {"labels": {} if trace is None else {"trace_id": trace}, "value": "1", "timestamp": timestamp}


PAYLOAD: dict[str, Any] = {
    "version": "4",
    "status": "firing",
    "receiver": "ticket",
    "alerts": [
        {
            "status": "firing",
            "labels": {
                "alertname": "LoopDoomLoopFired",
                "severity": "ticket",
                "service_name": 'a "quoted" shop',
                "gen_ai_agent_name": "wri\\ter",
                "loopeval_guard_kind": "no_progress",
            },
            "annotations": {"summary": "s", "description": "d", "runbook": "r", "traces": "t"},
            "startsAt": "2026-03-01T12:00:00.123456789+02:00",
        }
    ],
}


def test_traces_of_an_alert_come_from_exemplars_of_its_series(prometheus: FakePrometheus):
    prometheus.answer = {
        "status": "success",
        "data": [
            {
                "seriesLabels": {},
                "exemplars": [exemplar("aa", 1.0), exemplar("bb", 3.0), exemplar(None, 4.0)],
            },
            {"seriesLabels": {}, "exemplars": [exemplar("cc", 2.0), exemplar("bb", 0.5)]},
        ],
    }
    url = f"http://127.0.0.1:{prometheus.server_address[1]}"

    told = webhook.notification(PAYLOAD, url, "http://jaeger:16686")

    (alert,) = told["alerts"]
    assert alert["traces"] == [f"http://jaeger:16686/trace/{trace}" for trace in ("bb", "cc", "aa")]
    assert (alert["agent"], alert["kind"], alert["environment"]) == ("wri\\ter", "no_progress", None)
    (asked,) = prometheus.asked
    series = (
        'loopeval_doom_loop_fired_total{service_name="a \\"quoted\\" shop",'
        'gen_ai_agent_name="wri\\\\ter",loopeval_guard_kind="no_progress"}'
    )
    assert asked == {
        "query": [series],
        "start": ["1772351100.0"],
        "end": ["1772366400.0"],
    }


def test_a_notification_goes_out_without_traces_where_prometheus_cannot_say(
    prometheus: FakePrometheus, capsys: pytest.CaptureFixture[str]
):
    prometheus.answer = {"status": "error"}
    url = f"http://127.0.0.1:{prometheus.server_address[1]}"

    told = webhook.notification(PAYLOAD, url, "http://jaeger:16686")

    assert [alert["traces"] for alert in told["alerts"]] == [[]]
    assert "no exemplars for LoopDoomLoopFired" in capsys.readouterr().err


def test_what_is_no_webhook_is_refused_and_the_next_one_taken(prometheus: FakePrometheus, tmp_path: Path):
    prometheus.answer = {"status": "success", "data": []}
    url = f"http://127.0.0.1:{prometheus.server_address[1]}"
    with Webhook(tmp_path, url, "http://jaeger:16686") as server:
        for body in (b"no json", b"[]", b"{}", b'{"alerts": [{}]}'):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"http://{server.address}/ticket", data=body))
            assert refused.value.code == 400
        with urlopen(Request(f"http://{server.address}/ticket", data=json.dumps(PAYLOAD).encode())) as answer:
            assert answer.status == 200
        (told,) = await_that(server.notifications, "the notification")
    assert (told["status"], told["receiver"]) == ("firing", "ticket")
