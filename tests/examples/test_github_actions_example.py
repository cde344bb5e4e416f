"""The commands of the GitHub Actions example work as they are written, in a copy of its folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.environments import ROOT, clean_environment

EXAMPLE = ROOT / "examples" / "github-actions"
STEPS: list[dict[str, Any]] = yaml.safe_load((EXAMPLE / "agent-loops.yml").read_text())["jobs"]["loops"][
    "steps"
]
COMMANDS: dict[str, str] = {step["name"]: step["run"] for step in STEPS if "run" in step}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copied = tmp_path / "project"
    shutil.copytree(
        EXAMPLE, copied, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache", "traces.jsonl")
    )
    return copied


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does."""
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", COMMANDS[name]],
        cwd=folder,
        env=clean_environment(
            {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "PYTHONUTF8": "1"},
            first_on_path=Path(sys.executable).parent,
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_steps_are_these() -> None:
    assert list(COMMANDS) == ["Install", "Run the agent tests", "Are the loops healthy?", "Write the reports"]
    assert COMMANDS["Install"] == "pip install otel-loopeval pytest"


def test_the_workflow_passes_as_it_is(folder: Path) -> None:
    tests = run("Run the agent tests", folder)
    assert tests.returncode == 0, tests.stdout
    assert "7 passed" in tests.stdout

    gate = run("Are the loops healthy?", folder)
    assert gate.returncode == 0, gate.stdout + gate.stderr
    assert gate.stdout == "Loop health: 7 runs, 7 healthy, 0 unhealthy\n"
    assert (folder / "summary.md").read_text().startswith("## ✅ Loop health: passed\n")

    reports = run("Write the reports", folder)
    assert reports.returncode == 0, reports.stderr
    report = json.loads((folder / "loop-health.json").read_text())
    assert {run["service"] for run in report["runs"]} == {"agent-tests"}
    assert (
        '<testsuites name="otel-loopeval" tests="7" failures="0"' in (folder / "loop-health.xml").read_text()
    )


def test_a_worse_agent_fails_its_tests_and_the_gate(folder: Path) -> None:
    agent = folder / "agent.py"
    agent.write_text(agent.read_text().replace("else 9.0", "else 7.5"))

    tests = run("Run the agent tests", folder)
    assert tests.returncode == 1
    assert "loop health: 1 of 1 loop unhealthy" in tests.stdout
    assert "2 failed, 5 passed" in tests.stdout  # the answers are right: only the marker fails

    gate = run("Are the loops healthy?", folder)
    assert gate.returncode == 1
    fell = "researcher: health rate fell, 100.0%25 to 0.0%25"
    assert f"::error title=Loop health%3A baseline::{fell}" in gate.stdout.splitlines()


def test_the_baseline_is_made_by_the_command_that_the_readme_gives(folder: Path) -> None:
    (command,) = [
        line.strip()
        for line in (EXAMPLE / "README.md").read_text().splitlines()
        if "-o baseline.json" in line
    ]
    COMMANDS["Make a baseline"] = command
    (folder / "baseline.json").unlink()
    run("Run the agent tests", folder)
    made = run("Make a baseline", folder)
    del COMMANDS["Make a baseline"]
    assert made.returncode == 0, made.stderr
    kept = json.loads((EXAMPLE / "baseline.json").read_text())
    fresh = json.loads((folder / "baseline.json").read_text())
    assert fresh["agents"] == kept["agents"]
