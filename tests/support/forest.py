"""Real trees of processes that do what a test tells them, and what their memory truly is."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from support.trainers import Program, running

MB = 1 << 20

# Each process runs the lines that it is given. `fork` and `spawn` make children, `tell` gives some of them a line.
# Megabytes and pages count SIZE times.
OBEY = """
import mmap, os, random, subprocess, sys, time
SIZE = 1
MB = SIZE << 20
workers = []

def obey(lines, answer):
    for line in lines:
        exec(line, globals())
        answer.write(b'.')
        answer.flush()

def fork(count):
    for _ in range(count):
        down, up = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                workers.clear()
                obey(os.fdopen(down[0]), os.fdopen(up[1], 'wb'))
            finally:
                os._exit(0)
        workers.append((pid, os.fdopen(down[1], 'wb'), os.fdopen(up[0], 'rb')))

def spawn(count):
    for _ in range(count):
        code = 'OBEY = ' + repr(OBEY) + OBEY + 'obey(sys.stdin, sys.stdout.buffer)'
        child = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        workers.append((child.pid, child.stdin, child.stdout))

def tell(line, first=0, last=None):
    told = workers[first:last]
    for _, down, _ in told:
        down.write(line.encode() + b'\\n')
        down.flush()
    for _, _, up in told:
        up.read(1)

def end(count):
    for _ in range(count):
        pid, down, up = workers.pop()
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        down.close()
        up.close()

def heap(megabytes):
    return bytearray(os.urandom(1)) * (megabytes * MB)

def touch(block, pages):
    for page in pages:
        for part in range(SIZE):
            block[(page * SIZE + part) * 4096] = 1

def shared(name, megabytes=0):
    if megabytes:
        segment = open('/dev/shm/' + name, 'w+b')
        segment.truncate(megabytes * MB)
    else:
        segment = open('/dev/shm/' + name, 'r+b')
    return mmap.mmap(segment.fileno(), 0)
"""
_LOOP = "say('ready')\nfor line in sys.stdin:\n    exec(line)\n    say('done')\n"
_PSS = re.compile(rb"^Pss: +([0-9]+) kB$", re.MULTILINE)


class Forest:
    """A tree of processes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.pid = program.pid

    def do(self, line: str) -> None:
        """Let the root run a line of Python, and wait until it has."""
        self.begin(line)
        self._program.await_lines()

    def begin(self, line: str) -> None:
        """Let the root run a line of Python; `answer` waits for what that says."""
        stdin = self._program.process.stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def answer(self) -> str:
        """The one line that was said, once all is done."""
        said, _ = self._program.await_lines(2)
        return said

    def clear_segments(self) -> None:
        """Remove what it and its children left in /dev/shm."""
        for segment in Path("/dev/shm").glob(f"memwatch-test-{self.pid}-*"):
            segment.unlink()


@contextmanager
def forest(size: int = 1) -> Iterator[Forest]:
    """A root that obeys; killed at the end with all that it started; its segments are removed."""
    code = OBEY.replace("SIZE = 1", f"SIZE = {size}")
    with running(f"OBEY = {code!r}\n{code}{_LOOP}") as program:
        trainer = Forest(program)
        try:
            yield trainer
        finally:
            trainer.clear_segments()


def whole_tree(pid: int) -> list[int]:
    """The PIDs of a process and of all below it, as psutil finds them."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def read_pss(pids: Collection[int]) -> tuple[int, float]:
    """The true sum of PSS in bytes, and the CPU seconds that reading smaps_rollup of all of them took."""
    began = time.thread_time()
    told = [Path(f"/proc/{pid}/smaps_rollup").read_bytes() for pid in pids]
    took = time.thread_time() - began
    return sum(int(found[1]) * 1024 for one in told if (found := _PSS.search(one))), took
