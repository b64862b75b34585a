"""Realistic snapshots, as the engine publishes them: a 175 GB pod, 12.9 GB a generation, most of it in evaluate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from memwatch.core import examination as e
from memwatch.core.events import Cause, Exited, Notice
from memwatch.core.examination import AttributeSize, Census, DeviceStorageTotals, LargeObject, TypeCount
from memwatch.core.measurements import (
    HOST,
    CgroupLevel,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Limit,
    RankMemory,
    Sample,
    SignalHandling,
    Target,
    TreeMemory,
    UnavailableSource,
    Usage,
)
from memwatch.core.snapshot import (
    Forecast,
    Gauge,
    GenerationRow,
    MemoryNeeded,
    PhaseRow,
    PlannedInterrupt,
    ResourceView,
    Severity,
    Snapshot,
    SourceHealth,
    TimelineStep,
    Trend,
    Verdict,
    WatchState,
)

GB = 10**9
START_T = 1_760_000_000.0
GENERATION_SECONDS = 1500.0
GROWTH = round(12.9 * GB)
LIMIT = 175 * GB
SENTENCE = (
    "OOM at generation 13 of 25 (12-14), in 5 h 10 m; interrupt at about generation 12, in 4 h 50 m; needs 330.0 GB to "
    "finish (300.0 GB-360.0 GB); limit: cgroup 175.0 GB; grows 12.9 GB/generation, in evaluate"
)


@dataclass
class FakeClock:
    """A clock that stands still until it is told to move."""

    t: float = START_T

    def now(self) -> float:
        return self.t


def make_row(index: int, growth: int = GROWTH, base: int = 1_200_000_000, *, open_row: bool = False) -> GenerationRow:
    """A generation that grows by `growth`, nine tenths of it in evaluate."""
    start_t = START_T + (index - 1) * GENERATION_SECONDS
    start = base + (index - 1) * growth
    phases = (
        PhaseRow("evaluate", start_t, start_t + 900, growth * 9 // 10, start + growth),
        PhaseRow("train", start_t + 900, start_t + 1400, growth // 10, start + growth + 300_000_000),
        PhaseRow("evolve", start_t + 1400, None if open_row else start_t + GENERATION_SECONDS, -50_000_000, start),
    )
    end_t = None if open_row else start_t + GENERATION_SECONDS
    return GenerationRow(index, 0, start_t, end_t, start, start + growth, start + growth + 400_000_000, phases)


def make_view(generations: int = 7, resource: str = HOST, growth: int = GROWTH, **changes: Any) -> ResourceView:
    """A leaking resource after `generations`, the last one still open."""
    rows = tuple(make_row(i, growth, open_row=i == generations) for i in range(1, generations + 1))
    used = rows[-1].end_bytes if rows else 1_200_000_000
    origin = "cgroup /kubepods/pod7" if resource == HOST else resource
    view = ResourceView(
        usage=Usage(resource, used, Limit(LIMIT, origin, LIMIT - used)),
        baseline_bytes=1_200_000_000,
        peak_bytes=used + 400_000_000,
        verdict=Verdict.LEAK,
        trend=Trend("linear", growth / GENERATION_SECONDS, float(growth), 0.97),
        forecast=Forecast(18600.0, 16200.0, 21000.0, 13.0, 12.0, 14.0, False),
        generations=rows,
        timeline=tuple(step for row in rows for step in _steps(row)),
        warned=True,
        needed=MemoryNeeded(330 * GB, 300 * GB, 360 * GB),
        planned=PlannedInterrupt(17400.0, 12.0),
        severity=Severity.WILL_NOT_FIT,
    )
    return replace(view, **changes)


def _steps(row: GenerationRow) -> list[TimelineStep]:
    """Growth in the first six tenths, a peak at the end."""
    seconds, grown = GENERATION_SECONDS / 10, row.end_bytes - row.start_bytes
    levels = [row.start_bytes + grown * min(6, i) // 6 for i in range(11)]
    return [
        TimelineStep(row.start_t + i * seconds, seconds, levels[i], row.peak_bytes if i == 9 else levels[i + 1])
        for i in range(5 if row.end_t is None else 10)
    ]


def make_sample(view: ResourceView, gpus: int = 0) -> Sample:
    """All sources read, but pressure."""
    used = view.usage.used_bytes
    return Sample(
        usages=(view.usage,),
        tree=TreeMemory(
            *(17, used - GB, used, "pages", used - 2 * GB, GB, 2 * GB, 0, used + 40 * GB, used),
            error_bytes=GB // 10,
            cow_bytes=3 * GB,
            cow_bytes_per_second=2e6,
            member_bytes=GB if gpus else None,
            ranks=tuple(RankMemory(i, i, 5000 + i, used // max(1, gpus), (5000 + i, 6000 + i)) for i in range(gpus)),
        ),
        cgroup=CgroupMemory(
            2,
            (
                CgroupLevel("/kubepods/pod7", used + 3 * GB, 3 * GB, LIMIT),
                CgroupLevel("/", used + 50 * GB, 20 * GB, None),
            ),
            True,
            0,
            0,
            0,
        ),
        host=HostMemory(2000 * GB, 1700 * GB, 0),
        gpus=tuple(
            GpuMemory(f"gpu{i}", f"GPU-0000-{i}", "NVIDIA H200", 30 * GB, 31 * GB, 141 * GB, "exact", pids=(5000 + i,))
            for i in range(gpus)
        ),
        unread=(UnavailableSource("pressure", "/proc/pressure/memory: no such file"),),
    )


def make_snapshot(generations: int = 7, gpus: int = 0, **changes: Any) -> Snapshot:
    """The state in the middle of generation `generations`; any field can be replaced by name."""
    view = make_view(generations)
    cards = tuple(
        make_view(
            generations,
            f"gpu{i}",
            0,
            usage=Usage(f"gpu{i}", 30 * GB, Limit(141 * GB, f"gpu{i}", 110 * GB)),
            verdict=Verdict.STABLE,
            warned=False,
            trend=Trend("flat", 0.0, 0.0, 0.9),
            forecast=None,
            peak_bytes=31 * GB,
            baseline_bytes=29 * GB,
        )
        for i in range(gpus)
    )
    t = START_T + (generations - 0.5) * GENERATION_SECONDS
    snapshot = Snapshot(
        t=t,
        sentence=SENTENCE,
        state=WatchState.WARNED,
        severity=Severity.WILL_NOT_FIT,
        target=Target("5b2c9e5e-0000-4000-8000-1f0f3a0e7f11", 4242, 987654),
        command="python main.py --population 32 --buffer 50000",
        run_id="run-1",
        attempt=0,
        started_t=START_T,
        unit="generation",
        generation=float(generations),
        total=25,
        phase="evaluate",
        sample=make_sample(view, gpus),
        sample_t=t - 0.5,
        resources=(view, *cards),
        gauges=(Gauge("Replay Buffer", 15680.0, 50000.0, t - 60), Gauge("Population", 32.0, None, t - 60)),
        sources=(
            SourceHealth("procfs", True, "", START_T),
            SourceHealth("nvml", False, "no NVIDIA driver", START_T),
        ),
        notices=make_notices(),
        diagnosis=None,
        expectations=(),
        checkpoint_t=t - 300,
        checkpoint_seconds=12.5,
        checkpoint_origin="measured",
        pace_seconds=1.0,
        unarmed=None,
        exited=None,
        warn_horizon_seconds=4500.0,
        signal_handling=SignalHandling("SIGINT", True, "save_on_signal (main.py:88)"),
    )
    return replace(snapshot, **changes)


def make_diagnosis(**changes: Any) -> e.Diagnosis:
    """A replay buffer that can never fit."""
    growth = e.Growth("__main__.ReplayBuffer.buffer", 56 * GB, 169 * GB, 56.4 * GB, 1.0, 2)
    census = Census(
        python="3.11.7",
        seconds=2.5,
        complete=True,
        disturbed=False,
        types=(TypeCount("numpy.ndarray", 20_880, 169 * GB, tracked=False), TypeCount("__main__.Agent", 16, 900, True)),
        large=(LargeObject("numpy.ndarray", 3 * GB, "__main__.Trainer.market", 2 * GB),),
        storages=(DeviceStorageTotals("cuda:0", 12, GB),),
        tracked=(AttributeSize("Trainer.population[*]", 16, 40_000_000),),
        containers=(AttributeSize(growth.name, 1, growth.after, 6960, 50_000),),
    )
    finding = e.Finding(
        cause="buffer_cannot_fit",
        title="a buffer fills that can never fit",
        resource=HOST,
        growth=growth,
        share=0.99,
        phase="evaluate",
        type="numpy.ndarray",
        count_before=6960,
        count_after=20_880,
        holder="__main__.ReplayBuffer.buffer[i]",
        remedy="give ReplayBuffer.buffer a capacity below 7,100",
        confidence=0.71,
        evidence=("Buffer: 6,960 of 50,000, 24.3 MB each",),
    )
    step, main = e.StackFrame("ReplayBuffer.add", "/app/buffer.py", 41), e.StackFrame("main", "/app/main.py", 300)
    known = e.Diagnosis(
        t=START_T + 4500,
        unit="generation",
        examinations=4,
        cpu_seconds=11.5,
        findings=(finding,),
        drivers=(e.GrowthDriver("Buffer", 6960.0, 50_000.0, 24.3e6, 0.99, growth.name, 1215 * GB, 7100.0),),
        containers=(growth,),
        tracked=(e.Growth("Trainer.population[*]", 40_000_000, 40_000_000, 0.0, 1.0, 0), growth),
        types=(e.Growth("numpy.ndarray", 6960, 20_880, 6960.0, 1.0, 2),),
        kinds=(e.Growth("anonymous", 58 * GB, 171 * GB, 56.5 * GB, 1.0, 2),),
        moments=tuple(
            e.ExaminationRow(
                t=START_T + 1500.0 * i,
                reason="generation",
                generation=float(i),
                phase="evaluate",
                used_bytes=58 * GB * i,
                python_bytes=57 * GB * i,
                objects=7000 * i,
                counts={"numpy.ndarray": 6960 * i, "__main__.Transition": 2320 * i},
                sizes={growth.name: 56 * GB * i},
            )
            for i in (1, 2, 3)
        ),
        credits=(e.StackGrowth((step, main), 150 * GB), e.StackGrowth((), 6 * GB)),
        lines=(e.LineGrowth(step, 150 * GB, 1.0),),
        latest=e.Examination(census, (e.MemoryKind("anonymous", 180 * GB, 171 * GB, GB),), cpu_seconds=2.6),
    )
    return replace(known, **changes)


def make_notices() -> tuple[Notice, ...]:
    """What was told so far."""
    return (
        Notice(START_T, "attached", "watching python main.py (pid 4242)"),
        Notice(START_T + 3000, "forecast", "grows 12.9 GB/generation", {"verdict": "growing"}),
        Notice(START_T + 6000, "warn", SENTENCE, {"verdict": "leak", "oom_gen": 13.0}),
    )


def make_dead(**changes: Any) -> Snapshot:
    """The trainer was killed by the kernel."""
    end = Exited(
        START_T + 19000, Cause.OOM_CGROUP, ("memory.events oom_kill 0 -> 1", "ended by SIGKILL"), None, "SIGKILL"
    )
    text = "ended: killed by the kernel's OOM killer at the cgroup's limit"
    return make_snapshot(
        13, **{"state": WatchState.ENDED, "severity": Severity.ENDED_BADLY, "exited": end, "sentence": text, **changes}
    )
