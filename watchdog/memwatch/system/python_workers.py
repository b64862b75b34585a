"""memwatch's own child processes: a `Task` answers one request, a `Worker` one message after another.

No call waits for a child. A worker finds its socket closed when memwatch has ended, even if it was killed.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Generic, TypeVar

from memwatch.errors import SourceError
from memwatch.system import json_and_yaml
from memwatch.system.process_priority import lower_priority, prefer_oom_kill

_T = TypeVar("_T")
_R = TypeVar("_R")

MAX_ANSWER_BYTES = 16 << 20  # the longest answer of a task
MAX_REPLY_BYTES = 1 << 20  # the longest reply of a worker; the kernel's default for such a socket is 208 KiB
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 600.0  # before a worker is replaced; each pause is twice the last
_REAP_SECONDS = 1.0  # how long a killed task is waited for; `subprocess` reaps one that the kernel holds longer
_PACKAGE = str(Path(__file__).parents[2])


def start_python(
    code: str, stdin: int | IO[bytes], stdout: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Run a line of Python that can import this package, in a session of its own, so that Ctrl-C does not reach it.

    This takes 1 ms; OSError when the process cannot be started. The kernel kills it before memwatch: otherwise it would
    inherit memwatch's own protection (OOMScoreAdjust= of its unit), and memwatch is larger.
    """
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],  # -S: sys.path is passed on, and computing it takes half of Python's start
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGE, *sys.path)))},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    prefer_oom_kill(process.pid)
    return process


class Task(Generic[_T]):
    """One request to a child process, which answers it within a deadline. Both travel in memory files, as JSON."""

    def __init__(
        self, code: str, request: object, answer_type: type[_T], *, name: str, seconds: float, now: float
    ) -> None:
        """Start `code`, which calls `serve_task`. `name` begins the reasons that `poll` returns."""
        self._answer_type, self._name, self._seconds, self._start_t = answer_type, name, seconds, now
        self._process: subprocess.Popen[bytes] | None = None
        self._start_error = ""
        self.cpu_seconds = 0.0  # that the process took, with its own children; known when it has ended
        try:
            with _memory_file("request") as stdin:
                stdin.write(json_and_yaml.to_json(request))
                stdin.seek(0)
                self._answer = _memory_file("answer")
                try:
                    self._process = start_python(code, stdin, self._answer)
                except OSError:
                    self._answer.close()
                    raise
        except OSError as error:
            self._start_error = f"no process can be started: {error}"

    def poll(self, now: float) -> _T | str | None:
        """Return the answer, or the reason why there is none, once; None while the process may still answer."""
        if self._process is None:
            return self._start_error
        status = self._reap(0.0)
        if status is None and now - self._start_t < self._seconds:
            return None
        self._answer.seek(0)
        answer = self._answer.read(MAX_ANSWER_BYTES)
        self.kill()
        try:
            return json_and_yaml.from_json(answer, self._answer_type)
        except json_and_yaml.SerializationError:
            how = f"took more than {self._seconds:g} s" if status is None else f"ended with status {status}"
            return f"{self._name} {how}"

    def kill(self) -> None:
        """End the process if it still runs, and release what it holds."""
        if self._process is not None:
            self._process.kill()
            self._reap(_REAP_SECONDS)
            self._answer.close()

    def _reap(self, wait_seconds: float) -> int | None:
        """Return the exit status, None while the process runs, and learn what CPU time it took as it ends."""
        if self._process is None or self._process.returncode is not None:
            return None if self._process is None else self._process.returncode
        before = children_cpu_seconds()
        if _has_exited(self._process, wait_seconds):
            self.cpu_seconds = children_cpu_seconds() - before
        return self._process.returncode


def serve_task(request_type: type[_R], answer: Callable[[_R], object]) -> None:
    """In the child of a `Task`: read the request from stdin and write its answer to stdout, at a low priority."""
    lower_priority()
    request = json_and_yaml.from_json(sys.stdin.buffer.read(), request_type)
    sys.stdout.buffer.write(json_and_yaml.to_json(answer(request)))


class Worker:
    """A child process that replies to messages on its descriptor 0, and its replacements.

    A stopped process may need a while to end; meanwhile another one can run. All times are of the caller's clock.
    """

    def __init__(self, code: str, name: str, crash_hint: str = "") -> None:
        """Start nothing yet. `name` begins the text of each SourceError."""
        self._code, self._name, self._crash_hint = code, name, crash_hint
        self._process: subprocess.Popen[bytes] | None = None  # the current one
        self._channel: socket.socket
        self._stopped: list[tuple[subprocess.Popen[bytes], float]] = []  # each with the time at which it is killed
        self.asked_t: float | None = None  # when the message was sent that has no reply yet
        self.next_start_t, self._pause_seconds = -math.inf, FIRST_PAUSE_SECONDS

    @property
    def is_running(self) -> bool:
        """Whether there is a current process; it may have ended without notice."""
        return self._process is not None

    @property
    def pids(self) -> frozenset[int]:
        """The PIDs of the current process and of stopped ones that have not ended."""
        processes = [process for process, _ in self._stopped]
        if self._process is not None:
            processes.append(self._process)
        return frozenset(process.pid for process in processes)

    def fileno(self) -> int:
        """A descriptor that becomes readable with a reply, and when the process ends."""
        return self._channel.fileno()

    def start(self, first: object, asked_t: float | None = None) -> None:
        """Start the process, which takes 1 ms, and send the `first` message; OSError when that fails.

        `asked_t`: the time since which the first message awaits a reply; None when it gets no reply.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                ours.setblocking(False)
                ours.send(json_and_yaml.to_json(first))  # it waits in the socket until the process reads
                self._process = start_python(self._code, theirs.fileno())
        except OSError:
            ours.close()
            raise
        self._channel, self.asked_t = ours, asked_t

    def send(self, message: bytes, asked_t: float) -> None:
        """Send a message; SourceError when the process has ended or accepts no more now."""
        self.asked_t = asked_t
        try:
            self._channel.send(message)
        except OSError as error:
            raise self._ended() from error

    def receive(self, reply_type: type[_T]) -> _T | None:
        """Return a reply, None while there is none; SourceError when the process has ended or replies nonsense."""
        try:
            message = self._channel.recv(MAX_REPLY_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            raise self._ended()
        try:
            reply = json_and_yaml.from_json(message, reply_type)
        except json_and_yaml.SerializationError as error:  # some package may have printed to the channel
            raise SourceError(f"{self._name} answers what is no answer: {error}") from error
        self.asked_t = None
        return reply

    def waiting_seconds(self, now: float) -> float:
        """Return how long a reply has been awaited; 0.0 when none is."""
        return 0.0 if self.asked_t is None else now - self.asked_t

    def end_if_hung(self, now: float, seconds: float) -> None:
        """End the process and raise SourceError when a reply has been awaited for longer than `seconds`."""
        if self.waiting_seconds(now) > seconds:
            self.stop(now)
            raise SourceError(f"{self._name} did not answer for {seconds:g} s and was ended")

    def _ended(self) -> SourceError:
        """`NVML's helper ended by signal 9`."""
        if self._process is not None:
            _has_exited(self._process, 0.005)  # its socket closes shortly before it ends
        code = None if self._process is None else self._process.returncode
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with status {code}"
        return SourceError(f"{self._name} ended{how}", self._crash_hint)

    def stop(self, now: float, grace_seconds: float = 0.0) -> None:
        """Close the channel of the current process, so that it ends; `reap` kills it after `grace_seconds`."""
        if self._process is not None:
            self._channel.close()
            self._stopped.append((self._process, now + grace_seconds))
            self._process = self.asked_t = None
            self.reap(now)

    def reap(self, now: float) -> int:
        """Kill the stopped processes whose grace is over and forget those that have ended; return how many are left."""
        for process, kill_t in self._stopped:
            if now >= kill_t:
                process.kill()
        self._stopped = [(process, kill_t) for process, kill_t in self._stopped if not _has_exited(process)]
        return len(self._stopped)

    def replace(self, now: float) -> None:
        """End the current process; another is due after a pause that doubles until `reset_pause` is called."""
        self.stop(now)
        self.next_start_t = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def reset_pause(self) -> None:
        self._pause_seconds = FIRST_PAUSE_SECONDS

    def close(self, *, grace_seconds: float, killed_seconds: float) -> None:
        """Let all processes end by themselves within `grace_seconds` together, then kill those that have not."""
        self.stop(0.0, math.inf)
        deadline = time.monotonic() + grace_seconds
        for process, _ in self._stopped:
            if not _has_exited(process, max(0.0, deadline - time.monotonic())):
                process.kill()
                _has_exited(process, killed_seconds)
        self._stopped = []


def _has_exited(process: subprocess.Popen[bytes], wait_seconds: float = 0.0) -> bool:
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def children_cpu_seconds() -> float:
    """Return the CPU time of all children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_file(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"memwatch {name}"), "w+b", buffering=0)
