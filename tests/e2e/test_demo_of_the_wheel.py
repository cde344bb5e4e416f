"""``otel-loopeval demo`` from the installed wheel: to a backend where there is one, else to a file."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.environments import Environment
from support.otlp import OtlpReceiver

VERDICTS: dict[str, tuple[bool, list[str]]] = {
    "evaluation_loop writer": (True, []),
    "evaluation_loop polisher": (False, ["wasted_iterations"]),
    "evaluation_loop researcher": (False, ["not_converged", "doom_loop"]),
}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_to_a_backend(
    environment: Environment, receiver: OtlpReceiver, tmp_path: Path, protocol: str
) -> None:
    endpoint = {
        name: value
        for name, value in receiver.environment(protocol).items()
        if name in {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"}
    }
    done = environment.run(["otel-loopeval", "demo"], {**endpoint, "PYTHONUTF8": "1"}, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    received = receiver.received()
    assert received.protocols == {protocol}
    roots = [span for span in received.spans() if span["parent_id"] is None]
    verdicts = {
        root["name"]: (
            root["attributes"]["loopeval.health.passed"],
            root["attributes"].get("loopeval.health.reasons", []),
        )
        for root in roots
    }
    assert verdicts == VERDICTS
    events = [event["name"] for span in received.spans() for event in span["events"]]
    assert events.count("loopeval.guard") == 1
    assert events.count("gen_ai.evaluation.result") == 13


def test_to_a_file(newest: Environment, tmp_path: Path) -> None:
    started = time.monotonic()
    done = newest.run(["otel-loopeval", "demo"], {"PYTHONUTF8": "1"}, cwd=tmp_path)
    took = time.monotonic() - started

    assert done.returncode == 0, done.stderr
    assert took < 30  # the goal is 10 s on an idle machine
    assert "\x1b" not in done.stdout  # piped: no colours
    assert "loopeval-demo.jsonl" in done.stdout
    (file,) = tmp_path.iterdir()
    names: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        request: dict[str, Any] = json.loads(line)
        for resource_spans in request["resourceSpans"]:
            for scope_spans in resource_spans["scopeSpans"]:
                names.extend(span["name"] for span in scope_spans["spans"])
    inside = ("evaluation_loop.iteration", "evaluate")
    assert sorted(name for name in names if name not in inside) == sorted(VERDICTS)
    assert [names.count(name) for name in inside] == [13, 3]


def test_version(newest: Environment, tmp_path: Path) -> None:
    from otel_loopeval import __version__  # noqa: PLC0415 - the checkout's, to compare with the wheel's

    done = newest.run(["otel-loopeval", "--version"], cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout == f"otel-loopeval {__version__}\n"
