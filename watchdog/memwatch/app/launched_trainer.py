"""`memwatch run`: the trainer as memwatch's own child, its output followed and passed on.

The child writes to a file, not to a pipe: when memwatch dies, the trainer neither blocks nor gets SIGPIPE.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from memwatch.config.settings import default_history
from memwatch.errors import AttachError
from memwatch.system import private_files
from memwatch.system.clock import STOP_SIGNALS

_OWN = {
    *(signal.SIGKILL, signal.SIGSTOP),  # which nobody can handle
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),  # about memwatch's own children and files
    *(signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),  # a shell stops memwatch, not the trainer
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP),
}
FORWARDED_SIGNALS = tuple(sorted(signal.valid_signals() - _OWN))
TERMINATING_SIGNALS = (*STOP_SIGNALS, signal.SIGQUIT)  # after these nothing is started again
COPY_EVERY_SECONDS = 0.1
RUN_LOGS_KEPT = 20


class LaunchedTrainer:
    """A started trainer. stdout and stderr go to `log`, in order, and from there to memwatch's own stdout.

    AttachError when it cannot be started, or its log not be made.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
        before_exec: Callable[[], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.end_requested = False  # a signal went through that asks for the end, of more than this one process
        descriptor = _create(log)
        try:
            with _unignored_signals():
                self._process = subprocess.Popen(
                    command,
                    stdout=descriptor,
                    stderr=descriptor,
                    cwd=folder,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **(environ or {})},
                    start_new_session=True,  # a Ctrl-C reaches memwatch alone, which passes it to this one process
                    preexec_fn=before_exec,  # noqa: PLW1509 - the demo's, which has no threads yet
                )
        except OSError as error:
            log.unlink(missing_ok=True)
            hint = "give the command as you would type it: memwatch run -- python main.py"
            raise AttachError(f"cannot start {command[0]}: {error.strerror}", hint) from error
        finally:
            os.close(descriptor)
        self.pid = self._process.pid
        self.log = log

    def forward_signal(self, number: int) -> None:
        """Pass a signal on to the trainer's process alone, unless it has ended."""
        self.end_requested = self.end_requested or number in TERMINATING_SIGNALS
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Terminate it if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def wait(self) -> int:
        """Wait for its end: the exit status, or minus the number of the signal that killed it."""
        return self._process.wait()


@contextmanager
def forward_signals(to: Callable[[int], object]) -> Iterator[None]:
    """Signals to memwatch go `to` the child, before, during and after the watch, which handles them itself."""
    before = {number: signal.signal(number, lambda n, _: to(n)) for number in FORWARDED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def new_run_log_path(environ: Mapping[str, str], now: Callable[[], time.struct_time] = time.localtime) -> Path:
    """Return a new path for the output of a started trainer, and delete all but the newest of the earlier files."""
    folder = default_history(environ).parent / "runs"
    earlier = sorted(folder.glob("*.log")) if folder.is_dir() else []
    for path in earlier[: max(0, len(earlier) - RUN_LOGS_KEPT + 1)]:
        path.unlink(missing_ok=True)
    return folder / f"{time.strftime('%Y%m%d-%H%M%S', now())}-{os.urandom(3).hex()}.log"  # no PID: many a PID is 2


class Passthrough:
    """Copies what the child writes to memwatch's stdout, bytes as they are, until told that the child has ended.

    Where no thread can be had for it, all of it is copied then.
    """

    def __init__(self, log: Path, output: int = 1) -> None:
        self._log = log
        self._source = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        self._output = output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="passthrough", daemon=True)
        self._has_thread = True
        try:
            self._thread.start()
        except RuntimeError:  # the pids cgroup, or the user's limit of processes, is used up
            self._has_thread = False
            say(f"no thread can be started: the trainer's output is shown at its end; it goes to {log}")

    def close(self) -> None:
        """Copy the rest and stop."""
        self._ended.set()
        if self._has_thread:
            self._thread.join()
        else:
            self._copy()
        os.close(self._source)

    def _copy(self) -> None:
        last = False
        while True:
            data = os.read(self._source, 65536)
            if data and not _write_all(self._output, data):  # our reader left: the trainer goes on
                say(f"nobody reads the trainer's output; it goes on in {self._log}")
                return
            if not data and last:
                return
            if not data:
                last = self._ended.wait(COPY_EVERY_SECONDS)


def say(text: str) -> None:
    """A line to whoever reads memwatch's own words."""
    with suppress(OSError):  # the terminal is gone
        print(f"memwatch: {text}", file=sys.stderr)


def shell_status(status: int) -> int:
    """The exit code that a shell reports for a child's status: 128 + N when signal N killed it."""
    return 128 - status if status < 0 else status


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; `signal 35` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _create(log: Path) -> int:
    try:
        private_files.ensure_private_dir(log.parent)
        return private_files.create_private_file(log, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        hint = "the trainer's output is kept in a file: set XDG_STATE_HOME to a folder that can be written"
        raise AttachError(f"cannot make {log}: {error.strerror}", hint) from error


@contextmanager
def _unignored_signals() -> Iterator[None]:
    """Signals that are ignored are not, for a moment: what is started then begins without that.

    `memwatch run &` in a script starts with SIGINT ignored, which a child would inherit: its checkpoint on SIGINT would
    never come.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _write_all(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True
