"""PIDs that are given to others at once, in a PID namespace of its own (root): is a stranger taken for the trainer?

Arguments: how many PIDs are recycled, for how many seconds one changes hands while it is looked for, a folder.
Prints how many were, how often each check met a stranger, and fails at the first that was taken for the trainer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from memwatch.actions.signal_sender import PidfdSignaller
from memwatch.app.composition import find_target
from memwatch.config.settings import Config, TargetConfig
from memwatch.errors import AttachError, SourceError, TargetGoneError
from memwatch.sources.target.find_process import find_trainer_pid
from memwatch.sources.target.target_facts import identify, is_same_process

BATCH = 100
A_TICK = 0.011  # seconds: what begins within one tick of the kernel's clock has the same start time
LONG_AGO = 60.0
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
met: Counter[str] = Counter()


def process() -> int:
    """One that dies of any signal."""
    return os.posix_spawn("/bin/sleep", ["sleep", "600"], {})


def stranger(pid: int) -> None:
    """Another process of this PID."""
    give_next(pid)
    assert process() == pid


def give_next(pid: int) -> None:
    LAST_PID.write_text(str(pid - 1))


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL, "a stranger got a signal of ours"


def refused(way: str, deed: Callable[[], object]) -> None:
    try:
        deed()
    except (AttachError, TargetGoneError):
        met[way] += 1
    else:
        raise AssertionError(f"{way}: a stranger was taken for the trainer")


def batch(pidfile: Path) -> None:
    pids = [process() for _ in range(BATCH)]
    targets = [identify(pid) for pid in pids]
    held = [PidfdSignaller(target, is_same_process) for target in targets]
    time.sleep(A_TICK)
    end(pids)
    for pid in pids:
        stranger(pid)
    for target, signaller in zip(targets, held, strict=True):
        refused("signal", lambda signaller=signaller: signaller.send_signal("SIGINT"))
        refused("attach", lambda target=target: PidfdSignaller(target, is_same_process))
        pidfile.write_text(str(target.pid))
        os.utime(pidfile, (time.time() - LONG_AGO,) * 2)
        refused("pidfile", lambda: find_trainer_pid(pidfile=str(pidfile)))
        signaller.close()
    end(pids)


def changing_hands() -> None:
    """One PID that is a trainer's and a stranger's by turns, for ever."""
    pid = 0
    while True:
        for name in ("trainer-of-ours", "somebody-else"):
            if pid:
                give_next(pid)
            pid = os.posix_spawn("/bin/sleep", [name, "60"], os.environ)
            time.sleep(A_TICK)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def look_for(seconds: float) -> None:
    churn = os.fork()
    if not churn:
        changing_hands()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(AttachError, SourceError):
            facts = find_target(Config(target=TargetConfig(match="^trainer-of-ours")))
            assert facts.argv[:1] == ("trainer-of-ours",), f"{facts.command} was taken for the trainer"
            met["match"] += 1
    os.kill(churn, signal.SIGKILL)
    os.waitpid(churn, 0)


signal.signal(signal.SIGINT, signal.SIG_DFL)
folder = Path(sys.argv[3])
for _ in range(int(sys.argv[1]) // BATCH):
    batch(folder / "trainer.pid")
look_for(float(sys.argv[2]))
print(json.dumps(met))
