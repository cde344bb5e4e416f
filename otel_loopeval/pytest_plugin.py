"""The pytest plugin: tests that fail if the loops they ran were unhealthy.

    @pytest.mark.loop_health(max_wasted_iterations=1)
    def test_writer():
        my_agent_loop()

    def test_writer_by_hand(loop_health):
        my_agent_loop()
        assert [run.iterations for run in loop_health.runs] == [3]

Options of the marker are those of :meth:`otel_loopeval.testing.LoopHealth.problem`, and ``check=False`` to
only look. Every project with this package installed loads this module, so it imports nothing but pytest.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from otel_loopeval.testing import LoopHealth

_MARKER = "loop_health"
_SIGNATURE = (
    f"{_MARKER}(*, min_runs=1, allow_doom_loops=False, agent=None, threshold=None, "
    "max_wasted_iterations=None, token_budget=None, check=True)"
)
_KEY: "pytest.StashKey[LoopHealth]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", f"{_SIGNATURE}: fail if a loop that the test runs is unhealthy")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a marked test the fixture, before all others: their loops count too."""
    names = getattr(item, "fixturenames", None)
    if names is not None and _MARKER not in names and item.get_closest_marker(_MARKER) is not None:
        names.insert(0, _MARKER)


# Last: the test has run by then, and a test that failed does not come here. A wrapper would do as well, but
# which kind of wrapper may raise differs from one version of pytest to the next.
@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test that has run, if its loops are unhealthy."""
    health = item.stash.get(_KEY, None)
    if health is None:
        return
    options: dict[str, object] = {}
    for marker in reversed(list(item.iter_markers(_MARKER))):  # the closest last: it wins
        if marker.args:
            pytest.fail(f"{_MARKER} takes no positional arguments: {_SIGNATURE}", pytrace=False)
        options.update(marker.kwargs)
    if not options.pop("check", True):
        return
    try:
        problem = health.problem(**options)  # pyright: ignore[reportArgumentType] - it checks them
    except TypeError as error:
        pytest.fail(f"bad option of the {_MARKER} marker: {error}\n{_SIGNATURE}", pytrace=False)
    if problem is not None:
        pytest.fail(f"loop health: {problem}", pytrace=False)


@pytest.fixture
def loop_health(request: pytest.FixtureRequest) -> "Iterator[LoopHealth]":
    """The health of the loops that end during the test, which fails if one of them is unhealthy."""
    from otel_loopeval.testing import LoopHealth  # noqa: PLC0415 - imports OpenTelemetry's SDK

    with LoopHealth() as health:
        request.node.stash[_KEY] = health
        yield health
