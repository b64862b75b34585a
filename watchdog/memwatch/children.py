"""How memwatch starts a Python process of its own, and how it hands one an errand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

ANSWER_BYTES = 16 << 20
_PACKAGE = str(Path(__file__).parents[1])


def start(code: str, stdin: int | IO[bytes], stdout: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Run a line of Python that finds this package, in a session of its own: Ctrl-C is not meant for it.

    It takes as long as an exec, 1 ms; OSError when it cannot be done.
    """
    # -S: all of sys.path is given, and looking for it again is half of Python's own start
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGE, *sys.path)))},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Errand:
    """A process that is given an order and leaves an answer, in memory without a name: nobody waits for the other."""

    def __init__(self, code: str, order: bytes) -> None:
        """`code` reads the order on stdin and writes its answer to stdout. OSError when it cannot be started."""
        self._answer = _memory("answer")
        try:
            with _memory("order") as given:
                given.write(order)
                given.seek(0)
                self._process = start(code, given, self._answer)
        except OSError:
            self._answer.close()
            raise

    def status(self) -> int | None:
        """With which it ended; None while it goes on."""
        return self._process.poll()

    def answer(self) -> bytes:
        """What it left so far."""
        self._answer.seek(0)
        return self._answer.read(ANSWER_BYTES)

    def end(self) -> None:
        """End it, if it goes on, and give back what it took."""
        self._process.kill()
        self._process.wait()
        self._answer.close()


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"memwatch {name}"), "w+b", buffering=0)
