"""When to examine the trainer or to record its memory, and how much CPU time and memory that may take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memwatch.core.events import Diagnosed
from memwatch.core.examination import Diagnose, Diagnosis, ProcessSize
from memwatch.core.forecast.piecewise_trend import LEAST_RISE
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_cpu_budget import WINDOW_SECONDS, CpuAllowance, CpuWindow, seconds_until
from memwatch.core.measurements import HOST, Sample
from memwatch.core.text_and_units import format_duration

EXAMINATION_INTERVAL_FACTOR = 1.1  # Growth of the interval from the tenth examination on (chosen).
STILL_INTERVAL_FACTOR = 2.0  # Growth of the interval while memory stands still (chosen).
STILL_EXAMINATIONS = 4  # Examinations at the usual pace before memory that stands still slows it (chosen).
PHASED = 4  # First generations in which each phase is examined, or without phases the middle (chosen).
SKIPPABLE = ("phase", "middle")  # Reasons that must not delay the examination at the start of the next generation.
FIRST_REMAINING_SHARE = 0.5  # The first generation is assumed to last this share of its time so far longer (chosen).
FIRST_INTERVAL_SECONDS = 20.0  # Without generations, the time to the second examination (chosen).
PHASE_SHARE = 0.5  # of what examinations may spend; from there on those within a phase are left out (chosen).
# Share of a window's CPU that is for recordings (chosen). A replay repeats none, so examinations go by their own.
RECORD_SHARE = 0.25
FIRST_RECORDED = 3  # The generation of the first recording: before, examinations need what may be spent (chosen).
MIN_RECORD_SECONDS = 0.5  # CPU of the shortest recording worth it: half of that is Python's start (measured).
# Share of what examinations may spend, from the moment of its start on, that a whole heap leaves to looks at names
# beside it, where it takes minutes (chosen: it is half as long again then).
BESIDE_SHARE = 0.33
BESIDE_SECONDS = 10.0  # after which a whole heap has such looks beside it: without a pause it ends within (measured)
CROWDED_SHARE = 0.75  # From this share of a window's CPU on, the rest is spread over it (chosen: above PHASE_SHARE).
NAMES_CPU_SECONDS = 0.3  # of the first look at names: 0.17 s for Python, 0.02 to 0.1 s to read (measured).
CPU_SECONDS_PER_OBJECT = 4e-6  # of a whole heap, by tracked objects, before one was read (measured on torch: 4).
CPU_SECONDS_PER_OBJECT_OF_SMALL = 10e-6  # as above, of a heap of 25,000 objects (measured).
MIN_CPU_PER_OBJECT = 1e-7  # Less than any processor takes: a bound against a measurement of 0.
BYTES_PER_OBJECT = 700  # Where objects are not counted, one is assumed for so much memory (measured: 730 with torch).
CHEAP_SHARE = 0.33  # of what examinations may spend: a heap that costs no more is read without more reason (chosen).
FILL_SECONDS = 5.0  # After arrays were seen that are not filled, how fast they fill is looked for (chosen).
LATE_SHARE = 0.1  # An examination may begin so late in its generation, as a share of it (chosen).
RETRY_SECONDS = (2.0, 60.0)  # Pause after an examination that failed, twice as long each time, at most (chosen).
KILL_SECONDS = 180.0  # After this an examination is ended: it has a low priority, and may wait long (chosen).
EXCESS_FACTOR = 1.5  # A whole heap may take so many times more than expected (chosen).
RISE_BYTES = 1 << 20  # A rise from one sample to the next that starts a recording (chosen).
RECORD_SECONDS = (20.0, 60.0)  # A recording lasts a generation, but at least and at most this long (chosen).
RECORD_RETRY_SECONDS = 2.0  # Pause after one that the budget did not permit (chosen).
RECORD_PAUSE_SHARE = 0.25  # Pause after a recording, as a share of the time since the watch began (chosen).
GROWING_TYPES, GROWING_PATHS = 4, 12  # Growing types whose holders, and attributes whose sizes, are asked for (chosen).


@dataclass(frozen=True, slots=True)
class DiagnosisPolicy:
    """The user's settings for diagnosis."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then at growing intervals
    cpu_share: float = 0.05  # of a core, that all examinations together may take in any minute
    memory_bytes: int = 256 << 20  # that an examination may take
    leak_threshold_bytes: float = (
        5e6  # per generation, or per minute where these are shorter (without any: per hour); less is no leak
    )
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


@dataclass(frozen=True, slots=True)
class ExaminationNeed:
    """What is to be examined, and how urgent that is."""

    whole: bool = False  # the whole heap: names do not explain the growth
    seconds_left: float = math.inf  # until memory is expected to reach its limit
    worker: ProcessSize | None = None  # instead of the trainer's own process
    stands_still: bool = False  # memory: nothing is to be found, but what later growth is compared with


class ExaminationSchedule:
    """Decides when an examination or a recording of one process begins, and whether it reads the whole heap."""

    def __init__(self, policy: DiagnosisPolicy, ledger: GenerationLedger, began_t: float) -> None:
        self._policy, self._ledger, self._began_t = policy, ledger, began_t
        self._window = CpuWindow((1.0 - RECORD_SHARE) * policy.cpu_share)
        self._record_window = CpuWindow(RECORD_SHARE * policy.cpu_share)
        self._names_cpu, self._cpu_per_object = NAMES_CPU_SECONDS, CPU_SECONDS_PER_OBJECT
        self._has_measured = False  # what a whole heap takes
        self._start_cpu = 0.0  # of the latest: Python's start, where its process was not that of the one before
        # By the worker's PID, 0 the trainer's own: objects tracked at the latest look, memory then, more for a byte
        self._objects: dict[int, tuple[int, int, float]] = {}
        self._latest_t, self._latest_reason = -math.inf, ""  # when and why the latest examination began
        self._count, self._highest = 0, 0  # examinations of these generations, and the most memory at one of them
        self._stands_still = False  # memory does
        self._latest_whole_t = -math.inf  # when the latest of a whole heap did
        self._retry_t, self._failures = math.inf, 0
        self._waits_since_t = math.inf  # for the budget of a whole heap
        self.needs_within = False  # growth that names do not explain was never seen within a generation
        self.refusal = ""  # why the whole heap is not read
        self._wanted = ""  # the reason for an examination after the next sample; empty: none is wanted
        self._asked: Diagnose | None = None  # the examination under way, if it is none beside another
        self._beside: Diagnose | None = None  # the look at names beside a whole heap
        self._for_beside = CpuAllowance()  # for these, since the whole heap began
        self._boundaries, self._boundary_t = 0, began_t
        self._took_seconds = 0.0  # the latest examination, by the clock
        self._has_phases = False
        self._middle_t = math.inf  # of a generation without phases
        self._next_boundary, self._next_t, self._next_record_t = 1.0, began_t + 1.0, began_t + WINDOW_SECONDS
        self._before: int | None = None  # main memory at the sample before, while a rise is waited for
        self.cpu_seconds = 0.0  # spent so far

    def begin_generation(self, t: float) -> None:
        self._boundaries, self._boundary_t = self._boundaries + 1, t
        step = self._ledger.generation_seconds(t) if self._boundaries <= PHASED and not self._has_phases else None
        self._middle_t = math.inf if step is None else t + 0.5 * step
        if self._boundaries == FIRST_RECORDED:
            self._next_record_t = t if self._next_record_t <= self._began_t + WINDOW_SECONDS else self._next_record_t
        every = self._policy.every_generations
        due = (self._boundaries - 1) % every == 0 if every else self._boundaries >= self._next_boundary
        if due:
            self._wanted = "generation"
            self._next_boundary = self._boundaries + max(1, int((EXAMINATION_INTERVAL_FACTOR - 1.0) * self._boundaries))

    def forget_generations(self) -> None:
        """Those to come are the first."""
        self._boundaries, self._next_boundary, self._has_phases = 0, 1.0, False
        self._count = self._highest = 0

    def phase_changed(self) -> None:
        """A phase begins or ends."""
        self._has_phases, self._middle_t = True, math.inf
        if 0 < self._boundaries <= PHASED or self.needs_within:
            self._wanted = self._wanted or "phase"

    def request_examination(self, reason: str) -> None:
        self._wanted = reason

    def examination_ended(self, t: float, event: Diagnosed, fills: bool) -> None:
        """An examination or a recording has ended; `fills`: it met arrays that are not filled for the first time."""
        asked, found = event.asked, event.found
        self.cpu_seconds += found.cpu_seconds
        window = self._record_window if asked.record_seconds else self._window
        window.add(asked.t, t, found.cpu_seconds)
        is_beside = self._beside is not None and asked.t == self._beside.t and not asked.record_seconds
        if is_beside:
            self._beside = None
            self._for_beside.spend(found.cpu_seconds)
        else:
            window.forget_running()
        if asked.record_seconds:
            return
        if not is_beside:
            self._asked, self._took_seconds = None, t - asked.t
        if found.tracked_objects:
            self._count_objects(asked, found.tracked_objects)
        if found.names is None and found.census is None:
            first, longest = RETRY_SECONDS
            self._retry_t, self._failures = t + min(longest, first * 2.0**self._failures), self._failures + 1
            return
        self._retry_t, self._failures = t + FILL_SECONDS if fills else math.inf, 0
        self._names_cpu = found.names_cpu_seconds
        self._start_cpu = max(0.0, found.cpu_seconds - found.names_cpu_seconds - found.census_cpu_seconds)
        if found.census is not None and found.census.complete:
            count = self._object_count(asked.used_bytes, asked.worker)
            self._cpu_per_object = max(MIN_CPU_PER_OBJECT, found.census_cpu_seconds / count)
            self._has_measured = True

    def forget(self) -> None:
        """Forget every request: memwatch was started again."""
        self._asked, self._beside, self._wanted = None, None, ""
        self._window.forget_running()
        self._record_window.forget_running()

    @property
    def is_examining(self) -> bool:
        return self._asked is not None

    @property
    def is_expected(self) -> bool:
        """Whether one is under way, or was asked for by a person or a warning."""
        return self.is_examining or bool(self._wanted)

    def needs_sample(self, t: float) -> bool:
        """Whether the next sample may start something, or falls into an examination."""
        times = self._next_t, self._next_record_t, self._middle_t, self._retry_t
        return bool(self._wanted) or self.is_examining or t >= min(times)

    @property
    def examination_t(self) -> float:
        """The time from which a sample may start an examination; -inf during one."""
        return -math.inf if self._wanted or self.is_examining else min(self._next_t, self._middle_t, self._retry_t)

    def start_examination_if_due(
        self, t: float, reading: MemoryReading, known: Diagnosis | None, need: ExaminationNeed
    ) -> Diagnose | None:
        """Return the examination to begin after this sample; one that does not fit the budget is dropped."""
        if self._stands_still and not need.stands_still:  # The latest examination may be long ago.
            self._next_boundary, self._next_t = self._boundaries + 1.0, min(self._next_t, t)
        self._stands_still = need.stands_still
        if t >= self._next_t:
            self._next_t = t + max(FIRST_INTERVAL_SECONDS, (EXAMINATION_INTERVAL_FACTOR - 1.0) * (t - self._began_t))
            if self._ledger.index is None:
                self._wanted = self._wanted or "time"
        if t >= self._middle_t:
            self._middle_t, self._wanted = math.inf, self._wanted or "middle"
        if t >= self._retry_t and (not self._wanted or self._wanted in SKIPPABLE):
            self._wanted = "fill" if not self._failures else "retry"
        if self._asked is not None and t - self._asked.t >= self._asked.kill_seconds + KILL_SECONDS:
            self._asked = self._beside = None  # Its end was never reported.
            self._window.forget_running()
        if (whole := self._asked) is not None and not self._may_look_beside(t, whole):
            self._wanted = "" if self._wanted in SKIPPABLE else self._wanted
            return None
        reason = self._wanted
        if not reason:
            return None
        room = self._policy.memory_bytes
        if reason in SKIPPABLE and self._took_seconds > self._seconds_left(t):
            self._wanted = ""
            return None
        if need.stands_still and self._is_soon(t, reason, reading):
            self._wanted = ""
            return None
        plan = self._plan(t, reason, reading, need) if whole is None else (0, KILL_SECONDS)
        if plan is None:
            self._wanted = reason if self._may_wait(t, reason) else ""
            return None
        self._wanted, self._retry_t, self._latest_t, self._latest_reason = "", math.inf, t, reason
        self._count, self._highest = self._count + 1, max(self._highest, reading.used_bytes)
        whole_objects, kill_seconds = plan
        self._latest_whole_t = t if whole_objects != 0 else self._latest_whole_t
        growing = [growth.name for growth in known.containers[:GROWING_PATHS]] if known else []
        # Classes come before builtin types, which tell less.
        types = sorted(known.types, key=lambda growth: "." not in growth.name)[:GROWING_TYPES] if known else []
        if whole is None:
            at_once, later = self._share_out(t, reading, need, is_whole=whole_objects != 0)
        else:
            at_once, later = self._beside_cpu_seconds, []
        asked = Diagnose(
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
            whole_objects=whole_objects,
            cpu_seconds=round(at_once, 3),
            cpu_later=tuple((round(after, 3), round(cpu, 3)) for after, cpu in later),
            kill_seconds=round(kill_seconds, 1),
            worker=need.worker,
        )
        if whole is None:
            self._asked = asked
            self._window.reserve(asked.cpu_seconds)
        else:
            self._beside = asked
        return asked

    def _may_look_beside(self, t: float, whole: Diagnose) -> bool:
        """Whether a look at names may begin beside that of a whole heap, which takes long: they are spread over it."""
        is_whole = whole.whole_objects != 0 and _pid(whole.worker) in self._objects
        if self._beside is not None or not is_whole or t - whole.t < BESIDE_SECONDS or self._wanted == "request":
            return False
        looks = self._beside_cpu_seconds / max(self._names_cpu, MIN_CPU_PER_OBJECT)  # in a minute
        is_spaced = (t - self._latest_t) * (math.floor(looks) or looks) >= WINDOW_SECONDS
        return is_spaced and self._for_beside.permits(self._names_cpu, t)

    @property
    def _beside_cpu_seconds(self) -> float:
        """What all looks at names beside a whole heap may take in a minute."""
        return BESIDE_SHARE * self._window.seconds

    def _share_out(
        self, t: float, reading: MemoryReading, need: ExaminationNeed, *, is_whole: bool
    ) -> tuple[float, list[tuple[float, float]]]:
        """Return the CPU seconds that an examination may take at once and later, without those of looks beside it."""
        left, later = self._window.left(t), self._window.free_again(t)
        beside = 0.0
        if is_whole:
            expected = self._whole_cpu_seconds(reading.used_bytes, need.worker)
            spare = max(0.0, left - EXCESS_FACTOR * expected) if self._has_measured else 0.0
            beside = min(BESIDE_SHARE * left, spare if expected <= left else math.inf)
            self._for_beside = CpuAllowance(t, beside, [(after, BESIDE_SHARE * cpu) for after, cpu in later])
            later = [(after, (1.0 - BESIDE_SHARE) * cpu) for after, cpu in later]
        return left - beside, later

    def _plan(
        self, t: float, reason: str, reading: MemoryReading, need: ExaminationNeed
    ) -> tuple[int | None, float] | None:
        """Return up to how many objects to read the whole heap, and after how many seconds to end it."""
        window, spent = self._window, self._window.spent(t)
        left = window.seconds - spent
        if reason in SKIPPABLE and spent > PHASE_SHARE * window.seconds and not self.needs_within:
            return None
        cheap, is_known = CHEAP_SHARE * window.seconds, _pid(need.worker) in self._objects
        is_wanted = need.whole or reason == "request"
        whole_cpu = self._whole_cpu_seconds(reading.used_bytes, need.worker)
        self._waits_since_t = min(self._waits_since_t, t) if need.whole else math.inf
        if whole_cpu <= window.seconds and (is_wanted or (is_known and whole_cpu <= cheap)):
            if whole_cpu <= left and self._is_spaced(t, whole_cpu, reason, self._latest_whole_t):
                self._waits_since_t = math.inf
                if not is_known or reason == "request":
                    return None, KILL_SECONDS
                cpu_seconds = max(0.0, (left if is_wanted else cheap) - self._names_cpu - self._start_cpu)
                return int(cpu_seconds / self._cpu_per_object), KILL_SECONDS  # The heap may have grown.
            if is_wanted and (reason == "request" or not self._fits_before(t, whole_cpu)):
                return None
        elif is_wanted:
            own = 1.0 - BESIDE_SHARE
            seconds = seconds_until(whole_cpu, own * left, [(at, own * cpu) for at, cpu in window.free_again(t)])
            if seconds <= need.seconds_left:
                return None, KILL_SECONDS + EXCESS_FACTOR * seconds
            share, limit = f"{self._policy.cpu_share:.0%} of a core", format_duration(need.seconds_left)
            self.refusal = (
                f"no whole heap scan: it needs {whole_cpu:.0f} s of CPU; at {share} that is "
                f"{format_duration(seconds)}, the limit is {limit} away"
            )
        if self._names_cpu > left or not self._is_spaced(t, self._names_cpu, reason, self._latest_t):
            return None
        # The first look counts them.
        most = 0 if is_known else int(max(0.0, cheap - self._names_cpu) / CPU_SECONDS_PER_OBJECT_OF_SMALL)
        return most, KILL_SECONDS

    def _is_soon(self, t: float, reason: str, reading: MemoryReading) -> bool:
        """Whether the latest examination suffices while memory stands still, and nobody asks for more."""
        if reason not in ("generation", "time", *SKIPPABLE) or self._policy.every_generations:
            return False
        if reading.used_bytes > (1.0 + LEAST_RISE) * self._highest:
            return False
        after = (t - self._began_t) / max(1.0, self._latest_t - self._began_t)
        return self._count >= STILL_EXAMINATIONS and after < STILL_INTERVAL_FACTOR

    def _is_spaced(self, t: float, cpu_seconds: float, reason: str, before_t: float) -> bool:
        """Whether the budget lasts, at this distance from the one before, until what was spent is forgotten."""
        window, spent = self._window, self._window.spent(t)
        if spent + cpu_seconds <= CROWDED_SHARE * window.seconds or reason in ("warn", "request"):
            return True
        if self.needs_within and self._latest_reason in SKIPPABLE:  # What was freed since shows only now.
            return True
        return self._lasts(t, window.seconds - spent, cpu_seconds, before_t)

    def _fits_before(self, t: float, whole_cpu: float) -> bool:
        """Whether a look at names does not put off the whole heap that is waited for; meanwhile those are spaced."""
        room = self._window.left(t) - whole_cpu
        if room < 0.0:  # the whole heap waits until what was spent before is forgotten
            room = self._window.seconds - whole_cpu - self._window.spent_since(self._waits_since_t)
        return self._names_cpu <= room and self._lasts(t, room, self._names_cpu, self._latest_t)

    def _lasts(self, t: float, room: float, cpu_seconds: float, before_t: float) -> bool:
        """Whether so much room, spent at this distance from the one before, lasts until what was spent is forgotten."""
        first = next((after for after, _ in self._window.free_again(t)), 0.0)
        return (t - before_t) * room >= cpu_seconds * first

    def _may_wait(self, t: float, reason: str) -> bool:
        """Whether an examination that does not fit the budget now may still begin later for the same reason."""
        step = self._ledger.generation_seconds(t)
        if reason in SKIPPABLE:
            return False
        return reason != "generation" or step is None or t - self._boundary_t < LATE_SHARE * step

    def _count_objects(self, asked: Diagnose, count: int) -> None:
        """Note how many there are, and how many more there were since the look before for each byte more."""
        used, known = _memory_of(asked.used_bytes, asked.worker), self._objects.get(_pid(asked.worker))
        per_byte = count / used if used else 0.0
        if known is not None:
            before, used_before, per_byte = known
            if used > used_before:
                per_byte = max(0.0, (count - before) / (used - used_before))
        self._objects[_pid(asked.worker)] = count, used, per_byte

    def _object_count(self, used_bytes: int | None, worker: ProcessSize | None) -> float:
        """Return how many there will be, if they become more with memory as they did before they were counted."""
        now = _memory_of(used_bytes, worker)
        count, before, per_byte = self._objects.get(_pid(worker), (0, 0, 1.0 / BYTES_PER_OBJECT))
        return max(1.0, count + per_byte * max(0, now - before))

    def _whole_cpu_seconds(self, used_bytes: int, worker: ProcessSize | None) -> float:
        """Return the CPU seconds that reading the whole heap is expected to take."""
        return self._start_cpu + self._names_cpu + self._cpu_per_object * self._object_count(used_bytes, worker)

    def start_recording_if_due(self, t: float, reading: MemoryReading) -> Diagnose | None:
        """Return the recording to begin now, as memory rises, to see which code raises it."""
        if t < self._next_record_t or self.needs_within:
            self._before = None
            return None
        before, self._before = self._before, reading.used_bytes
        if before is None or reading.used_bytes - before < RISE_BYTES:
            return None
        window = self._record_window
        cpu_seconds = window.left(t)
        if cpu_seconds < MIN_RECORD_SECONDS:
            self._next_record_t, self._before = t + RECORD_RETRY_SECONDS, None
            return None
        least, most = RECORD_SECONDS
        seconds = min(most, max(least, 1.1 * (self._ledger.generation_seconds(t) or 0.0)))
        self._next_record_t, self._before = t + seconds + RECORD_PAUSE_SHARE * (t - self._began_t), None
        index, phase, room = self._ledger.index, self._ledger.phase, self._policy.memory_bytes
        asked = Diagnose(
            t, "rise", index, phase, reading.used_bytes, room, record_seconds=seconds, cpu_seconds=round(cpu_seconds, 3)
        )
        window.reserve(cpu_seconds)
        return asked

    def _seconds_left(self, t: float) -> float:
        """Estimate the seconds that are left of the generation under way."""
        step, passed = self._ledger.generation_seconds(t), t - self._boundary_t
        return FIRST_REMAINING_SHARE * passed if step is None else step - passed


def _memory_of(used_bytes: int | None, worker: ProcessSize | None) -> int:
    return worker.anon_bytes if worker is not None else used_bytes or 0


def _pid(worker: ProcessSize | None) -> int:
    return worker.pid if worker is not None else 0
