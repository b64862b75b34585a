"""When to examine the trainer, or to follow its memory closely: at which moments, and within which budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.events import Diagnose
from memwatch.core.examination import Diagnosis, Growth
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import HOST, Sample

EXAMINATION_INTERVAL_FACTOR = (
    1.1  # times as many generations (or seconds) until the next examination, from the tenth on
)
PHASED = 4  # generations within which it is examined at each phase, too; in the middle, where there are none
PASSING = ("phase", "middle")  # reasons for which none may be in the way of the one as the next generation begins
AS_LONG_AGAIN = 0.5  # of what the first generation has lasted so far, that it is surely to last yet
FIRST_INTERVAL_SECONDS = 60.0  # without generations: until the second examination
LATE_SECONDS = 300.0  # after which an examination is no longer waited for
CREDIT_SECONDS = 60.0  # of CPU that examinations may take at once; then the share that is set
URGENT = ("warn", "request")  # reasons for which more CPU time may be spent
ROOM_SHARE = 0.25  # of the headroom that one may take
ROOM_LEAST = 64 << 20  # bytes: with less, none is made
RISE_BYTES = 1 << 20  # from one look at memory to the next: worth following closely, to see which code raises it
RECORD_SECONDS = (20.0, 60.0)  # for at least and at most so long, a generation if that is between
RECORD_MORE = 0.25  # of the time since the watch began, from the end of a recording to the next
RECORD_SHARE = 0.5  # of the CPU time for all: with more spent, none is made
TOLD_TYPES, TOLD_PATHS = 4, 12  # that grow: whose holders are asked for, and attributes whose size is


@dataclass(frozen=True, slots=True)
class DiagnosisPolicy:
    """What a user may set."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then ever more rarely
    cpu_share: float = 0.01  # of a core
    memory_bytes: int = 256 << 20  # that an examination may take
    leak_threshold_bytes: float = 5e6  # a generation (without generations: an hour); what grows by less is no leak
    track: tuple[str, ...] = ()  # attributes whose size is told each time


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """What a sample says that diagnosis needs."""

    used_bytes: int  # main memory
    headroom_bytes: int | None
    cow_bytes: int  # copied by forked workers, so far
    gpu_bytes: int | None  # of all GPUs; None: there is none, or it is not known

    @staticmethod
    def from_sample(sample: Sample) -> MemoryReading | None:
        """None where main memory was not read."""
        usage = next((usage for usage in sample.usages if usage.resource == HOST), None)
        if usage is None:
            return None
        headroom = usage.limit.headroom_bytes if usage.limit is not None else None
        copied = sample.tree.cow_bytes or 0 if sample.tree is not None else 0
        cards = [gpu.used_bytes for gpu in sample.gpus if gpu.used_bytes is not None]
        return MemoryReading(usage.used_bytes, headroom, copied, sum(cards) if cards else None)


class ExaminationSchedule:
    """Of one process. Told what happens, it says when an examination or a recording is to begin."""

    def __init__(self, policy: DiagnosisPolicy, ledger: GenerationLedger, began_t: float) -> None:
        self._policy, self._ledger, self._began_t = policy, ledger, began_t
        self._wanted = ""  # why the next look is to be followed by an examination
        self._asked: Diagnose | None = None  # the examination that goes on
        self._boundaries, self._boundary_t = 0, began_t
        self._took_seconds = 0.0  # the latest examination, by the clock
        self._has_phases = False
        self._middle_t = math.inf  # of a generation without phases
        self._next_boundary, self._next_t, self._next_record_t = 1.0, began_t + 1.0, began_t + FIRST_INTERVAL_SECONDS
        self._before: int | None = None  # main memory at the look before, while a rise of it is waited for
        self.cpu_seconds = 0.0  # that was spent

    # --- what happens ---

    def begin_generation(self, t: float) -> None:
        """A generation begins."""
        self._boundaries, self._boundary_t = self._boundaries + 1, t
        step = self._ledger.generation_seconds(t) if self._boundaries <= PHASED and not self._has_phases else None
        self._middle_t = math.inf if step is None else t + 0.5 * step
        if self._boundaries == 1:  # before, a program loads what it needs
            self._next_record_t = 0.0
        every = self._policy.every_generations
        due = (self._boundaries - 1) % every == 0 if every else self._boundaries >= self._next_boundary
        if due:
            self._wanted = "generation"
            self._next_boundary = self._boundaries + max(1, int((EXAMINATION_INTERVAL_FACTOR - 1.0) * self._boundaries))

    def phase_changed(self) -> None:
        """A phase begins, or ends."""
        self._has_phases, self._middle_t = True, math.inf
        if 0 < self._boundaries <= PHASED:
            self._wanted = self._wanted or "phase"

    def request_examination(self, reason: str) -> None:
        """One is wanted now."""
        self._wanted = reason

    def examination_ended(self, t: float, asked: Diagnose, cpu_seconds: float) -> None:
        """One has ended, and took so much CPU time."""
        self.cpu_seconds += cpu_seconds
        if not asked.record_seconds:
            self._asked, self._took_seconds = None, t - asked.t

    def forget(self) -> None:
        """What was asked for and what is wanted: memwatch was started again."""
        self._asked, self._wanted = None, ""

    # --- when ---

    @property
    def is_examining(self) -> bool:
        """An examination has not ended yet."""
        return self._asked is not None

    def needs_sample(self, t: float) -> bool:
        """A look is to be told."""
        return bool(self._wanted) or self.is_examining or t >= min(self._next_t, self._next_record_t, self._middle_t)

    @property
    def examination_t(self) -> float:
        """From when on a look may lead to an examination, or is one during it."""
        return -math.inf if self._wanted or self.is_examining else min(self._next_t, self._middle_t)

    def start_examination_if_due(self, t: float, reading: MemoryReading, known: Diagnosis | None) -> Diagnose | None:
        """The one to begin after this look; where it may not be made, the next occasion is waited for."""
        if t >= self._next_t:
            self._next_t = t + max(FIRST_INTERVAL_SECONDS, (EXAMINATION_INTERVAL_FACTOR - 1.0) * (t - self._began_t))
            if self._ledger.index is None:
                self._wanted = self._wanted or "time"
        if t >= self._middle_t:
            self._middle_t, self._wanted = math.inf, self._wanted or "middle"
        if self._asked is not None and t - self._asked.t < LATE_SECONDS:
            self._wanted = "" if self._wanted in PASSING else self._wanted  # the others are worth waiting for
            return None
        reason, self._wanted = self._wanted, ""
        room = self._room(reading)
        if not reason or room < ROOM_LEAST or (reason not in URGENT and self.cpu_seconds > self._credit(t)):
            return None
        if reason in PASSING and self._took_seconds > self._seconds_left(t):
            return None
        growing = [one.name for one in known.containers[:TOLD_PATHS]] if known else []
        self._asked = Diagnose(
            t,
            reason,
            self._ledger.index,
            self._ledger.phase,
            reading.used_bytes,
            room,
            types=_telling(known.types) if known else (),
            paths=tuple(dict.fromkeys((*self._policy.track, *growing))),
            gpu_bytes=reading.gpu_bytes,
            cow_bytes=reading.cow_bytes,
        )
        return self._asked

    def start_recording_if_due(self, t: float, reading: MemoryReading) -> Diagnose | None:
        """The one to begin now, as memory rises: it is followed for a generation, to see which code does that."""
        if t < self._next_record_t:
            return None
        before, self._before = self._before, reading.used_bytes
        if before is None or reading.used_bytes - before < RISE_BYTES:
            return None
        least, most = RECORD_SECONDS
        seconds = min(most, max(least, 1.1 * (self._ledger.generation_seconds(t) or 0.0)))
        self._next_record_t, self._before = t + seconds + RECORD_MORE * (t - self._began_t), None
        room = self._room(reading)
        if room < ROOM_LEAST or self.cpu_seconds > RECORD_SHARE * self._credit(t):
            return None
        index, phase = self._ledger.index, self._ledger.phase
        return Diagnose(t, "rise", index, phase, reading.used_bytes, room, record_seconds=seconds)

    def _seconds_left(self, t: float) -> float:
        """Of the generation under way, as far as is known."""
        step, passed = self._ledger.generation_seconds(t), t - self._boundary_t
        return AS_LONG_AGAIN * passed if step is None else step - passed

    def _room(self, reading: MemoryReading) -> int:
        """Bytes that one may take."""
        room = self._policy.memory_bytes
        return room if reading.headroom_bytes is None else min(room, int(ROOM_SHARE * reading.headroom_bytes))

    def _credit(self, t: float) -> float:
        return CREDIT_SECONDS + self._policy.cpu_share * (t - self._began_t)


def _telling(types: Sequence[Growth]) -> tuple[str, ...]:
    """Of the types that there are more of, those that tell the most: classes before Python's own types."""
    return tuple(one.name for one in sorted(types, key=lambda one: "." not in one.name)[:TOLD_TYPES])
