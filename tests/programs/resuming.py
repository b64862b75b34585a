"""A trainer of the standard library alone that leaks, saves on SIGINT at its next step, and can go on from there.

Each generation that is complete is a line of the file `done`; each signal that it hears one of `heard`.
Arguments: generations, MB and seconds for each, MB to begin with, and `--resume`. `--levels FILE`: it holds so many MB
in each step, a line each, instead. `--save-seconds S`: that a checkpoint takes.
"""

from __future__ import annotations

import argparse
import mmap
import signal
import sys
import time
from pathlib import Path

CHECKPOINT, STEPS, MB = Path("state.ckpt"), 4, 1_000_000
WHOLE, PARTS = "whole\n", 10  # the end of a checkpoint, and the pieces that it is written in
PAGE = b"x" * mmap.PAGESIZE

parser = argparse.ArgumentParser()
parser.add_argument("generations", type=int)
parser.add_argument("megabytes", type=float)
parser.add_argument("seconds", type=float)
parser.add_argument("baseline")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--levels", type=Path)
parser.add_argument("--save-seconds", type=float, default=0.0)
chosen = parser.parse_args()
baseline = float(chosen.baseline)  # a word that is no number ends it as an exception does
interrupted = False


class Memory:
    """Exactly so many bytes: what is given up goes back to the kernel at once."""

    def __init__(self, most: float) -> None:
        self._area = mmap.mmap(-1, int(most * MB) + mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._held = 0

    def hold(self, megabytes: float) -> None:
        """So many from here on."""
        wanted = int(megabytes * MB) // mmap.PAGESIZE * mmap.PAGESIZE
        for at in range(self._held, wanted, mmap.PAGESIZE):
            self._area[at : at + mmap.PAGESIZE] = PAGE
        if wanted < self._held:
            self._area.madvise(mmap.MADV_DONTNEED, wanted, self._held - wanted)
        self._held = wanted


def interrupt(number: int, _frame: object) -> None:
    global interrupted  # noqa: PLW0603 - a handler has no other place
    interrupted = True
    with open("heard", "a") as file:
        print(signal.Signals(number).name, file=file)


def save(complete: int) -> None:
    part = CHECKPOINT.with_suffix(".part")
    with part.open("w") as file:
        print(complete, file=file)
        for _ in range(PARTS):
            file.write("." * 100_000 + "\n")
            file.flush()
            time.sleep(chosen.save_seconds / PARTS)
        file.write(WHOLE)
    part.replace(CHECKPOINT)
    print(f"Checkpoint saved: {CHECKPOINT}", flush=True)


signal.signal(signal.SIGINT, interrupt)
complete = begun = int(CHECKPOINT.read_text().split()[0]) if chosen.resume else 0
leaks = [baseline + chosen.megabytes * step / STEPS for step in range(1, chosen.generations * STEPS + 1)]
levels = [float(line) for line in chosen.levels.read_text().split()] if chosen.levels else leaks
memory = Memory(max(levels))
memory.hold(baseline)
while complete < chosen.generations:
    print(f"Generation {complete + 1} / {chosen.generations}", flush=True)
    for step in range(STEPS):
        memory.hold(levels[(complete - begun) * STEPS + step])
        time.sleep(chosen.seconds / STEPS)
        if interrupted:
            save(complete)
            sys.exit(130)
    complete += 1
    with open("done", "a") as file:
        print(complete, file=file)
