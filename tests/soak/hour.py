"""A real hour: `PYTHONPATH=tests python tests/soak/hour.py [--seconds S]`; see --help.

Two watches, as users start them, of one healthy trainer that works, forks workers and saves, at 20 Hz, with history,
HTTP port and their lines in files; one keeps so small a history that it is trimmed all the time. The trainer's log is
rotated, by renaming and by copying and truncating in turn; each watch is scraped as Prometheus does. All 10 s, from
outside: memory, file descriptors, threads, children and CPU of each, the bytes of its lines and of its history. Prints
one JSON object with all readings; memory in MiB, bytes in kB.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak.rotation import rotations
from support.mainjob import Folder, Memwatch, memwatch, trainer, until
from support.measure import TESTS, cpu_seconds

HZ = 20
READ_SECONDS, SCRAPE_SECONDS = 10.0, 15.0
KEPT_LOGS = 3
SIZES = {"history of 500 MB": "500MB", "history of 3 MB": "3MB"}  # the default; and what half an hour fills
WARM_SECONDS = 480.0  # a forecaster keeps 48 generations, each of 8 s and up to a fifth longer
LIMIT = "4GiB"  # the trainer takes a hundredth; whoever else uses this machine is none of its business
FIGURES = ("seconds", "rss_mib", "anon_mib", "pss_mib", "fds", "threads", "children", "cpu_s", "lines_kb", "history_kb")
TOTALS = ("ticks_total", "generation", "interrupts_total", "warnings_total", "examinations_total")
CONFIG = """
dry_run: true  # whoever else fills this machine ends no soak
history_size: {size}
checkpoint: {{globs: ['{checkpoints}/*.ckpt']}}
"""


@dataclass
class Watched:
    """A watch, and what was read of it."""

    folder: Folder
    run: Memwatch
    url: str = ""
    scrapes: int = 0
    failed_scrapes: int = 0
    readings: list[list[float]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.run.process.pid

    def find_address(self) -> None:
        """The address that it told."""
        until(lambda: "http://" in self.run.said())
        self.url = next(word for word in self.run.said().split() if word.startswith("http://"))

    def scrape(self) -> None:
        """As Prometheus does."""
        try:
            with urllib.request.urlopen(f"{self.url}metrics", timeout=10) as answer:
                self.scrapes += b"memwatch_target_up" in answer.read()
        except OSError:
            self.failed_scrapes += 1

    def totals(self) -> dict[str, float]:
        """What it has counted."""
        with urllib.request.urlopen(f"{self.url}metrics", timeout=10) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#"]
        return {
            name: sum(float(value) for series, value in lines if series.partition("{")[0] == f"memwatch_{name}")
            for name in TOTALS
        }

    def read(self, seconds: float) -> None:
        """All figures at this moment, from outside."""
        proc = Path(f"/proc/{self.pid}")
        rollup = dict(line.split()[:2] for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
        memory = [round(int(rollup[f"{name}:"]) / 1024, 3) for name in ("Rss", "Anonymous", "Pss")]
        tasks = list((proc / "task").iterdir())
        children = sum(len(_text(task / "children").split()) for task in tasks)
        counts = [len(list((proc / "fd").iterdir())), len(tasks), children]
        lines = sum(path.stat().st_size for path in (self.run.out, self.run.err))
        history = sum(path.stat().st_size for path in self.folder.history.parent.glob("history.db*"))
        spent = round(cpu_seconds(self.pid), 2)
        self.readings.append(
            [round(seconds, 1), *memory, *counts, spent, round(lines / 1e3, 3), round(history / 1e3, 1)]
        )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # a thread that has just ended
        return ""


@contextmanager
def watch(folder: Folder, pid: int, log: Path, size: str) -> Iterator[Watched]:
    """memwatch with its state in `folder`, as a user starts it."""
    folder.path.mkdir()
    config = folder.path / "memwatch.yaml"
    config.write_text(CONFIG.format(size=size, checkpoints=log.parent / "checkpoints"))
    options = ["--config", str(config), "--pid", str(pid), "--log", str(log), "--listen", "127.0.0.1:0"]
    with memwatch(folder, *options, "--interval", str(1 / HZ), "--limit", LIMIT) as run:
        found = Watched(folder, run)
        found.find_address()
        yield found


def pass_time(watches: list[Watched], log: Path, seconds: float, rotate_seconds: float) -> int:
    """Read, scrape and rotate, each at its pace; how often the log was rotated."""
    begun = time.monotonic()
    rotated, rotating = 0, rotations(log)
    every = {"read": min(READ_SECONDS, seconds / 30), "scrape": SCRAPE_SECONDS, "rotate": rotate_seconds}
    due = {"read": 0.0, "scrape": 0.0, "rotate": rotate_seconds, "end": seconds}
    while True:
        what = min(due, key=lambda name: due[name])
        time.sleep(max(0.0, begun + due[what] - time.monotonic()))
        if what == "end":
            return rotated
        if what == "rotate":
            next(rotating)
            rotated += 1
        for one in watches:
            if what == "read":
                one.read(time.monotonic() - begun)
            elif what == "scrape":
                one.scrape()
        due[what] += every[what]


def ended(one: Watched) -> dict[str, Any]:
    """The last that it told, and what it wrote."""
    totals = one.totals()
    one.run.process.send_signal(signal.SIGTERM)
    code = one.run.wait()
    return {
        "exit_code": code,
        "scrapes": one.scrapes,
        "failed_scrapes": one.failed_scrapes,
        **totals,
        "lines": said(one.run, one.folder.path.parent),
        "readings": one.readings,
    }


def said(run: Memwatch, folder: Path) -> list[str]:
    """Its lines, without the table at the end and the places of this machine."""
    text = run.out.read_text().replace(f"{folder}/", "").replace(f"{TESTS}/", "tests/")
    return [line for line in text.splitlines() if line[2:3] == ":"]


def measure(seconds: float, rotate_seconds: float, generation_seconds: float) -> dict[str, Any]:
    """All of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        log = folder.path / "train.log"
        program = [sys.executable, str(TESTS / "programs" / "healthy.py"), str(log), str(folder.checkpoints)]
        with trainer(folder, program=[*program, str(generation_seconds)]) as run:
            until(log.exists)
            places = [(Folder(folder.path / f"watch{number}"), size) for number, size in enumerate(SIZES.values())]
            with ExitStack() as running:
                watches = [running.enter_context(watch(one, run.pid, log, size)) for one, size in places]
                rotated = pass_time(watches, log, seconds, rotate_seconds)
                told = dict(zip(SIZES, map(ended, watches), strict=True))
    return {"seconds": seconds, "hz": HZ, "rotations": rotated, "figures": FIGURES, "watches": told}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=WARM_SECONDS + 3600.0)
    parser.add_argument("--rotate", type=float, default=240.0, help="seconds between two rotations of the log")
    parser.add_argument("--generation", type=float, default=8.0, help="seconds of a generation")
    given = parser.parse_args()
    print(json.dumps(measure(given.seconds, given.rotate, given.generation)))


if __name__ == "__main__":
    main()
