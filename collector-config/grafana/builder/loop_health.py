"""*Loop health*: are the agents' loops healthy, and if not, what do they waste?"""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from builder import frame, names, panels, shared, traces
from builder.frame import row
from builder.panels import Query
from builder.promql import STEP, grown, total

_AGENT_LEGEND: Final = f"{{{{{names.AGENT}}}}}"


def build(store: traces.Store) -> dashboard.Dashboard:
    """The dashboard, for Jaeger or Tempo."""
    scope = frame.services().matching(**{names.AGENT: "$agent"})
    built = frame.make(
        frame.LOOP_HEALTH,
        "Loop health",
        "Whether runs of agent loops converge, what they waste, and the doom loops that fire.",
        [
            *frame.sources(store),
            frame.environment(),
            frame.variable(
                "service",
                "Service",
                names.SERVICE,
                frame.fleet(),
            ),
            frame.variable(
                "agent",
                "Agent",
                names.AGENT,
                frame.services(),
            ),
        ],
    )
    for panel in shared.numbers(scope):
        built.with_panel(panel)
    built.with_row(row("Health"))
    for panel in (
        shared.healthy_over_time(scope),
        shared.outcomes(scope),
        shared.doom_loops_by_kind(scope),
        panels.bars(
            "Doom loops by agent",
            "Doom loops at the moment they fired, by agent.",
            Query(grown(scope, names.DOOM_LOOPS, STEP, [names.AGENT]), _AGENT_LEGEND),
            empty="No doom loop in this time range",
            exemplars=True,
            links=[frame.of_series()],
        ),
    ):
        built.with_panel(panel)
    built.with_row(row("Convergence"))
    for panel in (
        shared.scores(scope),
        shared.iterations(scope),
        shared.duration(scope),
        shared.waste(scope),
    ):
        built.with_panel(panel)
    built.with_row(row("Spending"))
    for panel in (
        shared.tokens(scope),
        shared.wasted_tokens(scope),
        shared.cost(scope),
        shared.wasted_cost(scope),
    ):
        built.with_panel(panel)
    built.with_row(row("Unhealthy runs"))
    built.with_panel(shared.unhealthy_runs(store))
    # Of the tracker itself: these carry no agent.
    own = frame.services()
    return built.with_row(
        row(
            "Is the measuring sound?",
            panels.bars(
                "Runs given up",
                "Runs that the tracker stopped following, by reason: their verdicts are missing.",
                Query(grown(own, names.EVICTED_RUNS, STEP, [names.REASON]), f"{{{{{names.REASON}}}}}"),
                width=8,
                empty="None given up",
            ),
            panels.bars(
                "Late spans",
                "Spans that ended after their run's root: what they say came too late for the verdict.",
                Query(grown(scope, names.LATE_SPANS, STEP, [names.AGENT]), _AGENT_LEGEND),
                width=8,
                empty="None late",
            ),
            panels.bars(
                "Errors kept from the programs",
                "Errors of otel-loopeval itself, by place. Please report them.",
                Query(grown(own, names.ERRORS, STEP, [names.REASON]), f"{{{{{names.REASON}}}}}"),
                width=8,
                empty="No errors",
            ),
            panels.lines(
                "Processes that report",
                "Processes whose metrics arrive. One that has ended stays for an hour.",
                Query(
                    f"count by ({names.SERVICE}) ("
                    f"{total(own.select(names.OPEN_RUNS), [names.SERVICE, 'service_instance_id'])})",
                    f"{{{{{names.SERVICE}}}}}",
                ),
                width=24,
                empty="No process reports",
            ),
        )
    )
