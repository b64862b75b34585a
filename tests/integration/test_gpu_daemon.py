"""The daemon with a GPU: a leak there is interrupted under a healthy host, and a hung driver delays nothing."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.actions.signal_sender import PidfdSignaller
from memwatch.app.composition import configured_presets, sleep_requesting_gpus
from memwatch.app.interrupter import Interrupter
from memwatch.app.sampler import Sampler
from memwatch.app.trainer_process import WatchedTrainer
from memwatch.app.watch_loop import WatchLoop
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Cause, Exited, Notice
from memwatch.core.snapshot import Snapshot, Verdict, WatchState
from memwatch.errors import ExitCode
from memwatch.outputs.http.server import WebServer
from memwatch.sources.checkpoint_watch import CheckpointWatch
from memwatch.sources.gpu.gpu_reader import GpuReader
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.process_tree import TreeReader
from memwatch.sources.procfs import HostReader
from memwatch.sources.target.target_facts import identify, is_same_process
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock
from support.driven import WITH_DRIVER, Driven, missing
from support.fakenvml import GIB, World, library_folder
from support.freezer import frozen
from support.mainjob import ROOT, Memwatch, memwatch, trainer, until
from support.stopwatch import Stopwatch
from support.world import HandClock

pytestmark = pytest.mark.integration
NOT_SUPPORTED, UNKNOWN = 3, 999

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


class Told:
    """A sink that keeps everything."""

    name = "told"

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.snapshot: Snapshot | None = None

    def on_loop_iteration(self) -> bool:
        return True

    def wants_snapshot(self) -> bool:
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        self.notices += notices
        self.snapshot = snapshot

    def on_watch_end(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def named(self, event: str) -> list[Notice]:
        return [one for one in self.notices if one.event == event]


class Bench:
    """The daemon's real parts around a real process, on a fake driver and a clock moved by hand."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        self.world = World(folder / "world")
        trace = folder / "nvidiactl"
        trace.touch()
        self.log = folder / "main.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", TRAINER]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, cwd=folder, text=True)
        until(lambda: b"ready" in self.log.read_bytes())
        self.clock, self.told, self.web = HandClock(1_000_000.0), Told(), WebServer("127.0.0.1", 0, SystemClock())
        self.web.start()
        pid = self.process.pid
        target = identify(pid)
        self.attached = Attached(self.clock.t, target, "train")
        self.signaller = PidfdSignaller(target, is_same_process)
        tree, cgroup = TreeReader(pid), CgroupReader(pid)
        gpus = GpuReader(tree.tree_pids, {}, driver_traces=[str(trace)], patience_s=patience_s)
        self.host = folder / "meminfo"
        self.tell_host(1024 * GIB, 1000 * GIB)
        self.sampler = Sampler(tree, cgroup, HostReader(str(folder)), gpus, None)
        self.engine = Engine(Policy(checkpoint_seconds=5.0))
        checkpoints = CheckpointWatch(pid, (), str(folder))
        trainer = WatchedTrainer(
            signaller=self.signaller,
            tree_parents=tree.parent_pids,
            cgroup=cgroup,
            kmsg=None,
            checkpoints=checkpoints,
        )
        self.daemon = WatchLoop(
            clock=self.clock,
            engine=self.engine,
            read_sample=self.sampler.sample,
            trainer=trainer,
            interrupter=Interrupter(
                self.signaller,
                lambda: "SIGINT",
                on_sent=lambda before_ns: checkpoints.discard_before_signal(self.clock.now(), before_ns),
            ),
            sources=[LogSource(self.log, configured_presets(Config())), checkpoints],
            sinks=[trainer, self.told, self.web],
        )

    def say(self, line: str) -> None:
        """The trainer logs this line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        until(lambda: line.encode() in self.log.read_bytes() or self.process.poll() is not None)

    def tell_host(self, total: int, available: int) -> None:
        """What /proc/meminfo says."""
        text = f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\nSwapFree: 0 kB\n"
        with self.host.open("r+" if self.host.exists() else "w") as file:  # it is held open
            file.write(text.ljust(200))

    def live(self, seconds: int, second: Callable[[int], None]) -> None:
        """So many seconds, or until it is interrupted; a generation takes 20 of them."""
        self.engine.feed(self.attached)
        for t in range(seconds):
            second(t)
            if t % 20 == 0:
                self.say(f"Generation {t // 20 + 1} / 60")
            self.daemon.tick()
            if self.told.named("interrupt"):
                return
            self.clock.t += 1.0

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.web.url}metrics") as answer:
            return answer.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.sampler.close()
        self.signaller.close()
        self.web.stop()


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if library_folder() is None:
        pytest.skip("no C compiler for the fake libnvidia-ml.so.1")
    for name, value in World(tmp_path / "world").environ(count=False).items():
        monkeypatch.setenv(name, value)
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
    exited = bench.daemon.run(bench.attached, lambda wait: pass_a_second(wait) or True, lambda: False)
    assert isinstance(exited, Exited) and exited.cause is Cause.SAVED, exited
    [interrupt] = bench.told.named("interrupt")
    assert interrupt.fields["resource"] == "gpu0"
    assert interrupt.fields["limit"] == 80 * GIB
    assert interrupt.fields["growth_per_gen"] == pytest.approx(5 * GIB, rel=0.1)
    assert 0 < interrupt.fields["headroom"] < 12 * GIB, "no room for two more generations, and some left"
    assert [one.fields["resource"] for one in bench.told.named("warn")] == ["gpu0"]
    assert 'memwatch_gpu_used_bytes{attribution="exact",gpu="gpu0"' in metrics
    assert 'memwatch_gpu_device_memory_bytes{gpu="gpu0"' in metrics


def test_a_gpu_that_shares_the_hosts_memory_is_one_pool_with_it_and_one_forecast(bench: Bench) -> None:
    """As on a GB10: no memory of its own, and what its driver allocates is in no process's RSS."""
    bench.world.gpu(0)
    bench.world.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)

    def second(t: int) -> None:
        used = 5 * GIB + t * GIB // 4
        assert used < 110 * GIB, "it was not interrupted before the end"
        bench.world.process("0", bench.process.pid, used)
        bench.tell_host(120 * GIB, 112 * GIB - used)

    bench.live(500, second)
    [interrupt] = bench.told.named("interrupt")
    snapshot = bench.told.snapshot
    assert snapshot is not None
    assert [view.usage.resource for view in snapshot.resources] == ["host"]
    assert (interrupt.fields["resource"], interrupt.fields["limit_origin"]) == ("host", "host")
    assert interrupt.fields["growth_per_gen"] == pytest.approx(5 * GIB, rel=0.1)
    assert "limit: host 128.8 GB" in snapshot.sentence and "gpu" not in snapshot.sentence
    assert not [one for one in bench.told.notices if one.fields.get("resource") == "gpu0"]


@pytest.mark.parametrize("leaks", [False, True])
def test_a_caching_allocators_staircase_is_a_leak_only_when_it_goes_on(bench: Bench, leaks: bool) -> None:
    """Blocks of 2 GiB, rarer and rarer up to 56 of 80 GiB, or without end."""

    def second(t: int) -> None:
        wanted = 30 + t / 20 if leaks else 30 + 28 * (1 - math.exp(-t / 150))
        used = int(wanted) // 2 * 2 * GIB
        assert used < 80 * GIB, "it was not interrupted before the end"
        bench.world.gpu(0, total=80 * GIB, free=80 * GIB - used)
        bench.world.process("0", bench.process.pid, used)

    bench.live(1000, second)
    assert bench.told.snapshot is not None
    assert [view.usage.resource for view in bench.told.snapshot.resources] == ["host", "gpu0"]
    if leaks:
        assert [one.fields["resource"] for one in bench.told.named("interrupt")] == ["gpu0"]
    else:
        assert not bench.told.named("interrupt")
        assert bench.told.snapshot.state is WatchState.WATCHING, "a warning while it rose has been taken back"
        told = [one for one in bench.told.named("forecast") if one.fields["resource"] == "gpu0"]
        late = {one.fields["verdict"] for one in told if one.t - bench.attached.t > 400}
        assert late == {Verdict.PLATEAU.value}, "while it still rises it may be called anything but acted upon"


def test_a_cuda_out_of_memory_in_the_log_is_told_while_the_trainer_lives_on(bench: Bench) -> None:
    bench.engine.feed(bench.attached)
    bench.daemon.tick()
    bench.say("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total)")
    bench.say("Generation 2 / 60")
    bench.daemon.tick()
    [told] = bench.told.named("out_of_memory")
    assert told.fields["kind"] == "CUDA out of memory" and "Tried to allocate 2.00 GiB" in told.text
    assert bench.process.poll() is None


@pytest.mark.parametrize("bench", [0.0], indirect=True)
def test_a_hung_driver_does_not_delay_the_looks_at_memory_and_is_told_once(bench: Bench) -> None:
    bench.world.gpu(0, total=80 * GIB, free=60 * GIB)
    bench.world.process("0", bench.process.pid, 20 * GIB)
    bench.engine.feed(bench.attached)

    def ticks(count: int, seconds: float = 1.0) -> float:
        """The slowest of them, in seconds."""
        longest = 0.0
        for _ in range(count):
            bench.clock.t += seconds
            begun = Stopwatch()
            bench.daemon.tick()
            longest = max(longest, begun.undisturbed_seconds)
            assert bench.told.snapshot is not None and bench.told.snapshot.sample is not None
            assert bench.told.snapshot.sample.tree is not None
            assert bench.told.snapshot.sample_t == bench.clock.t, "memory was read in this very look"
        return longest

    def resources() -> list[str]:
        assert bench.told.snapshot is not None
        return [view.usage.resource for view in bench.told.snapshot.resources]

    until(lambda: ticks(1, 0.001) and "gpu0" in resources())
    bench.world.hang("nvmlDeviceGetMemoryInfo")
    assert ticks(12) < 0.1
    assert ticks(60) < 0.1, "nor does the start of a second helper"
    [failed] = bench.told.named("source_failed")
    assert failed.fields["source"] == "nvml" and "does not answer" in failed.text
    assert resources() == ["host"], "no stale figure"
    bench.world.forget("hang")
    until(lambda: ticks(1, 0.001) and "gpu0" in resources())
    assert [one.fields["source"] for one in bench.told.named("source_recovered")] == ["nvml"]
    assert len(bench.told.named("source_failed")) == 1


def test_nvml_is_asked_a_moment_before_the_look_which_takes_the_answer(bench: Bench) -> None:
    bench.world.gpu(0)
    bench.world.process("0", bench.process.pid, GIB)
    trace, clock = str(bench.world.file), SystemClock()
    reader = GpuReader(lambda: frozenset({bench.process.pid}), {}, driver_traces=[trace])
    with Sleeper((), STOP_SIGNALS, lambda _: None) as sleeper:
        sleep = lambda: sleep_requesting_gpus(sleeper, reader, clock, 0.4)  # noqa: E731
        assert reader.read_memory(clock.now()) == ()
        until(lambda: reader.read_memory(clock.now()) != ())
        seen = reader.read_memory(clock.now())
        for used in (2 * GIB, 3 * GIB):
            bench.world.process("0", bench.process.pid, used)
            sleep()
            last, seen = seen, reader.read_memory(clock.now())
            assert (seen is not last, [gpu.used_bytes for gpu in seen]) == (True, [used])
        bench.world.hang("nvmlDeviceGetMemoryInfo")
        begun = Stopwatch()
        sleep()
        assert begun.seconds > 0.39 and begun.undisturbed_seconds < 0.5, "nobody waits for an answer"
        assert reader.read_memory(clock.now()) is seen
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        begun = Stopwatch()
        sleep()
        assert begun.undisturbed_seconds < 0.3, "what wakes the loop is not slept over"
    reader.close()


# --- memwatch as it is run ----------------------------------------------------------------------------------------

LEAK = str(ROOT / "tests" / "programs" / "leak.py")
# Only in sight of this process and its children, a driver is there.


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    return Driven(tmp_path)


@contextmanager
def memwatch_with_driver(folder: Driven, *arguments: str) -> Iterator[Memwatch]:
    with memwatch(folder, *arguments, "--json", "--listen", "none", before=WITH_DRIVER) as watch:
        yield watch


def helpers(watch: Memwatch) -> list[int]:
    """The children of memwatch that speak to NVML."""
    children = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"nvml" in Path(f"/proc/{pid}/cmdline").read_bytes()]


HANGS = ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo", "nvmlShutdown"]


@pytest.mark.parametrize("function", HANGS)
def test_a_leak_of_main_memory_is_interrupted_while_nvml_hangs(driven: Driven, function: str) -> None:
    """For nvmlShutdown to hang in the middle of a watch, NVML fails in it."""
    if function == "nvmlShutdown":
        driven.world.fail("nvmlDeviceGetCount_v2", UNKNOWN)
    driven.world.gpu(0)
    driven.world.hang(function)
    with trainer(driven, program=[sys.executable, LEAK, "saves", "60", "25", "0.8"]) as run:
        driven.world.process("0", run.pid, 20 * GIB)
        quick = ("--interval", "0.1", "--checkpoint-time", "0.5", "--limit", "400MB")
        with memwatch_with_driver(driven, "--pid", str(run.pid), *quick) as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
        assert run.wait() == 130
    assert driven.world.calls(function) >= 1, "it did hang"
    assert [one["source"] for one in watch.named("source_failed")] == ["nvml"]
    [interrupt] = watch.named("interrupt")
    assert interrupt["resource"] == "host" and interrupt["headroom"] > 0


@pytest.mark.parametrize("function", HANGS)
def test_sigterm_ends_memwatch_in_time_while_nvml_hangs(driven: Driven, function: str) -> None:
    driven.world.gpu(0)
    with trainer(driven, program=[sys.executable, LEAK, "saves", "60", "0", "1"]) as run:
        driven.world.process("0", run.pid, 20 * GIB)
        if function == "nvmlInitWithFlags":
            driven.world.hang(function)
        with memwatch_with_driver(driven, "--pid", str(run.pid), "--interval", "0.2") as watch:
            if function != "nvmlInitWithFlags":
                until(lambda: driven.world.calls("nvmlDeviceGetMemoryInfo"))
                driven.world.hang(function)
            until(lambda: helpers(watch) and (function == "nvmlShutdown" or driven.world.calls(function)))
            if function == "nvmlDeviceGetMemoryInfo":
                until(lambda: watch.named("source_failed"))
            [helper] = helpers(watch)
            begun = Stopwatch()
            watch.process.terminate()
            watch.wait()
            assert begun.undisturbed_seconds < 2.0
        until(lambda: not Path(f"/proc/{helper}").exists())
    assert driven.world.calls(function) >= 1, "it did hang"


def test_a_gpu_is_taken_up_again_when_its_driver_answers_again(driven: Driven) -> None:
    driven.world.gpu(0)
    driven.world.hang("nvmlInitWithFlags")
    with trainer(driven, program=[sys.executable, LEAK, "saves", "60", "0", "1"]) as run:
        driven.world.process("0", run.pid, 20 * GIB)
        with memwatch_with_driver(driven, "--pid", str(run.pid), "--interval", "0.2") as watch:
            until(lambda: watch.named("source_failed"))
            driven.world.forget("hang")
            begun = Stopwatch()
            until(lambda: [one for one in watch.named("forecast") if one["resource"] == "gpu0"])
            assert begun.undisturbed_seconds < 2.0
    assert [one["source"] for one in watch.named("source_recovered")] == ["nvml"]


@pytest.mark.cgroup
def test_memwatch_ends_when_its_helper_cannot_be_killed(driven: Driven) -> None:
    """Held by the kernel's freezer, as deaf to SIGKILL as in an uninterruptible call of a driver."""
    driven.world.gpu(0)
    driven.world.hang("nvmlInitWithFlags")
    with (
        frozen(driven.path.name) as freeze,
        trainer(driven, program=[sys.executable, LEAK, "saves", "60", "0", "1"]) as run,
    ):
        with memwatch_with_driver(driven, "--pid", str(run.pid)) as watch:
            until(lambda: driven.world.calls("nvmlInitWithFlags"))
            [helper] = helpers(watch)
            freeze(helper)
            begun = Stopwatch()
            watch.process.terminate()
            watch.wait()
            assert begun.undisturbed_seconds < 2.0
        assert Path(f"/proc/{helper}").exists(), "it could not be killed"
