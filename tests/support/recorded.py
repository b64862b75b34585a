"""A watch as a history file holds it: a trainer of 25 generations that leaks in one of its phases, to its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
    Interrupt,
    Notice,
    PhaseSeen,
    Sampled,
    Signalled,
)
from memwatch.core.examination import Diagnose
from memwatch.core.measurements import HOST, Limit, Sample, Target, Usage
from memwatch.history.event_store import HistoryStore
from support.examinations import examined

GB, T0 = 10**9, 1_700_000_000.0
PHASES = (("evaluate", 0.0), ("train", 0.6), ("evolve", 0.9))  # and the share of a generation at which they begin


@dataclass(frozen=True, slots=True)
class Recording:
    """How a run goes."""

    command: str = "python main.py --population 32"
    generations: int = 25
    samples: int = 100  # a generation
    seconds: float = 1.0  # between samples
    growth: int = 12 * GB  # a generation, in evaluate
    limit: int = 400 * GB
    gpus: int = 0
    killed_in: float | None = None  # the generation in which the kernel ends it
    acts: bool = False  # memwatch interrupts it
    examined: bool = True  # in each generation

    @property
    def lasts(self) -> float:
        """Seconds of a generation."""
        return self.samples * self.seconds

    def events(self) -> Iterator[Event]:
        """From the first to the last."""
        yield Attached(T0, Target("boot", 4_000_000, len(self.command)), self.command)
        for index in range(1, self.generations + 1 if self.killed_in is None else int(self.killed_in) + 1):
            yield from self._generation(index)
        if self.killed_in is None:
            yield Exited(T0 + self.generations * self.lasts, Cause.COMPLETED, ("exit status 0",), 0)

    def _generation(self, index: int) -> Iterator[Event]:
        start = T0 + (index - 1) * self.lasts
        yield GenerationSeen(start, index, self.generations)
        yield GaugeSeen(start, "Replay Buffer", min(50_000, 2_000 * index), 50_000)
        phases = [(start + share * self.lasts, name) for name, share in PHASES]
        for i in range(self.samples):
            t = start + i * self.seconds
            if self.killed_in is not None and index - 1 + i / self.samples >= self.killed_in - 1:
                evidence = ("memory.events of /job: oom_kill 0 -> 1", "exit by SIGKILL, not sent by memwatch")
                yield Exited(t, Cause.OOM_CGROUP, evidence, None, "SIGKILL")
                return
            while phases and phases[0][0] <= t:
                yield PhaseSeen(t, phases.pop(0)[1])
            if self.examined and i == self.samples // 50:
                yield self._examined(index, t)
            yield self._sampled(t, index, i)
        if index % 5 == 0:
            end = start + self.lasts
            yield CheckpointSeen(end - 4.0, "writing", f"file: /runs/ckpt_{index}.pt")
            yield CheckpointSeen(end - 1.0, "saved", f"file: /runs/ckpt_{index}.pt, 12.1 MB", 3.0)

    def _sampled(self, t: float, index: int, i: int) -> Sampled:
        part = i / self.samples
        grown = (index - 1 + min(1.0, part / 0.6)) * self.growth + (i * 7919 % 101 - 50) * 10**6
        peak = 4 * GB if 0.92 < part < 0.96 else 0
        used = max(10**6, int(2 * GB + grown + peak))
        pools = [Usage(HOST, used, Limit(self.limit, "cgroup /job", self.limit - used))]
        pools += [
            Usage(f"gpu{n}", (30 + n) * GB + i % 3, Limit(141 * GB, f"gpu{n}", (111 - n) * GB))
            for n in range(self.gpus)
        ]
        return Sampled(t, Sample(tuple(pools)))

    def _examined(self, index: int, t: float) -> Diagnosed:
        kept = 64 * index
        return examined(
            index,
            t=t,
            used=2 * GB + (index - 1) * self.growth,
            counts={"__main__.TradingEnvironment": kept, "numpy.ndarray": 3 * kept, "dict": 90_000},
            sizes={
                "__main__.TradingEnvironment": kept * 10**6,
                "numpy.ndarray": index * self.growth * 9 // 10,
                "dict": 20 * 10**6,
            },
            containers={"__main__.Population.environments": index * self.growth},
            ways={("__main__.TradingEnvironment", "__main__.Population.environments[i]"): kept},
        )


def record(path: Path, recording: Recording = Recording()) -> str:
    """Watch such a run, and keep it; its ID."""
    store = HistoryStore.open(path)
    engine, run_id = Engine(Policy(act=recording.acts)), ""
    for event in recording.events():
        if isinstance(event, Attached):
            run_id = store.open_run(recording.command, event, event.t, "/w", "/w/main.log").run_id
            event = replace(event, run_id=run_id)  # noqa: PLW2901
        actions = engine.feed(event)
        events = [event]
        if any(isinstance(action, Interrupt) for action in actions):
            events.append(Signalled(event.t, "SIGINT"))
            actions += engine.feed(events[-1])
        asked = [action for action in actions if isinstance(action, Diagnose)]
        assert len(asked) <= 1
        store.append(events, [action for action in actions if isinstance(action, Notice)], wait_seconds=1e9)
    store.close()
    return run_id


if __name__ == "__main__":
    print(record(Path(sys.argv[1]), Recording(samples=int(sys.argv[2]), gpus=int(sys.argv[3]))))
