"""From a running agent to a notification, through the real servers on the files of ``collector-config``.

PraisonAI's Quick Start, unchanged, under ``opentelemetry-instrument`` → Collector → Jaeger and Prometheus →
Alertmanager → the example webhook. The model is a stub that improves, or says the same again and again.
Intervals are 1 s where operators have 15 s (scrape, rules), 60 s (export) and 10 s (Alertmanager).
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.environments import ROOT
from support.openai_stub import OpenAIStub
from support.servers import (
    Alertmanager,
    Collector,
    Jaeger,
    Prometheus,
    Webhook,
    await_that,
    free_ports,
    python_app,
)

APP = ROOT / "examples" / "praisonai_zero_code.py"
WITHIN_S = 15.0


class Stack(NamedTuple):
    """The servers."""

    collector: Collector
    jaeger: Jaeger
    prometheus: Prometheus
    webhook: Webhook


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """All of them, started."""
    jaeger = Jaeger(tmp_path)
    collector = Collector(tmp_path, JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{jaeger.otlp_port}")
    (port,) = free_ports(1)
    prometheus_url = f"http://127.0.0.1:{port}"
    with Webhook(tmp_path, prometheus_url, jaeger.url) as webhook:
        alertmanager = Alertmanager(tmp_path / "alertmanager", webhook.address)
        prometheus = Prometheus(
            tmp_path / "prometheus",
            {
                "otel-collector": [f"127.0.0.1:{collector.metrics_port}"],
                "otel-collector-self": [f"127.0.0.1:{collector.telemetry_port}"],
            },
            alertmanager=f"127.0.0.1:{alertmanager.port}",
            urls={"jaeger_url": jaeger.url},
            port=port,
        )
        with jaeger, collector, alertmanager, prometheus:
            for server in (jaeger, collector, alertmanager, prometheus):
                server.start()
            yield Stack(collector, jaeger, prometheus, webhook)


def run(service: str, stack: Stack, stub: OpenAIStub, log: Path) -> None:
    variables = {
        **stub.environment(),
        **stack.collector.exporting(),
        "OTEL_SERVICE_NAME": service,
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=staging",
    }
    assert python_app(APP, variables, log).wait(120) == 0, log.read_text()


def test_one_doom_loop_is_one_notification_and_a_healthy_run_is_none(stack: Stack, tmp_path: Path) -> None:
    with OpenAIStub() as stub:
        run("healthy", stack, stub, tmp_path / "healthy.log")
    await_that(lambda: stack.prometheus.value('loopeval_runs_total{service_name="healthy"}') == 1, "a run")
    with OpenAIStub(scores=[5.0], answers=["I shall try the very same thing once more."]) as stub:
        run("stuck", stack, stub, tmp_path / "stuck.log")
    (notification,) = await_that(stack.webhook.notifications, "a notification", WITHIN_S)

    (alert,) = notification["alerts"]
    search, traces = alert.pop("search"), alert.pop("traces")
    for text in ("description", "runbook", "dashboard"):
        assert alert.pop(text)
    assert alert == {
        "alert": "LoopDoomLoopFired",
        "status": "firing",
        "severity": "ticket",
        "service": "stuck",
        "environment": "staging",
        "agent": "writer",
        "kind": "repeated_output",
        "summary": "Doom loop (repeated_output) in writer of stuck (staging)",
    }
    check_links(stack.jaeger, search, traces)
    check_trace(stack.jaeger, traces[0])
    assert stack.prometheus.value('otelcol_receiver_accepted_spans{receiver="otlp"}')
    time.sleep(5)  # five rounds of scraping, rules and Alertmanager
    assert len(stack.webhook.notifications()) == 1


def check_links(jaeger: Jaeger, search: str, traces: list[str]) -> None:
    """The search of the alert and the exemplar of the metric lead to the same run."""
    page, _, query = search.partition("?")
    assert page == f"{jaeger.url}/search"
    (found,) = jaeger.search(query)
    assert traces == [f"{jaeger.url}/trace/{found['traceID']}"]
    # As somebody would look for it by hand.
    (same,) = jaeger.search("service=stuck&tags=%7B%22loopeval.health.doom_loop_fired%22%3A%22true%22%7D")
    assert same["traceID"] == found["traceID"]
    assert (
        jaeger.search("service=healthy&tags=%7B%22loopeval.health.doom_loop_fired%22%3A%22true%22%7D") == []
    )
    assert len(jaeger.search("service=healthy&tags=%7B%22loopeval.health.passed%22%3A%22true%22%7D")) == 1


def tags_of(thing: dict[str, Any], key: str = "tags") -> dict[str, tuple[str, Any]]:
    """Tags with the types that Jaeger has for them."""
    return {tag["key"]: (tag["type"], tag["value"]) for tag in thing[key]}


def check_trace(jaeger: Jaeger, link: str) -> None:
    """The tree, the types of tags, and the events, as Jaeger has them."""
    spans = jaeger.trace(link.rpartition("/")[2])["spans"]
    parents = {
        span["spanID"]: reference["spanID"]
        for span in spans
        for reference in span["references"]
        if reference["refType"] == "CHILD_OF"
    }
    (root,) = (span for span in spans if span["spanID"] not in parents)
    iterations = [span for span in spans if span["operationName"] == "evaluation_loop.iteration"]
    assert root["operationName"] == "evaluation_loop writer"
    assert {parents[span["spanID"]] for span in iterations} == {root["spanID"]}
    tags = tags_of(root)
    expected: dict[str, tuple[str, Any]] = {
        "gen_ai.agent.name": ("string", "writer"),
        "loopeval.run.mode": ("string", "optimize"),
        "loopeval.run.framework": ("string", "praisonaiagents"),
        "loopeval.run.threshold": ("float64", 8.0),
        "loopeval.run.max_iterations": ("int64", 5),
        "loopeval.run.iterations": ("int64", 5),
        "loopeval.run.success": ("bool", False),
        "loopeval.health.passed": ("bool", False),
        "loopeval.health.doom_loop_fired": ("bool", True),
        "loopeval.health.doom_loop_kinds": ("string", '["repeated_output"]'),
        "loopeval.health.reasons": ("string", '["not_converged","doom_loop"]'),
    }
    assert {name: tags[name] for name in expected} == expected
    iterations.sort(key=lambda span: tags_of(span)["loopeval.iteration.number"][1])
    assert [tags_of(span)["loopeval.iteration.number"] for span in iterations] == [
        ("int64", number) for number in range(1, 6)
    ]
    assert {tags_of(span)["loopeval.iteration.score"] for span in iterations} == {("float64", 5.0)}
    events = [tags_of(log, "fields") for span in spans for log in span["logs"]]
    guards = [event for event in events if event["event"] == ("string", "loopeval.guard")]
    doomed = [event for event in guards if event["loopeval.guard.doom_loop"] == ("bool", True)]
    assert len(doomed) == 1
    assert doomed[0]["loopeval.guard.kind"] == ("string", "repeated_output")
    assert doomed[0]["loopeval.guard.source"] == ("string", "detector")
    assert len([event for event in events if event["event"] == ("string", "gen_ai.evaluation.result")]) == 5
