"""Real processes: a receiver, a stub of the OpenAI API, and environments that hold the built wheel."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.environments import FLOOR, Environment, build_wheel, make_environment
from support.otlp import OtlpReceiver
from support.processes import StubProcess, this_environment

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs real processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def receiver_process() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(receiver_process: OtlpReceiver) -> OtlpReceiver:
    """A receiver to which nothing has come yet."""
    receiver_process.clear()
    return receiver_process


@pytest.fixture
def stub() -> Iterator[StubProcess]:
    """A stub at the beginning of its script."""
    with StubProcess() as process:
        yield process


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel, built from the checkout."""
    if not IN_CI:
        pytest.skip("builds virtual environments from the package index: run with CI=true")
    return str(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="session")
def newest(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with the newest OpenTelemetry, as a user of zero-code instrumentation installs it."""
    yield from make_environment(
        "newest", [f"{wheel}[auto,praisonai]"], [], tmp_path_factory.mktemp("environment")
    )


@pytest.fixture(scope="session")
def floor(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with the lowest supported OpenTelemetry, and what the tests of telemetry need."""
    requirements = [f"{wheel}[auto,judge,praisonai]", "pytest", "pytest-asyncio", "hypothesis"]
    yield from make_environment("floor", requirements, FLOOR, tmp_path_factory.mktemp("environment"))


@pytest.fixture(params=["newest", "floor"])
def environment(request: pytest.FixtureRequest) -> Environment:
    """Each of the two environments that hold the wheel."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["this", "floor"])
def interpreter(request: pytest.FixtureRequest) -> Environment:
    """The environment that the tests run in, and the lowest supported OpenTelemetry."""
    return this_environment() if request.param == "this" else request.getfixturevalue("floor")
