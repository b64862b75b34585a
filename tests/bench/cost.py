"""What watching costs, beside others: `PYTHONPATH=tests python tests/bench/cost.py`; --help has options.

A trainer alone and a tree of 17 forked processes are watched once a second, each by memwatch (history and metrics on,
no terminal), a naive psutil loop, psrecord, mprof and earlyoom, all at the same time; "absent" are those that are not
installed. Of each, in windows one after the other: CPU seconds, share of a core, RSS; soon after the start, when
memwatch takes many samples of pages, after a warm-up, and with 300 idle processes more, as a server has them. Prints
one JSON object with all windows and their medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from support.measure import cpu_seconds, median, rss_mib

TREES = {"1 process": 1, "17 processes": 17}
OTHERS = 300
COMMANDS = {"memwatch", "psutil loop", "psrecord", "mprof", "earlyoom"}
Who = tuple[str, str]  # tree, monitor
IDLE = "for i in $(seq $0); do sleep 100000 & done; echo ready; wait"
TRAINER = """
import os, sys, time
held = bytearray(64 << 20)
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        mine = bytearray(4 << 20)
        break
else:
    print("ready", flush=True)
time.sleep(100000)
"""
PSUTIL_LOOP = """
import psutil, sys, time
trainer = psutil.Process(int(sys.argv[1]))
while True:
    print(sum(one.memory_info().rss for one in [trainer, *trainer.children(recursive=True)]), flush=True)
    time.sleep(1)
"""


@contextmanager
def trainer(processes: int) -> Iterator[int]:
    """The PID of a tree of so many processes."""
    command = [sys.executable, "-S", "-c", TRAINER, str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.2)  # the last forks
            yield process.pid
        finally:
            os.killpg(process.pid, 9)


@contextmanager
def others(count: int) -> Iterator[None]:
    """So many processes that nobody watches."""
    command = ["sh", "-c", IDLE, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            shell.stdout.readline()
            yield
        finally:
            os.killpg(shell.pid, 9)


def monitors(pid: int, folder: Path) -> dict[str, list[str]]:
    """The commands of all, installed or not."""
    ours = [sys.executable, "-m", "memwatch"]
    found = {
        "memwatch": [*ours, "--pid", str(pid), "--listen", "127.0.0.1:0", "--history", str(folder / "history.db")],
        "psutil loop": [sys.executable, "-c", PSUTIL_LOOP, str(pid)],
        "earlyoom": ["earlyoom", "--dryrun", "-r", "0"],
    }
    beside, every = Path(sys.executable).parent, ["--include-children", "--interval", "1"]
    found["psrecord"] = [str(beside / "psrecord"), str(pid), *every, "--log", str(folder / "psrecord.log")]
    found["mprof"] = [str(beside / "mprof"), "attach", *every, "--output", str(folder / "mprof.dat"), str(pid)]
    return found


def side_by_side(start: float, warm: float, windows: int, seconds: float) -> dict[str, Any]:
    """All monitors at once, on both trees, by scene; `start` seconds are left out where something has begun."""
    with ExitStack() as stack:
        watched = {name: _watch(processes, stack) for name, processes in TREES.items()}
        time.sleep(start)
        first = _windows(watched, windows, seconds)
        time.sleep(warm)
        steady = _windows(watched, windows, seconds)
        stack.enter_context(others(OTHERS))
        time.sleep(start)
        crowded = _windows(watched, windows, seconds)
    absent = sorted(COMMANDS - watched["1 process"].keys())
    return {
        **steady,
        "17 beside 300": crowded["17 processes"],
        "17 at first": first["17 processes"],
        "absent": absent,
    }


def _watch(processes: int, stack: ExitStack) -> dict[str, int]:
    """The PIDs of all monitors of a new tree."""
    pid = stack.enter_context(trainer(processes))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    running = {}
    for name, command in monitors(pid, folder).items():
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if shutil.which(command[0]):
            process = stack.enter_context(subprocess.Popen(command, cwd=folder, **quiet))  # type: ignore[call-overload]
            stack.callback(process.kill)
            running[name] = process.pid
    return running


def _windows(watched: Mapping[str, Mapping[str, int]], count: int, seconds: float) -> dict[str, Any]:
    """By tree and monitor: each window, and all together."""
    seen = [
        _window({(tree, who): pid for tree, pids in watched.items() for who, pid in pids.items()}, seconds)
        for _ in range(count)
    ]
    return {
        tree: {
            "processes_on_machine": sum(1 for path in Path("/proc").iterdir() if path.name.isdigit()),
            "monitors": {who: _together([window[tree, who] for window in seen]) for who in pids},
        }
        for tree, pids in watched.items()
    }


def _window(pids: Mapping[Who, int], seconds: float) -> dict[Who, dict[str, float]]:
    """What each used in so many seconds."""
    before, begun = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begun
    spent = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    return {
        name: {
            "cpu_seconds": round(spent[name], 4),
            "core_percent": round(100 * spent[name] / passed, 4),
            "rss_mib": round(rss_mib(pid), 1),
        }
        for name, pid in pids.items()
    }


def _together(windows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    percent = median([window["core_percent"] for window in windows])
    return {
        "core_percent": percent,
        "cpu_seconds_an_hour": round(36 * percent, 2),
        "rss_mib": max(window["rss_mib"] for window in windows),
        "windows": windows,
    }


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=float, default=10.0, help="seconds that are left out after a start")
    parser.add_argument("--warm", type=float, default=600.0, help="seconds until samples of pages, and fits, are few")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="of a window")
    given = parser.parse_args()
    print(json.dumps(side_by_side(given.start, given.warm, given.windows, given.seconds)))


if __name__ == "__main__":
    main()
