"""A simulated run, watched by the real daemon and engine and served by the real server: `python -m support.served_run`.

It tells its address, begins at a line of its stdin, tells "ended" when the trainer has ended, and serves until its
stdin is closed. Ten seconds of the run pass in one. The trainer leaks 10 GB in each generation, while it evaluates,
below a limit of 100 GB; a GPU fills; the engine's examinations are answered; a source fails for a while; at memwatch's
signal it saves, and ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memwatch.app.interrupter import Interrupter
from memwatch.app.watch_loop import WatchLoop
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    Attached,
    Cause,
    CheckpointSeen,
    Diagnosed,
    Event,
    Exited,
    GaugeSeen,
    GenerationSeen,
    NeighboursSeen,
    PhaseSeen,
)
from memwatch.core.examination import Diagnose, Examination
from memwatch.core.expectations import parse_expectation
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.measurements import (
    CgroupLevel,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Neighbour,
    Neighbours,
    PageSamplingCost,
    RankMemory,
    RunIdentity,
    Sample,
    Target,
    TreeMemory,
)
from memwatch.core.memory_accounting import usages
from memwatch.core.snapshot import Snapshot
from memwatch.errors import SourceError
from memwatch.outputs.http.server import WebServer
from support.examinations import examined

PACE = 10.0
GB = 10**9
GENERATION_SECONDS, EVALUATE_SECONDS = 30.0, 20.0
GROWTH, LIMIT = 10 * GB, 100 * GB
PLANNED = 25
FAILS = (60.0, 100.0)  # seconds of the run in which a source cannot be read
SAVE_SECONDS, END_SECONDS = 40.0, 60.0  # from the signal to the checkpoint, and to the end
KEPT, BUFFER = "__main__.Trainer.kept", "__main__.ReplayBuffer.buffer"


class FastClock:
    """Time that passes faster."""

    def __init__(self) -> None:
        self._origin, self._began = time.time(), time.monotonic()

    def now(self) -> float:
        return self._origin + PACE * (time.monotonic() - self._began)


class Trainer:
    """The run: what its memory and its log are at any time, and how it answers a signal."""

    def __init__(self, clock: FastClock) -> None:
        self._clock, self.began = clock, clock.now()
        self.signal_t: float | None = None

    def grown(self, now: float) -> int:
        """In whole generations, and within evaluation in this one; no more while it saves."""
        worked = now - self.began if self.signal_t is None else self.signal_t - self.began
        generation, within = divmod(worked, GENERATION_SECONDS)
        return int(GROWTH * (generation + min(1.0, within / EVALUATE_SECONDS)))

    # --- as the daemon's trainer and signaller ---

    def has_exited(self) -> bool:
        return self.signal_t is not None and self._clock.now() - self.signal_t > END_SECONDS

    def observe_event(self, event: Event) -> None: ...

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        return [Exited(t, Cause.SAVED, ("exit status 0",), 0)]

    def send_signal(self, signal_name: str) -> None:
        self.signal_t = self._clock.now()

    # --- as the sampler ---

    def sample(self, now: float) -> Sample:
        used, gpu = 2 * GB + self.grown(now), 20 * GB + self.grown(now) // 8
        tree = TreeMemory(
            *(5, used - GB // 2, used, "pages", used - GB, GB // 2, GB // 4, 0, 3 * used),
            error_bytes=GB // 50,
            cow_bytes=used // 20,
            cow_bytes_per_second=GROWTH / GENERATION_SECONDS / 20,
            survey_cost=PageSamplingCost(100, 2, 3200, 0.5),
            member_processes=1,
            member_bytes=GB,
            ranks=(RankMemory(0, 0, 5000, used // 2, (5000,)), RankMemory(1, 1, 5001, GB, (5001, 5002))),
        )
        levels = (
            CgroupLevel("/kubepods/pod7", used + GB, GB, LIMIT),
            CgroupLevel("/", used + 50 * GB, 20 * GB, None),
        )
        cgroup = CgroupMemory(2, levels, True, 0, 0, 0)
        host = HostMemory(500 * GB, 400 * GB - used, 8 * GB)
        gpus = (GpuMemory("gpu0", "GPU-0000-0", "NVIDIA H200", gpu, gpu + GB, 141 * GB, "exact", pids=(5001,)),)
        return Sample(usages(tree, cgroup, host, gpus, None), tree, cgroup, host, gpus)


class Log:
    """What the run prints: generations, phases, a buffer that fills, and the checkpoint that it was asked for."""

    name = "log"

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._has_saved = trainer, False
        self._saying = self._lines()
        self._next = next(self._saying)

    def _lines(self) -> Iterator[Event]:
        worker, other = Neighbour(5003, "worker", GB, "environment"), Neighbour(77, "java", GB)
        yield NeighboursSeen(self._trainer.began, Neighbours("/kubepods/pod7", GB, 1, GB, 1, (worker, other)))
        for index in range(PLANNED):
            t = self._trainer.began + index * GENERATION_SECONDS
            yield GenerationSeen(t, index + 1, PLANNED)
            yield PhaseSeen(t, "evaluate")
            yield GaugeSeen(t, "Replay Buffer", 2_000.0 * (index + 1), 50_000.0)
            yield PhaseSeen(t + EVALUATE_SECONDS, "train")
            if index == 2:
                yield CheckpointSeen(t + EVALUATE_SECONDS, "saved", "log: saved", 5.0)

    def poll(self, now: float) -> Sequence[Event]:
        told: list[Event] = []
        while self._next.t <= now:
            told.append(self._next)
            self._next = next(self._saying)
        signal_t = self._trainer.signal_t
        if signal_t is not None and now - signal_t > SAVE_SECONDS and not self._has_saved:
            self._has_saved = True
            told.append(CheckpointSeen(now, "saved", "log: saved after the signal"))
        return told

    def close(self) -> None: ...


class Flaky:
    """A source that fails for a while."""

    name = "flaky"

    def __init__(self, began: float) -> None:
        self._began = began

    def poll(self, now: float) -> Sequence[Event]:
        if FAILS[0] <= now - self._began < FAILS[1]:
            raise SourceError("it cannot be read")
        return ()

    def close(self) -> None: ...


class Examiner:
    """Answers what the engine asks: an attribute that holds ever more, tensors, a buffer."""

    name = "examiner"

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._asked = trainer, list[Diagnose]()

    def start_examination(self, asked: Diagnose) -> None:
        self._asked.append(asked)

    def poll(self, now: float) -> Sequence[Event]:
        asked, self._asked = self._asked, []
        return [Diagnosed(now, one, self._found(one)) for one in asked]

    def _found(self, asked: Diagnose) -> Examination:
        if asked.record_seconds:
            return Examination(profile_reason="there is no code here")
        held = self._trainer.grown(asked.t)
        objects = 10 + held // (GB // 10)
        told = examined(
            asked.generation,
            counts={"__main__.Loss": objects, "__main__.Agent": 16},
            sizes={"__main__.Loss": held},
            containers={KEPT: held, BUFFER: GB},
            ways={("__main__.Loss", f"{KEPT}[i]"): objects},
            kinds={"heap": GB, "anonymous": GB + held, "stacks": 10**6},
            cuda=held // 8,
        )
        return replace(told.found, names=told.found.census, cpu_seconds=0.2)

    def close(self) -> None: ...


def main() -> None:
    """Watch the run to its end, and go on serving."""
    clock = FastClock()
    web = WebServer("127.0.0.1", 0, clock)
    web.start()
    print(web.url, flush=True)
    sys.stdin.readline()
    trainer = Trainer(clock)
    log, examiner = Log(trainer), Examiner(trainer)
    daemon = WatchLoop(
        clock=clock,
        engine=Engine(
            Policy(checkpoint_seconds=10.0, confirmation_seconds=0.5),
            diagnosis=DiagnosisPolicy(),
            expectations=(parse_expectation("growth < 5GB/generation"),),
        ),
        read_sample=trainer.sample,
        trainer=trainer,
        interrupter=Interrupter(trainer, lambda: "SIGINT"),
        diagnose=examiner.start_examination,
        sources=(log, examiner, Flaky(trainer.began)),
        sinks=(web,),
    )

    def sleep(seconds: float) -> bool:
        readable, _, _ = select.select([web], [], [], max(0.0, seconds) / PACE)
        return bool(readable) or trainer.has_exited()

    target, part = Target("boot", os.getpid(), 1), RunIdentity("job-7", "node-a", nodes=1)
    daemon.run(Attached(clock.now(), target, "python main.py", "run-1", run=part), sleep, lambda: False)
    print("ended", flush=True)
    sys.stdin.read()
    web.stop()


if __name__ == "__main__":
    main()
