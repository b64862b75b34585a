"""A trainer of the standard library alone that leaks, generation by generation; what SIGINT does to it is chosen.

saves: writes a checkpoint, says so, exits with 130. leaves: exits with 0 and saves nothing, as many trainers do.
shrugs: goes on. stubborn: goes on, on SIGTERM as well. late: saves on SIGTERM only.
slowly: takes two seconds to save, to a file that it renames, and says nothing. at_length: six.
dies_saving, dies_unnamed: as it writes the checkpoint, under its own name or another, it takes all memory that there
is. dies_saved: after it was written.
fails: runs out of memory as it saves, in Python.
Arguments: what SIGINT does, generations, MB and seconds for each, and MB to begin with; --wait as the last one: until
the file `go` is there.
Each signal that it hears is a line of the file `heard`; `saving` is there from when it begins to save.
"""

from __future__ import annotations

import os
import signal
import sys
import time

WHOLE_BYTES = 1_000_000
on_signal, generations, megabytes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])


def handle(number: int, _frame: object) -> None:
    with open("heard", "a") as file:
        print(signal.Signals(number).name, file=file)
    if on_signal == "saves" or (on_signal == "late" and number == signal.SIGTERM):
        write("state.ckpt", WHOLE_BYTES)
        print("Checkpoint saved: state.ckpt", flush=True)
        sys.exit(130)
    if on_signal == "leaves":
        sys.exit(0)
    if on_signal in WAYS_TO_SAVE:
        open("saving", "w").close()
        WAYS_TO_SAVE[on_signal]()
        sys.exit(130)
    print(f"signal {number} has no effect", flush=True)


def write(name: str, size: int) -> None:
    with open(name, "wb") as file:
        file.write(b"x" * size)


def save_slowly(seconds: float = 2.0) -> None:
    with open("state.ckpt.tmp", "wb") as file:
        for _ in range(10):
            file.write(b"x" * (WHOLE_BYTES // 10))
            file.flush()
            time.sleep(seconds / 10)
    os.rename("state.ckpt.tmp", "state.ckpt")  # noqa: PTH104 - pathlib takes 10 ms to import


def take_all() -> None:
    while True:
        kept.append(bytearray(b"x" * 4_000_000))


def die_saving(name: str) -> None:
    with open(name, "wb") as file:
        file.write(b"x" * (WHOLE_BYTES // 3))
        file.flush()
        take_all()


def die_saved() -> None:
    save_slowly()
    take_all()


def fail() -> None:
    raise MemoryError("Unable to allocate 1.2 GiB for the checkpoint")


WAYS_TO_SAVE = {
    "slowly": save_slowly,
    "at_length": lambda: save_slowly(6.0),
    "dies_saving": lambda: die_saving("state.ckpt"),
    "dies_unnamed": lambda: die_saving("state.ckpt.tmp"),
    "dies_saved": die_saved,
    "fails": fail,
}

signal.signal(signal.SIGINT, handle)
if on_signal in ("stubborn", "late"):
    signal.signal(signal.SIGTERM, handle)
if sys.argv[-1] == "--wait":
    del sys.argv[-1]
    while not os.path.exists("go"):  # noqa: PTH110 - pathlib takes 10 ms to import
        time.sleep(0.02)
kept = [bytearray(b"x" * int(float(size) * 1_000_000)) for size in sys.argv[5:]]
for generation in range(1, generations + 1):
    print(f"Generation {generation} / {generations}", flush=True)
    until = time.monotonic() + seconds
    for _ in range(4):
        kept.append(bytearray(b"x" * int(megabytes * 250_000)))
        time.sleep(seconds / 4)
    time.sleep(max(0.0, until - time.monotonic()))
