"""The safety net of this test suite: an error that our guard keeps from the program fails the test."""

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from opentelemetry.context import attach, get_current, set_value
from otel_loopeval.otel import errors


def test_swallows():
    errors.swallow("somewhere", ValueError())


@pytest.mark.swallows
def test_swallows_on_purpose():
    errors.swallow("somewhere", ValueError())


def test_leaves_a_run_current():
    attach(set_value("otel_loopeval.run", object()))


def test_comes_after_it():
    assert get_current().get("otel_loopeval.run") is None
    assert errors.counts == {}
"""


def test_swallowed_errors_and_leaked_contexts_fail_a_test(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_four.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = swallows: on purpose\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rE", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed, 2 errors" in done.stdout, done.stdout
    assert "AssertionError: swallowed in ['somewhere']" in done.stdout
    assert "AssertionError: the test ended with a run or an iteration still current" in done.stdout
    failed = [
        line.rpartition("::")[2].split()[0] for line in done.stdout.splitlines() if line.startswith("ERROR ")
    ]
    assert failed == ["test_swallows", "test_leaves_a_run_current"]
