"""What the dashboards have in common: variables, links to each other, annotations, layout."""

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from builder import names, panels, traces
from builder.promql import Scope

TAG: Final = "otel-loopeval"
LOOP_HEALTH: Final = "loopeval-loop-health"
ONE_AGENT: Final = "loopeval-agent"
FLEET: Final = "loopeval-fleet"

Panel = Builder[model.Panel]


def fleet() -> Scope:
    """What the variable environment chooses."""
    return Scope().matching(**{names.ENVIRONMENT: "$environment"})


def services() -> Scope:
    """What the variables environment and service choose."""
    return fleet().matching(**{names.SERVICE: "$service"})


def sources(store: traces.Store) -> list[Builder[model.VariableModel]]:
    """Variables for the data sources."""
    return [
        dashboard.DatasourceVariable("metrics").label("Metrics").type("prometheus"),
        dashboard.DatasourceVariable("traces").label("Traces").type(store),
    ]


def variable(
    name: str,
    title: str,
    label: str,
    scope: Scope | None = None,
    *,
    several: bool = True,
    sort: model.VariableSort = model.VariableSort.ALPHABETICAL_ASC,
) -> Builder[model.VariableModel]:
    """A variable with the values that a label has.

    Args:
        name: Of the variable.
        title: What the reader sees.
        label: Whose values to offer.
        scope: Which series to look at.
        several: Whether more than one can be chosen, and all of them.
        sort: Order of the values; the first is chosen at first, where only one can be.
    """
    query = f"label_values({(scope or Scope()).select(names.RUNS_STARTED)}, {label})"
    built = (
        dashboard.QueryVariable(name)
        .label(title)
        .datasource(panels.METRICS)
        .query({"query": query, "refId": name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(sort)
        .multi(several)
        .include_all(several)
    )
    if several:
        # Also takes in series without the label.
        built.all_value(".*").current(model.VariableOption(selected=True, text="All", value="$__all"))
    return built


def environment() -> Builder[model.VariableModel]:
    """The variable for ``deployment.environment.name``."""
    return variable("environment", "Environment", names.ENVIRONMENT)


def to_agent(*, agent: str, service: str) -> dashboard.DashboardLink:
    """A link to the dashboard of one agent.

    Args:
        agent: Where its name is found, in Grafana's notation.
        service: Part of the address that chooses the service.
    """
    return dashboard.DashboardLink("Open this agent").url(
        f"/d/{ONE_AGENT}?var-agent={agent}&{service}&${{environment:queryparam}}&${{__url_time_range}}"
    )


def of_series(*, with_service: bool = False) -> dashboard.DashboardLink:
    """A link from a series to its agent; of a series of one service, in that service."""
    service = f"var-service=${{__field.labels.{names.SERVICE}}}" if with_service else "${service:queryparam}"
    return to_agent(agent=f"${{__field.labels.{names.AGENT}}}", service=service)


def make(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Builder[model.VariableModel]],
    *,
    since: str = "now-6h",
) -> dashboard.Dashboard:
    """A dashboard without panels."""
    alerts = f'ALERTS{{alertname=~"Loop.+",alertstate="firing",{names.ENVIRONMENT}=~"$environment"}}'
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time(since, "now")
        .refresh("1m")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Loop dashboards")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .annotation(
            dashboard.AnnotationQuery()
            .name("Alerts")
            .datasource(panels.METRICS)
            .enable(True)
            .icon_color("red")
            .expr(alerts)
            .title_format("{{alertname}}")
            .text_format(f"{{{{{names.SERVICE}}}}} {{{{{names.AGENT}}}}}")
            .step("60s")
            .target(prometheus.Dataquery().ref_id("Alerts").datasource(panels.METRICS).expr(alerts))
        )
    )
    for each in variables:
        built.with_variable(each)
    return built


def row(title: str, *inside: Panel) -> dashboard.Row:
    """A row; closed at first if it is given its panels."""
    built = dashboard.Row(title)
    for panel in inside:
        built.with_panel(panel)
    return built
