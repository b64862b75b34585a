"""How the kernel treats memwatch's processes: locked memory, CPU priority, the order of OOM kills."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

# An eighth of a busy core: a second of CPU takes 7 s there, and a minute with nice 19 (measured).
LOW_NICE = 8
_HIGHEST_OOM_SCORE_ADJ = "1000"
_CAP_IPC_LOCK = 14  # <linux/capability.h>
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4  # <sys/mman.h>; the last one locks only pages in use


def lock_memory() -> str | None:
    """Keep the pages that this process uses in memory, now and later; return the reason when that fails.

    Under memory pressure the kernel also drops pages of programs, and a sample would wait for a disk. Locking does not
    enlarge the process. With a limit on locked memory nothing is locked: all mappings count against the limit, and the
    next thread could not start.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and not _has_capability(_CAP_IPC_LOCK):
        return "its memory is not locked: grant CAP_IPC_LOCK, or LimitMEMLOCK=infinity"
    import ctypes

    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
        return None
    return f"its memory is not locked: {os.strerror(ctypes.get_errno())}"


def raise_priority() -> str | None:
    """Run this thread, not those it starts, before all ordinary ones (SCHED_FIFO); return why that fails."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as error:
        return f"its priority is not raised ({error.strerror}): grant CAP_SYS_NICE, or LimitRTPRIO=1"
    return None


def lower_priority() -> None:
    """Give this process a low CPU priority, and let the kernel kill it first when memory runs out."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # It interrupts nobody when it wakes.
    os.setpriority(os.PRIO_PROCESS, 0, LOW_NICE)
    prefer_oom_kill(os.getpid())


def prefer_oom_kill(pid: int) -> None:
    """Let the kernel kill this child process first when memory runs out."""
    with suppress(OSError):  # /proc is read-only, or the process has ended
        Path(f"/proc/{pid}/oom_score_adj").write_text(_HIGHEST_OOM_SCORE_ADJ)


# CapEff:	00000000a80425fb
def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    found = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(found.split()[1], 16) >> number & 1)
