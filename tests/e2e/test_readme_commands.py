"""The README's shell commands, as written, in a clean copy of the checkout and a fresh environment.

The block that installs and runs the tests is run by ``.ci/run``.
"""

import re
import shutil
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.environments import ROOT, clean_environment
from support.otlp import OtlpReceiver
from support.processes import StubProcess
from support.readme import blocks

NOT_IN_A_CLONE = (".git", ".*_cache", ".hypothesis", ".venv", ".benchmarks", "__pycache__", "dist", "build")


@pytest.fixture(scope="module")
def clean_copy(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout (``wheel`` only says whether environments may be made here)."""
    copy = tmp_path_factory.mktemp("clean") / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_IN_A_CLONE))
    venv.create(copy.parent / "venv", with_pip=True)
    return copy


def run_block(
    text: str, copy: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(
        {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **(variables or {})},
        first_on_path=copy.parent / "venv" / "bin",
    )
    return subprocess.run(
        ["bash", "-ec", text],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_install_and_demo(clean_copy: Path) -> None:
    done = run_block(blocks("bash")[0].text, clean_copy)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "loopeval-demo.jsonl" in done.stdout
    assert (clean_copy / "loopeval-demo.jsonl").exists()


def test_zero_code(clean_copy: Path, receiver: OtlpReceiver, stub: StubProcess) -> None:
    (program,) = (block.text for block in blocks("python") if block.note == "file: app.py")
    (clean_copy / "app.py").write_text(program)
    endpoint = re.compile("http://localhost:4317")
    commands, replaced = endpoint.subn(f"http://127.0.0.1:{receiver.grpc_port}", blocks("bash")[2].text)
    assert replaced == 1

    done = run_block(commands, clean_copy, stub.environment())

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    root = receiver.received().span("evaluation_loop writer")
    assert root["resource"]["service.name"] == "writer"
    assert root["attributes"]["loopeval.health.passed"] is True


def test_stored_traces(clean_copy: Path) -> None:
    (block,) = (block for block in blocks("bash") if "otel-loopeval score" in block.text)
    done = run_block(block.text, clean_copy)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    for agent, verdict in (
        ("writer", "✔ healthy"),
        ("polisher", "✘ unhealthy"),
        ("researcher", "✘ unhealthy"),
    ):
        assert re.search(rf"{agent} +{verdict}", done.stdout), done.stdout


def has_compose() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="there is no docker compose here")
def test_compose(clean_copy: Path) -> None:
    (block,) = (block for block in blocks("bash") if block.text.startswith("docker compose"))
    command, demo = block.text.splitlines()
    assert demo == "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 otel-loopeval demo"
    checked = run_block(command.replace("up -d", "config --quiet"), clean_copy)

    assert checked.returncode == 0, checked.stderr
