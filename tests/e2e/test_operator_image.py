"""What the OpenTelemetry Operator does with the image of ``docker/autoinstrumentation.Dockerfile``.

It copies a folder of packages into a pod and puts it on ``PYTHONPATH``; the program's own environment knows
nothing of OpenTelemetry. No containers run here: the folder is made by the Dockerfile's own list of packages.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.environments import ROOT, Environment, clean_environment
from support.otlp import OtlpReceiver

APPS = Path(__file__).with_name("apps")
DOCKERFILE = ROOT / "collector-config" / "docker" / "autoinstrumentation.Dockerfile"


def packages() -> list[str]:
    """What the Dockerfile installs."""
    commands = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(r"pip install --no-cache-dir --target /autoinstrumentation (.+)", commands)
    assert found is not None
    return found.group(1).replace('"', "").split()


@pytest.fixture
def copied(wheel: str, tmp_path: Path) -> Path:
    """The folder that the Operator copies into the pod."""
    folder = tmp_path / "otel-auto-instrumentation-python"
    wanted = [name.replace("otel-loopeval", wheel) for name in packages()]
    assert wanted[0] == f"{wheel}[auto]"
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    subprocess.run([*command, "--target", str(folder), *wanted], env=clean_environment(), check=True)
    return folder


def test_an_annotated_pod_tells_of_its_loops(copied: Path, receiver: OtlpReceiver, tmp_path: Path) -> None:
    pod = Environment(tmp_path / "pod")
    create = [sys.executable, "-m", "venv", "--without-pip", str(pod.path)]
    subprocess.run(create, env=clean_environment(), check=True)
    # As the Operator sets them, with the variables of kubernetes/instrumentation.yaml.
    variables = {
        **receiver.environment("http/protobuf"),
        "PYTHONPATH": f"{copied / 'opentelemetry' / 'instrumentation' / 'auto_instrumentation'}:{copied}",
        "OTEL_SERVICE_NAME": "pod",
        "OTEL_LOGS_EXPORTER": "none",
        "LOOPEVAL_MAX_WASTED_ITERATIONS": "0",
    }

    done = pod.run(["python", str(APPS / "own_loop.py")], variables, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    received = receiver.wait_for(3)
    (root,) = [span for span in received.spans() if span["parent_id"] is None]
    assert root["name"].startswith("evaluation_loop ")
    assert root["attributes"]["loopeval.run.outcome"] == "completed"
    assert received.total("loopeval.runs") == 1
