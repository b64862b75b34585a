"""memwatch's own standing with the kernel, as the kernel tells it of a process that took it."""

from __future__ import annotations

import os
import subprocess

import pytest

from support.processes import python

TRY = """
import ctypes, os, resource, sys, threading
from memwatch.system import process_priority as standing
if sys.argv[1] == "denied":
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    os.setuid(65534)
def status(key): return next(line.split()[1] for line in open("/proc/self/status") if line.startswith(key))
before = int(status("VmRSS"))
print(standing.lock_memory())
print(int(status("VmLck")) > 0, int(status("VmRSS")) < before + 1024)
print(standing.raise_priority())
policies = [os.sched_getscheduler(0)]
thread = threading.Thread(target=lambda: policies.append(os.sched_getscheduler(0)))
thread.start(); thread.join()
print([policy & 0xff for policy in policies])
"""


def told(how: str) -> list[str]:
    environ = {**os.environ, "PYTHONPATH": "watchdog"}
    return subprocess.run(python(TRY, how), env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_memory_is_locked_without_growing_and_only_the_loop_runs_first():
    assert told("permitted") == ["None", "True True", "None", f"[{os.SCHED_FIFO}, {os.SCHED_OTHER}]"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
def test_what_is_not_permitted_is_told_with_what_to_do():
    locked, _, raised, policies = told("denied")
    assert "CAP_IPC_LOCK" in locked and "CAP_SYS_NICE" in raised
    assert policies == f"[{os.SCHED_OTHER}, {os.SCHED_OTHER}]"
