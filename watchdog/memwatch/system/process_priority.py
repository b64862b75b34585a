"""The standing of memwatch's processes with the kernel: their memory, and their turn on a core."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

NICEST = 19  # it lets everybody else go first
_FIRST_TO_BE_KILLED = "1000"
_CAP_IPC_LOCK = 14  # <linux/capability.h>
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4  # <sys/mman.h>; with the last only what is in use is locked


def lock_memory() -> str | None:
    """Keep what this process uses in memory, now and later; why not, None when it does.

    Under memory pressure the kernel drops the pages of programs as well, and a look would wait for a disk. It makes the
    process no larger. Not within a limit: all that is mapped counts against it, and the next thread would not start.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and not _has_capability(_CAP_IPC_LOCK):
        return "its memory is not locked: grant CAP_IPC_LOCK, or LimitMEMLOCK=infinity"
    import ctypes

    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
        return None
    return f"its memory is not locked: {os.strerror(ctypes.get_errno())}"


def raise_priority() -> str | None:
    """Run this thread, not those it starts, before all ordinary ones (SCHED_FIFO); why not, None when it does."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        return f"its priority is not raised ({error.strerror}): grant CAP_SYS_NICE, or LimitRTPRIO=1"
    return None


def lower_priority() -> None:
    """From now on this process has the lowest priority and is the first that the kernel kills for memory."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    prefer_oom_kill(os.getpid())


def prefer_oom_kill(pid: int) -> None:
    """From now on this process of ours is the first that the kernel kills for memory."""
    with suppress(OSError):  # a /proc that is read-only; or it has ended
        Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_BE_KILLED)


# CapEff:	00000000a80425fb
def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    found = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(found.split()[1], 16) >> number & 1)
