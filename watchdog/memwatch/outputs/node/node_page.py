"""The page of a node: its trainers, those that a person has to look at first, each with a link to its own page."""

from __future__ import annotations

import time
from collections import Counter

from memwatch.core.text_and_units import printable
from memwatch.outputs.html import html_document as html
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.node.node_status import NodeStatus, TrainerRow
from memwatch.outputs.text.formatting import format_severity

REFRESH_SECONDS = 15  # each page has the states of all trainers sent (chosen)
HEADS = ("state", "trainer", "belongs to", "progress", "memory", "", "verdict", "out of memory", "policy")


def render_node_page(status: NodeStatus) -> str:
    """The page; it refreshes itself, and contains no script."""
    counts = Counter(row.severity for row in status.trainers)
    summary = ", ".join(f"{count} {format_severity(severity)}" for severity, count in counts.items())
    worst = status.trainers[0].severity if status.trainers else None
    return html.render_document(
        status.title,
        html.text_element("h1", status.title, class_="" if worst is None else worst.value),
        html.paragraph(summary or "No trainer that a rule of node.trainers fits runs here now.", "lead"),
        _table(status),
        html.element("nav", *(html.text_element("a", f"/{path}", href=path) for path in ("metrics", "status.json"))),
        html.footer(f", {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(status.t))}"),
        refresh_seconds=REFRESH_SECONDS,
        severity=worst,
    )


def _table(status: NodeStatus) -> Markup:
    if not status.trainers:
        return Markup("")
    shown = [head for head in HEADS if head != "belongs to" or any(row.belongs_to for row in status.trainers)]
    heads = html.element("tr", *(html.text_element("th", head) for head in shown))
    rows = (_row(row, shows_place="belongs to" in shown) for row in status.trainers)
    table = html.element("table", html.element("thead", heads), html.element("tbody", *rows))
    return html.element("div", table, class_="wider")


def _row(row: TrainerRow, *, shows_place: bool) -> Markup:
    link = html.text_element("a", row.program, 60, href=row.url)
    cells = (
        html.text_element("td", format_severity(row.severity), class_=row.severity.value),
        html.element("td", link, Markup(" "), html.text_element("span", str(row.pid), class_="muted")),
        *([html.text_element("td", printable(row.belongs_to, 120))] if shows_place else []),
        html.text_element("td", row.progress),
        html.element("td", html.meter(row.used, row.limit, row.severity), class_="gauge"),
        html.text_element("td", row.memory, class_="figure"),
        html.text_element("td", row.verdict),
        html.text_element("td", row.ends),
        html.text_element("td", row.policy),
    )
    return html.element("tr", *cells)
