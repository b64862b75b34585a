"""Asks for examinations of the trainer, keeps their results, and concludes what causes the growth."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from memwatch.core.engine import notices
from memwatch.core.events import Action, Diagnosed
from memwatch.core.examination import AllocationProfile, Diagnosis, Examination, Finding, StackGrowth
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_history import ExaminationHistory, ExaminationRecord
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy, ExaminationSchedule, MemoryReading
from memwatch.core.leaks.growth_attribution import DiagnosisContext, by_line, fill_gauges, merge_stacks, unfilled
from memwatch.core.leaks.leak_causes import find_causes
from memwatch.core.measurements import HOST, Sample
from memwatch.core.snapshot import Gauge, NeighbourGrowth

RECORDINGS_KEPT = 4  # Latest recordings that are reported together (chosen).
MAX_LINES = 10  # Lines of code in a diagnosis (chosen).


class Diagnostician:
    """Diagnoses one trainer process after another. Reads the ledger and the gauges that the engine keeps."""

    def __init__(
        self,
        policy: DiagnosisPolicy,
        *,
        ledger: GenerationLedger,
        gauges: Mapping[str, Gauge],
        act: Callable[[Action], None],
        seconds_left: Callable[[float], float] = lambda _: math.inf,
        is_warned: Callable[[], bool] = lambda: False,
        counts_types: bool = False,
    ) -> None:
        """`seconds_left` until memory is expected to reach its limit; `is_warned`: memwatch has warned of that, and any
        growth counts, however slow; `counts_types`: the user expects some counts.
        """
        self._is_warned = is_warned
        self._policy, self._ledger, self._gauges, self._act = policy, ledger, gauges, act
        self.neighbour_growth: Callable[[], NeighbourGrowth | None] = lambda: None  # of main memory
        self._seconds_left, self._counts_types = seconds_left, counts_types
        self.heap_gauges: dict[str, Gauge] = {}  # containers in the trainer's heap that fill up to a capacity
        self._begin(0.0)

    def _begin(self, t: float) -> None:
        self.schedule = ExaminationSchedule(self._policy, self._ledger, t)
        self._begin_histories(t)
        self._explained = True  # memory does not grow, or names explain its growth
        self._refusal = ""  # why the whole heap is not read, as it was reported
        self._profiles: deque[AllocationProfile] = deque(maxlen=RECORDINGS_KEPT)
        self._credits: tuple[StackGrowth, ...] = ()
        self._reported: set[tuple[str, str]] = set()  # findings, by cause and name
        self._failure: str | None = None  # why the latest examination failed; None: it did not
        self._generation_began = False  # since the latest reading of memory
        self._phase_changed = False  # a phase began, or an examination ended, since then
        self._reading: MemoryReading | None = None
        self.heap_gauges.clear()
        self.diagnosis: Diagnosis | None = None

    def _begin_histories(self, t: float) -> None:
        self._counted_from_t = t  # the generations of what was asked for before are others
        self._heaps = ExaminationHistory(t, self._policy.track)
        self._names = ExaminationHistory(t, of_names=True)  # looks at what the program's own names lead to

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
        self._explained, self.diagnosis = True, None
        self.heap_gauges.clear()

    def begin_generation(self, t: float) -> None:
        self._generation_began = True
        self.schedule.begin_generation(t)

    def phase_changed(self) -> None:
        """A phase begins or ends."""
        self._phase_changed = True
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
        if self._generation_began and self._ledger.index is not None:
            for history in (self._heaps, self._names):
                history.begin_generation(t, self._ledger.index)
        self._generation_began = False
        if self._phase_changed or self.schedule.is_examining:
            self._phase_changed = False
            for history in (self._heaps, self._names):
                history.add_phase_reading(t, self._ledger.phase or "", reading.used_bytes)
        for asked in (
            self.schedule.start_examination_if_due(
                t, reading, self.diagnosis, self._needs_whole, self._seconds_left(t)
            ),
            self.schedule.start_recording_if_due(t, reading),
        ):
            if asked is not None:
                self._act(asked)
        if self.schedule.refusal and not self._refusal:  # told once
            self._refusal = self.schedule.refusal
            self._act(notices.no_whole_scan(t, self._refusal))

    @property
    def _needs_whole(self) -> bool:
        """Whether the whole heap has to be read: for what the user asks, or as names do not explain the growth."""
        return self._counts_types or bool(self._policy.track) or not self._explained

    # --- results ---

    @property
    def holders(self) -> dict[str, str]:
        """By resource, the attribute that holds most of its growth."""
        findings = self.diagnosis.findings if self.diagnosis is not None else ()
        return {one.resource: one.holder.partition("[")[0] for one in reversed(findings) if one.holder}

    def examination_ended(self, t: float, event: Diagnosed) -> None:
        """An examination or a recording has ended."""
        fills = any(True for _ in unfilled(event.found.names)) and not self._names.records
        self.schedule.examination_ended(t, event, fills)
        if event.asked.record_seconds:
            self._recorded(event.found.profile)
        elif event.asked.t >= self._counted_from_t:
            self._examined(t, event)

    def _examined(self, t: float, event: Diagnosed) -> None:
        self._phase_changed = True
        unit = self._ledger.unit
        has_names = self._names.add(event, of_names=True)
        has_heap = self._heaps.add(event)
        if has_names or has_heap:
            shown = self._heaps if has_heap else self._names
            latest, before = shown.records[-1], shown.records[-2] if len(shown.records) > 1 else None
            measured = self._names.records[-1] if has_names else latest
            self.heap_gauges.update((level.name, level) for level in fill_gauges(measured))
            self._act(notices.examined(t, unit, event, latest, before))
        if has_heap or (has_names and event.asked.whole_objects is not None):
            self._failure = None
        else:
            self._report_failure(t, event)
        record = self._names.records[-1] if has_names else self._heaps.records[-1] if has_heap else None
        headroom = self._headroom_at(record)
        context = DiagnosisContext(
            unit=unit if event.asked.generation is not None else "hour",
            headroom_bytes=headroom,
            threshold_bytes=0.0 if self._is_warned() else self._policy.leak_threshold_bytes,
            phase=self._ledger.leading_phase(HOST),
            gauges=self._gauges,
            neighbours=self.neighbour_growth(),
        )
        causes = find_causes(self._heaps, self._names, context)
        self.schedule.needs_within = (
            self._ledger.index is not None
            and not causes.explained
            and bool(self._heaps.records)
            and not self._heaps.has_seen_within
        )
        findings, counted, self._explained, history = causes.findings, causes.drivers, causes.explained, causes.history
        containers, types = history.growing_attributes(), history.types_growing_in_count()
        if history is not self._names:  # names lead deeper than to the object that holds all
            known = {one.name for one in containers}
            containers += [one for one in self._names.growing_attributes() if one.name not in known]
        for one in findings:
            self._report_once(t, one, context.unit)
        self.diagnosis = Diagnosis(
            t=t,
            unit=context.unit,
            cpu_seconds=round(self.schedule.cpu_seconds, 3),
            examinations=1 + (self.diagnosis.examinations if self.diagnosis is not None else 0),
            findings=tuple(findings),
            drivers=tuple(counted),
            containers=tuple(containers),
            tracked=tuple(history.tracked()),
            types=tuple(types),
            kinds=tuple(history.growing_kinds()),
            moments=history.rows(findings, containers, types),
            credits=self._credits,
            lines=by_line(self._credits)[:MAX_LINES],
            latest=event.found if has_heap or self.diagnosis is None else self._latest_heap(event.found),
        )

    def _headroom_at(self, record: ExaminationRecord | None) -> int | None:
        """Return the headroom at the moment at which a heap was read; None where it is not known."""
        reading = self._reading
        if reading is None or reading.headroom_bytes is None or record is None or record.used_bytes is None:
            return None if reading is None else reading.headroom_bytes
        return reading.headroom_bytes + reading.used_bytes - record.used_bytes

    def _latest_heap(self, found: Examination) -> Examination:
        """Return the latest examination of a whole heap, with the names of this one; or this one without any."""
        known = self.diagnosis.latest if self.diagnosis is not None else found
        return replace(known, names=found.names) if known.census is not None else found

    def _report_failure(self, t: float, event: Diagnosed) -> None:
        """Report a failure once while it lasts, and each failure of an examination that the user requested."""
        known, self._failure = self._failure, notices.examination_failure(event)
        if self._failure != known or event.asked.reason == "request":
            self._act(notices.not_examined(t, event))

    def _report_once(self, t: float, one: Finding, unit: str) -> None:
        key = one.cause, (one.holder or one.growth.name).partition("[")[0]
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
