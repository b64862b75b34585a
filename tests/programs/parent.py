"""The parent of a trainer, of a kind: `parent.py KIND COMMAND ...`; the trainer's wait status is told in `status`.

reaps: at once, and ends. never: runs on and leaves a zombie, until it is killed. leaves: the trainer is an orphan from
the start. elastic: as torchrun's agent, it passes SIGINT and SIGTERM on, waits, and ends with an error if it did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def reaps(command: list[str]) -> int:
    child = subprocess.Popen(command)
    _, status = os.waitpid(child.pid, 0)
    Path("status").write_text(str(status))
    return 0


def never(command: list[str]) -> int:
    subprocess.Popen(command)
    while True:
        time.sleep(60)


def leaves(command: list[str]) -> int:
    if not os.fork():
        os.setsid()
        os.execvp(command[0], command)
    return 0


def elastic(command: list[str]) -> int:
    rank = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: rank.send_signal(n))
    Path("pid").write_text(str(os.getpid()))
    status = rank.wait()
    if status:
        print(f"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nexitcode: {status}", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    kinds = {kind.__name__: kind for kind in (reaps, never, leaves, elastic)}
    sys.exit(kinds[sys.argv[1]](sys.argv[2:]))
