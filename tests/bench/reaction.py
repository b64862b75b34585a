"""How soon fast growth is answered: `PYTHONPATH=tests python tests/bench/reaction.py`, as root; --help has options.

Real ramps: a process grows in a memory cgroup (version 1) towards its limit; memwatch watches it, and earlyoom, where
it is there, is told to act at the same byte of what the machine has left. Synthetic ramps: /proc/meminfo is a file that
is rewritten at 2 kHz, in a mount namespace of its own; memwatch and earlyoom each have a process to signal. The
threshold is 5 % of the limit for both. With `--realtime N` so many real ramps of 1 GiB/s are run with `daemon.realtime`
as well. Prints one JSON object; of each run: ms from the crossing of the threshold to the signal, as its receiver saw
it, and MiB beyond it (negative: before).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from memwatch.sources.memory.cgroup import parse_reclaimable_cache
from support.measure import ENVIRON, quantile
from support.trainers import memory_cgroup

GIB, MIB = 1 << 30, 1 << 20
RAMP = Path(__file__).parent.parent / "programs" / "ramp.py"
GUARD = 0.05
STEP_BYTES = 1 << 16

REAL_RATES = (0.1, 1.0, 1000.0)  # GiB/s; the last is as fast as the machine goes
REAL_LIMIT_MIB = 2048
REAL_SECONDS = 1.5  # from the start of a ramp to the threshold
LEAST_MIB, MOST_MIB = 256, 850  # of growth: a program that doubles soon after the attach still loads

SLOW_RATES, FAST_RATES = (1.0, 4.0), (16.0, 40.0)
SYNTHETIC_TOTAL = 175 * GIB
SYNTHETIC_SECONDS = 3.0
WRITE_SECONDS = 1 / 2000
SETTLE_SECONDS = (1.2, 2.2)  # from the start of the watchers to that of a ramp: drawn, as all look once a second
DWELL_SECONDS = 0.3  # after a ramp's end
REALTIME = Path(__file__).with_name("realtime.yaml")
SIGNALS = {"memwatch": "SIGINT", "earlyoom": "SIGTERM"}


# --- processes ------------------------------------------------------------------------------------------------------


@contextmanager
def ramp(
    held_mib: int, full_mib: int, rate: float, group: Path | None = None, score: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """A ramp that holds its memory and waits for its line."""

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        Path("/proc/self/oom_score_adj").write_text(str(score))  # earlyoom takes the highest

    command = [sys.executable, str(RAMP), str(held_mib), str(full_mib), str(rate)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=enter,  # noqa: PLW1509 - no threads here
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


@contextmanager
def watcher(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def memwatch(pid: int, realtime: bool) -> list[str]:
    given = ["--config", str(REALTIME)] if realtime else []
    options = ["--history", "none", "--listen", "none", "--json", *given]
    return [sys.executable, "-m", "memwatch", "--pid", str(pid), *options]


def ends(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Let it grow; what it tells at its end, {} when it was killed."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None
    stdin.write(f"{DWELL_SECONDS}\n")
    stdin.flush()
    line = stdout.readline()
    return dict(json.loads(line)) if line else {}


def heard(told: dict[str, Any], name: str) -> float | None:
    """When the signal came first."""
    return next((t for signal, t in told.get("heard", ()) if signal == name), None)


# --- real ramps -----------------------------------------------------------------------------------------------------


def charged(group: Path) -> int:
    usage = int((group / "memory.usage_in_bytes").read_text())
    return usage - parse_reclaimable_cache((group / "memory.stat").read_bytes())


def available_kib() -> int:
    return next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "Available" in line)


def real(rate: float, realtime: bool) -> dict[str, Any]:
    """One ramp in a cgroup; both watchers are to act when 95 % are charged."""
    limit = REAL_LIMIT_MIB * MIB
    room = int(min(max(rate * REAL_SECONDS * 1024, LEAST_MIB), MOST_MIB))
    held = int(REAL_LIMIT_MIB * (1 - GUARD)) - room
    with ExitStack() as stack:
        group = stack.enter_context(memory_cgroup("memwatch-bench", limit))
        process = stack.enter_context(ramp(held, REAL_LIMIT_MIB - 24, rate, group, score=1000))
        threshold = int(limit * (1 - GUARD)) - charged(group)  # bytes that it will have grown by
        stack.enter_context(watcher(memwatch(process.pid, realtime)))
        if shutil.which("earlyoom"):
            least = available_kib() - threshold // 1024
            stack.enter_context(watcher(["earlyoom", "-r", "0", "-M", f"{least},1", "-s", "100,1"]))
        time.sleep(random.uniform(*SETTLE_SECONDS))
        told = ends(process)
    if not told:
        return {"killed": True}
    written = told["written"]
    crossed = written[threshold // STEP_BYTES]
    found: dict[str, Any] = {"gib_per_s": round((len(written) * STEP_BYTES / GIB) / (written[-1] - written[0]), 2)}
    for name, signal in SIGNALS.items():
        t = heard(told, signal)
        if t is not None:
            grown = sum(1 for at in written if at <= t) * STEP_BYTES
            found[name] = {"ms": round(1e3 * (t - crossed), 3), "mib": round((grown - threshold) / MIB, 2)}
    return found


# --- synthetic ramps ------------------------------------------------------------------------------------------------


class Meminfo:
    """A file that stands in for /proc/meminfo."""

    def __init__(self, file: IO[bytes]) -> None:
        self._fd = file.fileno()
        self.write(SYNTHETIC_TOTAL)

    def write(self, available: int) -> None:
        values = {
            "MemTotal": SYNTHETIC_TOTAL,
            "MemFree": available,
            "MemAvailable": available,
            "Buffers": 0,
            "Cached": 0,
        }
        lines = {**values, "SwapTotal": 0, "SwapFree": 0}
        os.pwrite(self._fd, b"".join(b"%s:%16d kB\n" % (name.encode(), n >> 10) for name, n in lines.items()), 0)


def fall(meminfo: Meminfo, start: int, rate: float, over: Callable[[], bool]) -> float:
    """Let the memory go from `start` bytes to none, or until it is `over`; when 5 % of all were left."""
    begun = time.monotonic()
    number = 0
    while (left := start - int(rate * GIB * (time.monotonic() - begun))) > 0:
        meminfo.write(left)
        if over():
            break
        number += 1
        time.sleep(max(0.0, begun + number * WRITE_SECONDS - time.monotonic()))
    else:
        meminfo.write(0)
    return begun + (start - GUARD * SYNTHETIC_TOTAL) / (rate * GIB)


def synthetic(rate: float, realtime: bool) -> dict[str, Any]:
    """One ramp of /proc/meminfo; to be run in a mount and PID namespace of its own."""
    start = int(GUARD * SYNTHETIC_TOTAL + rate * GIB * SYNTHETIC_SECONDS)
    with ExitStack() as stack:
        path = Path(f"/dev/shm/memwatch-bench-{os.getpid()}-{time.monotonic_ns()}")
        meminfo = Meminfo(stack.enter_context(path.open("wb", buffering=0)))
        meminfo.write(start)
        subprocess.run(["mount", "--bind", str(path), "/proc/meminfo"], check=True)
        stack.callback(path.unlink)  # this also ends the mount
        trainer = stack.enter_context(ramp(64, 64, 1.0))
        other = stack.enter_context(ramp(64, 64, 1.0, score=1000))
        stack.enter_context(watcher(memwatch(trainer.pid, realtime)))
        guard = None
        if shutil.which("earlyoom"):
            guard = stack.enter_context(watcher(["earlyoom", "-r", "0", "-m", f"{100 * GUARD:g},0.01", "-s", "100,1"]))
        time.sleep(random.uniform(*SETTLE_SECONDS))
        for process in (trainer, other):
            assert process.stdin is not None
            process.stdin.write(f"{start / (rate * GIB) + DWELL_SECONDS}\n")
            process.stdin.flush()

        def over() -> bool:
            """Both have acted. When it has had its victim earlyoom would take the next."""
            if other.poll() is None:
                return False
            if guard is not None:
                guard.kill()
            return trainer.poll() is not None

        crossed = fall(meminfo, start, rate, over)
        times = {"memwatch": heard(_told(trainer), "SIGINT"), "earlyoom": heard(_told(other), "SIGTERM")}
    return {
        name: {"ms": round(1e3 * (t - crossed), 3), "mib": round(rate * 1024 * (t - crossed), 1)}
        for name, t in times.items()
        if t is not None
    }


def _told(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    return dict(json.loads(line)) if line else {}


def apart(kind: str, rate: float, runs: int, jobs: int = 1, realtime: bool = False) -> list[dict[str, Any]]:
    """So many runs in namespaces of their own: earlyoom sees no other process, and nobody else sees the meminfo.

    `jobs` begin at the same time, so that nobody's start falls into another's ramp.
    """
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, __file__]
    command += ["--inside", kind, str(rate), *(["--realtime", "1"] if realtime else [])]
    found: list[dict[str, Any]] = []
    while len(found) < runs:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun = [subprocess.Popen(command, env=ENVIRON, **pipes) for _ in range(min(jobs, runs - len(found)))]  # type: ignore[call-overload]
        told = [(*process.communicate(), process.returncode) for process in begun]
        found += [{"failed": err[-300:]} if failed else json.loads(out) for out, err, failed in told]
    return found


def impossible() -> str | None:
    """Why no ramp can be run here."""
    if os.geteuid() != 0:
        return "needs root: a memory cgroup, and namespaces"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "needs the memory controller of cgroup version 1"
    return None


# --- all of it ------------------------------------------------------------------------------------------------------


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median, 99th percentile and worst of each watcher; one that did not come is later than all, and None.

    "first": in how many runs memwatch's signal came no later than the other.
    """
    ahead = [run for run in runs if "memwatch" in run and _late(run, "memwatch") <= _late(run, "earlyoom")]
    told: dict[str, Any] = {"first": len(ahead)}
    for name in SIGNALS:
        seen = [run[name] for run in runs if name in run]
        told[name] = {"sent": len(seen), "of": len(runs)}
        for figure in ("ms", "mib"):
            values = [*(one[figure] for one in seen), *[math.inf] * (len(runs) - len(seen))]
            for key, part in (("median", 0.5), ("p99", 0.99), ("worst", 1.0)):
                value = quantile(values, part)
                told[name][f"{figure}_{key}"] = None if value == math.inf else value
    return told


def _late(run: dict[str, Any], name: str) -> float:
    return float(run[name]["ms"]) if name in run else math.inf


def measure(runs: int, slow: int, fast: int, realtime: int, jobs: int) -> dict[str, Any]:
    """So many runs of each ramp."""
    plan = [("real", rate, runs, 1, False) for rate in REAL_RATES]
    plan += [("real", 1.0, realtime, 1, True)]
    plan += [("synthetic", rate, slow, jobs, False) for rate in SLOW_RATES]
    plan += [("synthetic", rate, fast, jobs, False) for rate in FAST_RATES]
    found = {}
    for kind, rate, count, at_once, priority in plan:
        name = f"{kind} {rate:g} GiB/s{', realtime' if priority else ''}"
        if count:
            made = apart(kind, rate, count, at_once, priority)
            found[name] = {**summary(made), "runs": made}
            print(f"{name}: {json.dumps(summary(made))}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each real ramp")
    parser.add_argument("--slow", type=int, default=20, help="of each synthetic ramp of 1 and 4 GiB/s")
    parser.add_argument("--fast", type=int, default=20, help="of each synthetic ramp of 16 and 40 GiB/s")
    parser.add_argument("--realtime", type=int, default=0, help="of real ramps with daemon.realtime")
    parser.add_argument("--jobs", type=int, default=1, help="synthetic ramps at the same time")
    parser.add_argument("--inside", nargs=2, metavar=("KIND", "RATE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        kind, rate = given.inside
        print(json.dumps({"real": real, "synthetic": synthetic}[kind](float(rate), bool(given.realtime))))
    elif reason := impossible():
        print(json.dumps({"skipped": reason}))
    else:
        print(json.dumps(measure(given.runs, given.slow, given.fast, given.realtime, given.jobs)))


if __name__ == "__main__":
    main()
