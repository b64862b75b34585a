"""When to examine the trainer, and what has been found of the causes of its growth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from memwatch.core import news
from memwatch.core.drivers import Drivers
from memwatch.core.evidence import Evidence
from memwatch.core.examination import Credit, Diagnosis, Finding, Growth, Profile
from memwatch.core.findings import conclude
from memwatch.core.generations import Ledger
from memwatch.core.holdings import Situation, levels
from memwatch.core.model import HOST, Action, Diagnose, Diagnosed, Gauge, Sample
from memwatch.core.profile import by_line, merged

MORE_RECORDED = 0.25  # of the time since the watch began, until the next recording
RECORD_SHARE = 0.5  # of the CPU time for all: with more spent, none is made
MORE = 1.1  # times as many generations (or seconds) until the next examination, from the tenth on
PHASED = 4  # generations within which it is examined at each phase, too
FIRST_SECONDS = 60.0  # without generations: until the second examination
LATE_SECONDS = 300.0  # after which an examination is no longer waited for
CREDIT_SECONDS = 60.0  # of CPU that examinations may take at once; then the share that is set
URGENT = ("warn", "request")  # reasons for which more CPU time may be spent
ROOM_SHARE = 0.25  # of the headroom that one may take
ROOM_LEAST = 64 << 20  # bytes: with less, none is made
RISE_BYTES = 1 << 20  # from one look at memory to the next: worth following closely, to see which code raises it
RECORD_SECONDS = (20.0, 60.0)  # for at least and at most so long, a generation if that is between
RECORDINGS = 4  # that are told of together: the latest
LINES_TOLD = 10
TOLD_TYPES, TOLD_PATHS = 4, 12  # that grow: whose holders are asked for, and attributes whose size is


@dataclass(frozen=True, slots=True)
class DiagnosisPolicy:
    """What a user may set."""

    enabled: bool = True
    every_generations: int | None = None  # None: each of the first ten, then ever more rarely
    cpu_share: float = 0.01  # of a core
    memory_bytes: int = 256 << 20  # that an examination may take
    leak_threshold_bytes: float = 5e6  # a generation (without generations: an hour); what grows by less is no leak


class Diagnostician:
    """Asks for examinations, and concludes. Reads the ledger and the gauges that the engine keeps."""

    def __init__(
        self,
        policy: DiagnosisPolicy,
        *,
        ledger: Ledger,
        gauges: Mapping[str, Gauge],
        act: Callable[[Action], None],
    ) -> None:
        self._policy, self._ledger, self._gauges, self._act = policy, ledger, gauges, act
        self._wanted = ""  # why the next sample is to be followed by an examination
        self._waits: Diagnose | None = None
        self.levels: dict[str, Gauge] = {}  # what fills up to a capacity in the trainer's heap
        self._begin(0.0)

    def _begin(self, t: float) -> None:
        self._began_t = t
        self._spent = 0.0  # seconds of CPU
        self._evidence, self._drivers = Evidence(t), Drivers()
        self._boundaries = 0
        self._next_boundary, self._next_t, self._next_record_t = 1.0, t + 1.0, t + FIRST_SECONDS
        self._before: int | None = None  # main memory at the look before, while a rise of it is waited for
        self._profiles: deque[Profile] = deque(maxlen=RECORDINGS)
        self._credits: tuple[Credit, ...] = ()
        self._told: set[tuple[str, str]] = set()
        self._findings: dict[tuple[str, str], Finding] = {}
        self._turned = False  # a phase began, or an examination ended, since memory was read
        self._fresh: set[str] = set()  # gauges whose level memory has not been read for
        self._headroom: int | None = None
        self._used: int | None = None
        self._cow = 0
        self._gpu: int | None = None
        self.levels.clear()
        self.known: Diagnosis | None = None

    # --- what happens ---

    def attach(self, t: float, anew: bool) -> None:
        """A watch begins: of another process, or (not `anew`) of the same after memwatch was started again."""
        self._waits, self._wanted = None, ""
        if anew:
            self._begin(t)

    def cross(self) -> None:
        """A generation begins."""
        self._boundaries += 1
        if self._boundaries == 1:
            self._next_record_t = 0.0
        every = self._policy.every_generations
        due = (self._boundaries - 1) % every == 0 if every else self._boundaries >= self._next_boundary
        if due:
            self._wanted = "generation"
            self._next_boundary = self._boundaries + max(1, int((MORE - 1.0) * self._boundaries))

    def enter(self) -> None:
        """A phase begins, or ends."""
        self._turned = True
        if 0 < self._boundaries <= PHASED:
            self._wanted = self._wanted or "phase"

    def warn(self) -> None:
        """A warning was given."""
        self._wanted = "warn"

    def request(self) -> None:
        """Somebody asks."""
        self._wanted = "request"

    def gauge(self, name: str) -> None:
        """The log told a level."""
        self._fresh.add(name)

    def look(self, t: float, sample: Sample) -> None:
        """Memory was read: what waits for that is done now."""
        if not self._policy.enabled:
            return
        if (
            self._fresh
            or self._wanted
            or self._turned
            or self._waits is not None
            or t >= self._next_t
            or t >= self._next_record_t
        ):
            self._look(t, sample)

    def _look(self, t: float, sample: Sample) -> None:
        usage = next((usage for usage in sample.usages if usage.resource == HOST), None)
        if usage is None:
            return
        self._used = usage.used_bytes
        self._headroom = usage.limit.headroom_bytes if usage.limit is not None else None
        self._cow = sample.tree.cow_bytes or 0 if sample.tree is not None else 0
        cards = [gpu.used_bytes for gpu in sample.gpus if gpu.used_bytes is not None]
        self._gpu = sum(cards) if cards else None
        if self._turned or self._waits is not None:
            self._turned = False
            self._evidence.observe(t, self._ledger.phase or "", usage.used_bytes)
        for name in self._fresh:
            self._drivers.observe(self._gauges[name], usage.used_bytes)
        self._fresh.clear()
        if t >= self._next_t:
            self._next_t = t + max(FIRST_SECONDS, (MORE - 1.0) * (t - self._began_t))
            if self._ledger.index is None:
                self._wanted = self._wanted or "time"
        if self._wanted:
            self._ask(t)
        if t >= self._next_record_t:
            before, self._before = self._before, usage.used_bytes
            if before is not None and usage.used_bytes - before >= RISE_BYTES:
                self._record(t, usage.used_bytes)

    def _ask(self, t: float) -> None:
        """Ask for an examination, where one may be made; else wait for the next occasion."""
        if self._waits is not None and t - self._waits.t < LATE_SECONDS:
            self._wanted = "" if self._wanted == "phase" else self._wanted  # the others are worth waiting for
            return
        reason, self._wanted = self._wanted, ""
        room = self._policy.memory_bytes
        if self._headroom is not None:
            room = min(room, int(ROOM_SHARE * self._headroom))
        if room < ROOM_LEAST or (reason not in URGENT and self._spent > self._credit(t)):
            return
        known = self.known
        self._waits = Diagnose(
            t,
            reason,
            self._ledger.index,
            self._ledger.phase,
            self._used,
            room,
            types=_telling(known.types) if known else (),
            paths=tuple(one.name for one in known.containers[:TOLD_PATHS]) if known else (),
            gpu_bytes=self._gpu,
            cow_bytes=self._cow,
        )
        self._act(self._waits)

    def _record(self, t: float, used_bytes: int) -> None:
        """Memory rises: follow it for a generation, to see which code does that."""
        least, most = RECORD_SECONDS
        seconds = min(most, max(least, 1.1 * (self._ledger.step_seconds(t) or 0.0)))
        self._next_record_t, self._before = t + seconds + MORE_RECORDED * (t - self._began_t), None
        if self._spent <= RECORD_SHARE * self._credit(t):
            index, phase, room = self._ledger.index, self._ledger.phase, self._policy.memory_bytes
            self._act(Diagnose(t, "rise", index, phase, used_bytes, room, record_seconds=seconds))

    def _credit(self, t: float) -> float:
        return CREDIT_SECONDS + self._policy.cpu_share * (t - self._began_t)

    # --- what was found ---

    @property
    def holders(self) -> dict[str, str]:
        """By resource, the attribute that was found to hold the most of its growth."""
        findings = self.known.findings if self.known is not None else ()
        return {one.resource: one.holder.partition("[")[0] for one in reversed(findings) if one.holder}

    def diagnosed(self, t: float, event: Diagnosed, unit: str, phase: str | None) -> None:
        """An examination or a recording has ended."""
        self._spent += event.found.cpu_seconds
        if event.asked.record_seconds:
            self._recorded(event.found.profile)
            return
        self._waits, self._turned = None, True
        added, shown = self._evidence.add(event), self._evidence.shown
        if added:
            self.levels.update((level.name, level) for level in levels(shown[-1]))
            self._act(news.examined(t, self._ledger.unit, event, shown[-1], shown[-2] if len(shown) > 1 else None))
        else:
            self._act(news.not_examined(t, event))
        by_generation = event.asked.generation is not None
        situation = Situation(
            unit=unit if by_generation else "hour",
            headroom_bytes=self._headroom,
            threshold_bytes=self._policy.leak_threshold_bytes,
            phase=phase,
            gauges=self._gauges,
        )
        findings, counted = conclude(self._evidence, situation)
        self._keep(t, findings, situation.unit)
        drivers = counted or self._drivers.explain(self._gauges.values(), self._headroom)
        self.known = Diagnosis(
            t=t,
            unit=situation.unit,
            cpu_seconds=round(self._spent, 3),
            examinations=1 + (self.known.examinations if self.known is not None else 0),
            findings=tuple(self._findings.values()),
            drivers=tuple(drivers),
            containers=tuple(self._evidence.containers()),
            types=tuple(self._evidence.types()),
            kinds=tuple(self._evidence.kinds()),
            moments=self._evidence.moments(),
            credits=self._credits,
            lines=by_line(self._credits)[:LINES_TOLD],
            latest=event.found,
        )

    def _recorded(self, profile: Profile | None) -> None:
        if profile is None:
            return
        self._profiles.append(profile)
        self._credits = merged(credit for one in self._profiles for credit in one.credits)
        if self.known is not None:
            self.known = replace(self.known, credits=self._credits, lines=by_line(self._credits)[:LINES_TOLD])

    def _keep(self, t: float, findings: list[Finding], unit: str) -> None:
        """Those of now, and tell those that are new."""
        self._findings = {(one.cause, one.growth.name): one for one in findings}
        for key, one in self._findings.items():
            if key not in self._told:
                self._told.add(key)
                self._act(news.finding(t, one, unit))


def _telling(types: Sequence[Growth]) -> tuple[str, ...]:
    """Of the types that there are more of, those that tell the most: classes before Python's own types."""
    return tuple(one.name for one in sorted(types, key=lambda one: "." not in one.name)[:TOLD_TYPES])
