"""How memwatch starts a Python process of its own, hands it an errand, or talks with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

from memwatch.system.process_priority import prefer_oom_kill

MAX_OUTPUT_BYTES = 16 << 20
_PACKAGE = str(Path(__file__).parents[2])


def start_python(
    code: str, stdin: int | IO[bytes], stdout: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Run a line of Python that finds this package, in a session of its own: Ctrl-C is not meant for it.

    It takes as long as an exec, 1 ms; OSError when it cannot be done. From its first moment on the kernel kills it
    before memwatch: it would inherit what protects memwatch (OOMScoreAdjust= of its unit), and memwatch is larger.
    """
    # -S: all of sys.path is given, and looking for it again is half of Python's own start
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGE, *sys.path)))},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    prefer_oom_kill(process.pid)
    return process


class Worker:
    """A process that gets messages on its descriptor 0 and answers there. No call waits for it."""

    def __init__(self, code: str, first: bytes) -> None:
        """Start it, which takes as long as an exec (1 ms), and send the `first` message; OSError when that fails."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._channel: socket.socket = ours
        try:
            with theirs:
                self.send(first)  # it lies there when the process comes to read it
                self._process = start_python(code, theirs.fileno())
        except OSError:
            ours.close()
            raise

    @property
    def pid(self) -> int:
        """Its PID."""
        return self._process.pid

    def fileno(self) -> int:
        """A descriptor that becomes readable with an answer, and with its end."""
        return self._channel.fileno()

    def send(self, message: bytes) -> None:
        """Send a message; OSError when it has ended, or takes no more now."""
        self._channel.send(message)

    def receive(self, longest: int) -> bytes | None:
        """A message, None while there is none; empty when it has ended."""
        try:
            return self._channel.recv(longest)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close_channel(self) -> None:
        """Let it end in its own time."""
        self._channel.close()

    def kill(self) -> None:
        """End it now, unless it is in a call of the kernel that nobody can end."""
        self.close_channel()
        self._process.kill()

    def has_exited(self, wait_seconds: float = 0.0) -> bool:
        """It has ended, or does so within this time."""
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def exit_text(self) -> str:
        """`ended by signal 9`."""
        self.has_exited(0.005)  # its socket closes a moment before it ends
        code = self._process.returncode
        return "ended" + ("" if code is None else f" by signal {-code}" if code < 0 else f" with status {code}")


class Task:
    """A process that is given an order and leaves an answer, in memory without a name: nobody waits for the other."""

    def __init__(self, code: str, order: bytes) -> None:
        """`code` reads the order on stdin and writes its answer to stdout. OSError when it cannot be started."""
        self._answer = _memory("answer")
        try:
            with _memory("order") as given:
                given.write(order)
                given.seek(0)
                self._process = start_python(code, given, self._answer)
        except OSError:
            self._answer.close()
            raise

    def poll(self) -> int | None:
        """With which it ended; None while it goes on."""
        return self._process.poll()

    def output(self) -> bytes:
        """What it left so far."""
        self._answer.seek(0)
        return self._answer.read(MAX_OUTPUT_BYTES)

    def kill(self) -> None:
        """End it, if it goes on, and give back what it took."""
        self._process.kill()
        self._process.wait()
        self._answer.close()


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"memwatch {name}"), "w+b", buffering=0)
