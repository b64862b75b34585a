"""The dashboards: what the generator makes, whole, and of the shape that Grafana's own schema gives them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from generator.queries import RUN, families_in, selector
from memwatch.outputs.metrics.metric_registry import FAMILIES, MetricFamily
from support.grafana import FILES, GRAFANA, load, panels, queries
from support.needed import needs_program

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / ".venv" / "schema" / "node_modules"
HEAD = """import type {{ Dashboard }} from "{types}/raw/dashboard/x/dashboard_types.gen";
type Plain<T> = T extends string ? `${{T}}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
"""  # an enumeration's values as JSON writes them
KINDS = {
    "timeseries": "TimeSeries",
    "stat": "Stat",
    "state-timeline": "StateTimeline",
    "bargauge": "BarGauge",
    "table": "Table",
}

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_they_are_what_the_generator_makes():
    pytest.importorskip("grafana_foundation_sdk", reason="needs Python 3.11 or newer")
    from generator.dashboards import dashboards

    assert {path.name: path.read_text() for path in FILES} == dashboards(), "make dashboards"


def test_a_label_that_is_not_in_the_registry_cannot_be_asked_for():
    family = MetricFamily("gauge", "memwatch_x_bytes", "X.", ("path",))
    assert selector(RUN)(family, path="/") == 'memwatch_x_bytes{job="$job",instance="$instance",path="/"}'
    with pytest.raises(ValueError, match="memwatch_x_bytes has no label phase"):
        selector(RUN)(family, phase="train")
    assert [one.sample_name for one in families_in('memwatch_armed{state="memwatch_state"} + time()')] == [
        "memwatch_armed"
    ]


@every_file
def test_the_sdk_reads_back_what_it_wrote(path: Path):
    pytest.importorskip("grafana_foundation_sdk", reason="needs Python 3.11 or newer")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    board = load(path)
    again = json.loads(json.dumps(Dashboard.from_json(load(path)), cls=JSONEncoder))
    for variable in again["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):
            variable.pop(name, None)
    assert again == board


# --- rules of our own -----------------------------------------------------------------------------------------------


@every_file
def test_ids_are_unique_and_panels_lie_beside_each_other(path: Path):
    board = load(path)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [(panel["gridPos"], panel["title"]) for panel in board["panels"]]
    for place, title in places:
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["w"] > 0 and place["h"] > 0, title
    for (one, first), (other, second) in combinations(places, 2):
        assert not overlap(one, other), (first, second)


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


@every_file
def test_every_panel_says_what_it_shows_in_which_unit_from_the_chosen_source(path: Path):
    helps = {one.sample_name: one.text for one in FAMILIES}
    for panel in panels(load(path)):
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        described = re.findall(r"`(\w+)`: (.+)", panel["description"])
        assert described, panel["title"]
        assert all(helps[name] == text for name, text in described)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)) > 0, panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@every_file
def test_every_series_that_is_asked_for_is_in_the_registry(path: Path):
    known = {one.sample_name for one in FAMILIES}
    for query in queries(load(path)):
        asked = set(re.findall(r"\b(?:memwatch|process)_\w+", query.expr))
        assert asked and asked <= known, query


@every_file
@needs_program("promtool")
def test_every_expression_is_promql(path: Path, tmp_path: Path):
    variables = {"job": "j", "instance": "i", "resource": "r"}
    rules = [{"record": f"r{i}", "expr": one.filled(variables)} for i, one in enumerate(queries(load(path)))]
    checked = tmp_path / "rules.yml"
    checked.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(checked)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_leads_to_the_other():
    fleet, run = (load(GRAFANA / "dashboards" / f"memwatch-{name}.json") for name in ("fleet", "run"))
    links = [link["url"] for link in run["links"]]
    assert links == [f"/d/{fleet['uid']}?var-datasource=${{datasource}}"]
    [table] = [panel for panel in panels(fleet) if panel["title"] == "All runs"]
    [url] = [
        link["url"]
        for override in table["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == "instance"
        for part in override["properties"]
        for link in part["value"]
    ]
    variables = {variable["name"] for variable in run["templating"]["list"]}
    assert url.startswith(f"/d/{run['uid']}?")
    assert set(re.findall(r"var-(\w+)=", url)) == {"datasource", "job", "instance"} <= variables


# --- Grafana's schema -----------------------------------------------------------------------------------------------


def typed(board: dict[str, Any]) -> str:
    """The dashboard as a program that compiles if it fits the types of @grafana/schema."""
    types = SCHEMA / "@grafana" / "schema" / "dist" / "esm"
    text = HEAD.format(types=types)
    for kind, name in KINDS.items():
        folder = f"{types}/raw/composable/{kind.replace('-', '')}/panelcfg/x"
        text += f'import type * as {name} from "{folder}/{name}PanelCfg_types.gen";\n'
    plain = json.loads(json.dumps(board))
    for annotation in plain["annotations"].get("list", ()):
        del annotation["expr"]  # the schema has no type for a data source's own query
    text += f"export const board: Plain<Dashboard> = {json.dumps(plain, indent=1)};\n"
    for panel in panels(board):
        name, number = KINDS[panel["type"]], panel["id"]
        text += f"export const options{number}: Plain<{name}.Options> = {json.dumps(panel['options'], indent=1)};\n"
        if custom := panel["fieldConfig"]["defaults"].get("custom"):
            text += f"export const custom{number}: Plain<{name}.FieldConfig> = {json.dumps(custom, indent=1)};\n"
    return text


def compiled(text: str, folder: Path) -> str:
    """What the compiler has to say."""
    if not (SCHEMA / ".bin" / "tsc").exists() or shutil.which("node") is None:
        pytest.skip("needs the types of Grafana's dashboards: make tools")
    program = folder / "board.ts"
    program.write_text(text)
    options = ("--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "node", "--target", "es2022")
    done = subprocess.run(
        [SCHEMA / ".bin" / "tsc", *options, program], capture_output=True, text=True, check=False, cwd=folder
    )
    return done.stdout + done.stderr


@every_file
def test_it_fits_grafanas_schema(path: Path, tmp_path: Path):
    assert compiled(typed(load(path)), tmp_path) == ""


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda board: board["panels"][1].update(transparency=True), "'\"transparency\"' does not exist"),
        (lambda board: board.update(graphTooltip=7), "Type '7' is not assignable"),
        (lambda board: board["panels"][1]["options"].update(graphMode="bars"), "'\"bars\"' is not assignable"),
    ],
    ids=["unknown key", "no such number", "no such option"],
)
def test_what_does_not_fit_is_told(spoil, told: str, tmp_path: Path):
    board = load(GRAFANA / "dashboards" / "memwatch-fleet.json")
    spoil(board)
    assert told in compiled(typed(board), tmp_path)
