"""The pages of a node: all of its trainers at `/`, each of them below `/trainers/PID/`, the metrics of all together."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Severity, Snapshot
from memwatch.core.text_and_units import printable
from memwatch.outputs.html import html_document as html
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.http.routes import HttpResponse, Route, ShownWatch
from memwatch.outputs.node.node_status import NodeStatus, TrainerRow, node_name, node_status
from memwatch.outputs.node.state_channel import TrainerState
from memwatch.outputs.text.formatting import format_severity
from memwatch.system.json_and_yaml import to_json

if TYPE_CHECKING:
    from memwatch.outputs.metrics.collector import MetricsCollector, WatchedTrainer

MOST_ENDED = 50  # trainers that have ended and are still shown (chosen)
METRICS_SECONDS_AFTER_END = 120.0  # two scrapes of the longest usual interval see how a trainer ended (chosen)
STALL_SECONDS = 30.0  # of the supervisor, after which the node is unhealthy (chosen)
BY_SEVERITY = (
    *(Severity.INTERRUPTING, Severity.ABOUT_TO_INTERRUPT, Severity.WILL_NOT_FIT, Severity.WATCHING, Severity.FITS),
    *(Severity.ENDED_BADLY, Severity.ENDED_WELL),
)  # what a person looks at first


class RemoteWatch(ShownWatch):
    """The state of one watch of this node, as it was received."""

    def __init__(self, clock: Clock, state: TrainerState, refresh: Callable[[Sequence[int]], None]) -> None:
        super().__init__(clock)
        self._refresh = refresh
        self.take(state)

    def take(self, state: TrainerState) -> None:
        self.state, self.snapshot, self.is_finished = state, state.snapshot, state.is_finished
        self.counts = Counter(state.counts)
        self.last_iteration_t = self.clock.now()

    def fresh_snapshot(self) -> Snapshot | None:
        if not self.is_finished:
            self._refresh([self.state.pid])
        return self.snapshot

    def latest_iteration_t(self) -> float | None:
        self.fresh_snapshot()  # a watch that answers iterates; unasked it sends its state seldom
        return self.last_iteration_t


class NodeSite:
    """What the HTTP server of a node shows. States arrive in one thread, requests are answered in others."""

    def __init__(
        self, clock: Clock, labels: Sequence[str], ended_seconds: float, supervisor_t: Callable[[], float]
    ) -> None:
        """`supervisor_t` is when the supervisor last iterated; ended trainers are shown for `ended_seconds`."""
        self.counts: Counter[str] = Counter()
        self.refresh: Callable[[Iterable[int] | None], None] = lambda pids: None  # has the states sent anew
        self._clock, self._labels, self._ended_seconds, self._supervisor_t = clock, labels, ended_seconds, supervisor_t
        self._watches: dict[int, RemoteWatch] = {}  # by the trainer's PID
        self._lock = threading.Lock()
        self._metrics: MetricsCollector | None = None

    def receive(self, state: TrainerState) -> None:
        """Show this state of its watch from now on."""
        with self._lock:
            watch = self._watches.get(state.pid)
            if watch is None or watch.snapshot is None or watch.snapshot.target != state.snapshot.target:
                self._watches[state.pid] = RemoteWatch(self._clock, state, self.refresh)
                self._forget_ended()
            else:
                watch.take(state)

    def forget(self, pid: int) -> None:
        """A trainer's watch is gone: one that has not told its end knows nothing more, until it is started again."""
        with self._lock:
            watch = self._watches.get(pid)
            if watch is not None and not watch.is_finished:
                del self._watches[pid]

    def _forget_ended(self) -> None:
        now = self._clock.now()
        ended = sorted(
            (watch.snapshot.exited.t, pid)
            for pid, watch in self._watches.items()
            if watch.snapshot is not None and watch.snapshot.exited is not None
        )
        for place, (t, pid) in enumerate(reversed(ended)):
            if place >= MOST_ENDED or now - t > self._ended_seconds:
                del self._watches[pid]

    def states(self) -> list[TrainerState]:
        """Those of all trainers now, as a person wants to see them: the most severe first."""
        self.refresh(None)
        with self._lock:
            self._forget_ended()
            states = [watch.state for watch in self._watches.values()]
        return sorted(states, key=lambda one: (BY_SEVERITY.index(one.snapshot.severity), one.pid))

    def find_route(self, path: str) -> Route | None:
        own = _NODE_ROUTES.get(path)
        if own is not None:
            return partial(own, self)
        if not path.startswith("/trainers/"):
            return None
        number, slash, rest = path.removeprefix("/trainers/").partition("/")
        with self._lock:
            watch = self._watches.get(int(number)) if number.isdecimal() and len(number) < 10 else None
        if watch is None:
            return None
        if not slash:
            return lambda _: HttpResponse(b"", code=308, headers=f"Location: {number}/\r\n")
        return watch.find_route(f"/{rest}")

    def index(self, accept: str) -> HttpResponse:
        from memwatch.outputs.node.node_site import render_node_page

        page = render_node_page(node_status(self.states(), self._clock.now()))
        return HttpResponse(page.encode("utf-8", "replace"), "text/html; charset=utf-8")

    def status_json(self, accept: str) -> HttpResponse:
        """All trainers in short; the whole state of one is at its `url`."""
        shown = node_status(self.states(), self._clock.now())
        return HttpResponse(to_json(shown) + b"\n", "application/json")

    def metrics(self, accept: str) -> HttpResponse:
        if self._metrics is None:
            from memwatch.outputs.metrics.collector import NodeMetricsCollector  # with prometheus_client: 8 MiB

            self._metrics = NodeMetricsCollector(self._labelled, self.counts, self._clock)
        return HttpResponse(*self._metrics.render(accept))

    def _labelled(self) -> Iterator[WatchedTrainer]:
        now = self._clock.now()
        for state in self.states():
            end = state.snapshot.exited
            if end is None or now - end.t < METRICS_SECONDS_AFTER_END:
                yield self._labels_of(state), state.snapshot, state.counts

    def _labels_of(self, state: TrainerState) -> dict[str, str]:
        """Those of its metrics: `instance` tells the trainers of all nodes apart, as it does for single watches."""
        names = ((name, getattr(state.workload, name)) for name in self._labels)
        own = {"instance": f"{state.workload.pod_path or node_name()}/{state.pid}", "pid": str(state.pid)}
        return own | {name: value for name, value in names if value}

    def healthy(self, accept: str) -> HttpResponse:
        """Whether the supervisor runs, which starts the watches."""
        silent_seconds = time.monotonic() - self._supervisor_t()
        if silent_seconds > STALL_SECONDS:
            return HttpResponse(f"stalled: the supervisor, for {silent_seconds:.0f} s\n".encode(), code=503)
        return HttpResponse(b"ok\n")

    def ready(self, accept: str) -> HttpResponse:
        with self._lock:
            count = sum(not watch.is_finished for watch in self._watches.values())
        return HttpResponse(f"ready: {count} trainers\n".encode())


_NODE_ROUTES: dict[str, Callable[[NodeSite, str], HttpResponse]] = {
    "/": NodeSite.index,
    "/metrics": NodeSite.metrics,
    "/status.json": NodeSite.status_json,
    "/-/healthy": NodeSite.healthy,
    "/-/ready": NodeSite.ready,
}


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
