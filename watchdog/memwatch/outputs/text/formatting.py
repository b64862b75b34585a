"""Formats of values that several outputs share, and the sums behind them."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.engine.status_sentence import needed_text, planned_text
from memwatch.core.snapshot import GenerationRow, MemoryNeeded, ResourceView, Severity, Snapshot, Verdict
from memwatch.core.text_and_units import format_bytes, printable

# Events of every healthy run, which are reported only on request.
ROUTINE_EVENTS = frozenset({"marker", "phase", "generation", "examined", "not_examined", "checkpoint"})


def format_index(index: float) -> str:
    """`7`, and `7.5` if the program counts in fractions."""
    return f"{index:.0f}" if float(index).is_integer() else f"{index:.2f}".rstrip("0").rstrip(".")


def format_gauge_value(value: float) -> str:
    """`15,680`, `0.25`: the value of a log gauge."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def format_progress(snapshot: Snapshot, *, with_origin: bool = True) -> str:
    """`generation 7 of 25`, `epoch 3 of 25, from TrainerState.epoch`; empty without markers."""
    if snapshot.generation is None:
        return ""
    total = f" of {snapshot.total}" if snapshot.total is not None else ""
    origin = f", from {printable(snapshot.generation_origin, 60)}" if with_origin and snapshot.generation_origin else ""
    return f"{printable(snapshot.unit, 20)} {format_index(snapshot.generation)}{total}{origin}"


_SEVERITY_WORDS = {
    Severity.FITS: "fits",
    Severity.WATCHING: "watching",
    Severity.WILL_NOT_FIT: "will not fit",
    Severity.ABOUT_TO_INTERRUPT: "about to interrupt",
    Severity.INTERRUPTING: "interrupting",
    Severity.ENDED_WELL: "completed",
    Severity.ENDED_BADLY: "ended",
}


def format_severity(severity: Severity) -> str:
    """`will not fit`"""
    return _SEVERITY_WORDS[severity]


def format_planned(snapshot: Snapshot) -> str:
    """`at about generation 23, in 40 s`; or why the trainer will not be interrupted."""
    planned = snapshot.planned
    if snapshot.unarmed is not None:
        return f"not possible: {snapshot.unarmed}"
    if planned is None or planned.seconds is None:
        return f"none to come: {planned.reason}" if planned is not None else "not known yet"
    return planned_text(planned, snapshot.unit).removeprefix("interrupt ")


def format_needed(needed: MemoryNeeded) -> str:
    """`61.0 GB (55.0 GB-72.0 GB)`"""
    return needed_text(needed).removeprefix("needs ").replace(" to finish", "")


def format_verdict(view: ResourceView, unit: str) -> str:
    """`leak, +12.9 GB/generation`."""
    words = view.verdict.value.replace("_", " ")
    if view.trend is None or view.verdict in (Verdict.WARMING_UP, Verdict.STABLE):
        return words
    if view.trend.growth_per_generation is not None:
        return f"{words}, {format_bytes(view.trend.growth_per_generation, signed=True)}/{printable(unit, 20)}"
    return f"{words}, {format_bytes(view.trend.growth_per_second * 3600, signed=True)}/h"


def phase_delta(row: GenerationRow, phase: str) -> int | None:
    """Growth of one generation within `phase`, in bytes, over all its passes; None if it had none."""
    deltas = [part.delta_bytes for part in row.phases if part.phase == phase]
    return sum(deltas) if deltas else None


def latest_attempt_rows(rows: Sequence[GenerationRow]) -> list[GenerationRow]:
    """The generations of the latest attempt."""
    return [row for row in rows if row.attempt == rows[-1].attempt]


def phase_totals(rows: Sequence[GenerationRow]) -> dict[str, int]:
    """Growth in bytes by phase, over the generations of the latest attempt."""
    totals: dict[str, int] = {}
    for row in latest_attempt_rows(rows):
        for part in row.phases:
            totals[part.phase] = totals.get(part.phase, 0) + part.delta_bytes
    return totals


def largest_phases(rows: Sequence[GenerationRow], most: int) -> list[str]:
    """The phases in which memory changed most, in the order in which they run."""
    totals = phase_totals(rows)
    largest = sorted(totals, key=lambda phase: -abs(totals[phase]))[: max(0, most)]
    return [phase for phase in totals if phase in largest]


def phase_heads(phases: Sequence[str]) -> list[str]:
    """Heads without an ending that all share: evaluate_population, train_population -> evaluate, train."""
    endings = {phase.rpartition("_")[2] for phase in phases if "_" in phase}
    if len(phases) < 2 or len(endings) != 1 or not all("_" in phase for phase in phases):
        return list(phases)
    return [phase.rpartition("_")[0] for phase in phases]


def last_complete(view: ResourceView) -> GenerationRow | None:
    """The newest generation that has ended."""
    return next((row for row in reversed(view.generations) if row.end_t is not None), None)
