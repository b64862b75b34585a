"""Records the resident memory of a running CPython every 0.2 ms, and which code runs as it rises."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from memwatch.core.examination import AllocationProfile, StackFrame, StackGrowth
from memwatch.diagnosis.heap.cpython_runtime import find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.stack_frames import Frames, RawStack, ThreadState, id_in_own_namespace
from memwatch.errors import SourceError, TargetGoneError

DEFAULT_RECORD_SECONDS = 30.0  # A generation of many trainers is shorter (chosen).
PAUSE_SECONDS = 2e-4  # Pause between two samples while memory does not change; a sample takes 3 us (measured).
RESTLESS_SECONDS = 3e-4  # After a change, memory is sampled without a pause for this long (chosen).
PROMPT_POLL_SECONDS = 1e-3  # A stack read longer after the sample before a rise may be of other code (chosen) ...
# ... and is left out if the others have this share of the growth; less than this share says nothing (chosen).
MIN_SEEN_SHARE = 0.1
THREADS_SECONDS = 1.0  # The list of threads is read again after this long (chosen).
MAX_THREADS = 128  # Threads of a process that are distinguished: a bound on descriptors.
_TIMERSLACK = "/proc/self/timerslack_ns"  # how late the kernel may wake this process: see prctl(2)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES = 512  # of /proc/PID/task/TID/stat
_MINFLT = 7  # its field behind the name with the minor faults: pages that the thread was given so far

# The source of a rise: a stack, and whether it was read within PROMPT_POLL_SECONDS of the sample before.
_Source = tuple[RawStack, bool]


def record_profile(
    pid: int, seconds: float = DEFAULT_RECORD_SECONDS, cpu_seconds: float = math.inf
) -> AllocationProfile:
    """Return the growth of a process's resident memory by stack; the recording ends early with it or its CPU time.

    SourceError, with a hint, when its stacks cannot be read.
    """
    with suppress(OSError):  # The default is 50 us.
        Path(_TIMERSLACK).write_text("1")
    with ExitStack() as opened:
        memory = opened.enter_context(closing(RemoteMemory(pid)))
        frames = Frames(memory, find_interpreter(memory))
        return _Recording(frames, _Threads(memory, frames, opened), memory, opened).run(seconds, cpu_seconds)


class _Recording:
    def __init__(self, frames: Frames, threads: _Threads, memory: RemoteMemory, opened: ExitStack) -> None:
        self._frames, self._threads = frames, threads
        self._attribution = LifoAttribution()
        self._statm = _open(f"{memory.folder}/statm", opened)

    def run(self, seconds: float, cpu_seconds: float) -> AllocationProfile:
        began, cpu_began = time.perf_counter(), time.process_time()
        sampled_t = changed_t = began
        used = self._resident()
        with suppress(SourceError, KeyboardInterrupt):  # The profile so far is returned.
            while sampled_t - began < seconds and time.process_time() - cpu_began < cpu_seconds:
                now, before = time.perf_counter(), used
                used = self._resident()
                if used != before:
                    stack, stack_t = self._stack()
                    self._attribution.add_change(used - before, (stack, stack_t - sampled_t < PROMPT_POLL_SECONDS))
                    changed_t = now
                sampled_t = now
                if now - changed_t > RESTLESS_SECONDS:
                    time.sleep(PAUSE_SECONDS)
        spent = time.process_time() - cpu_began
        sizes = self._bytes_by_stack()
        credits = tuple(StackGrowth(frames, size) for frames, size in sizes.most_common())
        return AllocationProfile(round(sampled_t - began, 3), round(spent, 3), sizes.total(), credits)

    def _bytes_by_stack(self) -> Counter[tuple[StackFrame, ...]]:
        """Return the growth by stack: by those that were read promptly, else by all, if either is enough of it."""
        sizes = self._attribution.bytes_by_source()
        enough = MIN_SEEN_SHARE * sizes.total()
        known = {source: size for source, size in sizes.items() if source[0]}
        prompt = {source: size for source, size in known.items() if source[1]}
        seen = next((part for part in (prompt, known) if sum(part.values()) >= enough), {})
        found: Counter[tuple[StackFrame, ...]] = Counter()
        for source, size in sizes.items():
            found[self._frames.resolve_stack(source[0]) if source in seen else ()] += size
        return found

    def _resident(self) -> int:
        with suppress(OSError, IndexError):
            pages = int(os.pread(self._statm, 64, 0).split(None, 2)[1])
            if pages:  # A zombie has none.
                return pages * _PAGE_BYTES
        raise TargetGoneError("the process has ended")

    def _stack(self) -> tuple[RawStack, float]:
        """Return the stack that runs now, and when it was read; its lines are read at once: its code may be freed."""
        stack = self._frames.stack(thread) if (thread := self._threads.allocating()) is not None else ()
        stack_t = time.perf_counter()
        self._frames.resolve_stack(stack)
        return stack, stack_t


class LifoAttribution:
    """Attributes the level of memory to sources (stacks): a fall takes back the latest rises first.

    So a temporary buffer leaves nothing, be it gigabytes a second. The sum of all sources is the growth of memory from
    its lowest level since the beginning.
    """

    def __init__(self) -> None:
        self._rises: list[tuple[_Source, int]] = []  # source and bytes

    def add_change(self, by: int, source: _Source) -> None:
        """Add a rise (or fall, if negative) of memory by so many bytes, while `source` ran."""
        rises = self._rises
        if by > 0:
            if rises and rises[-1][0] == source:
                by += rises.pop()[1]
            rises.append((source, by))
        while by < 0 and rises:
            last, size = rises.pop()
            by += size
            if by > 0:
                rises.append((last, by))

    def bytes_by_source(self) -> Counter[_Source]:
        found: Counter[_Source] = Counter()
        for source, size in self._rises:
            found[source] += size
        return found


class _Threads:
    """Finds the thread that allocates: the one with the most page faults since the last call."""

    def __init__(self, memory: RemoteMemory, frames: Frames, opened: ExitStack) -> None:
        self._folder, self._frames, self._opened = f"{memory.folder}/task", frames, opened
        self._python: dict[int, ThreadState] = {}  # threads that run Python, by the process's own thread id
        self._stats: dict[int, int] = {}  # descriptors, by the same id
        self._known: set[str] = set()
        self._faults: dict[int, int] = {}
        self._listed = -math.inf

    def allocating(self) -> ThreadState | None:
        """Return the Python thread that allocates; None where it has begun to wait, in code that takes no memory."""
        if time.perf_counter() - self._listed > THREADS_SECONDS:
            self._list_threads()
        most, found, waits = 0, 0, False
        for tid, stat in self._stats.items():
            with suppress(OSError, IndexError):
                fields = os.pread(stat, _STAT_BYTES, 0).rpartition(b")")[2].split(None, _MINFLT + 1)
                faults, before = int(fields[_MINFLT]), self._faults.get(tid, 0)
                self._faults[tid] = faults
                if faults - before > most:
                    most, found, waits = faults - before, tid, fields[0] == b"S"
        if found in self._python:
            return None if waits else self._python[found]
        return next(iter(self._python.values()), None)  # Threads of C code work for the main one.

    def _list_threads(self) -> None:
        self._python = {thread.tid: thread for thread in self._frames.threads()}
        for task in os.listdir(self._folder):  # noqa: PTH208 - names are wanted
            if task not in self._known and len(self._stats) < MAX_THREADS:
                self._known.add(task)
                with suppress(OSError):
                    tid = id_in_own_namespace(f"{self._folder}/{task}", int(task))
                    self._stats[tid] = _open(f"{self._folder}/{task}/stat", self._opened)
        self._listed = time.perf_counter()


def _open(path: str, opened: ExitStack) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd
