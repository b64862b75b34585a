"""A trainer of the standard library alone that leaks, generation by generation; what SIGINT does to it is chosen.

saves: writes a checkpoint, says so, exits with 130. leaves: exits with 0 and saves nothing, as many trainers do.
shrugs: goes on. stubborn: goes on, on SIGTERM as well.
Arguments: what SIGINT does, generations, MB and seconds for each, and MB to begin with.
"""

from __future__ import annotations

import signal
import sys
import time

on_signal, generations, megabytes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])


def handle(number: int, _frame: object) -> None:
    if on_signal == "saves":
        with open("state.ckpt", "wb") as file:
            file.write(b"x" * 1_000_000)
        print("Checkpoint saved: state.ckpt", flush=True)
        sys.exit(130)
    if on_signal == "leaves":
        sys.exit(0)
    print(f"signal {number} has no effect", flush=True)


signal.signal(signal.SIGINT, handle)
if on_signal == "stubborn":
    signal.signal(signal.SIGTERM, handle)
kept = [bytearray(b"x" * int(float(size) * 1_000_000)) for size in sys.argv[5:]]
for generation in range(1, generations + 1):
    print(f"Generation {generation} / {generations}", flush=True)
    until = time.monotonic() + seconds
    for _ in range(4):
        kept.append(bytearray(b"x" * int(megabytes * 250_000)))
        time.sleep(seconds / 4)
    time.sleep(max(0.0, until - time.monotonic()))
