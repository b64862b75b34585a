"""A month in minutes: `PYTHONPATH=tests python tests/soak/month.py [--days D]`; see --help.

`memwatch serve` with its real loop, readers, history, HTTP port and outputs, and real trainers with real workers, logs
and checkpoints; the clock alone is moved by hand: a sleep passes at once, and a trainer is led by it. Looks are
30 s apart, so that it takes minutes. Examinations of the trainer take real time, and are left to the hour.

The log is rotated each hour. On the way, by day: its place is taken by a link that is not to be followed (5); another
process locks the history for an hour (9); no file descriptor is left for an hour (12); the machine is suspended for
8 h (15); the trainer is killed and started again (18); the configuration changes (21); the trainer is done, and another
begins (24). With fewer days these come as much earlier.

Each two hours of that time memwatch's process is measured, as /proc and its interpreter tell: see FIGURES. Another
process scrapes it. Prints one JSON object with all readings; memory in MiB, bytes in kB.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from memwatch.app.serve_one_at_a_time import Service
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.reload import ReloadableConfig
from memwatch.outputs.systemd_notify import SystemdNotifier
from memwatch.system.clock import Sleeper, SystemClock
from soak.rotation import rotations
from support.measure import ENVIRON, TESTS

HOUR, DAY = 3600.0, 86_400.0
MONTH_DAYS = 30.0
LENGTHS = (600.0, 900.0, 3600.0, 1800.0, 7200.0)  # seconds of a generation, of each day in turn
HISTORY = "3MB"  # a month takes four times as much
LIMIT = "1GB"  # the trainer takes a tenth
MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
FEW = 16  # descriptors: all of them are in use
STRANGER = 54_321  # a user who may not lead memwatch anywhere
RETRY_SECONDS = 9.0  # in which a history that could not be written is tried again
LOOP_SECONDS = 0.001  # that a turn of the loop takes at least
FIGURES = (
    *("days", "rss_mib", "anon_mib", "fds", "threads", "blocks"),
    *("lines_kb", "history_kb", "wal_kb"),
)
CONFIG = """
dry_run: true  # whoever else fills this machine ends no soak
target: {{pidfile: {folder}/pid}}
log: {{path: {folder}/train.log}}
memory: {{limit: {limit}, interval_seconds: {interval}}}
gpu: {{enabled: false}}
diagnosis: {{enabled: false}}
checkpoint: {{globs: ['{folder}/checkpoints/*.ckpt']}}
history: {folder}/history.db
history_size: {size}
listen: 127.0.0.1:0
policy: {{cooldown_seconds: {cooldown}}}
"""


class Hand(SystemClock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.t = super().now()

    def now(self) -> float:
        return self.t

    def advance_to(self, t: float) -> None:
        self.t = max(self.t, t)


class Trainer:
    """A trainer that waits for the moments it is told of."""

    def __init__(self, folder: Path, now: float, lengths: Sequence[float]) -> None:
        words = [sys.executable, str(TESTS / "programs" / "healthy.py")]
        command = [*words, str(folder / "train.log"), str(folder / "checkpoints"), "--led", *map(str, lengths)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        (folder / "pid").write_text(f"{self.process.pid}\n")
        self.due_t = now
        self.meet(now)

    def meet(self, now: float) -> None:
        """It does what is due, and says when it has more to do."""
        assert self.process.stdin is not None and self.process.stdout is not None
        while now >= self.due_t:
            print(now, file=self.process.stdin, flush=True)
            self.due_t = float(self.process.stdout.readline())

    def end(self, kill: bool = False) -> None:
        """It is done, or killed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class World:
    """What passes while memwatch sleeps."""

    def __init__(self, folder: Path, days: float, interval: float, lengths: Sequence[float]) -> None:
        self.folder, self.clock, self._interval = folder, Hand(), interval
        self.begun_t, self.end_t = self.clock.t, self.clock.t + days * DAY
        self.is_over = False
        self._readings = folder / "readings"  # a file: this very process is measured
        self._sized = [folder / name for name in ("lines", "history.db", "history.db-wal")]
        self._rollup = Path("/proc/self/smaps_rollup")
        self.types: list[Counter[str]] = []
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._rotations = rotations(folder / "train.log")
        self._begin = lambda: Trainer(folder, self.clock.t, lengths)
        self._trainer = self._begin()
        self._plan(days / MONTH_DAYS)

    # --- what comes when ---

    def _plan(self, pace: float) -> None:
        self._each(HOUR, self._rotate)
        self._each(2 * HOUR, partial(_if_it_can, self._measure))
        faults: dict[float, Callable[[], object]] = {
            1: self._count_types,
            5: self._lead_log_astray,
            9: self._lock_history,
            12: self._take_descriptors,
            15: partial(self._pass, 8 * HOUR),
            18: self._kill,
            21: self._configure,
            24: self._replace,
        }
        for day, what in faults.items():
            self._at(self.begun_t + pace * day * DAY + HOUR / 6, what)
        self._at(self.end_t - 60.0, self._count_types)  # after the last reading: to list all objects takes memory
        self._at(self.end_t, partial(setattr, self, "is_over", True))

    def _at(self, t: float, what: Callable[[], object]) -> None:
        heappush(self._agenda, (t, next(self._order), what))

    def _after(self, seconds: float, what: Callable[[], object]) -> None:
        self._at(self.clock.t + seconds, what)

    def _each(self, seconds: float, what: Callable[[], object]) -> None:
        what()
        self._after(seconds, partial(self._each, seconds, what))

    def sleep(self, sleep: Callable[[float], bool], seconds: float) -> bool:
        """As `sleep`, in no time: only what has happened by itself ends it early."""
        self._pass(max(seconds, LOOP_SECONDS))
        return sleep(0.0)

    def _pass(self, seconds: float) -> None:
        self.clock.t += seconds
        self._trainer.meet(self.clock.t)
        while self._agenda[0][0] <= self.clock.t:
            heappop(self._agenda)[2]()

    # --- the log ---

    def _rotate(self) -> None:
        try:
            next(self._rotations)
        except OSError:  # no descriptor is left: in an hour
            self._rotations = rotations(self.folder / "train.log")

    def _lead_log_astray(self) -> None:
        log = self.folder / "train.log"
        aside = log.rename(log.with_name("aside.log"))
        elsewhere = log.with_name("elsewhere")
        elsewhere.touch()
        log.symlink_to(elsewhere)
        if os.geteuid() == 0:
            os.lchown(log, STRANGER, STRANGER)
        self._after(HOUR / 2, partial(aside.replace, log))

    # --- the history, descriptors ---

    def _lock_history(self) -> None:
        other = sqlite3.connect(self.folder / "history.db", isolation_level=None, timeout=10)
        other.execute("BEGIN IMMEDIATE")
        self._after(HOUR, partial(_unlock, other))

    def _take_descriptors(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, before[1]))
        self._after(HOUR - 60, partial(resource.setrlimit, resource.RLIMIT_NOFILE, before))

    # --- the trainer, the configuration ---

    def _kill(self) -> None:
        self._trainer.end(kill=True)
        self._begin_again()

    def _replace(self) -> None:
        self._trainer.end()
        for path in (self.folder / "checkpoints").iterdir():
            path.unlink()
        self._begin_again()

    def _begin_again(self) -> None:
        self._trainer.due_t = math.inf
        self._after(HOUR / 6, lambda: setattr(self, "_trainer", self._begin()))

    def _configure(self) -> None:
        write_config(self.folder, self._interval, cooldown=300)

    # --- readings ---

    def _measure(self) -> None:
        rollup = dict(line.split()[:2] for line in self._rollup.read_text().splitlines()[1:])
        memory = [round(int(rollup[f"{name}:"]) / 1024, 3) for name in ("Rss", "Anonymous")]
        counts = [len(os.listdir("/proc/self/fd")) - 1, len(os.listdir("/proc/self/task")), sys.getallocatedblocks()]  # noqa: PTH208 - the one that lists it is among them
        days = (self.clock.t - self.begun_t) / DAY
        with self._readings.open("a") as file:
            print(json.dumps([round(days, 3), *memory, *counts, *map(_kb, self._sized)]), file=file)

    def readings(self) -> list[list[float]]:
        """All of them."""
        return [json.loads(line) for line in self._readings.read_text().splitlines()]

    def _count_types(self) -> None:
        gc.unfreeze()
        gc.collect()
        self.types.append(Counter(type(one).__name__ for one in gc.get_objects()))
        gc.freeze()


class SimulatedSleeper(Sleeper):
    """A sleep in that world."""

    def __init__(self, world: World, *how: Any) -> None:
        super().__init__(*how)
        self._world = world

    def sleep(self, seconds: float) -> bool:
        return self._world.sleep(super().sleep, seconds)


class Simulated(Service):
    """`memwatch serve` in that world."""

    def __init__(self, live: ReloadableConfig, world: World) -> None:
        super().__init__(live, SystemdNotifier({}), world.clock, partial(SimulatedSleeper, world))
        self._world = world

    def should_stop(self) -> bool:
        self._stopped = self._stopped or self._world.is_over
        return super().should_stop()


def write_config(folder: Path, interval: float, cooldown: int = 600) -> Path:
    """The configuration; its path."""
    path = folder / "memwatch.yaml"
    path.write_text(CONFIG.format(folder=folder, limit=LIMIT, interval=interval, size=HISTORY, cooldown=cooldown))
    return path


def live(folder: Path, days: float, interval: float, lengths: Sequence[float]) -> dict[str, Any]:
    """Serve for so many days; what was measured on the way."""
    path, begun = write_config(folder, interval), time.process_time()
    world = World(folder, days, interval, lengths)
    with closing(Simulated(ReloadableConfig(lambda: config_from_flags({"config": str(path)}), path), world)) as service:
        service.serve()
    first, last = world.types[0], world.types[-1]
    return {
        "cpu_seconds": round(time.process_time() - begun, 1),
        "more_objects": {name: number for name, number in (last - first).most_common(20) if number > 2},
        "objects": [first.total(), last.total()],
        "readings": world.readings(),
    }


def _unlock(connection: sqlite3.Connection) -> None:
    """And let it be noticed: the history is tried again by real time, of which hours would pass here meanwhile."""
    connection.close()
    time.sleep(RETRY_SECONDS)


def _kb(path: Path) -> float:
    return round(path.stat().st_size / 1e3, 1) if path.exists() else 0.0


def _if_it_can(what: Callable[[], object]) -> None:
    """Not while no descriptor is left."""
    with suppress(OSError):
        what()


# --- the process that measures ---------------------------------------------------------------------------------------


def measure(days: float, interval: float, lengths: Sequence[float] = LENGTHS) -> dict[str, Any]:
    """That, in a process of its own, which is scraped meanwhile."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines, told = folder / "lines", folder / "told.json"
        options = ["--days", str(days), "--interval", str(interval), "--generations", *map(str, lengths)]
        command = [sys.executable, __file__, "--live", place, *options]
        begun = time.monotonic()
        with lines.open("wb") as out:
            process = subprocess.Popen(
                [*without_levels(), *command], stdout=out, env=ENVIRON | {"XDG_STATE_HOME": place}
            )
        scrapes = sum(scraped(process, lines))
        if process.wait():
            raise SystemExit(f"memwatch ended with {process.returncode}; it had told\n{lines.read_text()}")
        found = json.loads(told.read_text())
        return {
            "days": days,
            "interval_seconds": interval,
            "wall_seconds": round(time.monotonic() - begun),
            "scrapes": scrapes,
            "figures": FIGURES,
            **found,
            "lines": lines.read_text().replace(f"{folder}/", "").replace(f"{TESTS}/", "tests/").splitlines(),
            "notices": notices(folder / "history.db"),
        }


def without_levels() -> list[str]:
    """Words that run a program where the cgroup cannot be written to, as in most containers; none without that right.

    The kernel takes milliseconds to arm a level of memory, and it could end no sleep that takes no time.
    """
    words = ["unshare", "--mount", "sh", "-c", f'mount -o remount,bind,ro {MEMORY_CGROUP} && exec "$@"', "sh"]
    is_allowed = MEMORY_CGROUP.exists() and subprocess.run([*words, "true"], check=False).returncode == 0
    return words if is_allowed else []


def scraped(process: subprocess.Popen[bytes], lines: Path) -> Iterator[bool]:
    """As Prometheus does, though more seldom: whether each was answered."""
    while process.poll() is None:
        time.sleep(0.5)
        told = [word for word in lines.read_text().split() if word.startswith("http://")]
        if told:
            with suppress(OSError), urllib.request.urlopen(f"{told[-1]}metrics", timeout=10) as answer:
                yield b"memwatch_target_up" in answer.read()


def notices(history: Path) -> dict[str, int]:
    """How many of each were kept."""
    with closing(sqlite3.connect(history)) as connection:
        return dict(connection.execute("SELECT event, count(*) FROM notices GROUP BY event ORDER BY event").fetchall())


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=MONTH_DAYS)
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between two looks")
    parser.add_argument("--generations", type=float, nargs="+", default=LENGTHS, help="their seconds, of each day")
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    how = given.days, given.interval, given.generations
    if given.live:
        (given.live / "told.json").write_text(json.dumps(live(given.live, *how)))
    else:
        print(json.dumps(measure(*how)))


if __name__ == "__main__":
    main()
