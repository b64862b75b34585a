"""Asks for examinations of the trainer, keeps their results, and concludes what causes the growth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from memwatch.core.engine import notices
from memwatch.core.events import Action, Diagnosed
from memwatch.core.examination import (
    NOT_ASKED,
    AllocationProfile,
    Diagnose,
    Diagnosis,
    Examination,
    Finding,
    GrowthDriver,
    StackGrowth,
)
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.generation_ledger import MAX_PHASES, GenerationLedger
from memwatch.core.leaks.examination_history import HOUR, ExaminationHistory, ExaminationRecord
from memwatch.core.leaks.examination_schedule import (
    DiagnosisPolicy,
    ExaminationNeed,
    ExaminationSchedule,
    MemoryReading,
)
from memwatch.core.leaks.examined_processes import ExaminedProcess, ProcessChoice
from memwatch.core.leaks.growth_attribution import DiagnosisContext, by_line, fill_gauges, merge_stacks, unfilled
from memwatch.core.leaks.leak_cause_catalogue import FILLED_ARRAYS
from memwatch.core.leaks.leak_cause_rules import find_causes
from memwatch.core.measurements import HOST, Sample
from memwatch.core.snapshot import Gauge, NeighbourGrowth, WatchState

RECORDINGS_KEPT = 4  # Latest recordings that are reported together (chosen).
MAX_LINES = 10  # Lines of code in a diagnosis (chosen).


class MonitorProtocol(Protocol):
    """Main memory as the engine follows it."""

    @property
    def state(self) -> WatchState: ...
    @property
    def host_outlook(self) -> Outlook | None: ...
    @property
    def stands_still(self) -> bool: ...
    @property
    def neighbour_growth(self) -> NeighbourGrowth | None: ...


class Diagnostician:
    """Diagnoses one trainer process after another. Reads the ledger and the gauges that the engine keeps."""

    def __init__(
        self,
        policy: DiagnosisPolicy,
        monitor: MonitorProtocol,
        *,
        ledger: GenerationLedger,
        gauges: Mapping[str, Gauge],
        heap_gauges: dict[str, Gauge],
        act: Callable[[Action], None],
        counts_types: bool = False,
    ) -> None:
        """`heap_gauges`: to keep containers in that fill up to a capacity; `counts_types`: the user expects some."""
        self._policy, self._monitor, self._ledger, self._act = policy, monitor, ledger, act
        self._gauges, self._heap_gauges, self._counts_types = gauges, heap_gauges, counts_types
        self._begin(0.0)

    def _begin(self, t: float) -> None:
        self.schedule = ExaminationSchedule(self._policy, self._ledger, t)
        self._begin_histories(t)
        self._refusal = ""  # why the whole heap is not read, as it was reported
        self._profiles: deque[AllocationProfile] = deque(maxlen=RECORDINGS_KEPT)
        self._credits: tuple[StackGrowth, ...] = ()
        self._reported: set[tuple[str, str]] = set()  # findings, by cause and name
        self._failure: str | None = None  # why the latest examination failed; None: it did not
        self._generation_began, self._began_before_watch = False, False  # since the latest reading of memory
        self._phase_changed = False  # a phase began, or an examination ended, since then
        self._phases_passed: deque[str | None] = deque(maxlen=MAX_PHASES)  # those that were under way since then
        self._reading: MemoryReading | None = None
        self._heap_gauges.clear()
        self.diagnosis: Diagnosis | None = None

    def _begin_histories(self, t: float) -> None:
        self._counted_from_t = t  # the generations of what was asked for before are others
        self._choice = ProcessChoice(self._policy.leak_threshold_bytes)
        self._own = ExaminedProcess(t, self._policy.track)
        self._worker: ExaminedProcess | None = None  # the one that is examined, too
        self._causes: dict[bool, tuple[list[Finding], list[GrowthDriver]]] = {}  # by whether of the own process

    # --- events ---

    def begin_attempt(self, t: float, anew: bool) -> None:
        """A watch begins: of another process or, if not `anew`, of the same one after a restart of memwatch."""
        self.schedule.forget()
        if anew:
            self._begin(t)

    def forget_generations(self, t: float) -> None:
        """Another counter is taken for the clock: what was found so far is of no generation."""
        self.schedule.forget_generations()
        self._begin_histories(t)
        self.diagnosis = None
        self._heap_gauges.clear()

    def begin_generation(self, t: float, before_watch: bool) -> None:
        self._generation_began, self._began_before_watch = True, before_watch
        self.schedule.begin_generation(t)

    def phase_changed(self, before: str | None) -> None:
        """A phase begins or ends, at some time between the latest reading of memory and the next."""
        self._phase_changed = True
        self._phases_passed.append(before)
        if (latest := self._ledger.latest_reading(HOST)) is not None:
            passed = [*self._phases_passed, self._ledger.phase]
            phases = dict.fromkeys(filter(None, passed)) if passed[0] and passed[-1] else ()
            for history in self._histories:
                history.add_phase_reading(*latest, *phases)
        self.schedule.phase_changed()

    @property
    def next_sample_t(self) -> float:
        """The time from which a sample is needed. Recordings are left out: a replay has no process to record."""
        if not self._policy.enabled:
            return math.inf
        return -math.inf if self._is_waiting else self.schedule.examination_t

    @property
    def _is_waiting(self) -> bool:
        """Something has happened that needs a reading of memory."""
        return self._generation_began or self._phase_changed

    def process_sample(self, t: float, sample: Sample) -> None:
        """Do everything that waits for a reading of memory."""
        if not (self._policy.enabled and (self._is_waiting or self.schedule.needs_sample(t))):
            return
        reading = MemoryReading.from_sample(sample)
        if reading is None:
            return
        self._reading = reading
        if self._generation_began and not self._began_before_watch and self._ledger.index is not None:
            for history in self._histories:
                history.begin_generation(t, self._ledger.index)
        self._generation_began = False
        if self._phase_changed or self.schedule.is_examining:
            self._phase_changed = False
            self._phases_passed.clear()
            for history in self._histories:
                history.add_phase_reading(t, reading.used_bytes, *filter(None, [self._ledger.phase]))
        is_asked_for = self._counts_types or bool(self._policy.track)
        stands_still = not is_asked_for and self._monitor.stands_still
        need = ExaminationNeed(self._needs_whole, self._seconds_to_limit, self._choice.worker, stands_still)
        for asked in (
            self.schedule.start_examination_if_due(t, reading, self.diagnosis, need),
            self.schedule.start_recording_if_due(t, reading),
        ):
            if asked is not None:
                self._act(asked)
        if self.schedule.refusal and not self._refusal:  # told once
            self._refusal = self.schedule.refusal
            self._act(notices.no_whole_scan(t, self._refusal))

    @property
    def _seconds_to_limit(self) -> float:
        """How soon memory is expected to reach its limit."""
        outlook = self._monitor.host_outlook
        eta = outlook.forecast.eta_seconds if outlook is not None and outlook.forecast is not None else None
        return math.inf if eta is None else eta

    def _forecast_growth(self, has_generations: bool) -> float:
        """Return the bytes by which memory grows in a generation, or in an hour, as forecast; 0: not known."""
        outlook = self._monitor.host_outlook
        trend = outlook.trend if outlook is not None else None
        if trend is None:
            return 0.0
        return (trend.growth_per_generation or 0.0) if has_generations else HOUR * trend.growth_per_second

    @property
    def _needs_whole(self) -> bool:
        """Whether the whole heap has to be read: for what the user asks, or as names do not explain the growth."""
        if (worker := self._choice.worker) is not None:
            return self._worker is not None and self._worker.worker == worker and not self._worker.explained
        is_own = not self._own.explained and not self._choice.workers_explain
        return self._counts_types or bool(self._policy.track) or is_own

    @property
    def _histories(self) -> Iterator[ExaminationHistory]:
        for process in filter(None, (self._own, self._worker)):
            yield process.heaps
            yield process.names

    def _process(self, asked: Diagnose) -> ExaminedProcess:
        """Return the process that was examined; another worker than before begins anew."""
        if (worker := asked.worker) is None:
            return self._own
        known = self._worker.worker if self._worker is not None else None
        if self._worker is None or known is None or (known.pid, known.start_ticks) != (worker.pid, worker.start_ticks):
            self._worker = ExaminedProcess(asked.t, worker=worker)
        return self._worker

    # --- results ---

    @property
    def holders(self) -> dict[str, str]:
        """By resource, the attribute that holds most of its growth."""
        findings = self.diagnosis.findings if self.diagnosis is not None else ()
        return {one.resource: one.holder.partition("[")[0] for one in reversed(findings) if one.holder}

    def examination_ended(self, t: float, event: Diagnosed) -> None:
        """An examination or a recording has ended."""
        fills = any(True for _ in unfilled(event.found.names)) and not self._own.names.records
        self.schedule.examination_ended(t, event, fills)
        if event.asked.record_seconds:
            self._recorded(event.found.profile)
        elif event.asked.t >= self._counted_from_t:
            self._examined(t, event)

    def _examined(self, t: float, event: Diagnosed) -> None:
        self._phase_changed = True
        self._choice.add(event)
        process = self._process(event.asked)
        is_own, has_heap = process is self._own, process.heaps.add(event)
        has_names = process.names.add(event, of_names=True)
        if has_names or has_heap:
            records = (process.heaps if has_heap else process.names).records
            before = records[-2] if len(records) > 1 else None
            self._act(notices.examined(t, self._ledger.unit, event, records[-1], before))
        if has_heap or (has_names and event.found.census_reason == NOT_ASKED):
            self._failure = None
        else:
            self._report_failure(t, event)
        record = process.names.records[-1] if has_names else process.heaps.records[-1] if has_heap else None
        if is_own and record is not None:
            self._heap_gauges.update((level.name, level) for level in fill_gauges(record))
        context = self._context(event, is_own, record)
        causes = find_causes(process.heaps, process.names, context)
        process.explained = causes.explained
        self.schedule.needs_within = (
            self._ledger.index is not None
            and not causes.explained
            and bool(process.heaps.records)
            and not process.heaps.has_seen_within
            and not self._choice.workers_explain
        )
        name = self._name(process)
        self._causes[is_own] = [replace(one, process=name) for one in causes.findings], causes.drivers
        findings = sorted(
            (one for found, _ in self._causes.values() for one in found), key=lambda one: -one.growth.per_unit
        )
        for one in findings:
            self._report_once(t, one, context.unit)
        shown = event.found if has_heap and is_own else self._latest_heap(event.found, is_own)
        self.diagnosis = self._diagnosis(t, findings, process, causes.history, unit=context.unit, latest=shown)

    def _context(self, event: Diagnosed, is_own: bool, record: ExaminationRecord | None) -> DiagnosisContext:
        has_generations = event.asked.generation is not None
        is_warned = self._monitor.state is not WatchState.WATCHING  # any growth counts then, however slow
        return DiagnosisContext(
            unit=self._ledger.unit if has_generations else "hour",
            headroom_bytes=self._headroom_at(record) if is_own else None,
            threshold_bytes=0.0 if is_warned else self._policy.leak_threshold_bytes,
            phase=self._ledger.leading_phase(HOST),
            forecast_growth=self._forecast_growth(has_generations) if is_own else 0.0,
            gauges=self._gauges if is_own else {},
            neighbours=self._monitor.neighbour_growth if is_own else None,
        )

    def _diagnosis(
        self,
        t: float,
        findings: list[Finding],
        process: ExaminedProcess,
        history: ExaminationHistory,
        *,
        unit: str,
        latest: Examination,
    ) -> Diagnosis:
        """Make the diagnosis to show after an examination of this process; from `history` its causes are known."""
        containers, types = history.growing_attributes(), history.types_growing_in_count()
        if history is not process.names:  # names lead deeper than to the object that holds all
            known = {one.name for one in containers}
            containers += [one for one in process.names.growing_attributes() if one.name not in known]
        return Diagnosis(
            t=t,
            unit=unit,
            cpu_seconds=round(self.schedule.cpu_seconds, 3),
            examinations=1 + (self.diagnosis.examinations if self.diagnosis is not None else 0),
            findings=tuple(findings),
            drivers=tuple(self._causes.get(True, ((), ()))[1]),
            containers=tuple(containers),
            tracked=tuple(self._own.heaps.tracked()),
            types=tuple(types),
            kinds=tuple(history.growing_kinds()),
            moments=history.rows(findings, containers, types),
            credits=self._credits,
            lines=by_line(self._credits)[:MAX_LINES],
            latest=latest,
        )

    def _name(self, process: ExaminedProcess) -> str:
        """Return a worker as findings name it; empty for the trainer's own process."""
        if (worker := process.worker) is None:
            return ""
        more = f", and {self._choice.alike - 1} more that grow alike" if self._choice.alike > 1 else ""
        return f"worker {worker.name} (pid {worker.pid}){more}"

    def _headroom_at(self, record: ExaminationRecord | None) -> int | None:
        """Return the headroom at the moment at which a heap was read; None where it is not known."""
        reading = self._reading
        if reading is None or reading.headroom_bytes is None or record is None or record.used_bytes is None:
            return None if reading is None else reading.headroom_bytes
        return reading.headroom_bytes + reading.used_bytes - record.used_bytes

    def _latest_heap(self, found: Examination, is_own: bool) -> Examination:
        """Return the latest examination of the trainer's whole heap, with the names of this one; or this one."""
        known = self.diagnosis.latest if self.diagnosis is not None else found
        if not is_own:
            return known
        return replace(known, names=found.names) if known.census is not None else found

    def _report_failure(self, t: float, event: Diagnosed) -> None:
        """Report a failure once while it lasts, and each failure of an examination that the user requested."""
        known, self._failure = self._failure, notices.examination_failure(event)
        if self._failure != known or event.asked.reason == "request":
            self._act(notices.not_examined(t, event))

    def _report_once(self, t: float, one: Finding, unit: str) -> None:
        held_at = (one.holder or one.growth.name).partition("[")[0].partition(".__self__")[0]
        if one.cause in FILLED_ARRAYS:  # of the arrays of one buffer, another may be the largest at each look
            held_at = held_at.rpartition(".")[0]
        key = one.cause, held_at
        if key not in self._reported:
            self._reported.add(key)
            self._act(notices.finding(t, one, unit))

    def _recorded(self, profile: AllocationProfile | None) -> None:
        if profile is None:
            return
        self._profiles.append(profile)
        self._credits = merge_stacks(credit for one in self._profiles for credit in one.credits)
        if self.diagnosis is not None:
            self.diagnosis = replace(self.diagnosis, credits=self._credits, lines=by_line(self._credits)[:MAX_LINES])
