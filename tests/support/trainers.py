"""Real child processes that say on their stdout when they are where the test wants them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRELUDE = """
import os, sys, time
MB = 1 << 20
def say(text):
    os.write(1, (text + chr(10)).encode())  # one write, so that the lines of several processes do not mix
"""


class Program:
    """A Python program in a session of its own that `say`s a line when ready; `step()` sends one, awaits one."""

    def __init__(self, code: str, before: str = "") -> None:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'{before}\nexec "$0" -c "$1"', sys.executable, PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def await_lines(self, count: int = 1) -> list[str]:
        """The next lines; fails when the program ends instead."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().decode().strip() for _ in range(count)]
        assert all(lines), f"the program ended: {self.process.poll()}"
        return lines

    def step(self) -> list[str]:
        """Let it go on to its next line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.await_lines()

    def kill(self) -> None:
        """Kill the program and all that it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def running(code: str, lines: int = 1, before: str = "") -> Iterator[Program]:
    """A program that has said its first `lines`; killed at the end. `before` is shell code, run as itself."""
    program = Program(code, before)
    try:
        program.await_lines(lines)
        yield program
    finally:
        program.kill()


@contextmanager
def memory_cgroup(name: str, limit_bytes: int | None = None) -> Iterator[Path]:
    """A cgroup of the v1 memory controller, removed at the end; an OSError where impossible."""
    directory = Path(f"/sys/fs/cgroup/memory/{name}-{os.getpid()}")
    directory.mkdir()
    try:
        if limit_bytes is not None:
            (directory / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield directory
    finally:
        for inner in sorted((d for d in directory.rglob("*") if d.is_dir()), reverse=True):
            inner.rmdir()
        _remove(directory)


def _remove(directory: Path) -> None:
    """The kernel lets go of a dead process's group a moment later."""
    for _ in range(100):
        with suppress(OSError):
            directory.rmdir()
            return
        time.sleep(0.02)
    directory.rmdir()
