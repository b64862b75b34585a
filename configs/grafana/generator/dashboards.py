"""The dashboards as files: title, variables, links, rows and panels put together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain

from grafana_foundation_sdk.builders import dashboard as b
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d

from generator import fleet, run
from generator.panels import BLUE, GREY, ORANGE, RED, SOURCE, Panel
from generator.queries import RUN, selector
from memwatch.outputs.metrics import metric_registry as f

Rows = Iterable[tuple[str, Sequence[Panel]]]
_ALL = d.VariableOption(text="All", value="$__all")


def dashboards() -> dict[str, str]:
    """The text of each file, by its name."""
    made = {"memwatch-fleet": _fleet(), "memwatch-run": _run()}
    return {f"{uid}.json": _text(builder.uid(uid).build()) for uid, builder in made.items()}


def _fleet() -> b.Dashboard:
    board = _board("memwatch: all runs", "Every run that a memwatch watches: which of them needs somebody.")
    board.with_variable(_variable("job", f"label_values({f.BUILD.sample_name}, job)", many=True))
    board.with_variable(
        _variable("instance", f'label_values({f.BUILD.sample_name}{{job=~"$job"}}, instance)', many=True)
    )
    return _filled(board, fleet.rows())


def _run() -> b.Dashboard:
    board = _board("memwatch: one run", "One run in detail: where its memory goes, when it ends, and why.")
    board.with_variable(_variable("job", f"label_values({f.BUILD.sample_name}, job)"))
    board.with_variable(_variable("instance", f'label_values({f.BUILD.sample_name}{{job="$job"}}, instance)'))
    resources = f"label_values({f.MEMORY_USED.sample_name}{{{RUN}}}, resource)"
    board.with_variable(_variable("resource", resources, many=True))
    board.link(
        b.DashboardLink("All runs")
        .type(d.DashboardLinkType.LINK)
        .icon("dashboard")
        .tooltip("All runs")
        .url("/d/memwatch-fleet?var-datasource=${datasource}")
        .keep_time(True)
    )
    a = selector(RUN)
    board.annotation(_annotation("interrupting", f"{a(f.STATE, state='interrupting')} == 1", RED))
    board.annotation(_annotation("findings", f"increase({a(f.FINDINGS)}[1m]) > 0", ORANGE))
    board.annotation(_annotation("checkpoints", f"changes({a(f.LAST_CHECKPOINT)}[1m]) > 0", BLUE))
    board.annotation(_annotation("generations", f"changes({a(f.GENERATION)}[1m]) > 0", GREY, is_shown=False))
    return _filled(board, run.rows())


def _board(title: str, description: str) -> b.Dashboard:
    board = b.Dashboard(title).description(description).tags(["memwatch"]).editable()
    board.time("now-6h", "now").refresh("1m").timezone("browser").tooltip(d.DashboardCursorSync.CROSSHAIR)
    return board.with_variable(b.DatasourceVariable("datasource").label("data source").type("prometheus"))


def _variable(name: str, query: str, *, many: bool = False) -> b.QueryVariable:
    variable = b.QueryVariable(name).label(name).datasource(SOURCE).query(query).sort(d.VariableSort.NATURAL_ASC)
    variable.refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.multi(True).include_all(True).all_value(".+").current(_ALL) if many else variable


def _annotation(name: str, expr: str, colour: str, *, is_shown: bool = True) -> b.AnnotationQuery:
    """What is marked in the charts; what is not shown at first has a switch at the top."""
    return b.AnnotationQuery().name(name).datasource(SOURCE).enable(is_shown).icon_color(colour).expr(expr)


def _filled(board: b.Dashboard, rows: Rows) -> b.Dashboard:
    for title, panels in rows:
        row = b.Row(title)
        if title in run.COLLAPSED:
            for panel in panels:
                row.with_panel(panel)
            board.with_row(row.collapsed(True))
        else:
            board.with_row(row.repeat("resource") if title == run.REPEATED else row)
            for panel in panels:
                board.with_panel(panel)
    return board


def _text(made: d.Dashboard) -> str:
    rows = [(one, *(getattr(one, "panels", None) or ())) for one in made.panels or ()]
    for i, panel in enumerate(chain.from_iterable(rows), start=1):
        panel.id_val = i
    shown = json.loads(json.dumps(made, cls=JSONEncoder))
    for variable in shown["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):  # the SDK gives them to all; they are an interval's
            del variable[name]
    return json.dumps(shown, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
