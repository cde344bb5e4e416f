"""Fixtures of the instrumentation tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from instrumented_loops import FAMILIES, Family


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    """Our own loop class and the real one of praisonaiagents, in turn."""
    return FAMILIES[request.param]()
