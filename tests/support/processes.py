"""Real processes that say when they are ready."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

READY = "print('ready', flush=True); "
WAIT = READY + "import time; time.sleep(60)"


@contextmanager
def running(argv: Sequence[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """`argv` after it printed its first line; killed at the end."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline(), "it ended before it was ready"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def python(code: str, *arguments: str) -> list[str]:
    """The command line of a Python that runs `code`."""
    return [sys.executable, "-S", "-c", code, *arguments]


GRANDPARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
child.stdout.readline()
print(child.pid, flush=True)
input()
child.wait()
print("reaped", flush=True)
input()
"""


class Stranger:
    """A process that is not a child of the test; it becomes a zombie at its end until `reap()`."""

    def __init__(self, parent: subprocess.Popen[str], pid: int) -> None:
        self.pid = pid
        self._parent = parent

    def reap(self) -> None:
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        assert self._parent.stdout.readline() == "reaped\n"


@contextmanager
def stranger(code: str) -> Iterator[Stranger]:
    """Python running `code` (which must print a line), as a child of another process."""
    parent = subprocess.Popen(python(GRANDPARENT, code), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield Stranger(parent, int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        parent.stdin.close()
