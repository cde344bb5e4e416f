"""Panels: each kind of panel once, with what all of them have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model
from grafana_foundation_sdk.models import table as table_model

METRICS: Final = common_model.DataSourceRef(type_val="prometheus", uid="${metrics}")
"""The data source that the variable of the dashboard names."""

NO_RUNS: Final = "No runs in this time range"

# Units, in Grafana's words.
COUNT: Final = "short"
SHARE: Final = "percentunit"
SECONDS: Final = "s"
USD: Final = "currencyUSD"

GREEN, YELLOW, RED, BLUE = "green", "#EAB839", "red", "blue"

Steps = Sequence[tuple[float, str]]
"""Colours from a value upwards."""

HIGH_IS_GOOD: Final[Steps] = ((0.8, YELLOW), (0.95, GREEN))
"""Of a share of healthy runs; red below."""
ANY_IS_BAD: Final[Steps] = ((1, RED),)
"""Of a count of what should not happen; green below."""
WASTE: Final[Steps] = ((0.1, YELLOW), (0.25, RED))
"""Of a share that is wasted; green below."""

_MIN_STEP: Final = "1m"
"""Windows shorter than this would not hold two scrapes at the usual intervals."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and what to call its result.

    Attributes:
        expression: In PromQL.
        legend: A pattern over labels such as ``{{kind}}``, or a fixed name.
    """

    expression: str
    legend: str = ""


class _Field(Protocol):
    """What the builders of all kinds of panels share."""

    def title(self, title: str) -> Any: ...
    def description(self, description: str) -> Any: ...
    def datasource(self, datasource: common_model.DataSourceRef) -> Any: ...
    def span(self, w: int) -> Any: ...
    def height(self, h: int) -> Any: ...
    def no_value(self, no_value: str) -> Any: ...
    def unit(self, unit: str) -> Any: ...


def _dressed(
    panel: _Field, title: str, description: str, *, unit: str, width: int, height: int, empty: str
) -> None:
    panel.title(title)
    panel.description(description)
    panel.datasource(METRICS)
    panel.span(width)
    panel.height(height)
    panel.no_value(empty)
    panel.unit(unit)


def thresholds(steps: Steps, base: str) -> dashboard.ThresholdsConfig:
    """Colours by value.

    Args:
        steps: Colours from a value upwards.
        base: The colour below the first.
    """
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps(
            [
                model.Threshold(value=None, color=base),
                *(model.Threshold(value=value, color=color) for value, color in steps),
            ]
        )
    )


def _query(query: Query, ref: str, *, instant: bool = False, exemplars: bool = False) -> prometheus.Dataquery:
    built = (
        prometheus.Dataquery()
        .ref_id(ref)
        .datasource(METRICS)
        .expr(query.expression)
        .editor_mode(prometheus_model.QueryEditorMode.CODE)
    )
    if query.legend:
        built.legend_format(query.legend)
    if exemplars:
        built.exemplar(True)
    return built.instant() if instant else built.range()


def _refs(queries: Sequence[Query]) -> Sequence[tuple[str, Query]]:
    return [(chr(ord("A") + number), query) for number, query in enumerate(queries)]


def number(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = COUNT,
    steps: Steps = (),
    base: str = GREEN,
    decimals: int | None = None,
    width: int = 3,
    empty: str = NO_RUNS,
) -> Builder[model.Panel]:
    """One number over the whole time range."""
    panel = (
        stat.Panel()
        .with_target(_query(Query(expression), "A", instant=True))
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .color_mode(common_model.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(thresholds(steps, base if steps else "text"))
    )
    if decimals is not None:
        panel.decimals(decimals)
    _dressed(panel, title, description, unit=unit, width=width, height=4, empty=empty)
    return panel


def _timeseries(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    unit: str,
    width: int,
    empty: str,
    exemplars: bool,
) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .interval(_MIN_STEP)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(common_model.LegendDisplayMode.LIST)
            .placement(common_model.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    for ref, query in _refs(queries):
        panel.with_target(_query(query, ref, exemplars=exemplars))
    _dressed(panel, title, description, unit=unit, width=width, height=8, empty=empty)
    return panel


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    most: float | None = None,
    width: int = 12,
    empty: str = NO_RUNS,
    exemplars: bool = False,
    links: Sequence[dashboard.DashboardLink] = (),
) -> Builder[model.Panel]:
    """Lines over time; with exemplars, dots that open a trace."""
    panel = _timeseries(title, description, queries, unit=unit, width=width, empty=empty, exemplars=exemplars)
    panel.line_width(2).fill_opacity(8).show_points(common_model.VisibilityMode.AUTO)
    # Runs are rare: a line goes on over the minutes in which none ended.
    panel.span_nulls(True)
    if most is not None:
        panel.max(most)
    if links:
        panel.data_links(list(links))
    return panel


def bars(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    width: int = 12,
    empty: str = NO_RUNS,
    exemplars: bool = False,
    stacked: bool = True,
    links: Sequence[dashboard.DashboardLink] = (),
) -> Builder[model.Panel]:
    """Bars, one for each step: those of a panel add up to what happened."""
    panel = _timeseries(title, description, queries, unit=unit, width=width, empty=empty, exemplars=exemplars)
    panel.draw_style(common_model.GraphDrawStyle.BARS).fill_opacity(70).line_width(1).max_data_points(100)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if links:
        panel.data_links(list(links))
    return panel


def distribution(
    title: str, description: str, expression: str, *, unit: str, width: int = 12, empty: str = NO_RUNS
) -> Builder[model.Panel]:
    """A heatmap of a histogram's buckets over time, with exemplars."""
    query = _query(Query(expression, "{{le}}"), "A", exemplars=True).format(
        prometheus_model.PromQueryFormat.HEATMAP
    )
    panel = (
        heatmap.Panel()
        .with_target(query)
        .interval(_MIN_STEP)
        .max_data_points(60)
        .calculate(False)
        .cell_gap(1)
        .color(_Colors())
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common_model.AxisPlacement.LEFT))
        .tooltip(heatmap.HeatmapTooltip().mode(common_model.TooltipDisplayMode.SINGLE).y_histogram(True))
        .exemplars_color("rgba(255,0,255,0.7)")
        .show_legend()
    )
    _dressed(panel, title, description, unit=COUNT, width=width, height=8, empty=empty)
    return panel


class _Colors(heatmap.HeatmapColorOptions):
    """One colour, the darker the more runs."""

    def __init__(self) -> None:
        super().__init__()
        self.mode(heatmap_model.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
        self.scale(heatmap_model.HeatmapColorScale.EXPONENTIAL).exponent(0.5).fill("dark-orange")


def ranking(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = COUNT,
    width: int = 12,
    empty: str = NO_RUNS,
    links: Sequence[dashboard.DashboardLink] = (),
) -> Builder[model.Panel]:
    """Horizontal bars, the longest first."""
    panel = (
        bargauge.Panel()
        .with_target(_query(query, "A", instant=True))
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .display_mode(common_model.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .min(0)
        .thresholds(thresholds((), BLUE))
    )
    if links:
        panel.data_links(list(links))
    _dressed(panel, title, description, unit=unit, width=width, height=8, empty=empty)
    return panel


def _table() -> table.Panel:
    panel = table.Panel().cell_options(common_model.TableAutoCellOptions())
    options = panel.build().options
    if isinstance(options, table_model.Options):
        # Grafana 13 knows a footer for each column, and none for the table, which the SDK writes.
        options.footer = None
    return panel


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its head.
        expression: In PromQL, summed by the labels that name the table's rows.
        unit: In Grafana's words.
        steps: Colours of the text from a value upwards.
        base: The colour below.
    """

    name: str
    expression: str
    unit: str = COUNT
    steps: Steps = ()
    base: str = GREEN


def rows(
    title: str,
    description: str,
    keys: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    *,
    worst: str,
    order: Literal["most first", "least first"] = "most first",
    width: int = 24,
    height: int = 10,
    empty: str = NO_RUNS,
    links: Sequence[dashboard.DashboardLink] = (),
) -> Builder[model.Panel]:
    """A table with a row for each set of labels.

    Args:
        title: Title of the panel.
        description: What it shows.
        keys: Labels that name a row, each with the head of its column.
        columns: One query each.
        worst: Head of the column by which it is sorted.
        order: Which end comes first.
        width: In 24ths.
        height: In Grafana's rows.
        empty: What to say when there are none.
        links: Of the last key's column.
    """
    panel = _table()
    for ref, column in zip("ABCDEFGHIJKLMNOP", columns, strict=False):
        query = _query(Query(column.expression), ref, instant=True)
        panel.with_target(query.format(prometheus_model.PromQueryFormat.TABLE))
    heads = {f"Value #{ref}": column.name for ref, column in zip("ABCDEFGHIJKLMNOP", columns, strict=False)}
    order_of_columns = [label for label, _ in keys] + list(heads)
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: position for position, name in enumerate(order_of_columns)},
                "renameByName": {**dict(keys), **heads},
            },
        )
    )
    for column in columns:
        properties = [model.DynamicConfigValue("unit", column.unit)]
        if column.steps:
            properties += [
                model.DynamicConfigValue("thresholds", thresholds(column.steps, column.base).build()),
                model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
            ]
        panel.override_by_name(column.name, properties)
    if links:
        linked = [model.DynamicConfigValue("links", [link.build() for link in links])]
        panel.override_by_name(keys[-1][1], linked)
    panel.sort_by([common.TableSortByFieldState().display_name(worst).desc(order == "most first")])
    _dressed(panel, title, description, unit=COUNT, width=width, height=height, empty=empty)
    return panel


def found(
    title: str,
    description: str,
    target: Builder[Dataquery],
    datasource: common_model.DataSourceRef,
    *,
    repeat: str | None = None,
    width: int = 24,
    empty: str,
) -> Builder[model.Panel]:
    """A table of traces that a search finds."""
    panel = _table().with_target(target)
    _dressed(panel, title, description, unit=COUNT, width=width, height=8, empty=empty)
    panel.datasource(datasource)
    if repeat is not None:
        # A search in Jaeger needs one service: a table for each.
        panel.repeat(repeat).repeat_direction("v")
    return panel
