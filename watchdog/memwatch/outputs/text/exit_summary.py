"""The summary at the end of a watch, as plain text: how it ended, why, what to do; then the tables behind that."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator, Sequence

from memwatch.core.engine.status_sentence import driver_texts, is_telling, needed_text
from memwatch.core.events import Cause
from memwatch.core.snapshot import GenerationRow, ResourceView, Snapshot, Verdict
from memwatch.core.text_and_units import format_bytes, format_duration, printable, replace_unprintable
from memwatch.outputs.text import diagnosis_text
from memwatch.outputs.text.formatting import (
    format_index,
    format_progress,
    format_verdict,
    largest_phases,
    phase_delta,
    phase_heads,
    phase_totals,
)

MAX_SUMMARY_ROWS = 30
SUMMARY_PHASE_COLUMNS = 3  # phases that have a column: those in which memory changed most
HEAD_ROWS = 10  # rows kept from the beginning of a longer table
_BYTES = ("start_bytes", "end_bytes", "delta_bytes", "peak_bytes")
CSV_COLUMNS = ("resource", "attempt", "generation", "start_t", "end_t", *_BYTES)


def render_summary(
    snapshot: Snapshot, lives: bool = True, *, history: str | None = None, with_examinations: bool = True
) -> str:
    """The summary, lines of at most about 100 columns, ending in a newline.

    `lives`: a trainer whose end was not seen still runs. `history`: the file that has the run, empty for the usual one,
    None for none. `with_examinations`: with the tables of what each examination found.
    """
    diagnosis = snapshot.diagnosis
    blocks: list[Iterable[str]] = [render_conclusion(snapshot, lives, history=history), [_title(snapshot)]]
    for view in snapshot.resources:
        if view.generations and (view is snapshot.resources[0] or view.verdict in (Verdict.GROWING, Verdict.LEAK)):
            blocks.append(_table(view, snapshot.unit))
    blocks.append(line for view in snapshot.resources for line in _growth(view, snapshot.unit))
    if diagnosis is not None and with_examinations:
        blocks.append(diagnosis_text.diagnosis_tables(diagnosis))
    blocks.append(_expectations(snapshot))
    texts = ("\n".join(block).strip("\n") for block in blocks)
    lines = "\n\n".join(filter(None, texts)).split("\n")
    return "".join(f"{replace_unprintable(line)}\n" for line in lines)


def render_conclusion(snapshot: Snapshot, lives: bool, *, history: str | None = None) -> Iterator[str]:
    """How the run ended and why memwatch concludes that, what grew and what to do about it, and the next command."""
    yield from _end(snapshot, lives)
    if snapshot.diagnosis is not None:
        yield from diagnosis_text.headlines(snapshot.diagnosis)
    ended_early = snapshot.exited is not None and snapshot.exited.cause is not Cause.COMPLETED
    if ended_early:
        for view in snapshot.resources:
            if view.needed is not None and is_telling(view.needed) and view.verdict in (Verdict.GROWING, Verdict.LEAK):
                yield f"{needed_text(view.needed)} of {view.usage.resource} memory"
        last = snapshot.exited.checkpoint if snapshot.exited is not None else None
        if last is not None and last.path:
            yield f"next: resume it from {printable(last.path, 200)}"
    if snapshot.exited is not None and history is not None and snapshot.run_id:
        file = f" {shlex.quote(history)}" if history else ""
        yield f"next: memwatch report{file} --run {snapshot.run_id} -o report.html, for the whole run as a page"


def _title(snapshot: Snapshot) -> str:
    who = printable(snapshot.command, 70) or "no trainer"
    pid = f" (pid {snapshot.target.pid})" if snapshot.target else ""
    facts = [f"memwatch: {who}{pid}"]
    if snapshot.started_t is not None:
        end_t = snapshot.exited.t if snapshot.exited else snapshot.t
        facts.append(f"watched {format_duration(end_t - snapshot.started_t)}")
    if snapshot.attempt:
        facts.append(f"attempt {snapshot.attempt + 1}")
    if progress := format_progress(snapshot):
        facts.append(progress)
    return ", ".join(facts)


def _table(view: ResourceView, unit: str) -> Iterator[str]:
    phases = largest_phases(view.generations, SUMMARY_PHASE_COLUMNS)
    heads = "".join(f"{printable(head, 12):>13}" for head in phase_heads(phases))
    yield f"{view.usage.resource:<5}{unit:>11}{'end memory':>13}{'change':>12}{'peak':>12}{'duration':>12}{heads}"
    for row in _shorten(view.generations):
        yield f"{'':5}{'...':>11}" if row is None else _row(row, phases)


def _row(row: GenerationRow, phases: Sequence[str]) -> str:
    took = "unfinished" if row.end_t is None else format_duration(row.end_t - row.start_t)
    change = format_bytes(row.delta_bytes, signed=True)
    index = format_index(row.index) + (f" try {row.attempt + 1}" if row.attempt else "")
    figures = f"{format_bytes(row.end_bytes):>13}{change:>12}{format_bytes(row.peak_bytes):>12}{took:>12}"
    deltas = [phase_delta(row, phase) for phase in phases]
    parts = "".join(f"{'' if delta is None else format_bytes(delta, signed=True):>13}" for delta in deltas)
    return f"{'':5}{index:>11}{figures}{parts}"


def _shorten(rows: Sequence[GenerationRow]) -> Sequence[GenerationRow | None]:
    if len(rows) <= MAX_SUMMARY_ROWS:
        return rows
    return [*rows[:HEAD_ROWS], None, *rows[HEAD_ROWS - MAX_SUMMARY_ROWS + 1 :]]


def _growth(view: ResourceView, unit: str) -> Iterator[str]:
    used, baseline, limit = view.usage.used_bytes, view.baseline_bytes, view.usage.limit
    owner = f" ({printable(limit.origin, 60)})" if limit and limit.origin != view.usage.resource else ""
    bound = f"; limit {format_bytes(limit.bytes)}{owner}" if limit else "; no known limit"
    yield (
        f"{view.usage.resource}: {format_verdict(view, unit)}; from {format_bytes(baseline)} to {format_bytes(used)}"
        f" ({format_bytes(used - baseline, signed=True)}), peak {format_bytes(view.peak_bytes)}{bound}"
    )
    for driver in driver_texts(view.drivers):
        yield f"{'':{len(view.usage.resource)}}  {driver}"
    if totals := phase_totals(view.generations):
        largest = sorted(totals.items(), key=lambda item: -abs(item[1]))[:8]
        parts = ", ".join(f"{printable(phase, 30)} {format_bytes(total, signed=True)}" for phase, total in largest)
        yield f"{'':{len(view.usage.resource)}}  by phase: {parts}"


def _expectations(snapshot: Snapshot) -> Iterator[str]:
    for one in snapshot.expectations:
        what = "not evaluated" if one.met is None else f"met; {one.latest}"
        if one.breaches:
            what = f"BROKEN {one.breaches} times, first at {one.first}; latest {one.latest}"
        yield printable(f"expected {one.text}: {what}", 160)


def _end(snapshot: Snapshot, lives: bool) -> Iterator[str]:
    sentence = printable(snapshot.sentence, 300)
    if snapshot.exited is not None:
        yield sentence
        for line in snapshot.exited.evidence[:6]:
            yield f"  evidence: {printable(line, 200)}"
    elif lives:
        yield f"The trainer runs on. {sentence}"
    else:
        yield "The record ends before the trainer did: memwatch was stopped, or killed with it. Its last report:"
        yield sentence


def generations_csv(end: Snapshot) -> str:
    """Returns a row for each generation of each resource, with the growth in each phase; unknown is empty."""
    import csv  # the daemon, which prints the summary, does not need it

    rows = [(view.usage.resource, row) for view in end.resources for row in view.generations]
    phases = list(dict.fromkeys(part.phase for _, row in rows for part in row.phases))
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow([*CSV_COLUMNS, *(f"phase:{phase}" for phase in phases)])
    for resource, row in rows:
        figures = (getattr(row, name) for name in _BYTES)
        deltas = (phase_delta(row, phase) for phase in phases)
        table.writerow([resource, row.attempt, row.index, row.start_t, row.end_t, *figures, *deltas])
    return file.getvalue()
