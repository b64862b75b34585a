"""A trainer that leaks, saves at the end of each generation, and does nothing on SIGINT.

Arguments: generations, MB and seconds for each.
"""

import signal
import sys
import time

generations, megabytes, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may have been started with SIGINT ignored
kept = []
for generation in range(1, generations + 1):
    print(f"Generation {generation} / {generations}", flush=True)
    for _ in range(10):
        kept.append(bytearray(b"x" * int(megabytes * 100_000)))
        time.sleep(seconds / 10)
    with open("state.ckpt", "wb") as file:
        file.write(b"x" * 1_000_000)
    print(f"Checkpoint saved: state.ckpt of generation {generation}", flush=True)
