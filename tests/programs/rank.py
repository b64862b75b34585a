"""One rank: prints generations, may grow, and leaves a checkpoint when it is told to stop.

rank.py FOLDER GENERATIONS SECONDS GROWER GROWTH: the rank GROWER (or all) grows by GROWTH MB a generation.
"""

import os
import signal
import sys
import time
from pathlib import Path

folder, generations, seconds, grower, growth = sys.argv[1], *sys.argv[2:]
rank, kept = int(os.environ["RANK"]), [bytearray(b"x" * 4_000_000)]


def stop(number, frame):
    signal.signal(number, signal.SIG_IGN)
    with open(f"{folder}/rank-{rank}.tmp", "w") as file:
        file.write("weights " * 1000)
        time.sleep(0.2)
    Path(file.name).rename(f"{folder}/rank-{rank}.ckpt")
    sys.exit(0)


signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
for generation in range(1, int(generations) + 1):
    if os.environ["LOCAL_RANK"] == "0":
        print(f"Generation {generation} / {generations}", flush=True)
    for _ in range(10):
        if grower in ("all", str(rank)):
            kept.append(bytearray(b"x" * int(float(growth) * 100_000)))
        time.sleep(float(seconds) / 10)
