"""Fixtures of the evaluation tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The support folder is not a package of the project; every test directory may import it this way.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.openai_stub import OpenAIStub


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub() as server:
        yield server
