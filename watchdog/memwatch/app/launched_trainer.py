"""The trainer as memwatch's own child, for `memwatch run`: its start, its signals, its output.

The child writes to a file, not to a pipe: when memwatch dies, the trainer neither blocks nor gets SIGPIPE.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from memwatch.config.settings import default_history
from memwatch.errors import AttachError
from memwatch.sources.target.target_facts import is_wrapper, read_argv
from memwatch.system import private_files
from memwatch.system.clock import STOP_SIGNALS, signal_handlers

_NOT_FORWARDED = {
    *(signal.SIGKILL, signal.SIGSTOP),  # no process can handle them
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),  # about memwatch's own children and files
    *(signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),  # a shell stops memwatch, not the trainer
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP),
}
FORWARDED_SIGNALS = tuple(sorted(signal.valid_signals() - _NOT_FORWARDED))
TERMINATING_SIGNALS = (*STOP_SIGNALS, signal.SIGQUIT)  # after these no trainer is started again
COPY_INTERVAL_SECONDS = 0.1
MAX_CATCH_UP_SECONDS = 1.0  # a reader may be slow or stand still (chosen)
MAX_RUN_LOGS = 20  # files; when there are more, the oldest are deleted


class LaunchedTrainer:
    """A started trainer. Its stdout and stderr go to `log`, in order.

    AttachError when it cannot be started or its log cannot be created.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
        before_exec: Callable[[], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.log = log
        self.passthrough: Passthrough | None = None  # what shows its output, if anything does
        self.passed_on: tuple[float, str] | None = None  # the latest terminating signal that was forwarded, and when
        descriptor = _create_log(log)
        try:
            with _signals_not_ignored():
                self._process = subprocess.Popen(
                    command,
                    stdout=descriptor,
                    stderr=descriptor,
                    cwd=folder,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **(environ or {})},
                    start_new_session=True,  # a Ctrl-C reaches memwatch alone, which forwards it to this one process
                    preexec_fn=before_exec,  # noqa: PLW1509 - the demo's, which has no threads yet
                )
        except OSError as error:
            log.unlink(missing_ok=True)
            hint = "give the command as you would type it: memwatch run -- python main.py"
            raise AttachError(f"cannot start {command[0]}: {error.strerror}", hint) from error
        finally:
            os.close(descriptor)
        self.pid = self._process.pid

    def forward_signal(self, number: int) -> None:
        """Send the signal to the trainer's process alone, unless it has ended; with a shell also to what that runs."""
        if number in TERMINATING_SIGNALS:
            self.passed_on = time.time(), signal.Signals(number).name
            if self._process.poll() is None and is_wrapper(read_argv(self.pid)):  # as a terminal does
                os.killpg(self.pid, number)
                return
        self._process.send_signal(number)

    @property
    def end_requested(self) -> bool:
        """A terminating signal was forwarded: it is meant for the whole run."""
        return self.passed_on is not None

    def terminate(self) -> None:
        self._process.terminate()  # `subprocess` sends nothing to a process that has ended
        self._process.wait()

    def wait(self) -> int:
        """Wait for its end; return the exit status, or minus the number of the signal that killed it."""
        return self._process.wait()


def new_run_log_path(environ: Mapping[str, str]) -> Path:
    """Return a new path for the output of a started trainer, and delete the oldest of the earlier files.

    It is in a temporary folder where the usual one cannot be used.
    """
    folder = default_history(environ).parent / "runs"
    try:
        private_files.ensure_private_dir(folder)
    except OSError as error:
        import tempfile  # only here: it takes a dozen modules with it

        folder, why = Path(tempfile.mkdtemp(prefix="memwatch-run-")), f"{error.filename or folder}: {error.strerror}"
        say(f"the trainer's output is kept in {folder}, as the usual folder cannot be used: {why}")
    earlier = sorted(folder.glob("*.log"))
    for path in earlier[: max(0, len(earlier) - MAX_RUN_LOGS + 1)]:
        path.unlink(missing_ok=True)
    return (
        folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}.log"
    )  # a PID does not distinguish: in a container it is often 2


@dataclass(slots=True)
class OutputLine:
    """The line that the trainer prints to; it is open until its newline, as that of a progress bar is to its end."""

    is_open: bool = False


class Passthrough:
    """Copies the child's output to memwatch's own, unchanged, until `close` is called after the child's end.

    Where no thread can be started, `close` copies all of it.
    """

    def __init__(self, log: Path, output: int = 1, line: OutputLine | None = None) -> None:
        self._log, self._output, self._line = log, output, line or OutputLine()
        self._source = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        self._copied = 0  # bytes
        self._ended = threading.Event()
        self._thread: threading.Thread | None = threading.Thread(target=self._copy, name="passthrough", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the limit of the pids cgroup or of the user's processes is reached
            self._thread = None
            say(f"no thread can be started: the trainer's output is shown at its end; it goes to {log}")

    def catch_up(self) -> None:
        """Wait, a second at most, until all that was written by now is copied."""
        deadline, end = time.monotonic() + MAX_CATCH_UP_SECONDS, os.fstat(self._source).st_size
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            if self._copied >= end:
                return
            time.sleep(COPY_INTERVAL_SECONDS / 10)

    def close(self) -> None:
        """Copy the rest and stop."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        else:
            self._copy()
        os.close(self._source)

    def _copy(self) -> None:
        last = False
        while True:
            data = os.read(self._source, 65536)
            if data and not _write_all(self._output, data):  # memwatch's reader has ended; the trainer continues
                say(f"nobody reads the trainer's output; it goes on in {self._log}")
                return
            if data:
                self._line.is_open = not data.endswith(b"\n")
                self._copied += len(data)
            if not data and last:
                return
            if not data:
                last = self._ended.wait(COPY_INTERVAL_SECONDS)


def say(text: str) -> None:
    """Print a message of memwatch's own to stderr."""
    with suppress(OSError):  # the terminal is gone
        print(f"memwatch: {text}", file=sys.stderr)


def shell_status(status: int) -> int:
    """Return the exit code that a shell reports for a child's status: 128 + N when signal N killed it."""
    return 128 - status if status < 0 else status


def _create_log(log: Path) -> int:
    try:
        private_files.ensure_private_dir(log.parent)
        return private_files.create_private_file(log, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        hint = "the trainer's output is kept in a file: set XDG_STATE_HOME to a folder that can be written"
        raise AttachError(f"cannot make {log}: {error.strerror}", hint) from error


def _signals_not_ignored() -> AbstractContextManager[None]:
    """Do not ignore SIGINT and SIGQUIT while a child is started, which would inherit that.

    `memwatch run &` in a script starts with SIGINT ignored; its trainer would never save a checkpoint on SIGINT.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    return signal_handlers(ignored, lambda _: None)


def _write_all(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True
