"""What a census costs, and what it does to the trainer: `PYTHONPATH=tests python tests/bench/census.py`; --help.

A Python that holds a million tracked objects is counted by `memwatch census`, and counted with sizes: CPU that the
census tells, that of its whole process, and its largest RSS. Then that Python makes and drops small objects without a
pause, in blocks of some seconds: while nobody looks, while another Python that holds as much is counted again and
again, while it is counted itself, the same with sizes, and while a profile follows its memory. Each round has a block
of each, in an order drawn anew; a block's figure is the longest time between two turns of the loop. Prints one JSON
object with all runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from support.measure import ENVIRON
from support.processes import running

NOBODY, OTHER, COUNTED, SIZED = "left alone", "beside one that is counted", "counted", "counted with sizes"
FOLLOWED = "followed by a profile"
COMMANDS: dict[str, Sequence[str]] = {
    OTHER: ("census",),
    COUNTED: ("census",),
    SIZED: ("census", "--bytes"),
    FOLLOWED: ("profile", "--seconds", "3600"),
}
WAYS = (NOBODY, *COMMANDS)

# answers each number of seconds with the longest time between two turns, in ms
TARGET = """
import sys, time

class Agent:
    def __init__(self, number):
        self.number, self.memory = number, [number]

kept = [Agent(number) for number in range(int(sys.argv[1]) // 2)]
print("ready", flush=True)
for line in sys.stdin:
    longest, before = 0.0, time.perf_counter()
    until = before + float(line)
    while before < until:
        for number in range(100):
            kept[number] = Agent(number)
        block = bytearray(1 << 18)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    print(1000 * longest, flush=True)
"""


def words(pid: int, way: str) -> list[str]:
    """The command that looks at a process in this way."""
    return [sys.executable, "-m", "memwatch", *COMMANDS[way], "--pid", str(pid), "--json"]


def cost(command: Sequence[str]) -> dict[str, float]:
    """One census."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRON) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "objects": sum(one["count"] for one in told["types"]),
        "cpu_seconds": told["seconds"],
        "process_cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
        "peak_rss_mib": round(used.ru_maxrss / 1024, 1),
        "seconds": round(time.monotonic() - began, 3),
    }


@contextmanager
def taken(command: Sequence[str]) -> Iterator[None]:
    """Again and again, by a process of its own."""
    again = "import subprocess, sys\nwhile True: subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)"
    with subprocess.Popen([sys.executable, "-c", again, *command], env=ENVIRON, start_new_session=True) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, 9)


def measure(objects: int, runs: int, rounds: int, seconds: float) -> dict[str, Any]:
    """All of it."""
    chance = random.Random(1)
    command = [sys.executable, "-c", TARGET, str(objects)]
    with running(command) as target, running(command) as other:
        costs = {way: [cost(words(target.pid, way)) for _ in range(runs)] for way in (COUNTED, SIZED)}
        longest: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in chance.sample(WAYS, len(WAYS)):
                looking: AbstractContextManager[None] = nullcontext()
                if way != NOBODY:
                    looking = taken(words(other.pid if way == OTHER else target.pid, way))
                with looking:
                    target.stdin.write(f"{seconds}\n")
                    target.stdin.flush()
                    longest[way].append(round(float(target.stdout.readline()), 3))
    means = {way: round(sum(found) / len(found), 3) for way, found in longest.items()}
    ratios = {way: round(means[way] / means[OTHER], 3) for way in WAYS}
    return {"cost": costs, "longest_ms": longest, "mean_ms": means, "ratio": ratios}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5, help="of each census")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a block")
    given = parser.parse_args()
    print(json.dumps(measure(given.objects, given.runs, given.rounds, given.seconds)))


if __name__ == "__main__":
    main()
