"""*One agent*: everything about the runs of one agent."""

from grafana_foundation_sdk.builders import dashboard

from builder import frame, names, panels, shared, traces
from builder.frame import row
from builder.panels import Query
from builder.promql import RANGE, STEP, WINDOW, grown, healthy_share, per_run, quantile, total
from otel_loopeval import semconv


def build(store: traces.Store) -> dashboard.Dashboard:
    """The dashboard, for Jaeger or Tempo."""
    scope = frame.services().exactly(**{names.AGENT: "$agent"})
    built = frame.make(
        frame.ONE_AGENT,
        "One agent",
        "The runs of one agent: verdicts, convergence, what they use and waste, and their traces.",
        [
            *frame.sources(store),
            frame.environment(),
            frame.variable("service", "Service", names.SERVICE, frame.fleet()),
            frame.variable(
                "agent",
                "Agent",
                names.AGENT,
                frame.services(),
                several=False,
            ),
        ],
    )
    for panel in shared.numbers(scope):
        built.with_panel(panel)
    built.with_row(row("Health of $agent"))
    for panel in (
        panels.lines(
            "Healthy runs by version",
            "Share of the runs with a verdict that are healthy, by service.version. Dots open the trace.",
            Query(healthy_share(scope, WINDOW, [names.SERVICE, names.VERSION]), _VERSION_LEGEND),
            unit=panels.SHARE,
            most=1,
            exemplars=True,
        ),
        shared.outcomes(scope),
        shared.doom_loops_by_kind(scope),
        shared.interventions(scope),
    ):
        built.with_panel(panel)
    built.with_row(row("Convergence"))
    for panel in (
        shared.scores(scope),
        shared.iterations(scope),
        panels.distribution(
            "Iterations of runs",
            "Runs by the iterations that they ran. Dots open the trace.",
            grown(scope, f"{names.RUN_ITERATIONS}_bucket", STEP, ["le"]),
            unit=panels.COUNT,
        ),
        shared.duration(scope),
    ):
        built.with_panel(panel)
    built.with_row(row("Spending"))
    for panel in (
        shared.tokens(scope),
        shared.cost(scope),
        panels.lines(
            "Tokens of a run",
            "Mean tokens of a run, its child runs not included, those of judges neither.",
            Query(per_run(scope, names.TOKENS, WINDOW), "per run"),
            Query(per_run(scope, names.WASTED_TOKENS, WINDOW), "of these wasted"),
            width=8,
            empty=shared.NO_TOKENS,
        ),
        panels.lines(
            "Use of the token budget",
            "Tokens of a run over its budget, of runs that have one: over 100 % it went over.",
            Query(quantile(0.5, scope, names.RUN_BUDGET_RATIO, WINDOW), "median"),
            Query(quantile(0.95, scope, names.RUN_BUDGET_RATIO, WINDOW), "p95"),
            unit=panels.SHARE,
            width=8,
            empty="No run has a token budget",
            exemplars=True,
        ),
        panels.number(
            "Runs over budget",
            "Runs that went over their token budget, counted as they do.",
            grown(scope, names.BUDGET_EXCEEDED, RANGE),
            steps=panels.ANY_IS_BAD,
            decimals=0,
            width=8,
            empty="None",
        ),
    ):
        built.with_panel(panel)
    built.with_row(row("Now"))
    for panel in (
        panels.lines(
            "Open runs",
            "Runs in progress.",
            Query(total(scope.select(names.OPEN_RUNS), [names.SERVICE]), f"{{{{{names.SERVICE}}}}}"),
            empty="No process reports",
        ),
        panels.lines(
            "Longest silence of an open run",
            "Time since anything happened in the run that has been silent for the longest. A line that "
            "rises without end is a run that is stuck.",
            Query(f"max by ({names.SERVICE}) ({scope.select(names.IDLE_MAX)})", f"{{{{{names.SERVICE}}}}}"),
            unit=panels.SECONDS,
            empty="No process reports",
        ),
    ):
        built.with_panel(panel)
    built.with_row(row("Runs"))
    built.with_panel(
        panels.found(
            "Unhealthy runs of $agent in $service" if store == "jaeger" else "Unhealthy runs of $agent",
            "Traces with a run of this agent whose verdict is unhealthy. Click one to open it.",
            traces.search(store, {semconv.GEN_AI_AGENT_NAME: "$agent", semconv.HEALTH_PASSED: False}),
            traces.source(store),
            repeat="service" if store == "jaeger" else None,
            empty="No unhealthy run found",
        )
    )
    return built.with_row(
        row(
            "Iterations (recorded with iteration_metrics=True)",
            panels.lines(
                "Duration of iterations",
                "Wall-clock duration of an iteration.",
                Query(quantile(0.5, scope, names.ITERATION_DURATION, WINDOW), "median"),
                Query(quantile(0.95, scope, names.ITERATION_DURATION, WINDOW), "p95"),
                unit=panels.SECONDS,
                empty="Not recorded: set iteration_metrics=True",
                exemplars=True,
            ),
            panels.distribution(
                "Score of iterations over threshold",
                "Iterations by their score as a share of the threshold.",
                grown(scope, f"{names.ITERATION_SCORE_RATIO}_bucket", STEP, ["le"]),
                unit=panels.SHARE,
                empty="Not recorded: set iteration_metrics=True",
            ),
        )
    )


_VERSION_LEGEND = f"{{{{{names.SERVICE}}}}} {{{{{names.VERSION}}}}}"
