"""Hostile senders, and the lowest supported versions of what ``serve`` needs, with the built wheel."""

import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.environments import FLOOR, ROOT, Environment, make_environment

TESTS = [
    str(ROOT / "tests" / "server" / f"test_serve_{name}.py")
    for name in ("connections", "hostile", "hostile_grpc", "intake")
]


def lowest(wheel: str, *extras: str) -> list[str]:
    """What extras of the wheel ask for, at its lowest; OpenTelemetry is pinned elsewhere."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    asked = re.findall(r"^Requires-Dist: ([\w-]+)>=([\w.]+).*extra == '(\w+)'", text, re.MULTILINE)
    return [
        f"{name}=={version}"
        for name, version, extra in asked
        if extra in extras and not name.startswith("opentelemetry")
    ]


@pytest.fixture(scope="module")
def lowest_server(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with the lowest of what serve needs."""
    requirements = [f"{wheel}[server]", "pytest", "pytest-asyncio", "hypothesis", "h2", "zstandard"]
    constraints = [*lowest(wheel, "server", "sources"), *FLOOR]
    assert {"grpcio==1.84", "httptools==0.6.3", "msgspec==0.19"} <= set(constraints)
    folder = tmp_path_factory.mktemp("environment")
    yield from make_environment("lowest-server", requirements, constraints, folder)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="some of the lowest are not built for this Python")
def test_hostile_senders(lowest_server: Environment, tmp_path: Path) -> None:
    done = lowest_server.run(
        ["pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), *TESTS],
        {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
        cwd=tmp_path,
        timeout_s=1200,
    )

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
