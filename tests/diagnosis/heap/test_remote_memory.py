"""Two ways to the memory of another process: the same bytes, the same end, and who is permitted which."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memwatch.diagnosis.heap.remote_memory import MemoryAccess, MemoryFile, ProcessVmReader, RemoteMemory
from memwatch.errors import TargetGoneError
from support.processes import WAIT, python, running

EXECUTES = "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execv(sys.executable, sys.argv)"
PYTHON = "/usr/bin/python3"  # of the system: nobody may not look into a virtual environment in root's home
NOBODY = 65534
TRACES = ("setpriv", "--inh-caps=-all,+sys_ptrace", "--bounding-set=-all,+sys_ptrace")
WAYS: list[Callable[[int], MemoryAccess]] = [
    lambda pid: MemoryFile(f"/proc/{pid}/mem"),
    lambda pid: ProcessVmReader(pid, f"/proc/{pid}"),
]


def test_both_read_the_same() -> None:
    with running(python(WAIT)) as process, closing(RemoteMemory(process.pid)) as memory:
        one, other = (way(process.pid) for way in WAYS)
        start, end = memory.anonymous.within(0, memory.anonymous.end)[0]
        for at, size in ((start, 1), (start + 5, 64), (start, min(end - start, 1 << 16)), (start, 0)):
            assert one.read(at, size) == other.read(at, size) and len(other.read(at, size)) == size
        for way in (one, other):
            with pytest.raises(OSError):
                way.read(8, 8)
            assert way.is_there()
            way.close()


@pytest.mark.parametrize("way", WAYS, ids=["file", "call"])
def test_the_end_of_a_process_is_seen(way: Callable[[int], MemoryAccess]) -> None:
    with running(python(WAIT)) as process, closing(RemoteMemory(process.pid)) as memory:
        start, _ = memory.anonymous.within(0, memory.anonymous.end)[0]
        access = way(process.pid)
        process.kill()
        process.wait()
        assert access.read(start, 8) == b""


def test_another_program_in_the_same_process_is_not_taken_for_it() -> None:
    again = [sys.executable, "-S", "-c", WAIT]
    with running([sys.executable, "-S", "-c", EXECUTES, *again[1:]]) as process:
        access = ProcessVmReader(process.pid, f"/proc/{process.pid}")
        assert access.is_there()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline()
        assert not access.is_there()


def test_another_users_memory_is_read_with_the_right_to_trace_and_no_other() -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(PYTHON).exists():
        pytest.skip("needs root to have two users, setpriv, and a Python of the system")
    sources = Path(__file__).parents[3] / "watchdog"
    code = f"""
import sys; sys.path.insert(0, {str(sources)!r})
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
memory = RemoteMemory(int(sys.argv[1]))
print(memory.read(memory.maps[0].start, 4), memory.is_there())
"""

    def read(*prefix: str) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-c", code, str(process.pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with running([PYTHON, "-S", "-c", WAIT], user=NOBODY, cwd="/") as process:
        done = read(*TRACES)
        assert done.stdout == "b'\\x7fELF' True\n", done.stderr
        denied = read("setpriv", "--inh-caps=-all", "--bounding-set=-all")
        assert "may not be read" in denied.stderr and "SourceError" in denied.stderr


def test_a_process_that_is_not_there_is_gone() -> None:
    with running(python(WAIT)) as process:
        pid = process.pid
    with pytest.raises(TargetGoneError):
        RemoteMemory(pid)
