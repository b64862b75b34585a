"""What has been found of the causes of growth: asks for examinations, keeps what they showed, and concludes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from memwatch.core.engine import notices
from memwatch.core.events import Action, Diagnosed
from memwatch.core.examination import AllocationProfile, Diagnosis, Finding, StackGrowth
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.cause_rules import find_causes
from memwatch.core.leaks.examination_history import ExaminationHistory
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy, ExaminationSchedule, MemoryReading
from memwatch.core.leaks.growing_attributes import DiagnosisContext, GaugeRegression, fill_gauges
from memwatch.core.leaks.growth_by_code_line import by_line, merge_stacks
from memwatch.core.measurements import HOST, Sample
from memwatch.core.snapshot import Gauge

RECORDINGS = 4  # that are told of together: the latest
LINES_TOLD = 10


class Diagnostician:
    """Of one trainer after the other. Reads the ledger and the gauges that the engine keeps."""

    def __init__(
        self,
        policy: DiagnosisPolicy,
        *,
        ledger: GenerationLedger,
        gauges: Mapping[str, Gauge],
        act: Callable[[Action], None],
    ) -> None:
        self._policy, self._ledger, self._gauges, self._act = policy, ledger, gauges, act
        self.heap_gauges: dict[str, Gauge] = {}  # what fills up to a capacity in the trainer's heap
        self._begin(0.0)

    def _begin(self, t: float) -> None:
        self.schedule = ExaminationSchedule(self._policy, self._ledger, t)
        self._evidence, self._drivers = ExaminationHistory(t, self._policy.track), GaugeRegression()
        self._profiles: deque[AllocationProfile] = deque(maxlen=RECORDINGS)
        self._credits: tuple[StackGrowth, ...] = ()
        self._reported: set[tuple[str, str]] = set()  # findings, by cause and name
        self._failure: str | None = None  # of the latest examination, when it brought nothing
        self._crossed = False  # a generation began since memory was read
        self._turned = False  # a phase began, or an examination ended, since memory was read
        self._fresh: set[str] = set()  # gauges whose level memory has not been read for
        self._reading: MemoryReading | None = None
        self.heap_gauges.clear()
        self.diagnosis: Diagnosis | None = None

    # --- what happens ---

    def begin_attempt(self, t: float, anew: bool) -> None:
        """A watch begins: of another process, or (not `anew`) of the same after memwatch was started again."""
        self.schedule.forget()
        if anew:
            self._begin(t)

    def begin_generation(self, t: float) -> None:
        """A generation begins."""
        self._crossed = True
        self.schedule.begin_generation(t)

    def phase_changed(self) -> None:
        """A phase begins, or ends."""
        self._turned = True
        self.schedule.phase_changed()

    def gauge_updated(self, name: str) -> None:
        """The log told a level."""
        self._fresh.add(name)

    @property
    def next_sample_t(self) -> float:
        """From when on a look is wanted, but for recordings: of what was recorded it changes nothing."""
        if not self._policy.enabled:
            return math.inf
        waits = self._fresh or self._crossed or self._turned
        return -math.inf if waits else self.schedule.examination_t

    def process_sample(self, t: float, sample: Sample) -> None:
        """Memory was read: what waits for that is done now."""
        is_due = self._fresh or self._crossed or self._turned or self.schedule.needs_sample(t)
        if not (self._policy.enabled and is_due):
            return
        reading = MemoryReading.from_sample(sample)
        if reading is None:
            return
        self._reading = reading
        if self._crossed and self._ledger.index is not None:
            self._evidence.begin_generation(t, self._ledger.index, reading.used_bytes)
        self._crossed = False
        if self._turned or self.schedule.is_examining:
            self._turned = False
            self._evidence.add_phase_reading(t, self._ledger.phase or "", reading.used_bytes)
        for name in self._fresh:
            self._drivers.add_reading(self._gauges[name], reading.used_bytes)
        self._fresh.clear()
        for asked in (
            self.schedule.start_examination_if_due(t, reading, self.diagnosis),
            self.schedule.start_recording_if_due(t, reading),
        ):
            if asked is not None:
                self._act(asked)

    # --- what was found ---

    @property
    def holders(self) -> dict[str, str]:
        """By resource, the attribute that was found to hold the most of its growth."""
        findings = self.diagnosis.findings if self.diagnosis is not None else ()
        return {one.resource: one.holder.partition("[")[0] for one in reversed(findings) if one.holder}

    def examination_ended(self, t: float, event: Diagnosed) -> None:
        """An examination or a recording has ended."""
        self.schedule.examination_ended(t, event.asked, event.found.cpu_seconds)
        if event.asked.record_seconds:
            self._recorded(event.found.profile)
        else:
            self._examined(t, event)

    def _missed(self, t: float, event: Diagnosed) -> None:
        """What hinders one examination after the other is told once; who asks for one is answered."""
        known, self._failure = self._failure, notices.examination_failure(event)
        if self._failure != known or event.asked.reason == "request":
            self._act(notices.not_examined(t, event))

    def _examined(self, t: float, event: Diagnosed) -> None:
        self._turned = True
        evidence, unit = self._evidence, self._ledger.unit
        if evidence.add(event):
            latest, before = evidence.records[-1], evidence.records[-2] if len(evidence.records) > 1 else None
            self.heap_gauges.update((level.name, level) for level in fill_gauges(latest))
            self._failure = None
            self._act(notices.examined(t, unit, event, latest, before))
        else:
            self._missed(t, event)
        headroom = self._reading.headroom_bytes if self._reading is not None else None
        situation = DiagnosisContext(
            unit=unit if event.asked.generation is not None else "hour",
            headroom_bytes=headroom,
            threshold_bytes=self._policy.leak_threshold_bytes,
            phase=self._ledger.leading_phase(HOST),
            gauges=self._gauges,
        )
        findings, counted = find_causes(evidence, situation)
        containers, types = evidence.growing_attributes(), evidence.types_growing_in_count()
        for one in findings:
            self._report_once(t, one, situation.unit)
        self.diagnosis = Diagnosis(
            t=t,
            unit=situation.unit,
            cpu_seconds=round(self.schedule.cpu_seconds, 3),
            examinations=1 + (self.diagnosis.examinations if self.diagnosis is not None else 0),
            findings=tuple(findings),
            drivers=tuple(counted or self._drivers.explain(self._gauges.values(), headroom)),
            containers=tuple(containers),
            tracked=tuple(evidence.tracked()),
            types=tuple(types),
            kinds=tuple(evidence.kinds()),
            moments=evidence.rows(findings, containers, types),
            credits=self._credits,
            lines=by_line(self._credits)[:LINES_TOLD],
            latest=event.found,
        )

    def _report_once(self, t: float, one: Finding, unit: str) -> None:
        """Once."""
        key = one.cause, one.growth.name
        if key not in self._reported:
            self._reported.add(key)
            self._act(notices.finding(t, one, unit))

    def _recorded(self, profile: AllocationProfile | None) -> None:
        if profile is None:
            return
        self._profiles.append(profile)
        self._credits = merge_stacks(credit for one in self._profiles for credit in one.credits)
        if self.diagnosis is not None:
            self.diagnosis = replace(self.diagnosis, credits=self._credits, lines=by_line(self._credits)[:LINES_TOLD])
