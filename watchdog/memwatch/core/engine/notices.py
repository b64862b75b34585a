"""Each notice: its name, its fields and its line for people; with a decision, the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from memwatch.core.decision.interrupt_decision import InterruptDecision
from memwatch.core.decision.policy import Policy
from memwatch.core.decision.warning import warning_hold_seconds, warning_horizon_seconds
from memwatch.core.engine import status_sentence as words
from memwatch.core.engine.resource_state import MonitoredResource
from memwatch.core.events import (
    ArmedChanged,
    Attached,
    Awaiting,
    CheckpointSeen,
    Diagnosed,
    Exited,
    GaveUp,
    GenerationSeen,
    HookRan,
    Notice,
    OutOfMemorySeen,
    Restarting,
    Signalled,
    SnapshotTaken,
    SourceChanged,
)
from memwatch.core.examination import Finding
from memwatch.core.forecast.outlook import CheckpointCost
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_history import ExaminationRecord
from memwatch.core.measurements import RunIdentity, TreeMemory
from memwatch.core.snapshot import Expectation, GenerationRow, PhaseRow
from memwatch.core.text_and_units import format_bytes, format_duration, index_text, without_main_module

DecisionEvidence = Mapping[str, Any]  # JSON-ready: bytes, seconds, shares; None is unknown


def interrupt_evidence(
    policy: Policy, resource: MonitoredResource, decision: InterruptDecision, lead: float, estimate: tuple[float, str]
) -> DecisionEvidence:
    """`lead`: seconds before the limit at which a checkpoint must be requested; `estimate`: of its seconds, and why."""
    (seconds, origin), limit, risk = estimate, resource.usage.limit, resource.outlook.time_to_limit
    cost = CheckpointCost(lead, resource.expected_checkpoint_bytes)
    threshold = {
        "lead_s": _round(lead),
        "reserve": round(cost.bytes),
        "checkpoint_s": _round(seconds),
        "checkpoint_origin": origin,
        "confidence": policy.confidence,
        "odds_within_lead": None if risk is None else _round(risk.p_exceed(lead)),
        "odds_within_next": None if risk is None else _round(risk.p_checkpoint_fails(risk.cycle_seconds, cost)),
        "guard": None if limit is None else round(policy.headroom_guard * limit.bytes),
        "rate": round(decision.rate) if decision.kind == "emergency" else None,
    }
    return {"samples": _samples(resource), "threshold": threshold}


def warning_evidence(policy: Policy, resource: MonitoredResource, step_seconds: float | None) -> DecisionEvidence:
    """`step_seconds`: how long a generation lasts; None: there are none."""
    threshold = {
        "horizon_s": _round(warning_horizon_seconds(policy, step_seconds)),
        "held_s": _round(warning_hold_seconds(resource.outlook.forecast)),
    }
    return {"samples": _samples(resource), "threshold": threshold}


def _samples(resource: MonitoredResource) -> list[list[float]]:
    """Time, bytes in use and bytes taken of the limit by anybody, oldest first."""
    return [[_round(t), used, taken] for t, used, taken in resource.latest]


def _round(value: float) -> float:
    return round(value, 3)


EXAMINED_MOST = 10  # types, and attributes, that are told of with an examination

# --- the trainer ----------------------------------------------------------------------------------------------------


def attached(t: float, event: Attached, how: str, attempt: int, run_id: str) -> Notice:
    """A watch begins, or goes on; `how` says which."""
    pid, command = event.target.pid, event.command
    text = f"{how}: PID {pid}, {command or 'command unknown'}{_part(event.run, run_id)}"
    run = asdict(event.run) if event.run is not None else None
    return Notice(
        t, "attached", text, {"pid": pid, "attempt": attempt, "command": command, "run_id": run_id, "run": run}
    )


def _part(run: RunIdentity | None, run_id: str) -> str:
    """Of which job it is a part, where a launcher said so."""
    if run is None or run.run_id in ("", run_id):
        return ""
    rank = "" if run.rank is None else f", rank {run.rank}"
    return f"; run {run.run_id}, node {run.node}{rank}"


def waiting(t: float, event: Awaiting) -> Notice:
    """There is no trainer to watch."""
    return Notice(t, "waiting", f"for a trainer: {event.reason}", {"reason": event.reason})


def note(t: float, remark: str) -> Notice:
    """Something to know of this watch."""
    return Notice(t, "note", remark)


def exited(t: float, event: Exited) -> Notice:
    """The trainer is gone."""
    text = "; ".join([words.exit_text(event), *event.evidence])
    return Notice(
        t,
        "exited",
        text,
        {
            "cause": event.cause.value,
            "evidence": list(event.evidence),
            "exit_code": event.exit_code,
            "signal": event.signal,
        },
    )


def restarting(t: float, event: Restarting) -> Notice:
    """The trainer will be started again."""
    of = f" of {event.most}" if event.most is not None else ""
    text = f"restart {event.number}{of} in {format_duration(event.after_seconds)}: {event.command}"
    return Notice(
        t,
        "restarting",
        text,
        {"restart": event.number, "most": event.most, "after_s": event.after_seconds, "command": event.command},
    )


def gave_up(t: float, event: GaveUp) -> Notice:
    """The trainer is not started again, though it saved."""
    text = f"gave up after restart {event.restarts}: {event.reason}"
    return Notice(t, "gave_up", text, {"restarts": event.restarts, "reason": event.reason})


def signalled(t: float, event: Signalled) -> Notice:
    """A signal was sent, or could not be; the hook was started with it, or in its place."""
    return Notice(
        t,
        "signalled",
        _signalled(event),
        {
            "signal": event.signal,
            "dry_run": event.dry_run,
            "error": event.error,
            "hook": event.hook,
            "instead": event.instead,
        },
    )


def _signalled(event: Signalled) -> str:
    if event.dry_run:
        hook = f", and the hook started: {event.hook}" if event.hook else ""
        sent = f"{event.signal} would have been sent now{hook}"
        return f"dry run: {f'the hook would have been started now: {event.hook}' if event.instead else sent}"
    if event.instead:
        return f"hook started in place of {event.signal}: {event.hook}"
    sent = f"{event.signal} could not be sent: {event.error}" if event.error else f"{event.signal} sent to the trainer"
    return sent + (f"; hook started: {event.hook}" if event.hook else "")


def hook(t: float, event: HookRan) -> Notice:
    """The hook has ended, or could not be started."""
    took = round(event.seconds, 3)
    text = f"hook ended after {format_duration(took)}: {event.command}"
    if event.error:
        text = f"hook failed: {event.error}: {event.command}" + (f": {event.output}" if event.output else "")
    return Notice(
        t,
        "hook_failed" if event.error else "hook",
        text,
        {
            "command": event.command,
            "status": event.status,
            "seconds": took,
            "error": event.error,
            "output": event.output,
        },
    )


# --- its log and files ----------------------------------------------------------------------------------------------


def marker(t: float, event: GenerationSeen, total: int | None) -> Notice:
    """The log named a generation."""
    gen = words.json_number(event.index)
    of = f" of {event.total}" if event.total is not None else ""
    text = f"{event.unit} {gen}{of} ({event.at})"
    return Notice(t, "marker", text, {"gen": gen, "total": total, "unit": event.unit, "at": event.at})


def phase(t: float, unit: str, index: float, resource: str, row: PhaseRow) -> Notice:
    """A phase ended, as one resource saw it."""
    seconds = (row.end_t or row.start_t) - row.start_t
    growth, end = format_bytes(row.delta_bytes, signed=True), format_bytes(row.end_bytes)
    of = f"{unit} {index_text(index)}"
    text = f"{resource}: {row.phase} of {of} ended at {end}, {growth} in {format_duration(seconds)}"
    return Notice(
        t,
        "phase",
        text,
        {
            "resource": resource,
            "gen": words.json_number(index),
            "phase": row.phase,
            "delta": row.delta_bytes,
            "end": row.end_bytes,
            "peak": row.peak_bytes,
            "seconds": round(seconds, 3),
        },
    )


def generation(t: float, unit: str, resource: str, row: GenerationRow) -> Notice:
    """A generation ended, as one resource saw it."""
    seconds = (row.end_t or row.start_t) - row.start_t
    growth, end = format_bytes(row.delta_bytes, signed=True), format_bytes(row.end_bytes)
    text = f"{resource}: {unit} {index_text(row.index)} ended at {end}, {growth} in {format_duration(seconds)}"
    return Notice(
        t,
        "generation",
        text + (", seen in part" if row.partial else ""),
        {
            "resource": resource,
            "gen": words.json_number(row.index),
            "delta": row.delta_bytes,
            "start": row.start_bytes,
            "end": row.end_bytes,
            "peak": row.peak_bytes,
            "seconds": round(seconds, 3),
            "partial": row.partial,
            "phases": {phase.phase: phase.delta_bytes for phase in row.phases},
        },
    )


def checkpoint(t: float, event: CheckpointSeen, seconds: float | None) -> Notice:
    """A checkpoint is being written, or is complete and took so long."""
    text = f"a checkpoint is being written: {event.evidence}"
    if event.state == "saved":
        text = f"checkpoint complete: {event.evidence}" + ("" if seconds is None else f" ({format_duration(seconds)})")
    took = None if seconds is None else round(seconds, 3)
    return Notice(t, "checkpoint", text, {"state": event.state, "evidence": event.evidence, "seconds": took})


def saved(t: float, event: CheckpointSeen, since_signal: float) -> Notice:
    """A checkpoint is complete after memwatch's signal."""
    text = f"checkpoint saved {format_duration(since_signal)} after the signal: {event.evidence}"
    return Notice(t, "saved", text, {"seconds": round(since_signal, 3), "evidence": event.evidence})


def out_of_memory(t: float, event: OutOfMemorySeen) -> Notice:
    """The log shows a failed allocation."""
    text = f"the log shows {event.kind}: {event.line}"
    return Notice(t, "out_of_memory", text, {"kind": event.kind, "line": event.line})


def source(t: float, event: SourceChanged) -> Notice:
    """A source cannot be read or an output cannot be written, or can be again."""
    name = "source_recovered" if event.ok else "source_failed"
    text = f"{event.source} works again" if event.ok else f"{event.source} does not work: {event.reason}"
    return Notice(t, name, text, {"source": event.source, "reason": event.reason})


def armed(t: float, event: ArmedChanged) -> Notice:
    """An interrupt would reach the trainer, or would not."""
    text = "armed: an interrupt would reach the trainer" if event.armed else f"not armed: {event.reason}"
    return Notice(t, "armed" if event.armed else "unarmed", text, {"reason": event.reason})


# --- memory ---------------------------------------------------------------------------------------------------------


def forecast(t: float, ledger: GenerationLedger, resource: MonitoredResource) -> Notice:
    """The outlook of a resource has changed."""
    return Notice(t, "forecast", _outlook(ledger, resource), _fields(ledger, resource))


def warning(t: float, ledger: GenerationLedger, resource: MonitoredResource, evidence: DecisionEvidence) -> Notice:
    """The end is near, or no longer."""
    if resource.warned:
        return Notice(t, "warn", _outlook(ledger, resource), {**_fields(ledger, resource, "warn"), **evidence})
    text = f"the warning is withdrawn: {_outlook(ledger, resource)}"
    return Notice(t, "cleared", text, {**_fields(ledger, resource), **evidence})


def cow(t: float, tree: TreeMemory) -> Notice:
    """Copied pages are a material part of the growth."""
    copied, rate = tree.cow_bytes or 0, tree.cow_bytes_per_second or 0.0
    pace = f", {format_bytes(rate, signed=True)}/s" if rate >= 1 else ""
    text = (
        f"forked workers copy pages that they inherited: {format_bytes(copied)} so far{pace} (copy-on-write). "
        "A write by them or by the parent copies a page, and so does a mere use of a Python object, which counts its "
        "references: arrays or shared memory in place of lists of objects stay shared"
    )
    return Notice(t, "cow", text, {"cow_bytes": copied, "cow_bytes_per_s": round(rate), "processes": tree.processes})


def interrupt_deferred(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, decided: DecisionEvidence
) -> Notice:
    """An interrupt waits for the checkpoint that is being written."""
    text = "the interrupt waits: a checkpoint is being written"
    return Notice(t, "held", text, {**_fields(ledger, resource), **decided})


def interrupt(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, reason: str, decided: DecisionEvidence
) -> Notice:
    """An interrupt was decided."""
    return Notice(t, "interrupt", reason, {**_fields(ledger, resource, "interrupt"), **decided})


def no_interrupt(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, reason: str, decided: DecisionEvidence
) -> Notice:
    """An interrupt was decided, but memwatch may only warn."""
    text = f"no interrupt, acting is off: {reason}"
    return Notice(t, "warn", text, {**_fields(ledger, resource, "warn"), **decided})


def interrupt_reason(
    ledger: GenerationLedger, resource: MonitoredResource, decision: InterruptDecision, estimate: tuple[float, str]
) -> str:
    """Why the trainer is interrupted; `estimate`: the seconds that a checkpoint needs, and how that is known."""
    need_seconds, origin = estimate
    limit = resource.usage.limit
    left = format_bytes(limit.headroom_bytes) if limit is not None else "unknown room"
    why = {
        "emergency": _emergency(decision),
        "time": "a later checkpoint might not be complete",
        "boundary": f"no room for another {ledger.unit} and a checkpoint",
        "saved": "checkpoint just saved, no room until the next",
    }[decision.kind]
    if decision.seconds_left < need_seconds:
        why += ", too late for a checkpoint unless the growth stops at the signal"
    needed = f"a checkpoint needs {format_duration(need_seconds)} ({origin})"
    return f"{left} left, {why}; {needed}; {_outlook(ledger, resource)}"


def _emergency(decision: InterruptDecision) -> str:
    if decision.is_exceeded:  # it may not grow at all
        return "more is in use than the limit allows"
    return f"growing by {format_bytes(decision.rate)}/s: gone in {format_duration(decision.seconds_left)}"


def _outlook(ledger: GenerationLedger, resource: MonitoredResource) -> str:
    phase = ledger.leading_phase(resource.usage.resource)
    return words.outlook_text(resource.usage, resource.current_outlook, ledger.unit, ledger.last_generation, phase)


def _fields(ledger: GenerationLedger, resource: MonitoredResource, action: str | None = None) -> dict[str, Any]:
    return words.forecast_fields(resource.usage, ledger.index, resource.current_outlook, action)


# --- causes, and what was expected -----------------------------------------------------------------------------------


def breach(t: float, one: Expectation) -> Notice:
    """What was expected of the run is not so, and was until now."""
    text = f"expected {one.text}, but {one.latest}"
    return Notice(t, "breach", text, {"expectation": one.text, "seen": one.latest, "breaches": one.breaches})


def examined(
    t: float, unit: str, event: Diagnosed, shown: ExaminationRecord, before: ExaminationRecord | None
) -> Notice:
    """The trainer was examined: what there is, and what is more or less than at the examination before."""
    asked = event.asked
    sizes = _changed(shown.containers, before.containers if before is not None else {})
    counts = _changed(shown.counts, before.counts if before is not None else {})
    at = "" if asked.generation is None else f" in {unit} {index_text(asked.generation)}"
    begun = f", {asked.phase}" if asked.phase else ""
    objects = sum(shown.counts.values())
    text = f"examined{at}{begun}: {objects:,} objects take {format_bytes(shown.heap_bytes)}"
    if before is not None:
        text += f" ({format_bytes(shown.heap_bytes - before.heap_bytes, signed=True)})"
        text += "".join(f"; {without_main_module(n)} {format_bytes(a)} -> {format_bytes(b)}" for n, (a, b) in sizes[:2])
        own = [(name, both) for name, both in counts if "." in name]
        text += "".join(f"; {without_main_module(name)} {a:,} -> {b:,}" for name, (a, b) in own[:2])
    return Notice(
        t,
        "examined",
        text,
        {
            "reason": asked.reason,
            "gen": words.json_number(asked.generation),
            "phase": asked.phase,
            "used": shown.used_bytes,
            "python_bytes": shown.heap_bytes,
            "objects": objects,
            "types": dict(counts[:EXAMINED_MOST]),
            "attributes": dict(sizes[:EXAMINED_MOST]),
            "cpu_seconds": event.found.cpu_seconds,
        },
    )


def _changed(now: Mapping[str, int], before: Mapping[str, int]) -> list[tuple[str, tuple[int, int]]]:
    """Earlier and now, of what has changed, the largest change first. What was not named before was too small then."""
    both = {name: (before.get(name, 0), value) for name, value in now.items() if value != before.get(name, 0)}
    return sorted(both.items(), key=lambda item: -abs(item[1][1] - item[1][0]))


def examination_failure(event: Diagnosed) -> str:
    """Why an examination brought nothing that can be compared."""
    return event.found.census_reason or "it did not get to the end of the heap"


def not_examined(t: float, event: Diagnosed) -> Notice:
    """It brought nothing."""
    asked, reason = event.asked, examination_failure(event)
    return Notice(
        t,
        "not_examined",
        f"not examined: {reason}",
        {"reason": asked.reason, "gen": words.json_number(asked.generation), "phase": asked.phase, "failure": reason},
    )


def snapshot(t: float, event: SnapshotTaken) -> Notice:
    """A snapshot that was asked for."""
    text = f"no snapshot: {event.reason}" if event.reason else f"snapshot {event.label} kept: {event.path}"
    return Notice(t, "snapshot", text, {"label": event.label, "path": event.path, "reason": event.reason})


def finding(t: float, one: Finding, unit: str) -> Notice:
    """A cause of growth was found."""
    return Notice(
        t,
        "finding",
        words.finding_text(one, unit),
        {
            "cause": one.cause,
            "resource": one.resource,
            "growth_per_unit": round(one.growth.per_unit),
            "unit": unit,
            "share": None if one.share is None else round(one.share, 3),
            "phase": one.phase,
            "since": words.json_number(one.growth.since),
            "type": one.type,
            "count_before": one.count_before,
            "count_after": one.count_after,
            "holder": one.holder,
            "remedy": one.remedy,
            "confidence": one.confidence,
            "proof": list(one.evidence),
        },
    )
