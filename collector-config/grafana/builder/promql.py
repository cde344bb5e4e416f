"""PromQL for counts of rare things in processes that may live for seconds.

``increase()`` and ``rate()`` see nothing of a series' first value, so the one doom loop of a process, or the
one run of a job, would not be on any dashboard. :func:`grown` counts them, at once and with exemplars.
:func:`recorded` reads the same counts from recording rules: cheap over many agents and days, up to five
minutes late, and without the version of a service.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from builder import names

RANGE: Final = "$__range"
"""The dashboard's whole time range."""
STEP: Final = "$__interval"
"""The distance between two points of a panel: neighbouring windows, so that sums over a panel are exact."""
WINDOW: Final = "1h"
"""A rolling hour, as alerts look at it: runs are rare, and shares of two or three say nothing."""

_MEMORY: Final = "1h"
"""How long a series may have been away, as with a Collector that was down, and not be taken for a new one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series a panel looks at.

    Attributes:
        matchers: What labels have to be: an operator and a value in quotes, by label.
    """

    matchers: Mapping[str, str] = field(default_factory=dict[str, str])

    def matching(self, **patterns: str) -> "Scope":
        """A narrower scope, by regular expressions: Grafana escapes what variables of several values hold."""
        return Scope({**self.matchers, **{name: f'=~"{pattern}"' for name, pattern in patterns.items()}})

    def exactly(self, **values: str) -> "Scope":
        """A narrower scope, by values: for variables of one value, in which Grafana escapes nothing."""
        return Scope({**self.matchers, **{name: f'="{value}"' for name, value in values.items()}})

    def select(self, metric: str) -> str:
        """The series of a metric that are in scope."""
        inside = ",".join(f"{name}{wanted}" for name, wanted in self.matchers.items())
        return f"{metric}{{{inside}}}" if inside else metric


def grown(scope: Scope, counter: str, over: str, by: Sequence[str] = ()) -> str:
    """How much a counter grew over a window, first values included, in whole numbers.

    A series that was there before grew by the difference, any other (new, or reset since) by its value.
    """
    series = scope.select(counter)
    now = f"last_over_time({series}[{over}])"
    before = f"last_over_time({series}[{_MEMORY}] offset {over})"
    return total(f"({now} - {before}) >= 0 or {now}", by)


def recorded(scope: Scope, counter: str, over: str, by: Sequence[str] = ()) -> str:
    """As :func:`grown`, from the recording rule: sums of windows of five minutes side by side."""
    return total(f"sum_over_time({scope.select(names.RECORDED[counter])}[{over}:5m])", by)


Count = Callable[[Scope, str, str, Sequence[str]], str]
"""How to count: :func:`grown` or :func:`recorded`."""


def total(expression: str, by: Sequence[str] = ()) -> str:
    """A sum, by labels."""
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def or_zero(expression: str, like: str) -> str:
    """An expression, 0 where it has no value but another has."""
    return f"({expression} or 0 * {like})"


def ratio(part: str, whole: str) -> str:
    """A part of a whole; 0 where there is none of the part, nothing where there is none of the whole."""
    return f"{or_zero(part, whole)} / ({whole} > 0)"


def quantile(share: float, scope: Scope, histogram: str, over: str, by: Sequence[str] = ()) -> str:
    """A quantile of what a histogram took in over a window."""
    return f"histogram_quantile({share}, {grown(scope, f'{histogram}_bucket', over, ['le', *by])})"


# --- What is counted of runs ------------------------------------------------------------------------


def healthy_share(scope: Scope, over: str, by: Sequence[str] = (), count: Count = grown) -> str:
    """Share of the runs with a verdict that are healthy."""
    return ratio(
        count(scope.exactly(**{names.PASSED: "true"}), names.RUNS, over, by),
        count(scope.matching(**{names.PASSED: ".+"}), names.RUNS, over, by),
    )


def wasted_share(scope: Scope, over: str, by: Sequence[str] = (), count: Count = grown) -> str:
    """Share of the iterations that were wasted."""
    return ratio(count(scope, names.WASTED_ITERATIONS, over, by), count(scope, names.ITERATIONS, over, by))


def part_of(
    scope: Scope, counter: str, whole: str, over: str, by: Sequence[str] = (), count: Count = grown
) -> str:
    """A count that is 0, not absent, where there is some of what it is a part of."""
    return or_zero(count(scope, counter, over, by), count(scope, whole, over, by))


def per_run(scope: Scope, counter: str, over: str, by: Sequence[str] = (), count: Count = grown) -> str:
    """Mean of a counter over the runs that ended."""
    return ratio(count(scope, counter, over, by), count(scope, names.RUNS, over, by))


def iterations_to_success(scope: Scope, over: str, by: Sequence[str] = ()) -> str:
    """Mean number of iterations that a run needed: those that ran without those that were wasted."""
    ran = grown(scope, f"{names.RUN_ITERATIONS}_sum", over, by)
    runs = grown(scope, f"{names.RUN_ITERATIONS}_count", over, by)
    wasted = or_zero(grown(scope, names.WASTED_ITERATIONS, over, by), ran)
    return f"({ran} - {wasted}) / ({runs} > 0)"
