"""An agent that knows nothing of this package → ``serve`` → Prometheus, Alertmanager and the example webhook.

The files of ``collector-config`` for programs of our own are for these as well: the same rules alert, and the
same links lead to the run.
"""

from pathlib import Path

import pytest
from server.serve_processes import STUCK, Traffic, serving
from support.servers import Alertmanager, Collector, Jaeger, Prometheus, Webhook, await_that, free_ports

pytestmark = pytest.mark.e2e


def test_a_doom_loop_that_serve_found_is_a_notification_that_leads_to_its_trace(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    jaeger = Jaeger(tmp_path)
    collector = Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{jaeger.otlp_port}")
    with Webhook(tmp_path, f"http://127.0.0.1:{port}", jaeger.url) as webhook, jaeger, collector:
        jaeger.start()
        collector.start()
        forward = ("--forward", f"http://127.0.0.1:{collector.http_port}", "--grace", "0s")
        with serving(*forward, cwd=tmp_path) as serve:
            alertmanager = Alertmanager(tmp_path / "alertmanager", webhook.address)
            prometheus = Prometheus(
                tmp_path / "prometheus",
                {"loopeval-serve": [f"127.0.0.1:{serve.port}"]},
                alertmanager=f"127.0.0.1:{alertmanager.port}",
                urls={"jaeger_url": jaeger.url},
                port=port,
            )
            with alertmanager, prometheus:
                alertmanager.start()
                prometheus.start()
                traffic = Traffic("shop")
                traffic.agent("writer", turns=STUCK)
                assert serve.send(traffic.body()) == 200
                (notification,) = await_that(webhook.notifications, "a notification")
                prometheus.await_rules()
                runs = prometheus.query("loopeval:runs:increase5m")
                (alert,) = notification["alerts"]
                page, _, query = alert["search"].partition("?")
                (found,) = await_that(lambda: jaeger.search(query), "the run")
                versions = prometheus.query("count by (service_version) (loopeval_runs_started_total)")

    assert {name: alert[name] for name in ("alert", "service", "environment", "agent", "kind")} == {
        "alert": "LoopDoomLoopFired",
        "service": "shop",
        "environment": "test",
        "agent": "writer",
        "kind": "repeated_action",
    }
    (run,) = runs
    assert (run[0]["service_name"], run[0]["loopeval_health_passed"], run[1]) == ("shop", "false", 1)
    assert versions == [({"service_version": "7"}, 1.0)]
    assert page == f"{jaeger.url}/search"
    assert alert["traces"] == [f"{jaeger.url}/trace/{found['traceID']}"]
