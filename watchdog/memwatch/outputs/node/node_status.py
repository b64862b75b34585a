"""A node's trainers in short, as /status.json has them and `memwatch top` reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.engine.status_sentence import first_to_end
from memwatch.core.snapshot import Severity
from memwatch.core.text_and_units import encodable, format_bytes, format_duration, printable, program_name
from memwatch.core.trainer_rules import PolicyName, Workload
from memwatch.outputs.node.state_channel import TrainerState
from memwatch.outputs.status_json import STATUS_SCHEMA_VERSION
from memwatch.outputs.text.formatting import format_progress, format_severity, format_verdict


@dataclass(frozen=True, slots=True)
class TrainerRow:
    """One trainer. Bytes and seconds; what is not known is None or empty. Texts are for people."""

    pid: int
    url: str  # of its own pages, from that of the node
    policy: PolicyName
    workload: Workload
    command: str
    severity: Severity
    sentence: str
    up: bool
    progress: str  # generation 7 of 25
    verdict: str  # leak, +12.9 GB/generation
    unit: str  # what gen and total count
    gen: float | None
    total: int | None
    resource: str | None  # that reaches its limit first
    used: int | None
    limit: int | None
    growth_per_s: float | None
    eta_s: float | None
    needed: int | None
    interrupt_in_s: float | None

    @property
    def program(self) -> str:
        return program_name(self.command) or "trainer"

    @property
    def belongs_to(self) -> str:
        """`training/trainer-0 (main)`, `job 4711`, `trainer.service`; empty for a process of no workload."""
        work = self.workload
        if work.pod:
            return f"{work.pod_path} ({work.container})" if work.container else work.pod_path
        return ", ".join(filter(None, (f"job {work.job}" if work.job else "", work.container, work.unit)))

    @property
    def memory(self) -> str:
        """`12.9 GB of 175.0 GB`"""
        if self.used is None:
            return ""
        return format_bytes(self.used) + ("" if self.limit is None else f" of {format_bytes(self.limit)}")

    @property
    def ends(self) -> str:
        """When memory will be out, `in 3 h 20 m`, where that is in sight."""
        in_sight = self.up and self.eta_s is not None and self.severity is not Severity.FITS
        return f"in {format_duration(self.eta_s)}" if in_sight and self.eta_s is not None else ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """All trainers of a node."""

    node: str
    t: float
    trainers: tuple[TrainerRow, ...]  # the most severe first
    schema: int = STATUS_SCHEMA_VERSION

    @property
    def title(self) -> str:
        """`12 trainers on node-7`"""
        count = len(self.trainers)
        return f"{count} trainer{'' if count == 1 else 's'} on {self.node}"


# Columns of the lists of trainers, for the terminal; the last one is as wide as there is room.
HEADS = ("pid", "state", "memory", "verdict", "out of memory", "progress", "belongs to", "program")


def cells(row: TrainerRow) -> tuple[str, ...]:
    """Those below HEADS."""
    texts = (str(row.pid), format_severity(row.severity), row.memory, row.verdict, row.ends, row.progress)
    return (*texts, printable(row.belongs_to, 40), printable(row.program, 60))


def node_name() -> str:
    return os.environ.get("NODE_NAME") or os.uname().nodename


def node_status(states: Sequence[TrainerState], t: float) -> NodeStatus:
    return NodeStatus(node_name(), t, tuple(_row(state) for state in states))


def _row(state: TrainerState) -> TrainerRow:
    snapshot = state.snapshot
    view = first_to_end(snapshot.resources) if snapshot.resources else None
    limit = None if view is None else view.usage.limit
    trend = None if view is None else view.trend
    forecast = None if view is None else view.forecast
    needed = None if view is None else view.needed
    return TrainerRow(
        pid=state.pid,
        url=f"trainers/{state.pid}/",
        policy=state.policy,
        workload=state.workload,
        command=encodable(snapshot.command),
        severity=snapshot.severity,
        sentence=encodable(snapshot.sentence),
        up=snapshot.up,
        progress=format_progress(snapshot),
        verdict=format_verdict(view, snapshot.unit) if view is not None and snapshot.up else "",
        unit=encodable(snapshot.unit),
        gen=snapshot.generation,
        total=snapshot.total,
        resource=None if view is None else view.usage.resource,
        used=None if view is None else view.usage.used_bytes,
        limit=None if limit is None else limit.bytes,
        growth_per_s=None if trend is None else trend.growth_per_second,
        eta_s=None if forecast is None else forecast.eta_seconds,
        needed=None if needed is None else needed.bytes,
        interrupt_in_s=None if snapshot.planned is None else snapshot.planned.seconds,
    )
