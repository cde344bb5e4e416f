"""One Spark session for all tests: starting one takes longer than most of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from spark.spark_session import required, session, why_not

_skipped: list[str] = []


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two task slots; without Spark the test skips with the reason."""
    missing = why_not()
    if missing is not None:
        pytest.skip(missing)
    with session(2, brief=True) as found:
        yield found


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what has skipped."""
    if report.skipped and "tests/spark/" in report.nodeid:
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note whole files that have skipped."""
    if report.skipped and "tests/spark/" in report.nodeid:
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In the stage of CI that is theirs, none may skip."""
    if required() and _skipped and session.exitstatus == pytest.ExitCode.OK:
        print("\nskipped, though all tests of Spark are required here:", *_skipped, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
