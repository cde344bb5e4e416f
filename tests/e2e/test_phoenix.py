"""The demo's traces in a real Phoenix: taken over OTLP, kept, and found by their verdicts."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.environments import Environment, clean_environment, make_environment
from support.processes import this_environment
from support.servers import await_that, free_ports, get, get_text

from otel_loopeval import semconv

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Phoenix needs Python 3.11")

PHOENIX = "arize-phoenix==20.26.1"
START_S = 300
"""Phoenix is ready within 9 seconds on an idle machine, and took 124 on one with eight builds going."""

Span = dict[str, Any]


@pytest.fixture(scope="module")
def phoenix(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment with Phoenix; beside ``wheel`` only because both are left out where that is."""
    yield from make_environment("phoenix", [PHOENIX], [], tmp_path_factory.mktemp("phoenix"))


@pytest.fixture(scope="module")
def url(phoenix: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Phoenix that has been sent the demo's traces."""
    folder = tmp_path_factory.mktemp("phoenix-data")
    http_port, grpc_port = free_ports(2)
    url = f"http://127.0.0.1:{http_port}"
    variables = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http_port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    with (folder / "phoenix.log").open("wb") as log:
        process = subprocess.Popen(
            [phoenix.script("phoenix"), "serve"],
            env=clean_environment(variables),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        await_that(lambda: [get_text(f"{url}/healthz")], "Phoenix ready", START_S)
        sent = this_environment().run(
            ["otel-loopeval", "demo", "--fast"],
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_RESOURCE_ATTRIBUTES": "openinference.project.name=loops",
                "NO_PROXY": "127.0.0.1",
            },
            cwd=folder,
        )
        assert sent.returncode == 0, sent.stderr
        assert "Sent 3 traces, 19 spans" in sent.stdout
        await_that(lambda: len(spans(url)) == 19, "the spans of the demo")
        yield url
    finally:
        process.terminate()
        process.wait(30)


def spans(url: str, **query: str) -> list[Span]:
    """Spans of the project; none before it has any."""
    known = {project["name"] for project in get(f"{url}/v1/projects")["data"]}
    if "loops" not in known:
        return []
    return get(f"{url}/v1/projects/loops/spans", limit="100", **query)["data"]


def names(found: list[Span]) -> list[str]:
    return sorted(span["name"] for span in found)


def test_runs_are_found_by_their_verdicts(url: str) -> None:
    assert names(spans(url, parent_id="null")) == [
        "evaluation_loop polisher",
        "evaluation_loop researcher",
        "evaluation_loop writer",
    ]
    unhealthy = spans(url, attribute=f"{semconv.HEALTH_PASSED}:false")
    assert names(unhealthy) == ["evaluation_loop polisher", "evaluation_loop researcher"]
    in_circles = spans(url, attribute=f"{semconv.HEALTH_DOOM_LOOP_FIRED}:true")
    assert names(in_circles) == ["evaluation_loop researcher"]


def test_a_run_is_a_tree_with_its_verdict_at_the_root(url: str) -> None:
    (root,) = spans(url, attribute=f"{semconv.HEALTH_DOOM_LOOP_FIRED}:true")
    iterations = [span for span in spans(url) if span["parent_id"] == root["context"]["span_id"]]

    told = {
        name: value
        for name, value in root["attributes"].items()
        if name in {"loopeval.run.outcome", "loopeval.run.iterations", "loopeval.health.threshold"}
        or name.startswith(("loopeval.health.converged", "loopeval.health.reasons", "loopeval.health.doom"))
    }
    assert told == {
        "loopeval.run.outcome": "stopped",
        "loopeval.run.iterations": 4,
        "loopeval.health.threshold": 8.0,
        "loopeval.health.converged": False,
        "loopeval.health.reasons": ["not_converged", "doom_loop"],
        "loopeval.health.doom_loop_fired": True,
        "loopeval.health.doom_loop_kinds": ["repeated_action"],
    }
    assert [type(told[name]) for name in ("loopeval.run.iterations", "loopeval.health.threshold")] == [
        int,
        float,
    ]
    assert names(iterations) == ["evaluation_loop.iteration"] * 4
    events = sorted(event["name"] for span in iterations for event in span["events"])
    assert events == ["gen_ai.evaluation.result"] * 4 + ["loopeval.guard"]


def test_its_pages_are_served(url: str) -> None:
    page = get_text(f"{url}/projects")

    assert "<title>Phoenix</title>" in page
