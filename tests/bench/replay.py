"""What a replay costs, by part: `PYTHONPATH=tests python tests/bench/replay.py [--rows N ...] [--runs N] [--json]`.

Three traces of N rows: a host with 25 generations of two phases, the same with a GPU, and one without markers. "read"
is the trace alone, "replay" reads, feeds and judges, "program" is `memwatch replay` with its start; "watch" feeds each
look by itself, as a live watch does. CPU seconds of this machine: compare their ratios. With `--profile`: where the
time of the first trace goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import pstats
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Sampled
from memwatch.history.trace_files import read_batches, read_trace, replay_notices
from support.measure import median

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
    """CPU seconds of the whole program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "memwatch", "replay", str(path), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def watch(path: Path) -> int:
    """Feed each look; the readings of memory in them."""
    engine, readings = Engine(Policy()), 0
    for event in read_trace(path):
        engine.feed(event)
        if isinstance(event, Sampled):
            readings += len(event.sample.usages)
    return readings


def measure(path: Path) -> dict[str, Any]:
    """Microseconds a reading of each part, and readings in all."""
    readings = list[int]()
    parts = {
        "read": seconds(lambda: sum(1 for _ in read_batches(path))),
        "replay": seconds(lambda: sum(1 for _ in replay_notices(path, Policy()))),
        "program": program_seconds(path),
        "watch": seconds(lambda: readings.append(watch(path))),
    }
    took = {name: round(1e6 * each / readings[0], 3) for name, each in parts.items()}
    return {"readings": readings[0], "us_a_reading": took}


def all_traces(paths: Sequence[Path], runs: int) -> dict[str, Any]:
    """Of each trace: medians of the runs, and the runs."""
    told: dict[str, Any] = {}
    for path in paths:
        made = [measure(path) for _ in range(runs)]
        parts = {name: median([run["us_a_reading"][name] for run in made]) for name in made[0]["us_a_reading"]}
        speed = {f"{name}_per_s": round(1e6 / parts[name]) for name in ("replay", "program")}
        told[path.stem] = {"readings": made[0]["readings"], "us_a_reading": parts, **speed, "runs": made}
    return told


def show(told: Mapping[str, Any]) -> None:
    """For people."""
    for name, trace in told.items():
        print(f"\n{name}: {trace['readings']} readings")
        for part, took in trace["us_a_reading"].items():
            print(f"  {part:<10} {took:7.2f} us a reading, {1e6 / took:,.0f}/s")


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[90_000, 900_000])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where the time goes, of the first trace")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [
            write(place / f"{rows:,} rows{name}.csv", rows, markers=not name.endswith("markers"), gpu="GPU" in name)
            for rows in arguments.rows
            for name in ("", " with a GPU", " without markers")
        ]
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(lambda: sum(1 for _ in replay_notices(paths[0], Policy())))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        start = min(program_seconds(write(place / "start.csv", 2, markers=True, gpu=False)) for _ in range(5))
        told = all_traces(paths, arguments.runs)
    if arguments.json:
        print(json.dumps({"start_seconds": round(start, 3), "traces": told}))
        return
    print(f"start of the program: {start:.3f} s")
    show(told)


if __name__ == "__main__":
    main()
