"""What reading a log costs: `PYTHONPATH=tests python tests/bench/log.py [--mb N] [--runs N] [--rate N] [--seconds N]`.

Makes logs of N MB in a temporary folder: one with a marker every 10,000 lines of about 90 bytes, each other line with
several counters, one without any marker, and one of which each line is one. Each figure is of a process of its
own, with its CPU seconds and peak RSS:
`catch_up` polls a LogSource until all that is old is read, `attach` runs memwatch beside a sleeping process until then,
`scan` is `memwatch markers`, `follow` polls once for each second of a log that grows by so many lines a second.
Prints one JSON object with all runs.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memwatch.core.events import GenerationSeen
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.whole_log_scan import scan_log
from support.measure import ENVIRON, cpu_seconds, peak_rss_mib
from support.presets import packaged_presets

MARKER_LINES = 10_000
Figures = dict[str, Any]


def lines_between(count: int, counts: bool = True) -> str:
    """What a trainer prints between two markers; all of its numbers are measured unless it `counts`."""
    rng = random.Random(1)
    return "".join(
        f"2026-01-02 10:{i % 60:02d}:{i % 59:02d},{i % 1000:03d} - INFO - "
        f"{f'env step {i}' if counts else f'queued {rng.randrange(10_000)}'} reward={rng.random():.4f} "
        f"loss={rng.random():.5f} buffer ok worker {i % 16}\n"
        for i in range(count)
    )


def write(path: Path, megabytes: float, block: str, markers: bool = True) -> int:
    """How many markers the log has, with this block after each."""
    blocks = 0
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            blocks += 1
            file.write(f"2026-01-02 10:00:00,000 - INFO - Generation {blocks}/5000\n" if markers else "")
            file.write(block)
    return blocks if markers else 0


def catch_up(path: Path) -> Figures:
    """Polls until all is read: how many, the longest (CPU seconds), when the latest generation was told, and which."""
    source = LogSource(path, packaged_presets())
    begun = time.process_time()
    polls, longest, told_after, generation = 0, 0.0, 0.0, 0.0
    while source.catching_up:
        before = time.process_time()
        events = source.poll(float(polls))
        polls, longest = polls + 1, max(longest, time.process_time() - before)
        for event in events:
            if isinstance(event, GenerationSeen) and event.index != generation:
                told_after, generation = time.process_time() - begun, event.index
    return {"polls": polls, "longest_poll": longest, "told_after": told_after, "generation": generation}


def whole_scan(path: Path) -> Figures:
    """What `memwatch markers` finds."""
    found = scan_log(path, packaged_presets())
    return {"markers": len(found.markers), "total": found.total}


def follow(path: Path, rate: int, seconds: int) -> Figures:
    """CPU seconds for each second of the log, in its second half; the lines are appended between the polls."""
    path.touch()
    source = LogSource(path, packaged_presets(), catch_up=False)
    lines = lines_between(rate * seconds).splitlines(keepends=True)
    spent: list[float] = []
    with path.open("a") as file:
        file.write("2026-01-02 10:00:00,000 - INFO - Generation 1/5000\n")
        for second in range(seconds):
            file.writelines(lines[second * rate : (second + 1) * rate])
            file.flush()
            before = time.process_time()
            source.poll(float(second))
            spent.append(time.process_time() - before)
    late = spent[seconds // 2 :]
    return {"cpu_share": sum(late) / len(late), "first_seconds": spent[:3]}


def attach(path: Path) -> Figures:
    """memwatch itself beside a process that sleeps, until it reads no more of what is old."""
    with subprocess.Popen(["sleep", "600"]) as trainer:
        command = ["-m", "memwatch", "--pid", str(trainer.pid), "--log", str(path), "--dry-run", "--listen", "none"]
        command += ["--history", "none", "--interval", "0.2"]
        watch = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return _watched(watch)
        finally:
            watch.kill()
            watch.wait()
            trainer.kill()


def _watched(watch: subprocess.Popen[bytes]) -> Figures:
    """Until it takes less than a tenth of a core."""
    spent = [0.0]
    while watch.poll() is None:
        time.sleep(1.0)
        spent.append(cpu_seconds(watch.pid))
        if len(spent) > 5 and spent[-1] - spent[-2] < 0.1:
            break
    return {"cpu_seconds": spent[-1], "peak_rss_mib": peak_rss_mib(watch.pid), "seconds": len(spent) - 1}


def measured(name: str, *arguments: object) -> Figures:
    """The figures of a work, done in a fresh process, with that process's CPU seconds and peak RSS."""
    command = [sys.executable, __file__, "--work", name, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=ENVIRON)
    return dict(json.loads(done.stdout))


def work(name: str, path: Path, numbers: list[int]) -> Figures:
    """One of the works, in this process."""
    works: dict[str, Callable[[], Figures]] = {
        "catch_up": lambda: catch_up(path),
        "scan": lambda: whole_scan(path),
        "follow": lambda: follow(path, *numbers),
    }
    figures = works[name]()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_rss_mib": peak_rss_mib()} | figures


def measure(folder: Path, megabytes: float, runs: int, rate: int, seconds: int) -> Figures:
    """All runs, by what is measured."""
    marked, bare, crowded = (folder / name for name in ("marked.log", "bare.log", "crowded.log"))
    generations = write(marked, megabytes, lines_between(MARKER_LINES - 1))
    write(bare, megabytes, lines_between(MARKER_LINES, counts=False), markers=False)
    write(crowded, megabytes, lines_between(MARKER_LINES), markers=False)
    told = {
        "catch_up": [measured("catch_up", marked) for _ in range(runs)],
        "catch_up_without_markers": [measured("catch_up", bare) for _ in range(runs)],
        "catch_up_with_a_marker_in_each_line": [measured("catch_up", crowded) for _ in range(runs)],
        "scan": [measured("scan", marked) for _ in range(runs)],
        "scan_without_markers": [measured("scan", bare) for _ in range(runs)],
        "follow": [measured("follow", folder / f"live{i}.log", rate, seconds) for i in range(runs)],
        "attach": [attach(marked) for _ in range(runs)],
    }
    return {"bytes": marked.stat().st_size, "generations": generations, "rate": rate} | told


def main() -> None:
    """Measure all."""
    if sys.argv[1:2] == ["--work"]:
        name, path, *numbers = sys.argv[2:]
        print(json.dumps(work(name, Path(path), [int(number) for number in numbers])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=1000.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000, help="lines a second that are followed")
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), given.mb, given.runs, given.rate, given.seconds), indent=2))


if __name__ == "__main__":
    main()
