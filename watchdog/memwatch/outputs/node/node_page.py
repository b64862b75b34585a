"""The page of a node: its trainers, those that a person has to look at first, each with a link to its own page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from memwatch.core.engine.status_sentence import first_to_end
from memwatch.core.snapshot import Severity
from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.core.trainer_rules import Workload
from memwatch.outputs.html import html_document as html
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.node.state_channel import TrainerState
from memwatch.outputs.text.formatting import format_progress, format_severity, format_verdict, program_name

REFRESH_SECONDS = 15  # each page has the states of all trainers sent
HEADS = ("state", "trainer", "belongs to", "progress", "memory", "", "verdict", "out of memory", "policy")


def render_node_page(node: str, states: Sequence[TrainerState], now: float) -> str:
    """The page; `states` in the order in which they are shown."""
    counts = Counter(state.snapshot.severity for state in states)
    summary = ", ".join(f"{count} {format_severity(severity)}" for severity, count in counts.items())
    worst = states[0].snapshot.severity if states else None
    head = f"{len(states)} trainers" if len(states) != 1 else "1 trainer"
    return html.render_document(
        f"{head} - {node}",
        html.text_element("h1", f"{head} on {node}", class_="" if worst is None else worst.value),
        html.paragraph(summary or "No trainer that a rule of node.trainers fits runs here now.", "lead"),
        _table(states),
        html.element("nav", *(html.text_element("a", f"/{path}", href=path) for path in ("metrics", "status.json"))),
        html.footer(f", {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}"),
        refresh_seconds=REFRESH_SECONDS,
        severity=worst,
    )


def belongs_to(workload: Workload) -> str:
    """`training/trainer-0 (main)`, `job 4711`, `trainer.service`; empty for a process of no workload."""
    if workload.pod:
        place = "/".join(filter(None, (workload.namespace, workload.pod)))
        return f"{place} ({workload.container})" if workload.container else place
    names = (f"job {workload.job}" if workload.job else "", workload.container, workload.unit)
    return ", ".join(filter(None, names))


def _table(states: Sequence[TrainerState]) -> Markup:
    if not states:
        return Markup("")
    heads = (html.text_element("th", head) for head in HEADS)
    rows = (_row(state) for state in states)
    table = html.element("table", html.element("thead", html.element("tr", *heads)), html.element("tbody", *rows))
    return html.element("div", table, class_="wider")


def _row(state: TrainerState) -> Markup:
    snapshot = state.snapshot
    view = first_to_end(snapshot.resources) if snapshot.resources else None
    limit = None if view is None else view.usage.limit
    used = "" if view is None else format_bytes(view.usage.used_bytes)
    if limit is not None:
        used += f" of {format_bytes(limit.bytes)}"
    eta = view.forecast.eta_seconds if view is not None and view.forecast is not None else None
    in_sight = snapshot.up and eta is not None and snapshot.severity is not Severity.FITS
    link = html.text_element("a", program_name(snapshot.command) or "trainer", 60, href=f"trainers/{state.pid}/")
    cells = (
        html.text_element("td", format_severity(snapshot.severity), class_=snapshot.severity.value),
        html.element("td", link, html.text_element("span", f" {state.pid}", class_="muted")),
        html.text_element("td", printable(belongs_to(state.workload), 120)),
        html.text_element("td", format_progress(snapshot)),
        html.element("td", *([html.meter(view)] if view is not None else []), class_="gauge"),
        html.text_element("td", used, class_="figure"),
        html.text_element("td", format_verdict(view, snapshot.unit) if view is not None and snapshot.up else ""),
        html.text_element("td", f"in {format_duration(eta)}" if in_sight and eta is not None else ""),
        html.text_element("td", state.policy),
    )
    return html.element("tr", *cells)
