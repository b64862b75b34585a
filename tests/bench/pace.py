"""How much slower a real trainer is with memwatch: `PYTHONPATH=tests python tests/bench/pace.py [--rounds N]`.

nanoGPT's train.py, unmodified, trains a small model with as many threads as there are cores. In blocks of S seconds it
is watched as by `memwatch --pid PID --log FILE`, examinations and history included, or not (the daemon is stopped); the
order within a round is drawn anew. Prints one JSON object: the iterations per second of each block, and the median
and quartiles over the rounds of those watched divided by those not watched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harm import NOBODY, awake, nobody
from support.measure import cpu_seconds, median

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "gallery" / "programs" / "nanogpt.py"
PYTHON = ROOT / ".venv" / "gallery" / "bin" / "python"
CHECKOUT = ROOT / "build" / "checkouts" / "nanoGPT"  # CONTRIBUTING.md, "The gallery"
MEMWATCH = "memwatch"
LOADED_SECONDS = 20.0  # from the trainer's start to memwatch's, and from that to the first block
POLL_SECONDS = 0.01
OPTIONS = ("--max_iters=100000000", "--eval_interval=100000000", "--log_interval=1")


@contextmanager
def training(checkout: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """train.py on noise; it writes main.log in `folder`."""
    environ = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count()), "PYTHONUNBUFFERED": "1"}
    command = [str(PYTHON), str(PROGRAM), str(checkout), *OPTIONS]
    with (folder / "main.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def watching(pid: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """memwatch with its default settings."""
    options = ["--log", str(folder / "main.log"), "--listen", "127.0.0.1:0", "--history", str(folder / "history.db")]
    command = [sys.executable, "-m", "memwatch", "--pid", str(pid), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()


def iterations_per_second(log: Path, seconds: float) -> float:
    """From the first line with the number of an iteration that comes to the last."""
    seen = list[tuple[float, int]]()
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        begun = time.monotonic()
        while (now := time.monotonic()) - begun < seconds:
            if numbers := re.findall(rb"iter (\d+):", file.read()):
                seen.append((now, int(numbers[-1])))
            time.sleep(POLL_SECONDS)
    (t0, first), (t1, last) = seen[0], seen[-1]
    return (last - first) / (t1 - t0)


def measure(checkout: Path, rounds: int, seconds: float, loaded_seconds: float = LOADED_SECONDS) -> dict[str, Any]:
    """All blocks, and their ratio."""
    blocks: dict[str, list[float]] = {NOBODY: [], MEMWATCH: []}
    spent, rng = [], random.Random(rounds)
    with tempfile.TemporaryDirectory() as name, training(checkout, Path(name)) as trainer:
        time.sleep(loaded_seconds)
        with watching(trainer.pid, Path(name)) as daemon:
            time.sleep(loaded_seconds)
            with awake(daemon):
                pass  # it is stopped from here on
            for _ in range(rounds):
                for kind in rng.sample(list(blocks), len(blocks)):
                    before = cpu_seconds(daemon.pid)
                    with awake(daemon) if kind == MEMWATCH else nobody():
                        blocks[kind].append(round(iterations_per_second(Path(name) / "main.log", seconds), 3))
                    if kind == MEMWATCH:
                        spent.append(cpu_seconds(daemon.pid) - before)
    ratios = [round(watched / alone, 4) for watched, alone in zip(blocks[MEMWATCH], blocks[NOBODY], strict=True)]
    return {
        "blocks": blocks,
        "ratios": ratios,
        "median_ratio": median(ratios),
        "quartiles": [round(one, 4) for one in statistics.quantiles(ratios, n=4)[::2]] if rounds > 1 else ratios * 2,
        "memwatch_core_percent": round(100 * sum(spent) / (rounds * seconds), 3),
    }


def main() -> None:
    """Measure, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="of nanoGPT")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a block")
    given = parser.parse_args()
    missing = next((path for path in (PYTHON, given.checkout / "train.py") if not path.exists()), None)
    if missing is not None:
        print(json.dumps({"skipped": f"{missing.name} is not there: see CONTRIBUTING.md, The gallery"}))
        return
    print(json.dumps(measure(given.checkout.resolve(), given.rounds, given.seconds)))


if __name__ == "__main__":
    main()
