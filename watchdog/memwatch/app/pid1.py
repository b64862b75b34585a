"""PID 1 of a container: forwards signals to memwatch, reaps orphans, keeps the exit status, and does nothing else.

It forks before memwatch imports anything, so it stays small, and no fault of memwatch ends it: when memwatch itself is
killed, the trainer continues, and PID 1 waits for it instead.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, such as Ctrl-C at a terminal
_PID_BYTES = 8


def fork_from_pid1() -> Callable[[int], None]:
    """Fork: PID 1 stays in this function and exits as memwatch or the trainer did; it returns in the other process.

    The returned function is to be called with the PID of each trainer.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, as inherited, every exit status would be lost
    # The kernel drops signals that PID 1 does not handle, unless they are blocked: then they wait for sigwaitinfo().
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    trainer = mmap.mmap(-1, _PID_BYTES)  # shared with all processes that are forked from here
    memwatch = os.fork()
    if memwatch:
        sys.exit(_Init(memwatch, trainer).run())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def announce(pid: int) -> None:
        trainer[:] = pid.to_bytes(_PID_BYTES, "little")

    return announce


class _Init:
    def __init__(self, memwatch: int, announced: mmap.mmap) -> None:
        self._memwatch, self._announced = memwatch, announced
        self._ended: dict[int, int] = {}  # PID of memwatch or the trainer -> exit status, or minus a signal's number
        self._has_reported = False

    def run(self) -> int:
        """Return the exit code once memwatch and the trainer have ended."""
        while True:
            info = signal.sigwaitinfo(signal.valid_signals())
            if info.si_signo != signal.SIGCHLD:
                self._forward(info)
            elif (code := self._reap()) is not None:
                return code

    @property
    def _trainer(self) -> int:
        """The PID of the latest trainer; 0 before the first one."""
        return int.from_bytes(self._announced[:], "little")

    def _forward(self, info: signal.struct_siginfo) -> None:
        number = info.si_signo
        # When a terminal is closed, only the leader of its session gets the signal.
        is_own_hangup = number == signal.SIGHUP and os.getsid(0) == os.getpid()
        if self._memwatch in self._ended:
            _send(self._trainer, number)
        elif info.si_code != SI_KERNEL or is_own_hangup:  # other signals of a terminal reach memwatch by themselves
            _send(self._memwatch, number)

    def _reap(self) -> int | None:
        """Reap all that have ended; return the exit code when neither memwatch nor a trainer that it left runs."""
        for pid, status in _reap_ended():
            if pid in (self._memwatch, self._trainer):
                self._ended[pid] = status
        if self._memwatch not in self._ended:
            return None
        if _is_child(self._trainer):
            if not self._has_reported:
                self._has_reported = True
                self._report_unwatched()
            return None
        status = self._ended.get(self._trainer, self._ended[self._memwatch])
        return status if status >= 0 else 128 - status

    def _report_unwatched(self) -> None:
        status, trainer = self._ended[self._memwatch], self._trainer
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        text = f"memwatch: memwatch itself has ended ({how}); the trainer, PID {trainer}, goes on unwatched"
        try:
            text += f"; its output goes on in {os.readlink(f'/proc/{trainer}/fd/1')}"  # noqa: PTH115 - pathlib is large
        except OSError:
            pass
        try:
            os.write(2, f"{text}\n".encode(errors="replace"))
        except OSError:  # nobody reads stderr
            pass


def _reap_ended() -> list[tuple[int, int]]:
    """Reap all children that have ended; return their PIDs and exit statuses, or minus the number of a signal."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # no child is left
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def _is_child(pid: int) -> bool:
    """Whether it is a child, as every orphan is, that is not reaped yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:  # also for 0, which is no PID
        return False
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it may have changed its user; no failure may end PID 1
        pass
