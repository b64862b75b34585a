"""When to examine the trainer or to record its memory, and how much CPU time and memory that may take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memwatch.core.events import Diagnose
from memwatch.core.examination import Diagnosis
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import HOST, Sample

EXAMINATION_INTERVAL_FACTOR = 1.1  # Growth of the interval from the tenth examination on (chosen).
PHASED = 4  # First generations in which each phase is examined, or without phases the middle (chosen).
SKIPPABLE = ("phase", "middle")  # Reasons that must not delay the examination at the start of the next generation.
FIRST_REMAINING_SHARE = 0.5  # The first generation is assumed to last this share of its time so far longer (chosen).
FIRST_INTERVAL_SECONDS = 60.0  # Without generations, the time to the second examination (chosen).
LATE_SECONDS = 300.0  # After this an examination is given up (chosen).
CREDIT_SECONDS = 60.0  # CPU seconds for examinations at any time, beside the share that the user sets (chosen).
URGENT = ("warn", "request")  # Reasons for which this budget may be exceeded.
ROOM_SHARE = 0.25  # Share of the headroom that an examination may take (chosen).
MIN_ROOM_BYTES = 64 << 20  # With less memory no examination is made (chosen).
RISE_BYTES = 1 << 20  # A rise from one sample to the next that starts a recording (chosen).
RECORD_SECONDS = (20.0, 60.0)  # A recording lasts a generation, but at least and at most this long (chosen).
RECORD_PAUSE_SHARE = 0.25  # Pause after a recording, as a share of the time since the watch began (chosen).
RECORD_CPU_SHARE = 0.5  # No recording begins after this share of the CPU time for all (chosen).
GROWING_TYPES, GROWING_PATHS = 4, 12  # Growing types whose holders, and attributes whose sizes, are asked for (chosen).


@dataclass(frozen=True, slots=True)
class DiagnosisPolicy:
    """The user's settings for diagnosis."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then at growing intervals
    cpu_share: float = 0.01  # of a core
    memory_bytes: int = 256 << 20  # that an examination may take
    leak_threshold_bytes: float = 5e6  # per generation (without generations per hour); less growth is no leak
    track: tuple[str, ...] = ()  # attributes whose size is measured each time


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The figures of a sample that diagnosis needs."""

    used_bytes: int  # main memory
    headroom_bytes: int | None
    cow_bytes: int  # copied by forked workers so far
    gpu_bytes: int | None  # of all GPUs; None: there is none, or it is not known

    @staticmethod
    def from_sample(sample: Sample) -> MemoryReading | None:
        """Take the figures from a sample; None where main memory was not read."""
        usage = next((usage for usage in sample.usages if usage.resource == HOST), None)
        if usage is None:
            return None
        headroom = usage.limit.headroom_bytes if usage.limit is not None else None
        copied = sample.tree.cow_bytes or 0 if sample.tree is not None else 0
        cards = [gpu.used_bytes for gpu in sample.gpus if gpu.used_bytes is not None]
        return MemoryReading(usage.used_bytes, headroom, copied, sum(cards) if cards else None)


class ExaminationSchedule:
    """Decides when an examination or a recording of one process begins."""

    def __init__(self, policy: DiagnosisPolicy, ledger: GenerationLedger, began_t: float) -> None:
        self._policy, self._ledger, self._began_t = policy, ledger, began_t
        self._wanted = ""  # the reason for an examination after the next sample; empty: none is wanted
        self._asked: Diagnose | None = None  # the examination under way
        self._boundaries, self._boundary_t = 0, began_t
        self._took_seconds = 0.0  # the latest examination, by the clock
        self._has_phases = False
        self._middle_t = math.inf  # of a generation without phases
        self._next_boundary, self._next_t, self._next_record_t = 1.0, began_t + 1.0, began_t + FIRST_INTERVAL_SECONDS
        self._before: int | None = None  # main memory at the sample before, while a rise is waited for
        self.cpu_seconds = 0.0  # spent so far

    def begin_generation(self, t: float) -> None:
        self._boundaries, self._boundary_t = self._boundaries + 1, t
        step = self._ledger.generation_seconds(t) if self._boundaries <= PHASED and not self._has_phases else None
        self._middle_t = math.inf if step is None else t + 0.5 * step
        if self._boundaries == 1:  # Before that, a program loads its data.
            self._next_record_t = 0.0
        every = self._policy.every_generations
        due = (self._boundaries - 1) % every == 0 if every else self._boundaries >= self._next_boundary
        if due:
            self._wanted = "generation"
            self._next_boundary = self._boundaries + max(1, int((EXAMINATION_INTERVAL_FACTOR - 1.0) * self._boundaries))

    def phase_changed(self) -> None:
        """A phase begins or ends."""
        self._has_phases, self._middle_t = True, math.inf
        if 0 < self._boundaries <= PHASED:
            self._wanted = self._wanted or "phase"

    def request_examination(self, reason: str) -> None:
        self._wanted = reason

    def examination_ended(self, t: float, asked: Diagnose, cpu_seconds: float) -> None:
        """An examination or a recording has ended and took so much CPU time."""
        self.cpu_seconds += cpu_seconds
        if not asked.record_seconds:
            self._asked, self._took_seconds = None, t - asked.t

    def forget(self) -> None:
        """Forget every request: memwatch was started again."""
        self._asked, self._wanted = None, ""

    @property
    def is_examining(self) -> bool:
        return self._asked is not None

    def needs_sample(self, t: float) -> bool:
        """Whether the next sample may start something, or falls into an examination."""
        return bool(self._wanted) or self.is_examining or t >= min(self._next_t, self._next_record_t, self._middle_t)

    @property
    def examination_t(self) -> float:
        """The time from which a sample may start an examination; -inf during one."""
        return -math.inf if self._wanted or self.is_examining else min(self._next_t, self._middle_t)

    def start_examination_if_due(self, t: float, reading: MemoryReading, known: Diagnosis | None) -> Diagnose | None:
        """Return the examination to begin after this sample; one that does not fit the budget is dropped."""
        if t >= self._next_t:
            self._next_t = t + max(FIRST_INTERVAL_SECONDS, (EXAMINATION_INTERVAL_FACTOR - 1.0) * (t - self._began_t))
            if self._ledger.index is None:
                self._wanted = self._wanted or "time"
        if t >= self._middle_t:
            self._middle_t, self._wanted = math.inf, self._wanted or "middle"
        if self._asked is not None and t - self._asked.t < LATE_SECONDS:
            self._wanted = "" if self._wanted in SKIPPABLE else self._wanted
            return None
        reason, self._wanted = self._wanted, ""
        room = self._room(reading)
        if not reason or room < MIN_ROOM_BYTES or (reason not in URGENT and self.cpu_seconds > self._credit(t)):
            return None
        if reason in SKIPPABLE and self._took_seconds > self._seconds_left(t):
            return None
        growing = [growth.name for growth in known.containers[:GROWING_PATHS]] if known else []
        # Classes come before builtin types, which tell less.
        types = sorted(known.types, key=lambda growth: "." not in growth.name)[:GROWING_TYPES] if known else []
        self._asked = Diagnose(
            t,
            reason,
            self._ledger.index,
            self._ledger.phase,
            reading.used_bytes,
            room,
            types=tuple(growth.name for growth in types),
            paths=tuple(dict.fromkeys((*self._policy.track, *growing))),
            gpu_bytes=reading.gpu_bytes,
            cow_bytes=reading.cow_bytes,
        )
        return self._asked

    def start_recording_if_due(self, t: float, reading: MemoryReading) -> Diagnose | None:
        """Return the recording to begin now, as memory rises, to see which code raises it."""
        if t < self._next_record_t:
            return None
        before, self._before = self._before, reading.used_bytes
        if before is None or reading.used_bytes - before < RISE_BYTES:
            return None
        least, most = RECORD_SECONDS
        seconds = min(most, max(least, 1.1 * (self._ledger.generation_seconds(t) or 0.0)))
        self._next_record_t, self._before = t + seconds + RECORD_PAUSE_SHARE * (t - self._began_t), None
        room = self._room(reading)
        if room < MIN_ROOM_BYTES or self.cpu_seconds > RECORD_CPU_SHARE * self._credit(t):
            return None
        index, phase = self._ledger.index, self._ledger.phase
        return Diagnose(t, "rise", index, phase, reading.used_bytes, room, record_seconds=seconds)

    def _seconds_left(self, t: float) -> float:
        """Estimate the seconds that are left of the generation under way."""
        step, passed = self._ledger.generation_seconds(t), t - self._boundary_t
        return FIRST_REMAINING_SHARE * passed if step is None else step - passed

    def _room(self, reading: MemoryReading) -> int:
        """Return the bytes that an examination may take."""
        room = self._policy.memory_bytes
        return room if reading.headroom_bytes is None else min(room, int(ROOM_SHARE * reading.headroom_bytes))

    def _credit(self, t: float) -> float:
        """Return the CPU seconds that examinations may have taken until `t`."""
        return CREDIT_SECONDS + self._policy.cpu_share * (t - self._began_t)
