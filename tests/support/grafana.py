"""The dashboards as tests read them: panels, and the queries of each with its variables filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRAFANA = Path(__file__).parents[2] / "configs" / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
GLOBALS = {"__rate_interval": "15s", "__range": "5m"}


@dataclass(frozen=True)
class Query:
    """What a panel, a variable or an annotation asks for; `place` says where it stands."""

    place: str
    expr: str
    instant: bool = False

    def filled(self, variables: Mapping[str, str]) -> str:
        """The expression, as Grafana sends it."""
        expr = self.expr
        for name, value in {**GLOBALS, **variables}.items():
            expr = expr.replace(f"${name}", value)
        assert "$" not in expr, f"{self.place}: {expr}"
        return expr


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> Iterator[Query]:
    title = board["title"]
    for panel in panels(board):
        for target in panel["targets"]:
            yield Query(f"{title}, {panel['title']}, {target['refId']}", target["expr"], target["instant"])
    for annotation in board["annotations"].get("list", ()):
        yield Query(f"{title}, annotation {annotation['name']}", annotation["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            expr = variable["query"].removeprefix("label_values(").rpartition(",")[0]
            yield Query(f"{title}, variable {variable['name']}", expr)
