"""The Collector's files: each is valid as it is, and with the files that are given together with it."""

import subprocess
from pathlib import Path

import pytest
import yaml
from support.backends import MODULES, need
from support.environments import clean_environment
from support.servers import (
    AGENT_CONFIG,
    COLLECTOR_CONFIG,
    CONFIG,
    OTLP_METRICS_CONFIG,
    REMOTE_WRITE_CONFIG,
    SPANS_ONLY_CONFIG,
)

COMBINATIONS = [
    (COLLECTOR_CONFIG,),
    (AGENT_CONFIG,),
    (COLLECTOR_CONFIG, SPANS_ONLY_CONFIG),
    (COLLECTOR_CONFIG, REMOTE_WRITE_CONFIG),
    (COLLECTOR_CONFIG, OTLP_METRICS_CONFIG),
    (CONFIG / "otel-collector-serve-fleet.yaml",),
]


@pytest.mark.parametrize("configs", COMBINATIONS, ids=lambda configs: "+".join(path.stem for path in configs))
def test_files_are_valid_with_their_defaults(configs: tuple[Path, ...]):
    files = [argument for path in configs for argument in ("--config", str(path))]
    done = subprocess.run(
        [need("collector"), "validate", *files],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr


def test_every_file_is_among_those_that_are_validated():
    assert {path for paths in COMBINATIONS for path in paths} == set(CONFIG.glob("otel-collector*.yaml"))


def test_all_modules_of_the_collector_are_of_one_release():
    lines = (MODULES / "collector" / "go.mod").read_text().splitlines()
    versions = {
        line.split()[1] for line in lines if "/collector" in line or "opentelemetry-collector-contrib" in line
    }
    assert versions == {
        "v0.161.0",
        "v1.67.0",
    }  # the second is what stable modules of the same release are called


def test_agents_label_metrics_as_the_single_collector_does():
    single, agent = (yaml.safe_load(path.read_text()) for path in (COLLECTOR_CONFIG, AGENT_CONFIG))
    for part, name in (("processors", "transform/labels"), ("exporters", "prometheus")):
        assert single[part][name] == agent[part][name]


def test_the_two_filters_are_opposites():
    filters = yaml.safe_load(COLLECTOR_CONFIG.read_text())["processors"]
    (loops,), (others,) = (filters[f"filter/{name}"]["trace_conditions"] for name in ("loops", "others"))
    assert loops == f"not {others}"
