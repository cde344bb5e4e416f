"""Every query of every panel, run against a real Prometheus that a real Collector filled from real loops."""

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana.dashboards import Target, targets
from support.servers import CONFIG, Collector, Jaeger, Prometheus, await_that, get, python_app

pytestmark = pytest.mark.e2e

APP = Path(__file__).with_name("filling_app.py")
VERSIONS = ("1.4.0", "1.5.0")
STEP_S = 300
"""Recording rules are read at multiples of five minutes."""

CHOSEN = {
    "$__range": "1h",
    "$__interval": "5m",
    "$service": ".*",
    "$environment": ".*",
    "$agent": "writer",
    "$before": "1.4.0",
    "$after": "1.5.0",
}
"""What Grafana puts in place of variables; All is any value."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The servers, filled."""

    prometheus: Prometheus
    jaeger: Jaeger

    def now(self) -> float:
        """The next multiple of five minutes, at which rules are read.

        The newest values stand for five minutes, so right after a multiple they do not reach the next one.
        """
        while True:
            latest = float(self.ask("query", query="time()")["result"][0])
            following = (math.floor(latest / STEP_S) + 1) * STEP_S
            if following - latest < STEP_S - 10:
                return following
            time.sleep(1)

    def ask(self, path: str, **query: str | float) -> Any:
        """An answer of Prometheus' API."""
        return get(f"{self.prometheus.url}/api/v1/{path}", **query)["data"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two versions of a service have run, and ended, and what they said has arrived."""
    folder = tmp_path_factory.mktemp("stack")
    with Jaeger(folder) as jaeger:
        assert isinstance(jaeger, Jaeger)
        jaeger.start()
        collector = Collector(folder / "collector", JAEGER_OTLP_ENDPOINT=f"127.0.0.1:{jaeger.otlp_port}")
        with collector:
            collector.start()
            addresses = {
                "otel-collector": [f"127.0.0.1:{collector.metrics_port}"],
                "otel-collector-self": [f"127.0.0.1:{collector.telemetry_port}"],
            }
            prometheus = Prometheus(folder / "prometheus", addresses)
            with prometheus:
                prometheus.start()
                for version in VERSIONS:
                    fill(collector, version, folder / "app.log")
                arrived = "sum(loopeval_wasted_cost_USD_total)"
                await_that(lambda: prometheus.value(arrived) == 6.0, "the metrics of both processes")
                prometheus.await_rules()
                yield Stack(prometheus, jaeger)


def fill(collector: Collector, version: str, log: Path) -> None:
    variables = {
        **collector.exporting(),
        "OTEL_SERVICE_NAME": "reports",
        "OTEL_RESOURCE_ATTRIBUTES": f"service.version={version},deployment.environment.name=staging",
        "LOOPEVAL_MAX_OPEN_RUNS": "5",
    }
    assert python_app(APP, variables, log).wait(60) == 0, log.read_text()


def put(text: str, chosen: dict[str, str]) -> str:
    for variable, value in chosen.items():
        text = text.replace(variable, value)
    return text


def recorded(expression: str) -> str:
    """An expression with rules over an hour written out: those look back at five minutes' multiples only."""
    rules = {
        rule["record"]: rule["expr"]
        for group in yaml.safe_load((CONFIG / "prometheus" / "rules" / "recording.yml").read_text())["groups"]
        for rule in group["rules"]
    }
    name = re.match(r"loopeval:\w+:ratio1h(?=\{)", expression)
    return rules[name.group()] if name else expression


def values(stack: Stack, target: Target, chosen: dict[str, str]) -> list[float]:
    """All values that a query brings, as Grafana sends it."""
    expression = recorded(put(target.query["expr"], chosen))
    end = stack.now()
    if target.query.get("range"):
        data = stack.ask("query_range", query=expression, start=end - 3600, end=end, step=STEP_S)
        return [float(value) for series in data["result"] for _, value in series["values"]]
    data = stack.ask("query", query=expression, time=end)
    return [float(series["value"][1]) for series in data["result"]]


@pytest.mark.parametrize("target", targets("prometheus"), ids=str)
def test_every_query_brings_data(stack: Stack, target: Target) -> None:
    found = values(stack, target, CHOSEN)

    assert found
    assert any(math.isfinite(value) for value in found)


@pytest.mark.parametrize("target", targets("prometheus"), ids=str)
def test_every_query_is_sound_where_nothing_has_run(stack: Stack, target: Target) -> None:
    values(stack, target, {**CHOSEN, "$service": "nobody", "$environment": "nowhere", "$agent": "none"})


def test_the_numbers_are_exact_though_each_process_lived_for_seconds(stack: Stack) -> None:
    numbers = {
        target.panel: values(stack, target, {**CHOSEN, "$agent": "writer|researcher"})
        for target in targets("prometheus")
        if target.board == "loop-health" and target.query.get("instant")
    }

    # In each of the two processes: 9 runs of the two agents, of which 3 are healthy.
    assert numbers == {
        "Healthy runs": [pytest.approx(6 / 18)],
        "Runs": [18.0],
        "Unhealthy runs": [12.0],
        "Doom loops": [4.0],
        "Wasted iterations": [pytest.approx(8 / 46)],
        "Tokens wasted": [16_000_000.0],
        "Cost wasted": [pytest.approx(6.0)],
        "Open now": [0.0],
    }


def test_exemplars_lead_to_traces(stack: Stack) -> None:
    end = stack.now()
    without: list[str] = []
    traces: set[str] = set()
    for target in targets("prometheus"):
        if target.query.get("exemplar"):
            query = put(target.query["expr"], CHOSEN)
            data = stack.ask("query_exemplars", query=query, start=end - 3600, end=end)
            found = {each["labels"]["trace_id"] for series in data for each in series["exemplars"]}
            traces |= found
            if not found:
                without.append(str(target))

    assert without == []
    for trace in sorted(traces)[:3]:
        assert stack.jaeger.trace(trace)["traceID"] == trace


@pytest.mark.parametrize("target", targets("jaeger"), ids=str)
def test_the_tables_find_unhealthy_runs(stack: Stack, target: Target) -> None:
    # Grafana takes logfmt and asks Jaeger with a JSON object of texts.
    tags = dict(re.findall(r'([\w.]+)="?([^" ]+)"?', put(target.query["tags"], CHOSEN)))
    query = {"service": "reports", "tags": str(tags).replace("'", '"'), "limit": target.query["limit"]}
    found = get(f"{stack.jaeger.url}/api/traces", **query)["data"]

    agents = {
        tag["value"]
        for trace in found
        for span in trace["spans"]
        for tag in span["tags"]
        if tag["key"] == "gen_ai.agent.name"
    }
    # Of each agent in each process: one wasted, one over budget, one in circles.
    expected = {"loop-health": (12, {"writer", "researcher"}), "one-agent": (6, {"writer"})}
    assert (len(found), agents) == expected[target.board]


def test_the_variables_offer_what_there_is(stack: Stack) -> None:
    end = stack.now()

    def offered(label: str, metric: str = "loopeval_runs_started_total") -> list[str]:
        return stack.ask(f"label/{label}/values", **{"match[]": metric, "start": end - 3600, "end": end})

    assert offered("service_name") == ["reports"]
    assert offered("deployment_environment_name") == ["staging"]
    assert offered("service_version") == ["1.4.0", "1.5.0"]
    assert {"researcher", "writer"} <= set(offered("gen_ai_agent_name"))
