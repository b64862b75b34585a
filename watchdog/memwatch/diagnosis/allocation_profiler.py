"""Follows the memory of a running CPython closely, and sees which code runs as it rises."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from memwatch.core.examination import AllocationProfile, StackGrowth
from memwatch.core.leaks.allocation_profile import LifoAttribution, merge_stacks
from memwatch.diagnosis.heap.cpython_runtime import find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.stack_frames import Frames, RawStack, ThreadState, id_in_own_namespace
from memwatch.errors import SourceError, TargetGoneError

DEFAULT_RECORD_SECONDS = 30.0
PAUSE_SECONDS = 2e-4  # between two looks while memory stays as it is; each takes 3 us
RESTLESS_SECONDS = 3e-4  # after a change, without a pause
PROMPT_POLL_SECONDS = 1e-3  # a rise since a look that was earlier may be of code that has ended ...
MIN_PROMPT_SHARE = 0.1  # ... and is left out, where so much of all growth was seen more closely
THREADS_SECONDS = 1.0  # after which threads are listed anew
_TIMERSLACK = "/proc/self/timerslack_ns"  # by how much later than asked for the kernel may wake this process
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TASKS_MOST = 128  # threads of a process that are told apart
_STAT_BYTES = 512  # of /proc/PID/task/TID/stat
_GIVEN = 7  # its field behind the name with the minor faults: pages that the thread was given so far


def record_profile(
    pid: int, seconds: float = DEFAULT_RECORD_SECONDS, cpu_seconds: float | None = None, root: str = "/proc"
) -> AllocationProfile:
    """Growth of a process's resident memory, by stack, in so many seconds; fewer when it ends or CPU time is used up.

    SourceError, with a hint, when its stacks cannot be read.
    """
    with suppress(OSError):  # 50 us are usual
        Path(_TIMERSLACK).write_text("1")
    with ExitStack() as held:
        memory = held.enter_context(closing(RemoteMemory(pid, root)))
        frames = Frames(memory, find_interpreter(memory))
        recording = _Recording(frames, _Tasks(memory, frames, held), memory, held)
        return recording.go(seconds, seconds if cpu_seconds is None else cpu_seconds)


class _Recording:
    """One recording."""

    def __init__(self, frames: Frames, tasks: _Tasks, memory: RemoteMemory, held: ExitStack) -> None:
        self._frames, self._tasks = frames, tasks
        self._levels: LifoAttribution[tuple[RawStack, bool]] = (
            LifoAttribution()
        )  # what ran, and whether the look before was close
        self._statm = _held(f"{memory.folder}/statm", held)

    def go(self, seconds: float, cpu_seconds: float) -> AllocationProfile:
        began, cpu_began = time.perf_counter(), time.process_time()
        looked = calm_since = began
        used = self._resident()
        with suppress(SourceError, KeyboardInterrupt):  # what was seen is told
            while looked - began < seconds and time.process_time() - cpu_began < cpu_seconds:
                now, before = time.perf_counter(), used
                used = self._resident()
                if used != before:
                    self._levels.add_change(used - before, (self._seen(), now - looked < PROMPT_POLL_SECONDS))
                    calm_since = now
                looked = now
                if now - calm_since > RESTLESS_SECONDS:
                    time.sleep(PAUSE_SECONDS)
        spent = time.process_time() - cpu_began
        found = merge_stacks(self._credits())
        return AllocationProfile(round(looked - began, 3), round(spent, 3), sum(one.bytes for one in found), found)

    def _credits(self) -> Iterator[StackGrowth]:
        """What was seen closely; where no core was idle for that, all that was seen."""
        sizes = self._levels.bytes_by_source()
        closely = sum(size for (stack, is_close), size in sizes.items() if stack and is_close)
        suffices = closely >= MIN_PROMPT_SHARE * sum(sizes.values())
        for (stack, is_close), size in sizes.items():
            yield StackGrowth(self._frames.resolve_stack(stack) if is_close or not suffices else (), size)

    def _resident(self) -> int:
        with suppress(OSError, IndexError):
            pages = int(os.pread(self._statm, 64, 0).split(None, 2)[1])
            if pages:  # a zombie has none
                return pages * _PAGE_BYTES
        raise TargetGoneError("the process has ended")

    def _seen(self) -> RawStack:
        """What runs now. Its lines are read at once: code may be gone later."""
        stack = self._frames.stack(thread) if (thread := self._tasks.thread()) is not None else ()
        self._frames.resolve_stack(stack)
        return stack


class _Tasks:
    """Which code of a process takes memory: that of the thread that was given the most pages since the last time."""

    def __init__(self, memory: RemoteMemory, frames: Frames, held: ExitStack) -> None:
        self._folder, self._frames, self._held = f"{memory.folder}/task", frames, held
        self._threads: dict[int, ThreadState] = {}  # that run Python, by their numbers as the process itself counts
        self._stats: dict[int, int] = {}  # descriptors, by the same number
        self._known: set[str] = set()
        self._given: dict[int, int] = {}  # pages
        self._listed = -math.inf

    def thread(self) -> ThreadState | None:
        """Whose Python that is. None where it has stopped since: it waits, in code that takes no memory."""
        if time.perf_counter() - self._listed > THREADS_SECONDS:
            self._list()
        most, tid, waits = 0, 0, False
        for one, stat in self._stats.items():
            with suppress(OSError, IndexError):
                fields = os.pread(stat, _STAT_BYTES, 0).rpartition(b")")[2].split(None, _GIVEN + 1)
                given, before = int(fields[_GIVEN]), self._given.get(one, 0)
                self._given[one] = given
                if given - before > most:
                    most, tid, waits = given - before, one, fields[0] == b"S"
        if tid in self._threads:
            return None if waits else self._threads[tid]
        return next(iter(self._threads.values()), None)  # C's own threads work for the main one

    def _list(self) -> None:
        self._threads = {one.tid: one for one in self._frames.threads()}
        for task in os.listdir(self._folder):  # noqa: PTH208 - names are wanted
            if task not in self._known and len(self._stats) < TASKS_MOST:
                self._known.add(task)
                with suppress(OSError):
                    tid = id_in_own_namespace(f"{self._folder}/{task}", int(task))
                    self._stats[tid] = _held(f"{self._folder}/{task}/stat", self._held)
        self._listed = time.perf_counter()


def _held(path: str, held: ExitStack) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    held.callback(os.close, fd)
    return fd
