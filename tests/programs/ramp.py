"""Holds memory, then grows at a steady rate until it is full, and tells when it heard which signal.

`ramp.py HELD_MIB FULL_MIB GIB_PER_SECOND` prints "ready" and waits for a line: how many seconds to stay when full; one
that does not grow leaves at the first signal. At the end it prints one JSON object: when each step was written
and when each signal came, on the monotonic clock. A step is 64 KiB.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
import time
from array import array

STEP_BYTES = 1 << 16
AHEAD_SECONDS = 0.0005  # no shorter a sleep is worth its wake-up


def main() -> None:
    """Hold, wait, grow, tell."""
    held, full = (int(word) << 20 for word in sys.argv[1:3])
    rate = float(sys.argv[3]) * 2**30
    heard: list[tuple[str, float]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: heard.append((signal.Signals(n).name, time.monotonic())))
    area = mmap.mmap(-1, max(full, STEP_BYTES), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    step = bytes(STEP_BYTES)
    written = array("d", bytes(8 * ((full - held) // STEP_BYTES)))
    for at in range(0, held, STEP_BYTES):
        area[at : at + STEP_BYTES] = step
    print("ready", flush=True)
    dwell = float(sys.stdin.readline())
    begun = time.monotonic()
    for count, at in enumerate(range(held, full, STEP_BYTES)):
        area[at : at + STEP_BYTES] = step
        now = time.monotonic()
        written[count] = now
        ahead = (at + STEP_BYTES - held) / rate - (now - begun)
        if ahead > AHEAD_SECONDS:
            time.sleep(ahead)
    until = time.monotonic() + dwell
    while (left := until - time.monotonic()) > 0 and not (heard and full == held):
        time.sleep(min(left, 0.005))  # a sleep goes on after a signal
    print(json.dumps({"written": list(written), "heard": heard}), flush=True)


if __name__ == "__main__":
    main()
