"""Fixtures of all tests: telemetry in memory, a clean slate after each test, and no swallowed errors."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.context import Context, attach, get_current

from otel_loopeval import semconv, testing
from otel_loopeval.otel import _sdk, errors

# The support folder is not a package of the project; every test directory may import it this way.
sys.path.insert(0, str(Path(__file__).resolve().parent))

Swallowed = list[tuple[str, Exception]]


@pytest.fixture(autouse=True)
def swallowed(request: pytest.FixtureRequest) -> Iterator[Swallowed]:
    """What our guard kept from the program: if anything, the test fails, unless marked ``swallows``."""
    seen: Swallowed = []

    def listen(place: str, error: Exception) -> None:
        seen.append((place, error))

    errors.listeners.append(listen)
    yield seen
    errors.listeners.remove(listen)
    if seen and request.node.get_closest_marker("swallows") is None:  # type: ignore[reportUnknownMemberType]
        raise AssertionError(f"swallowed in {[place for place, _ in seen]}") from seen[0][1]


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No options from outside, and nothing of a test left behind for the next one."""
    for variable in list(os.environ):
        if variable.startswith((semconv.ENV_PREFIX, "OTEL_")):
            monkeypatch.delenv(variable)
    yield
    testing.reset()
    left_current = get_current().get(_sdk.RUN_KEY)
    if left_current is not None:
        attach(Context())
        raise AssertionError("the test ended with a run or an iteration still current")


@pytest.fixture
def capture() -> Iterator[testing.Capture]:
    """Telemetry in memory, with ``instrument()`` called on it."""
    with testing.Capture() as capture:
        capture.instrument()
        yield capture


@pytest.fixture
def plain_capture() -> Iterator[testing.Capture]:
    """Telemetry in memory, for a test that calls ``instrument()`` itself or does without."""
    with testing.Capture() as capture:
        yield capture


@pytest.fixture(autouse=True)
def quiet_context_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The SDK logs, and does not raise, where a context token is given back in another context."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name.startswith("opentelemetry") and record.levelno >= logging.ERROR
    ]
    assert complaints == []
