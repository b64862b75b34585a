"""The daemon with a GPU: a leak there is interrupted under a healthy host, and a hung driver delays nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memwatch.actions.checkpoint import CheckpointWatch
from memwatch.actions.signals import PidfdSignaller
from memwatch.app import presets
from memwatch.clock import SystemClock
from memwatch.config import Config
from memwatch.core.engine import Engine
from memwatch.core.model import Attached, Cause, Exited, Notice, Snapshot
from memwatch.core.policy import Policy
from memwatch.daemon import Daemon
from memwatch.outputs.web import WebServer
from memwatch.sampler import Sampler
from memwatch.sources.cgroup import CgroupReader
from memwatch.sources.gpus import GpuReader
from memwatch.sources.logsource import LogSource
from memwatch.sources.procfs import HostReader
from memwatch.sources.target import identify, is_same
from memwatch.sources.tree import TreeReader
from memwatch.trainer import CarefulSignaller, WatchedTrainer
from support.fakenvml import GIB, World, library_folder
from support.mainjob import until

pytestmark = pytest.mark.integration

# Logs each line of its stdin; saves on SIGINT.
TRAINER = """
import signal, sys
def save(*_):
    with open("state.ckpt", "wb") as file: file.write(b"x" * 100_000)
    print("Checkpoint saved: state.ckpt", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
for line in sys.stdin: print(line, end="", flush=True)
"""


class HandClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.t = 1_000_000.0

    def now(self) -> float:
        return self.t


class Told:
    """A sink that keeps everything."""

    name = "told"

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.snapshot: Snapshot | None = None

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        self.notices += notices
        self.snapshot = snapshot

    def close(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def named(self, event: str) -> list[Notice]:
        return [one for one in self.notices if one.event == event]


class Bench:
    """The daemon's real parts around a real process, on a fake driver and a clock moved by hand."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        self.world = World(folder / "world")
        self.world.play()
        trace = folder / "nvidiactl"
        trace.touch()
        self.log = folder / "main.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", TRAINER]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, cwd=folder, text=True)
        until(lambda: b"ready" in self.log.read_bytes())
        self.clock, self.told, self.web = HandClock(), Told(), WebServer("127.0.0.1", 0, SystemClock())
        self.web.start()
        pid = self.process.pid
        target = identify(pid)
        self.attached = Attached(self.clock.t, target, "train")
        self.signaller = PidfdSignaller(target, is_same)
        tree, cgroup = TreeReader(pid), CgroupReader(pid)
        gpus = GpuReader(tree.root_pids, {}, driver_traces=[str(trace)], patience_s=patience_s)
        self.sampler = Sampler(tree, cgroup, HostReader(), gpus, None)
        self.engine = Engine(Policy(checkpoint_seconds=5.0))
        checkpoints = CheckpointWatch(pid, (), str(folder))
        trainer = WatchedTrainer(
            signaller=self.signaller,
            tree_pids=tree.root_pids,
            cgroup=cgroup,
            kmsg=None,
            checkpoints=checkpoints,
        )
        self.daemon = Daemon(
            clock=self.clock,
            engine=self.engine,
            sampler=self.sampler,
            trainer=trainer,
            signaller=CarefulSignaller(self.signaller, checkpoints, self.clock.now),
            choose_signal=lambda: "SIGINT",
            sources=[LogSource(self.log, presets(Config())), checkpoints],
            sinks=[trainer, self.told, self.web],
        )

    def say(self, line: str) -> None:
        """The trainer logs this line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        until(lambda: line.encode() in self.log.read_bytes() or self.process.poll() is not None)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.web.url}metrics") as answer:
            return answer.read().decode()

    def close(self) -> None:
        self.world.forget("hang")
        self.process.kill()
        self.process.communicate()
        self.sampler.close()
        self.signaller.close()
        if self.told.snapshot is not None:
            self.web.close(self.told.snapshot)
        for thread in threading.enumerate():
            if thread.name == "memwatch-nvml":
                thread.join(5)


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    if library_folder() is None:
        pytest.skip("no C compiler for the fake libnvidia-ml.so.1")
    bench = Bench(tmp_path, getattr(request, "param", 5.0))
    yield bench
    bench.close()


def test_a_leak_on_a_gpu_under_a_healthy_host_is_interrupted(bench: Bench) -> None:
    seconds, used = 0, 0
    metrics = ""

    def pass_a_second(_: float) -> None:
        nonlocal seconds, used, metrics
        if bench.told.named("interrupt"):
            until(bench.signaller.gone)
            return
        used = 5 * GIB + seconds * GIB // 4
        assert used < 80 * GIB, "it was not interrupted before the end"
        bench.world.gpu(0, total=80 * GIB, free=80 * GIB - used)
        bench.world.process("0", bench.process.pid, used)
        if seconds % 20 == 0:
            bench.say(f"Generation {seconds // 20 + 1} / 50")
        if seconds == 100:
            metrics = bench.metrics()
        seconds += 1
        bench.clock.t += 1.0

    pass_a_second(0.0)
    exited = bench.daemon.run(bench.attached, pass_a_second, lambda: False)
    assert isinstance(exited, Exited) and exited.cause is Cause.SAVED, exited
    [interrupt] = bench.told.named("interrupt")
    assert interrupt.fields["resource"] == "gpu0"
    assert interrupt.fields["limit"] == 80 * GIB
    assert interrupt.fields["growth_per_gen"] == pytest.approx(5 * GIB, rel=0.1)
    assert 0 < interrupt.fields["headroom"] < 12 * GIB, "no room for two more generations, and some left"
    assert [one.fields["resource"] for one in bench.told.named("warn")] == ["gpu0"]
    assert 'memwatch_gpu_used_bytes{attribution="exact",gpu="gpu0"' in metrics
    assert 'memwatch_gpu_device_memory_bytes{gpu="gpu0"' in metrics


@pytest.mark.parametrize("bench", [0.05], indirect=True)
def test_a_hung_driver_does_not_delay_the_looks_at_memory_and_is_told_once(bench: Bench) -> None:
    bench.world.gpu(0, total=80 * GIB, free=60 * GIB)
    bench.world.process("0", bench.process.pid, 20 * GIB)
    bench.engine.feed(bench.attached)

    def ticks(count: int) -> float:
        """The slowest of them, in seconds."""
        longest = 0.0
        for _ in range(count):
            bench.clock.t += 1.0
            begun = time.monotonic()
            bench.daemon.tick()
            longest = max(longest, time.monotonic() - begun)
            assert bench.told.snapshot is not None and bench.told.snapshot.sample is not None
            assert bench.told.snapshot.sample.tree is not None
            assert bench.told.snapshot.sample_t == bench.clock.t, "memory was read in this very look"
        return longest

    def resources() -> list[str]:
        assert bench.told.snapshot is not None
        return [view.usage.resource for view in bench.told.snapshot.resources]

    until(lambda: ticks(1) and "gpu0" in resources())
    bench.world.hang("nvmlDeviceGetMemoryInfo")
    assert ticks(12) < 0.5
    [failed] = bench.told.named("source_failed")
    assert failed.fields["source"] == "nvml" and "does not answer" in failed.text
    assert resources() == ["host"], "no stale figure"
    bench.world.forget("hang")
    until(lambda: ticks(1) and "gpu0" in resources())
    assert [one.fields["source"] for one in bench.told.named("source_recovered")] == ["nvml"]
    assert len(bench.told.named("source_failed")) == 1
