"""The README's shell commands, as written, in a clean copy of the checkout and a fresh environment.

The block that installs and runs the tests is run by ``.ci/run``.
"""

import re
import shutil
import signal
import subprocess
import time
import venv
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest
from support.environments import ROOT, clean_environment
from support.otlp import OtlpReceiver
from support.processes import StubProcess
from support.readme import blocks
from support.servers import free_ports

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
    (block,) = (block for block in blocks("bash") if "demo -o traces.jsonl" in block.text)
    done = run_block(block.text, clean_copy)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    for agent, verdict in (
        ("writer", "✔ healthy"),
        ("polisher", "✘ unhealthy"),
        ("researcher", "✘ unhealthy"),
    ):
        assert re.search(rf"{agent} +{verdict}", done.stdout), done.stdout


@contextmanager
def serving(command: str, copy: Path) -> Generator[str, None, None]:
    """A command that serves until it is told to stop; gives the first line that says where it listens."""
    environment = clean_environment({}, first_on_path=copy.parent / "venv" / "bin")
    process = subprocess.Popen(
        ["bash", "-ec", f"exec {command}"], cwd=copy, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if "listening at" in line:
                break
        else:
            raise AssertionError(said)
        draining = Thread(target=process.stderr.read, daemon=True)
        draining.start()
        yield line
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)


def page_at(url: str) -> str:
    with urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def test_serve_without_a_backend(clean_copy: Path) -> None:
    start, send = (
        next(block.text for block in blocks("bash") if part in block.text)
        for part in ('".[server]"', "OTLP_ENDPOINT=http://127.0.0.1:4318")
    )
    install, command = start.splitlines()
    assert command == "otel-loopeval serve"
    installed = run_block(install, clean_copy)
    assert installed.returncode == 0, installed.stdout[-2000:] + installed.stderr
    http, grpc = free_ports(2)
    ports = f"--http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} --grace 1s"  # those that it has may be taken

    with serving(f"{command} {ports}", clean_copy) as listening:
        assert f"http://127.0.0.1:{http}" in listening
        sent = run_block(send.replace(":4318", f":{http}"), clean_copy)
        assert sent.returncode == 0, sent.stdout[-2000:] + sent.stderr
        end = time.monotonic() + 60
        shown: set[str] = set()
        while len(shown) < 3 and time.monotonic() < end:
            time.sleep(0.2)
            shown = set(
                re.findall(r"<bdi>(writer|polisher|researcher)</bdi>", page_at(f"http://127.0.0.1:{http}/"))
            )
        listed = page_at(f"http://127.0.0.1:{http}/")

    assert shown == {"writer", "polisher", "researcher"}
    assert "doom loop (repeated_action)" in listed
    assert (clean_copy / "otel-loopeval.db").exists()


def test_serve_in_front_of_a_backend(clean_copy: Path, receiver: OtlpReceiver) -> None:
    (command,) = (block.text.strip() for block in blocks("bash") if "serve --forward" in block.text)
    http, grpc = free_ports(2)
    replaced = command.replace("127.0.0.1:4328", f"127.0.0.1:{receiver.http_port}")
    ports = f"--http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} --grace 1s"
    with serving(f"{replaced} {ports}", clean_copy):
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{http}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        done = run_block("otel-loopeval demo", clean_copy, variables)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr

    assert receiver.received().span("evaluation_loop writer")
    assert (clean_copy / "runs.db").exists()


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
