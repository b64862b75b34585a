"""A trainer of the standard library alone that works and stays well: `healthy.py LOG CHECKPOINTS [--led] SECONDS...`.

In a generation memory is taken and given back, workers are forked and end, a replay buffer fills up to its bound; each
fifth saves a checkpoint, from which another process goes on. A generation takes SECONDS: of each day the next of them.
Its log is reopened when it was renamed, as long runs do. With `--led` no time passes by itself: each line of stdin is
a moment that has come, each of stdout the next that it waits for; at the end of stdin it is done.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TOTAL, STEPS, WORKERS, SAVED_EVERY, KEPT = 100_000, 8, 3, 5, 3
CAPACITY, BATCH, ITEM_BYTES, WORK_BYTES = 400, 40, 100_000, 4_000_000
DAY = 86_400
LED = "--led"
log_path, checkpoints = Path(sys.argv[1]), Path(sys.argv[2])
lengths = [float(word) for word in sys.argv[3:] if word != LED]
log = logging.getLogger("trainer")
dice = random.Random(1)
lifeline = os.pipe()


def begin_worker() -> int:
    """Its PID; it holds some memory until it is ended."""
    pid = os.fork()
    if pid == 0:
        mine = bytearray(b"w" * (WORK_BYTES // 2))
        os.close(lifeline[1])
        os.read(lifeline[0], 1)  # it ends with the trainer, too
        os._exit(len(mine) == 0)
    return pid


def end_worker(workers: deque[int]) -> None:
    """The oldest, if there is one."""
    if workers:
        pid = workers.popleft()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def save(number: int, buffer: deque[bytes]) -> None:
    """Whole, or not at all; the newest few are kept."""
    path = checkpoints / f"generation-{number:06}.ckpt"
    log.info("Saving checkpoint to %s", path)
    part = path.with_suffix(".part")
    part.write_bytes(b"".join(list(buffer)[:20]))
    part.replace(path)
    log.info("Checkpoint saved: %s", path)
    for old in saved()[:-KEPT]:
        old.unlink()


def saved() -> list[Path]:
    """Whole checkpoints, the latest last."""
    return sorted(checkpoints.glob("*.ckpt"))


def train() -> Iterator[float]:
    """Generation after generation; yields the seconds to its next step."""
    buffer: deque[bytes] = deque(maxlen=CAPACITY)
    workers: deque[int] = deque()
    first, passed = 1 + max((int(path.stem.split("-")[1]) for path in saved()), default=0), 0.0
    for number in range(first, TOTAL + 1):
        pause = lengths[int(passed / DAY) % len(lengths)] * dice.uniform(0.8, 1.2) / STEPS
        log.info("Generation %d / %d", number, TOTAL)
        for step in range(STEPS):
            if step == STEPS // 2:
                log.info("Evaluating Population")
                workers.extend(begin_worker() for _ in range(WORKERS))
            work = bytearray(b"s" * dice.randint(WORK_BYTES // 2, WORK_BYTES))
            buffer.extend(bytes([step]) * ITEM_BYTES for _ in range(BATCH // STEPS))
            log.info("step %d loss %.4f of %d", step, dice.random(), len(work))
            passed += pause
            yield pause
            end_worker(workers)
        log.info("Replay Buffer: %d / %d", len(buffer), CAPACITY)
        if number % SAVED_EVERY == 0:
            save(number, buffer)


def led() -> None:
    """By the time that stdin tells."""
    now = sys.stdin.readline()
    for pause in train():
        print(float(now) + pause, flush=True)
        now = sys.stdin.readline()
        if not now:
            break


checkpoints.mkdir(parents=True, exist_ok=True)
log.addHandler(logging.handlers.WatchedFileHandler(log_path))
log.setLevel(logging.INFO)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background of a script does not have
with suppress(KeyboardInterrupt):
    if LED in sys.argv:
        led()
    else:
        for seconds in train():
            time.sleep(seconds)
