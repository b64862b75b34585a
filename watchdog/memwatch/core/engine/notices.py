"""Makes each notice: its name, its fields, its text for people, and the evidence for a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from memwatch.core import events
from memwatch.core.decision.interrupt_rule import InterruptDecision
from memwatch.core.decision.policy import Policy
from memwatch.core.decision.warning import warning_horizon_seconds
from memwatch.core.engine import status_sentence as words
from memwatch.core.engine.resource_state import MonitoredResource
from memwatch.core.events import Event, Notice
from memwatch.core.examination import NOT_ASKED, Finding
from memwatch.core.forecast.outlook import CheckpointCost
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_history import ExaminationRecord
from memwatch.core.measurements import Neighbours, TreeMemory
from memwatch.core.snapshot import Expectation, GenerationRow, PhaseRow, PlannedInterrupt
from memwatch.core.text_and_units import format_bytes, format_duration, index_text, without_main_module

_AFTER_SAVE = "after the trainer's own save, which alone counts"
DecisionEvidence = Mapping[str, Any]  # JSON-ready: bytes, seconds, shares; None is unknown
EXAMINED_MOST = 10  # Types, and attributes, in the fields of an examination (chosen).


def interrupt_evidence(
    policy: Policy, resource: MonitoredResource, decision: InterruptDecision, lead: float, estimate: tuple[float, str]
) -> DecisionEvidence:
    """Return the samples and the thresholds that the decision is based on.

    `lead`: seconds before the limit at which a checkpoint must be requested; `estimate`: the seconds that it takes, and
    the origin of that estimate.
    """
    (seconds, origin), limit, risk = estimate, resource.usage.limit, resource.outlook.time_to_limit
    cost = CheckpointCost(lead, resource.expected_checkpoint_bytes)
    threshold = {
        "lead_s": round(lead, 3),
        "reserve": round(cost.bytes),
        "checkpoint_s": round(seconds, 3),
        "checkpoint_origin": origin,
        "confidence": policy.confidence,
        "odds_within_lead": None if risk is None else round(risk.p_exceed(lead), 3),
        "odds_within_next": None if risk is None else round(risk.p_checkpoint_fails(risk.cycle_seconds, cost), 3),
        "guard": None if limit is None else round(policy.headroom_guard * limit.bytes),
        "rate": round(decision.rate) if decision.kind == "emergency" else None,
    }
    return {"kind": decision.kind, "samples": _samples(resource), "threshold": threshold}


def _samples(resource: MonitoredResource) -> list[list[float]]:
    """Time, bytes in use and bytes taken of the limit by anybody, oldest first."""
    return [[round(t, 3), used, taken] for t, used, taken in resource.latest]


def _event_fields(event: Event) -> dict[str, Any]:
    """The fields of a notice that repeats all of an event but its time."""
    fields = asdict(event)
    del fields["t"]
    return fields


# --- the trainer ----------------------------------------------------------------------------------------------------


def attached(t: float, event: events.Attached, how: str, attempt: int, run_id: str) -> Notice:
    """`how`: "watching", "watching again" ..."""
    pid, command, run = event.target.pid, event.command, event.run
    fields = {"pid": pid, "attempt": attempt, "command": command, "run_id": run_id, "run": asdict(run) if run else None}
    text = f"{how}: PID {pid}, {command or 'command unknown'}"
    if run is not None and run.run_id not in ("", run_id):  # A launcher said of which job the trainer is a part.
        rank = "" if run.rank is None else f", rank {run.rank}"
        text += f"; run {run.run_id}, node {run.node}{rank}"
    return Notice(t, "attached", text, fields)


def waiting(t: float, event: events.Awaiting) -> Notice:
    return Notice(t, "waiting", f"for a trainer: {event.reason}", _event_fields(event))


def note(t: float, remark: str) -> Notice:
    return Notice(t, "note", remark)


def exited(t: float, event: events.Exited) -> Notice:
    fields = {
        "cause": event.cause.value,
        "evidence": list(event.evidence),
        "exit_code": event.exit_code,
        "signal": event.signal,
        "checkpoint": None if event.checkpoint is None else _last_checkpoint(event.checkpoint),
    }
    return Notice(t, "exited", "; ".join([words.exit_text(event), *event.evidence]), fields)


def _last_checkpoint(last: events.LastCheckpoint) -> dict[str, Any]:
    counts = {"generation": last.generation, "lost_generations": last.lost_generations}
    return {**asdict(last), **{name: words.json_number(count) for name, count in counts.items()}}


def restarting(t: float, event: events.Restarting) -> Notice:
    of = f" of {event.most}" if event.most is not None else ""
    text = f"restart {event.number}{of} in {format_duration(event.after_seconds)}: {event.command}"
    fields = {"restart": event.number, "most": event.most, "after_s": event.after_seconds, "command": event.command}
    return Notice(t, "restarting", text, fields)


def gave_up(t: float, event: events.GaveUp) -> Notice:
    return Notice(t, "gave_up", f"gave up after restart {event.restarts}: {event.reason}", _event_fields(event))


def signalled(t: float, event: events.Signalled) -> Notice:
    return Notice(t, "signalled", _signalled_text(event), _event_fields(event))


def _signalled_text(event: events.Signalled) -> str:
    if event.dry_run and event.instead:
        return f"dry run: the hook would have been started now: {event.hook}"
    if event.dry_run:
        hook = f", and the hook started: {event.hook}" if event.hook else ""
        return f"dry run: {event.signal} would have been sent now{hook}"
    if event.instead:
        return f"hook started in place of {event.signal}: {event.hook}"
    sent = f"{event.signal} could not be sent: {event.error}" if event.error else f"{event.signal} sent to the trainer"
    return sent + (f"; hook started: {event.hook}" if event.hook else "")


def hook(t: float, event: events.HookRan) -> Notice:
    took = round(event.seconds, 3)
    fields = {**_event_fields(event), "seconds": took}
    if not event.error:
        return Notice(t, "hook", f"hook ended after {format_duration(took)}: {event.command}", fields)
    output = f": {event.output}" if event.output else ""
    return Notice(t, "hook_failed", f"hook failed: {event.error}: {event.command}{output}", fields)


# --- its log and files ----------------------------------------------------------------------------------------------


def marker(t: float, event: events.GenerationSeen, total: int | None) -> Notice:
    gen = words.json_number(event.index)
    of = f" of {event.total}" if event.total is not None else ""
    origin = f", from {event.origin}" if event.origin else ""
    anew = "; another counter is the clock, the count begins anew" if event.recount else ""
    text = f"{event.unit} {gen}{of} ({event.at}){origin}{anew}"
    fields = {"gen": gen, "total": total, "unit": event.unit, "at": event.at, "from": event.origin or None}
    return Notice(t, "marker", text, fields)


def phase(t: float, unit: str, index: float, resource: str, row: PhaseRow) -> Notice:
    text, seconds = _ended_text(resource, f"{row.phase} of {unit} {index_text(index)}", row)
    fields = {
        "resource": resource,
        "gen": words.json_number(index),
        "phase": row.phase,
        "delta": row.delta_bytes,
        "end": row.end_bytes,
        "peak": row.peak_bytes,
        "seconds": seconds,
    }
    return Notice(t, "phase", text, fields)


def generation(t: float, unit: str, resource: str, row: GenerationRow) -> Notice:
    text, seconds = _ended_text(resource, f"{unit} {index_text(row.index)}", row)
    fields = {
        "resource": resource,
        "gen": words.json_number(row.index),
        "delta": row.delta_bytes,
        "start": row.start_bytes,
        "end": row.end_bytes,
        "peak": row.peak_bytes,
        "seconds": seconds,
        "partial": row.partial,
        "phases": {phase.phase: phase.delta_bytes for phase in row.phases},
    }
    return Notice(t, "generation", text + (", watched in part" if row.partial else ""), fields)


def _ended_text(resource: str, part: str, row: PhaseRow | GenerationRow) -> tuple[str, float]:
    """The text for a part of the run that has ended, and its length in seconds."""
    seconds = (row.end_t or row.start_t) - row.start_t
    growth, end = format_bytes(row.delta_bytes, signed=True), format_bytes(row.end_bytes)
    return f"{resource}: {part} ended at {end}, {growth} in {format_duration(seconds)}", round(seconds, 3)


def checkpoint(t: float, event: events.CheckpointSeen, seconds: float | None) -> Notice:
    text = f"a checkpoint is being written: {event.evidence}"
    if event.state == "saved":
        text = f"checkpoint complete: {event.evidence}" + ("" if seconds is None else f" ({format_duration(seconds)})")
    took = None if seconds is None else round(seconds, 3)
    fields = {"state": event.state, "evidence": event.evidence, "path": event.path, "seconds": took}
    return Notice(t, "checkpoint", text, fields)


def saved(t: float, event: events.CheckpointSeen, since_signal: float) -> Notice:
    text = f"checkpoint saved {format_duration(since_signal)} after the signal: {event.evidence}"
    return Notice(t, "saved", text, {"seconds": round(since_signal, 3), "evidence": event.evidence})


def out_of_memory(t: float, event: events.OutOfMemorySeen) -> Notice:
    text = f"the log shows {event.kind}: {event.line}"
    return Notice(t, "out_of_memory", text, _event_fields(event))


def source(t: float, event: events.SourceChanged) -> Notice:
    name = "source_recovered" if event.ok else "source_failed"
    text = f"{event.source} {'works again' if event.ok else 'does not work'}"
    text += f": {event.reason}" if event.reason else ""
    return Notice(t, name, text, {"source": event.source, "reason": event.reason})


def armed(t: float, event: events.ArmedChanged) -> Notice:
    text = "armed: an interrupt would reach the trainer" if event.armed else f"not armed: {event.reason}"
    return Notice(t, "armed" if event.armed else "unarmed", text, {"reason": event.reason})


def signal_handling(t: float, event: events.SignalHandlingSeen) -> Notice:
    found = event.handling
    fields = {"signal": found.signal, "handled": found.handled, "where": found.where, "reason": found.reason}
    return Notice(t, "signal_handling", words.signal_handling_text(found), fields)


# --- memory ---------------------------------------------------------------------------------------------------------


def neighbours(t: float, found: Neighbours) -> Notice:
    """There are processes beside the trainer's own tree in its cgroup."""
    named = ", ".join(f"{each.name} (pid {each.pid}) {format_bytes(each.bytes)}" for each in found.largest)
    parts = []
    if found.members:
        parts.append(f"{format_bytes(found.members_bytes)} are of workers of its job that are no children")
    if found.others:
        parts.append(f"{format_bytes(found.others_bytes)} are not the trainer's job's")
    fields = {
        "cgroup": found.cgroup,
        "others_bytes": found.others_bytes,
        "others": found.others,
        "members_bytes": found.members_bytes,
        "members": found.members,
        "largest": [asdict(each) for each in found.largest],
    }
    return Notice(t, "neighbours", f"of cgroup {found.cgroup} {' and '.join(parts)}: {named}", fields)


def forecast(t: float, ledger: GenerationLedger, resource: MonitoredResource, planned: PlannedInterrupt) -> Notice:
    return Notice(t, "forecast", _outlook(ledger, resource, planned), _fields(ledger, resource, planned=planned))


def warning(
    t: float,
    ledger: GenerationLedger,
    resource: MonitoredResource,
    planned: PlannedInterrupt,
    *,
    policy: Policy,
    step_seconds: float | None,
) -> Notice:
    """The warning is given or withdrawn. `step_seconds`: the length of a generation; None: there are none."""
    threshold = {
        "horizon_s": round(warning_horizon_seconds(policy, step_seconds), 3),
        "held_s": round(resource.warning_held_seconds, 3),
    }
    evidence = {"samples": _samples(resource), "threshold": threshold}
    text = _outlook(ledger, resource, planned)
    if resource.warned:
        return Notice(t, "warn", text, {**_fields(ledger, resource, "warn", planned), **evidence})
    fields = {**_fields(ledger, resource, planned=planned), **evidence}
    return Notice(t, "cleared", f"the warning is withdrawn: {text}", fields)


def cow(t: float, tree: TreeMemory) -> Notice:
    copied, rate = tree.cow_bytes or 0, tree.cow_bytes_per_second or 0.0
    pace = f", {format_bytes(rate, signed=True)}/s" if rate >= 1 else ""
    text = (
        f"forked workers copy pages that they inherited: {format_bytes(copied)} so far{pace} (copy-on-write). "
        "A write by a worker or by its parent copies a page, and so does each use of a Python object, because it "
        "changes the object's reference count. Arrays and shared memory stay shared, lists of objects do not"
    )
    return Notice(t, "cow", text, {"cow_bytes": copied, "cow_bytes_per_s": round(rate), "processes": tree.processes})


def interrupt_deferred(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, decided: DecisionEvidence
) -> Notice:
    text = "the interrupt waits: a checkpoint is being written"
    return Notice(t, "deferred", text, {**_fields(ledger, resource), **decided})


def interrupt_awaits_save(t: float, seconds: float) -> Notice:
    text = f"the interrupt waits for the trainer's own save, due in {format_duration(seconds)}: nothing else saves"
    return Notice(t, "deferred", text, {"own_save_due_s": round(seconds, 3)})


def interrupt(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, reason: str, decided: DecisionEvidence
) -> Notice:
    return Notice(t, "interrupt", reason, {**_fields(ledger, resource, "interrupt"), **decided})


def no_interrupt(
    t: float, ledger: GenerationLedger, resource: MonitoredResource, reason: str, decided: DecisionEvidence
) -> Notice:
    """An interrupt was decided, but acting is switched off."""
    text = f"no interrupt, acting is off: {reason}"
    return Notice(t, "warn", text, {**_fields(ledger, resource, "warn"), **decided})


def interrupt_reason(
    ledger: GenerationLedger,
    resource: MonitoredResource,
    decision: InterruptDecision,
    estimate: tuple[float, str],
    saves_on_signal: bool | None,
) -> str:
    """Why the trainer is interrupted; `estimate`: the seconds that a checkpoint needs, and the origin of that."""
    need_seconds, origin = estimate
    limit = resource.usage.limit
    left = format_bytes(limit.headroom_bytes) if limit is not None else "an unknown headroom"
    if decision.is_exceeded:
        emergency = "more is in use than the limit allows"
    else:
        emergency = f"growing by {format_bytes(decision.rate)}/s: gone in {format_duration(decision.seconds_left)}"
    why = {
        "emergency": emergency,
        "time": "a later checkpoint might not be complete",
        "boundary": f"no room for another {ledger.unit} and a checkpoint",
        "saved": f"{'checkpoint just saved' if saves_on_signal is not False else _AFTER_SAVE}, no room until the next",
    }[decision.kind]
    if decision.seconds_left < need_seconds:
        why += ", too late for a checkpoint unless the growth stops at the signal"
    needed = f"a checkpoint needs {format_duration(need_seconds)} ({origin})"
    return f"{left} left, {why}; {needed}; {_outlook(ledger, resource)}"


def _outlook(ledger: GenerationLedger, resource: MonitoredResource, planned: PlannedInterrupt | None = None) -> str:
    usage, outlook, phase = resource.usage, resource.current_outlook, ledger.leading_phase(resource.usage.resource)
    beside = resource.neighbour_growth
    last = ledger.last_generation
    return words.outlook_text(usage, outlook, ledger.unit, last, phase, beside=beside, planned=planned)


def _fields(
    ledger: GenerationLedger,
    resource: MonitoredResource,
    action: str | None = None,
    planned: PlannedInterrupt | None = None,
) -> dict[str, Any]:
    outlook = resource.current_outlook
    return words.forecast_fields(resource.usage, ledger.index, outlook, action, planned=planned)


# --- causes and expectations -----------------------------------------------------------------------------------------


def breach(t: float, one: Expectation) -> Notice:
    """An expectation has become broken."""
    text = f"expected {one.text}, but {one.latest}"
    return Notice(t, "breach", text, {"expectation": one.text, "seen": one.latest, "breaches": one.breaches})


def examined(
    t: float, unit: str, event: events.Diagnosed, shown: ExaminationRecord, before: ExaminationRecord | None
) -> Notice:
    """The trainer was examined: the objects in its heap, and the changes since the examination `before`."""
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
    fields = {
        "reason": asked.reason,
        "gen": words.json_number(asked.generation),
        "phase": asked.phase,
        "used": shown.used_bytes,
        "python_bytes": shown.heap_bytes,
        "objects": objects,
        "types": dict(counts[:EXAMINED_MOST]),
        "attributes": dict(sizes[:EXAMINED_MOST]),
        "cpu_seconds": event.found.cpu_seconds,
    }
    return Notice(t, "examined", text, fields)


def _changed(now: Mapping[str, int], before: Mapping[str, int]) -> list[tuple[str, tuple[int, int]]]:
    """The earlier and the present value of each figure that has changed, the largest change first.

    A figure that is missing in `before` was too small then to be listed, and counts as 0.
    """
    both = {name: (before.get(name, 0), value) for name, value in now.items() if value != before.get(name, 0)}
    return sorted(both.items(), key=lambda item: -abs(item[1][1] - item[1][0]))


def examination_failure(event: events.Diagnosed) -> str:
    reasons = (reason for reason in (event.found.census_reason, event.found.names_reason) if reason != NOT_ASKED)
    return next(filter(None, reasons), "it did not reach the end of the heap")


def not_examined(t: float, event: events.Diagnosed) -> Notice:
    asked, reason = event.asked, examination_failure(event)
    gen = words.json_number(asked.generation)
    fields = {"reason": asked.reason, "gen": gen, "phase": asked.phase, "failure": reason}
    return Notice(t, "not_examined", f"not examined: {reason}", fields)


def no_whole_scan(t: float, reason: str) -> Notice:
    """The whole heap is not read, and why."""
    return Notice(t, "not_examined", reason, {"reason": "budget", "gen": None, "phase": None, "failure": reason})


def snapshot(t: float, event: events.SnapshotTaken) -> Notice:
    text = f"no snapshot: {event.reason}" if event.reason else f"snapshot {event.label} kept: {event.path}"
    return Notice(t, "snapshot", text, _event_fields(event))


def finding(t: float, one: Finding, unit: str) -> Notice:
    fields = {
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
        "process": one.process,
        "remedy": one.remedy,
        "confidence": one.confidence,
        "proof": list(one.evidence),
    }
    return Notice(t, "finding", words.finding_text(one, unit), fields)
