"""How panels look: charts, figures, timelines, bars, tables. Unit and description come from the registry of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from generator.queries import Line, families_in
from memwatch.outputs.metrics.metric_registry import MetricFamily

SOURCE = d.DataSourceRef(type_val="prometheus", uid="${datasource}")
UNITS = {  # Grafana's name of a metric's unit, by the end of the metric's name; the first end that matches counts
    "_bytes_per_second": "Bps",
    "_bytes_per_generation": "decbytes",
    "_bytes": "decbytes",  # as memwatch says GB: 10^9
    "_timestamp_seconds": "dateTimeFromNow",
    "_seconds": "s",
    "_ratio": "percentunit",
}
GREEN, BLUE, YELLOW, ORANGE, RED, GREY = "green", "blue", "yellow", "orange", "red", "text"
NEAR, FULL = 0.85, 0.95  # shares of the limit from which a figure is orange, and red
HOUR = 3600.0

Steps = Sequence[tuple[float | None, str]]  # from which value on, which colour
Names = Mapping[int, tuple[str, str]]  # value -> what it is called, its colour
NO_YES: Names = {0: ("no", RED), 1: ("yes", GREEN)}
FILLED: Steps = ((None, GREEN), (NEAR, ORANGE), (FULL, RED))
SOON: Steps = ((None, RED), (HOUR, ORANGE), (4 * HOUR, GREEN))
ANY_IS_BAD: Steps = ((None, GREEN), (1, ORANGE))

_DASHED = {"fill": "dash", "dash": [10, 10]}
STYLES: Mapping[str, Mapping[str, Any]] = {
    "limit": {"color": {"mode": "fixed", "fixedColor": RED}, "custom.lineStyle": _DASHED, "custom.lineWidth": 2},
    "forecast": {"color": {"mode": "fixed", "fixedColor": ORANGE}, "custom.lineStyle": _DASHED},
    "bound": {"color": {"mode": "fixed", "fixedColor": GREY}, "custom.lineStyle": {"fill": "dot", "dash": [0, 6]}},
    "bars": {"custom.drawStyle": "bars", "custom.fillOpacity": 60, "custom.lineWidth": 0},
}  # of a line: properties of its series

Panel = timeseries.Panel | stat.Panel | statetimeline.Panel | bargauge.Panel | table.Panel
P = TypeVar("P", timeseries.Panel, stat.Panel, statetimeline.Panel, bargauge.Panel, table.Panel)


def chart(
    title: str,
    *lines: Line,
    note: str = "",
    unit: str | None = None,
    width: int = 12,
    stack: bool = False,
    steps: Steps = (),
) -> Panel:
    """Lines over time; a limit is one of them. `steps`: where it becomes serious, as lines."""
    panel = _common(timeseries.Panel(), title, lines, note=note, unit=unit, width=width, now=False).height(8)
    panel.line_width(1).fill_opacity(8).show_points(c.VisibilityMode.NEVER).span_nulls(False)
    panel.tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI))
    panel.legend(common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST).placement(c.LegendPlacement.BOTTOM))
    if steps:
        panel.thresholds(_thresholds(steps))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(c.GraphThresholdsStyleMode.DASHED))
    if stack:
        panel.stacking(common.StackingConfig().mode(c.StackingMode.NORMAL)).fill_opacity(30)
    for ref, line in zip(_refs(), lines, strict=False):
        if line.style:
            panel.override_by_query(ref, _properties(STYLES[line.style]))
    return panel


def figure(
    title: str,
    line: Line,
    *,
    note: str = "",
    unit: str | None = None,
    steps: Steps = ((None, BLUE),),
    names: Names | None = None,
    none: str = "none",
    width: int = 4,
) -> Panel:
    """One number as it is now; `none` is shown where there is no series."""
    panel = _common(stat.Panel(), title, [line], note=note, unit=unit, width=width, now=True).height(4)
    panel.thresholds(_thresholds(steps)).graph_mode(c.BigValueGraphMode.NONE).no_value(none)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.mappings(_mappings(names)) if names else panel


def timeline(title: str, line: Line, names: Names, *, note: str = "", width: int = 12, height: int = 4) -> Panel:
    """What was the case when."""
    panel = _common(statetimeline.Panel(), title, [line], note=note, unit="none", width=width, now=False).height(height)
    panel.mappings(_mappings(names)).show_value(c.VisibilityMode.AUTO).merge_values(True)
    panel.row_height(0.9).line_width(0).fill_opacity(70)
    panel.legend(common.VizLegendOptions().display_mode(c.LegendDisplayMode.HIDDEN).placement(c.LegendPlacement.BOTTOM))
    return panel.thresholds(_thresholds(((None, GREY),)))


def bars(title: str, line: Line, steps: Steps, *, note: str = "", unit: str | None = None, width: int = 12) -> Panel:
    """One bar a series, in the order of the query."""
    panel = _common(bargauge.Panel(), title, [line], note=note, unit=unit, width=width, now=True).height(8)
    panel.orientation(c.VizOrientation.HORIZONTAL).display_mode(c.BarGaugeDisplayMode.BASIC)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.thresholds(_thresholds(steps)).min(0).no_value("none")


def listing(
    title: str,
    columns: Mapping[str, Line],
    *,
    labels: Sequence[str],
    looks: Mapping[str, Mapping[str, Any]],
    note: str = "",
    width: int = 24,
    height: int = 8,
    sort: str = "",
    descending: bool = False,
) -> Panel:
    """A table of what is so now: a row for each set of labels, a column for each query.

    `labels`: those that are shown; `looks`: properties of a column, by its head.
    """
    lines = list(columns.values())
    panel = _common(table.Panel(), title, lines, note=note, unit="none", width=width, now=True)
    panel.height(height).frame_index(0).show_header(True).align(c.FieldTextAlignment.AUTO).inspect(False)
    panel.no_value("none").cell_options(c.TableAutoCellOptions())
    values = [f"Value #{ref}" for ref in _refs()] if len(columns) > 1 else ["Value"]  # as Grafana calls them
    heads = dict(zip(values, columns, strict=False))
    panel.with_transformation(d.DataTransformerConfig(id_val="merge", options={}))
    order = {name: i for i, name in enumerate([*labels, *heads])}
    arranged = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": heads}
    panel.with_transformation(d.DataTransformerConfig(id_val="organize", options=arranged))
    for head, look in looks.items():
        panel.override_by_name(head, _properties(look))
    return panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(descending)]) if sort else panel


# --- looks of a column ----------------------------------------------------------------------------------------------


def coloured(unit: str, steps: Steps) -> dict[str, Any]:
    """A column of numbers whose colour says how serious each is."""
    return {"unit": unit, "thresholds": _thresholds(steps).build(), **_CELL}


def named(names: Names) -> dict[str, Any]:
    """A column of names for numbers."""
    return {"mappings": _mappings(names), **_CELL}


def linked(title: str, url: str) -> dict[str, Any]:
    """A column that leads somewhere."""
    return {"links": [{"title": title, "url": url, "targetBlank": False}]}


HIDDEN: Mapping[str, Any] = {"custom.hidden": True}  # of a query that tells by its labels alone
_CELL = {"custom.cellOptions": {"type": "color-text"}, "color": {"mode": "thresholds"}}


def states(kind: type[Enum], colours: Sequence[str]) -> dict[int, tuple[str, str]]:
    """The members of an enumeration by their place, as queries.code tells them."""
    return {i: (str(one.value), colour) for i, (one, colour) in enumerate(zip(kind, colours, strict=True))}


# --- what all have --------------------------------------------------------------------------------------------------


def _common(panel: P, title: str, lines: Sequence[Line], *, note: str, unit: str | None, width: int, now: bool) -> P:
    """`now`: the panel shows one moment."""
    asked: list[MetricFamily] = families_in(" ".join(line.expr for line in lines))
    panel.title(title).datasource(SOURCE).span(width).description(_description(note, asked))
    of_name = next((known for end, known in UNITS.items() if asked[0].name.endswith(end)), "none")
    panel.unit(of_name if unit is None else unit)
    is_table = isinstance(panel, table.Panel)
    for ref, line in zip(_refs(), lines, strict=False):
        query = prometheus.Dataquery().ref_id(ref).expr(line.expr).datasource(SOURCE)
        query.legend_format(line.legend or "__auto")
        query.format(PromQueryFormat.TABLE if is_table else PromQueryFormat.TIME_SERIES)
        panel.with_target(query.instant() if now else query.range())
    return panel


def _description(note: str, asked: Sequence[MetricFamily]) -> str:
    return "\n\n".join([*([note] if note else []), *(f"`{one.sample_name}`: {one.text}" for one in asked)])


def _refs() -> str:
    return "ABCDEFGHIJKLMNOP"


def _properties(values: Mapping[str, Any]) -> list[d.DynamicConfigValue]:
    return [d.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    config = dashboard.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE)
    return config.steps([d.Threshold(value=value, color=colour) for value, colour in steps])


def _mappings(names: Names) -> list[d.ValueMapping]:
    results = {str(i): d.ValueMappingResult(text=text, color=colour, index=i) for i, (text, colour) in names.items()}
    return [d.ValueMap(options=results)]
