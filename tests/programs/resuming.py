"""A trainer of the standard library alone that leaks, saves on SIGINT at its next step, and can go on from there.

Each generation that is complete is a line of the file `done`. Arguments: generations, MB and seconds for each, MB to
begin with, and `--resume`.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

CHECKPOINT, STEPS = Path("state.ckpt"), 4
generations, megabytes, seconds, baseline = int(sys.argv[1]), *map(float, sys.argv[2:5])
interrupted = False


def interrupt(_number: int, _frame: object) -> None:
    global interrupted  # noqa: PLW0603 - a handler has no other place
    interrupted = True


def save(complete: int) -> None:
    part = CHECKPOINT.with_suffix(".part")
    part.write_text(str(complete))
    part.replace(CHECKPOINT)
    print(f"Checkpoint saved: {CHECKPOINT}", flush=True)


signal.signal(signal.SIGINT, interrupt)
complete = int(CHECKPOINT.read_text()) if "--resume" in sys.argv else 0
kept = [bytearray(b"x" * int(baseline * 1_000_000))]
while complete < generations:
    print(f"Generation {complete + 1} / {generations}", flush=True)
    for _ in range(STEPS):
        kept.append(bytearray(b"x" * int(megabytes * 1_000_000 / STEPS)))
        time.sleep(seconds / STEPS)
        if interrupted:
            save(complete)
            sys.exit(130)
    complete += 1
    with open("done", "a") as file:
        print(complete, file=file)
