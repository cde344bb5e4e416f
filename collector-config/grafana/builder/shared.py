"""Panels that stand on more than one dashboard."""

from typing import Final

from builder import frame, names, panels, traces
from builder.frame import Panel
from builder.panels import Query
from builder.promql import (
    RANGE,
    STEP,
    WINDOW,
    Count,
    Scope,
    grown,
    healthy_share,
    iterations_to_success,
    or_zero,
    part_of,
    quantile,
    total,
    wasted_share,
)
from otel_loopeval import semconv

AGENT_LEGEND: Final = f"{{{{{names.SERVICE}}}}} / {{{{{names.AGENT}}}}}"

NO_TOKENS: Final = "No tokens seen: model calls inside runs are not instrumented"
NO_COST: Final = "No cost known: install otel-loopeval[cost]"
NO_SCORES: Final = "No scored runs in this time range"


def numbers(scope: Scope, count: Count = grown) -> list[Panel]:
    """The whole time range in eight numbers."""
    unhealthy = count(scope.exactly(**{names.PASSED: "false"}), names.RUNS, RANGE, ())
    return [
        panels.number(
            "Healthy runs",
            "Share of the runs with a verdict that converged without a doom loop and within their limits. "
            "Runs that were paused, cancelled or cut off have no verdict.",
            healthy_share(scope, RANGE, count=count),
            unit=panels.SHARE,
            steps=panels.HIGH_IS_GOOD,
            base=panels.RED,
            decimals=1,
        ),
        panels.number("Runs", "Runs that ended.", count(scope, names.RUNS, RANGE, ()), decimals=0),
        panels.number(
            "Unhealthy runs",
            "Runs that did not converge, looped in place, wasted iterations or went over their token budget.",
            or_zero(unhealthy, count(scope, names.RUNS, RANGE, ())),
            steps=panels.ANY_IS_BAD,
            decimals=0,
        ),
        panels.number(
            "Doom loops",
            "Doom loops that fired, counted as they do: also in runs that are still going.",
            part_of(scope, names.DOOM_LOOPS, names.RUNS_STARTED, RANGE, count=count),
            steps=panels.ANY_IS_BAD,
            decimals=0,
        ),
        panels.number(
            "Wasted iterations",
            "Share of all iterations that ran after the threshold was met, or only repeated earlier ones.",
            wasted_share(scope, RANGE, count=count),
            unit=panels.SHARE,
            steps=panels.WASTE,
            decimals=1,
        ),
        panels.number(
            "Tokens wasted",
            "Tokens of wasted iterations.",
            part_of(scope, names.WASTED_TOKENS, names.TOKENS, RANGE, count=count),
            empty=NO_TOKENS,
        ),
        panels.number(
            "Cost wasted",
            "Cost of wasted iterations, of models whose price is known.",
            part_of(scope, names.WASTED_COST, names.COST, RANGE, count=count),
            unit=panels.USD,
            empty=NO_COST,
        ),
        panels.number(
            "Open now",
            "Runs in progress. Those of a killed process stay here until the Collector forgets its series "
            "(an hour).",
            total(scope.select(names.OPEN_RUNS)),
            decimals=0,
            empty="No process reports",
        ),
    ]


def rolling_hour(title: str, description: str, scope: Scope, rule: str) -> Panel:
    """A share by agent, as recorded over a rolling hour."""
    return panels.lines(
        title,
        f"{description} Over a rolling hour, as the alerts judge it, and up to five minutes late.",
        Query(scope.select(rule), AGENT_LEGEND),
        unit=panels.SHARE,
        most=1,
        links=[frame.of_series(with_service=True)],
    )


def healthy_over_time(scope: Scope) -> Panel:
    """Share of healthy runs."""
    description = "Share of the runs with a verdict that are healthy."
    return rolling_hour("Healthy runs", description, scope, names.HEALTH_RATIO_1H)


def waste(scope: Scope) -> Panel:
    """Share of wasted iterations."""
    description = "Share of iterations that ran after the threshold was met, or only repeated earlier ones."
    return rolling_hour("Wasted iterations", description, scope, names.WASTED_RATIO_1H)


def doom_loops_by_kind(scope: Scope) -> Panel:
    """What kind of loops fired."""
    return panels.bars(
        "Doom loops by kind",
        "Doom loops at the moment they fired, by what was seen. Dots open the trace.",
        Query(grown(scope, names.DOOM_LOOPS, STEP, [names.KIND]), f"{{{{{names.KIND}}}}}"),
        empty="No doom loop in this time range",
        exemplars=True,
    )


def interventions(scope: Scope) -> Panel:
    """What guards did."""
    return panels.bars(
        "Guard interventions by action",
        "Guard events, doom loops among them, by what the guard did: observe and warn let the agent go on; "
        "block, halt and recover contain it.",
        Query(grown(scope, names.INTERVENTIONS, STEP, [names.ACTION]), f"{{{{{names.ACTION}}}}}"),
        empty="No guard stepped in",
    )


def outcomes(scope: Scope) -> Panel:
    """How runs ended."""
    return panels.bars(
        "Runs by outcome",
        "How runs ended. Paused, cancelled, interrupted and incomplete ones have no verdict.",
        Query(grown(scope, names.RUNS, STEP, [names.OUTCOME]), f"{{{{{names.OUTCOME}}}}}"),
        exemplars=True,
    )


def scores(scope: Scope) -> Panel:
    """How close runs came to their threshold."""
    return panels.distribution(
        "Best score over threshold",
        "Runs by their best score as a share of the threshold: from 100 % upwards a run has reached it. "
        "Dots open the trace.",
        grown(scope, f"{names.RUN_SCORE_RATIO}_bucket", STEP, ["le"]),
        unit=panels.SHARE,
        empty=NO_SCORES,
    )


def iterations(scope: Scope) -> Panel:
    """How long runs take, in iterations."""
    return panels.lines(
        "Iterations to success",
        "Mean iterations until the threshold was met (all of them where it was not), and the median and "
        "95th percentile of the iterations that ran, over a rolling hour. The gap between them is waste.",
        Query(iterations_to_success(scope, WINDOW), "needed, mean"),
        Query(quantile(0.5, scope, names.RUN_ITERATIONS, WINDOW), "ran, median"),
        Query(quantile(0.95, scope, names.RUN_ITERATIONS, WINDOW), "ran, p95"),
        exemplars=True,
    )


def duration(scope: Scope) -> Panel:
    """How long runs take, in time."""
    return panels.lines(
        "Duration of runs",
        "Wall-clock duration over a rolling hour. The buckets are wide (1 s to 7 days): read it as an order "
        "of magnitude, and the dots for single runs.",
        Query(quantile(0.5, scope, names.RUN_DURATION, WINDOW), "median"),
        Query(quantile(0.95, scope, names.RUN_DURATION, WINDOW), "p95"),
        unit=panels.SECONDS,
        exemplars=True,
    )


def tokens(scope: Scope) -> Panel:
    """What runs use."""
    return panels.bars(
        "Tokens",
        "Tokens as each model call inside a run ends; those of judges apart.",
        Query(grown(scope, names.TOKENS, STEP, [names.TOKEN_TYPE]), f"{{{{{names.TOKEN_TYPE}}}}}"),
        Query(grown(scope, names.JUDGE_TOKENS, STEP), "judges"),
        unit=panels.COUNT,
        empty=NO_TOKENS,
    )


def wasted_tokens(scope: Scope) -> Panel:
    """What runs use for nothing."""
    return panels.bars(
        "Tokens wasted",
        "Tokens of wasted iterations, counted when their run ends, by agent.",
        Query(grown(scope, names.WASTED_TOKENS, STEP, [names.AGENT]), f"{{{{{names.AGENT}}}}}"),
        empty=NO_TOKENS,
        links=[frame.of_series()],
    )


def cost(scope: Scope) -> Panel:
    """What runs cost."""
    return panels.bars(
        "Cost",
        "Cost of model calls whose price is known, as each ends; that of judges apart.",
        Query(grown(scope, names.COST, STEP), "agents"),
        Query(grown(scope, names.JUDGE_COST, STEP), "judges"),
        unit=panels.USD,
        empty=NO_COST,
    )


def wasted_cost(scope: Scope) -> Panel:
    """What runs cost for nothing."""
    return panels.bars(
        "Cost wasted",
        "Cost of wasted iterations, counted when their run ends, by agent.",
        Query(grown(scope, names.WASTED_COST, STEP, [names.AGENT]), f"{{{{{names.AGENT}}}}}"),
        unit=panels.USD,
        empty=NO_COST,
        links=[frame.of_series()],
    )


def unhealthy_runs(store: traces.Store) -> Panel:
    """The traces of unhealthy runs."""
    return panels.found(
        "Recent unhealthy runs of $service" if store == "jaeger" else "Recent unhealthy runs",
        "Traces with a run whose verdict is unhealthy. Click one to open it.",
        traces.search(store, {semconv.HEALTH_PASSED: False}),
        traces.source(store),
        repeat="service" if store == "jaeger" else None,
        empty="No unhealthy run found",
    )
