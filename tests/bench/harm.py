"""What watching does to the target: `PYTHONPATH=tests python tests/bench/harm.py [--rounds N] [--seconds S]`.

A process maps and unmaps 64 KiB without a pause, in blocks of S seconds: while nobody looks, while memwatch looks at
10 Hz (all of the daemon, which is stopped in the other blocks), and while smaps_rollup of that process is read at
10 Hz. Each round has a block of each, in an order drawn anew. Three targets: a process alone, one with a heap of 1 GB
in pages of 4 KiB that 16 forks share, and one of those forks. Prints one JSON object with the quantiles of each block,
the CPU that memwatch took meanwhile, and the ratio of the medians of p99.9 to those of nobody's.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import mapping
from support.forest import Forest
from support.measure import cpu_seconds, median

HERTZ = 10.0
WATCHED_SECONDS = 2.0  # from the daemon's start to the first block: imports, first visits to each process
SETTLE_SECONDS = 0.1  # before each block
NOBODY, MEMWATCH, ROLLUP = "nobody looks", "memwatch at 10 Hz", "smaps_rollup at 10 Hz"
QUANTILES = ("p50_us", "p99_us", "p999_us", "max_us", "stalled_us")


@contextmanager
def memwatch(pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon on this process; it is asleep except within `awake`."""
    options = ["--interval", str(1 / HERTZ), "--history", "none", "--listen", "none", "--dry-run"]
    command = [sys.executable, "-m", "memwatch", "--pid", str(pid), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        try:
            time.sleep(WATCHED_SECONDS)
            daemon.send_signal(signal.SIGSTOP)
            yield daemon
        finally:
            daemon.kill()


@contextmanager
def awake(daemon: subprocess.Popen[bytes]) -> Iterator[None]:
    daemon.send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        daemon.send_signal(signal.SIGSTOP)


@contextmanager
def rollup(pid: int) -> Iterator[None]:
    """smaps_rollup of the process is read, as monitors that show PSS do."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(1 / HERTZ):
            Path(f"/proc/{pid}/smaps_rollup").read_bytes()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


@contextmanager
def nobody() -> Iterator[None]:
    yield


def block(trainer: Forest, seconds: float, fork: bool) -> mapping.Quantiles:
    """Of one block."""
    time.sleep(SETTLE_SECONDS)
    mapping.begin(trainer, seconds, fork)
    return mapping.quantiles(trainer)


def of_target(megabytes: int, forks: int, fork: bool, rounds: int, seconds: float) -> dict[str, Any]:
    """All blocks of one target, by who looks."""
    blocks: dict[str, list[dict[str, float]]] = {NOBODY: [], MEMWATCH: [], ROLLUP: []}
    with mapping.mapper(megabytes, forks) as trainer, memwatch(trainer.pid) as daemon:
        pid = first_fork(trainer.pid) if fork else trainer.pid
        rng = random.Random(rounds)
        for _ in range(rounds):
            for name in rng.sample(list(blocks), len(blocks)):
                spent = cpu_seconds(daemon.pid)
                with {NOBODY: nobody, MEMWATCH: lambda: awake(daemon), ROLLUP: lambda: rollup(pid)}[name]():
                    told = block(trainer, seconds, fork)
                blocks[name].append(told | {"memwatch_cpu_ms": round(1e3 * (cpu_seconds(daemon.pid) - spent), 2)})
    medians = {name: {q: median([one[q] for one in found]) for q in QUANTILES} for name, found in blocks.items()}
    ratios = {name: round(found["p999_us"] / medians[NOBODY]["p999_us"], 3) for name, found in medians.items()}
    return {"medians": medians, "p999_ratio": ratios, "blocks": blocks}


def first_fork(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def measure(rounds: int, seconds: float, megabytes: int, forks: int) -> dict[str, Any]:
    """All targets."""
    return {
        "one process": of_target(64, 0, False, rounds, seconds),
        "a large heap, shared with forks": of_target(megabytes, forks, False, rounds, seconds),
        "one of the forks": of_target(megabytes, forks, True, rounds, seconds),
    }


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a block")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the large heap")
    parser.add_argument("--forks", type=int, default=16)
    given = parser.parse_args()
    print(json.dumps(measure(given.rounds, given.seconds, given.megabytes, given.forks)))


if __name__ == "__main__":
    main()
