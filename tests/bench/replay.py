"""What a replay costs, by part: `PYTHONPATH=tests python tests/bench/replay.py [--rows N] [--profile]`.

Three traces of N rows: a host with 25 generations of two phases, the same with a GPU, and one without markers.
"engine" is all but the forecaster. CPU seconds of this machine: compare their ratios.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from memwatch.backtest.replay import read_trace, replay
from memwatch.core.engine import Engine
from memwatch.core.forecast import Forecaster
from memwatch.core.model import Event, Sampled
from memwatch.core.policy import Policy
from support.steady import Steady

GB = 10**9
HEADER = "t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit"
GENERATIONS = 25
LIMIT = 175 * GB


def write(path: Path, rows: int, markers: bool, gpu: bool) -> Path:
    """A slow leak under a saw-tooth and noise, about one row a second."""
    rng = random.Random(rows)
    length = rows / GENERATIONS
    t = 0.0
    lines = [HEADER]
    for i in range(rows):
        t += 1.0 + rng.uniform(-0.05, 0.05)
        generation, part = int(i / length) + 1, i % length / length
        used = 40 * GB + 4 * GB * i / length + 3 * GB * (i % 200) / 200 + 2 * GB * math.sin(6.28 * part)
        host = int(used * (1 + rng.gauss(0, 0.003)))
        log = f"{generation},{'evaluate' if part < 0.5 else 'train'},{GENERATIONS}" if markers else ",,"
        device = f"{int(20 * GB + 0.1 * GB * i / length)},{80 * GB}" if gpu else ","
        lines.append(f"{t:.3f},{host},{LIMIT},{log},{device}")
    path.write_text("\n".join(lines) + "\n")
    return path


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds: what else the machine does is not in them."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def program_seconds(path: Path) -> float:
    """Wall seconds of the whole program."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "memwatch", "replay", str(path), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def feed(events: list[Event], forecaster: Callable[[], Steady | Forecaster]) -> None:
    engine = Engine(Policy(checkpoint_seconds=30.0), forecaster)
    for event in events:
        engine.feed(event)


def measure(path: Path, start: float) -> None:
    """One line a part."""
    events = list(read_trace(path))
    rows = sum(type(event) is Sampled for event in events)
    parts = {
        "read": seconds(lambda: sum(1 for _ in read_trace(path))),
        "engine": seconds(lambda: feed(events, Steady)),
        "engine + forecaster": seconds(lambda: feed(events, Forecaster)),
        "replay": seconds(lambda: sum(1 for _ in replay(path, Policy()))),
    }
    print(f"\n{path.stem}: {rows} rows")
    for name, took in parts.items():
        print(f"  {name:<20} {1e6 * took / rows:7.2f} us a row")
    took = program_seconds(path)
    print(
        f"  {'program':<20} {1e6 * took / rows:7.2f} us a row, {rows / took:,.0f} rows/s, {start / took:.0%} is start"
    )


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=90_000)
    parser.add_argument("--profile", action="store_true", help="where the time goes, of the first trace")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [
            write(place / "markers.csv", arguments.rows, markers=True, gpu=False),
            write(place / "gpu.csv", arguments.rows, markers=True, gpu=True),
            write(place / "markerless.csv", arguments.rows, markers=False, gpu=False),
        ]
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(lambda: sum(1 for _ in replay(paths[0], Policy())))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        start = min(program_seconds(write(place / "start.csv", 2, markers=True, gpu=False)) for _ in range(5))
        print(f"start of the program: {start:.3f} s")
        for path in paths:
            measure(path, start)


if __name__ == "__main__":
    main()
