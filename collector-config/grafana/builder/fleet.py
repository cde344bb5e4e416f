"""*Fleet*: which agents to look at first, whether a new version is better, and which runs went missing."""

from collections.abc import Callable, Sequence
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from builder import frame, names, panels, shared, traces
from builder.frame import Panel, row
from builder.panels import Column, Query
from builder.promql import (
    RANGE,
    STEP,
    WINDOW,
    Scope,
    grown,
    healthy_share,
    iterations_to_success,
    part_of,
    per_run,
    recorded,
    total,
    wasted_share,
)

_SERVICE_LEGEND: Final = f"{{{{{names.SERVICE}}}}}"
_NO_VERSIONS: Final = "No runs of these versions in this time range"


def build(store: traces.Store) -> dashboard.Dashboard:
    """The dashboard; the store is only handed on to the dashboards that it links to."""
    scope = frame.fleet()
    built = frame.make(
        frame.FLEET,
        "Fleet",
        "All agents of an environment: the worst first, versions compared, runs that went missing.",
        [
            *frame.sources(store),
            frame.environment(),
            frame.variable(
                "before",
                "Version before",
                names.VERSION,
                scope,
                several=False,
                sort=model.VariableSort.NATURAL_ASC,
            ),
            frame.variable(
                "after",
                "Version after",
                names.VERSION,
                scope,
                several=False,
                sort=model.VariableSort.NATURAL_DESC,
            ),
        ],
        since="now-24h",
    )
    for panel in shared.numbers(scope, recorded):
        built.with_panel(panel)
    built.with_row(row("Worst agents"))
    for panel in _worst(scope):
        built.with_panel(panel)
    built.with_row(row("Before and after a version: $before and $after"))
    for panel in _versions(scope):
        built.with_panel(panel)
    built.with_row(row("Runs that went missing"))
    for panel in _missing(scope):
        built.with_panel(panel)
    return built


def _worst(scope: Scope) -> Sequence[Panel]:
    by = [names.SERVICE, names.AGENT]
    to_agent = frame.to_agent(agent="${__data.fields.Agent}", service="var-service=${__data.fields.Service}")

    def top(counter: str) -> Query:
        return Query(f"topk(10, {recorded(scope, counter, RANGE, by)} > 0)", shared.AGENT_LEGEND)

    return [
        panels.rows(
            "Worst agents",
            "Agents by what their wasted iterations cost. Click an agent for its own dashboard. Cost is "
            "empty where no price is known: then sort by tokens.",
            [(names.SERVICE, "Service"), (names.AGENT, "Agent")],
            [
                Column("Runs", recorded(scope, names.RUNS, RANGE, by)),
                Column(
                    "Healthy",
                    healthy_share(scope, RANGE, by, recorded),
                    panels.SHARE,
                    panels.HIGH_IS_GOOD,
                    panels.RED,
                ),
                Column(
                    "Doom loops",
                    part_of(scope, names.DOOM_LOOPS, names.RUNS_STARTED, RANGE, by, recorded),
                    steps=panels.ANY_IS_BAD,
                ),
                Column("Iterations per run", per_run(scope, names.ITERATIONS, RANGE, by, recorded)),
                Column(
                    "Wasted iterations", wasted_share(scope, RANGE, by, recorded), panels.SHARE, panels.WASTE
                ),
                Column(
                    "Wasted tokens", part_of(scope, names.WASTED_TOKENS, names.TOKENS, RANGE, by, recorded)
                ),
                Column(
                    "Wasted cost",
                    part_of(scope, names.WASTED_COST, names.COST, RANGE, by, recorded),
                    panels.USD,
                ),
            ],
            worst="Wasted cost",
            links=[to_agent],
        ),
        panels.ranking(
            "Most wasted cost",
            "The ten agents whose wasted iterations cost most.",
            top(names.WASTED_COST),
            unit=panels.USD,
            width=8,
            empty=shared.NO_COST,
            links=[frame.of_series(with_service=True)],
        ),
        panels.ranking(
            "Most wasted tokens",
            "The ten agents whose wasted iterations used most tokens.",
            top(names.WASTED_TOKENS),
            width=8,
            empty="None wasted",
            links=[frame.of_series(with_service=True)],
        ),
        panels.ranking(
            "Most doom loops",
            "The ten agents with most doom loops.",
            top(names.DOOM_LOOPS),
            width=8,
            empty="No doom loop in this time range",
            links=[frame.of_series(with_service=True)],
        ),
    ]


def _versions(scope: Scope) -> Sequence[Panel]:
    before, after = (scope.exactly(**{names.VERSION: version}) for version in ("$before", "$after"))
    by = [names.SERVICE, names.VERSION]

    def both(what: Callable[[Scope], str]) -> str:
        return f"({what(before)}) or ({what(after)})"

    return [
        panels.rows(
            "Versions side by side",
            "The runs of the two versions that are chosen above, by service.",
            [(names.SERVICE, "Service"), (names.VERSION, "Version")],
            [
                Column("Runs", both(lambda one: grown(one, names.RUNS, RANGE, by))),
                Column(
                    "Healthy",
                    both(lambda one: healthy_share(one, RANGE, by)),
                    panels.SHARE,
                    panels.HIGH_IS_GOOD,
                    panels.RED,
                ),
                Column("Doom loops per run", both(lambda one: per_run(one, names.DOOM_LOOPS, RANGE, by))),
                Column(
                    "Wasted iterations",
                    both(lambda one: wasted_share(one, RANGE, by)),
                    panels.SHARE,
                    panels.WASTE,
                ),
                Column("Iterations to success", both(lambda one: iterations_to_success(one, RANGE, by))),
                Column("Tokens per run", both(lambda one: per_run(one, names.TOKENS, RANGE, by))),
                Column("Cost per run", both(lambda one: per_run(one, names.COST, RANGE, by)), panels.USD),
            ],
            worst="Service",
            order="least first",
            height=6,
            empty=_NO_VERSIONS,
        ),
        _change(
            "Healthy runs: change",
            "Share of healthy runs of the version after, minus that of the version before.",
            healthy_share(after, RANGE),
            healthy_share(before, RANGE),
            unit=panels.SHARE,
            good="up",
        ),
        _change(
            "Wasted iterations: change",
            "Share of wasted iterations of the version after, minus that of the version before.",
            wasted_share(after, RANGE),
            wasted_share(before, RANGE),
            unit=panels.SHARE,
            good="down",
        ),
        _change(
            "Iterations to success: change",
            "Mean iterations to success of the version after, minus that of the version before.",
            iterations_to_success(after, RANGE),
            iterations_to_success(before, RANGE),
            unit=panels.COUNT,
            good="down",
        ),
        _change(
            "Tokens per run: change",
            "Mean tokens of a run of the version after, minus that of the version before.",
            per_run(after, names.TOKENS, RANGE),
            per_run(before, names.TOKENS, RANGE),
            unit=panels.COUNT,
            good="down",
        ),
        panels.lines(
            "Healthy runs by version",
            "Share of the runs with a verdict that are healthy, by service.version.",
            Query(healthy_share(scope, WINDOW, by), f"{_SERVICE_LEGEND} {{{{{names.VERSION}}}}}"),
            unit=panels.SHARE,
            most=1,
            width=24,
        ),
    ]


def _change(title: str, description: str, after: str, before: str, *, unit: str, good: str) -> Panel:
    rising, falling = (panels.GREEN, panels.RED) if good == "up" else (panels.RED, panels.GREEN)
    return panels.number(
        title,
        description,
        f"({after}) - ({before})",
        unit=unit,
        steps=((0, "text"), (1e-9, rising)),
        base=falling,
        decimals=1,
        width=6,
        empty=_NO_VERSIONS,
    )


def _missing(scope: Scope) -> Sequence[Panel]:
    by = [names.SERVICE]
    started, started_by = (recorded(scope, names.RUNS_STARTED, RANGE, labels) for labels in ((), by))
    ended, ended_by = (
        part_of(scope, names.RUNS, names.RUNS_STARTED, RANGE, labels, recorded) for labels in ((), by)
    )
    return [
        panels.number(
            "Started minus finished",
            "Runs that started in this time range minus those that ended: what is still open, and what died "
            "with its process. Negative where more ended than began.",
            f"{started} - {ended}",
            decimals=0,
            width=6,
        ),
        panels.bars(
            "Started and finished",
            "Runs that started and runs that ended, in each step.",
            Query(grown(scope, names.RUNS_STARTED, STEP), "started"),
            Query(grown(scope, names.RUNS, STEP), "finished"),
            width=18,
            stacked=False,
        ),
        panels.rows(
            "Started minus finished, by service",
            "A service whose difference stays above its open runs loses runs: its processes are killed "
            "before they can report.",
            [(names.SERVICE, "Service")],
            [
                Column("Started", started_by),
                Column("Finished", ended_by),
                Column("Started minus finished", f"{started_by} - {ended_by}"),
                Column("Open now", total(scope.select(names.OPEN_RUNS), by)),
            ],
            worst="Started minus finished",
            height=8,
        ),
        panels.lines(
            "Runs in progress",
            "Open runs by service.",
            Query(total(scope.select(names.OPEN_RUNS), by), _SERVICE_LEGEND),
            width=24,
            empty="No process reports",
        ),
    ]
