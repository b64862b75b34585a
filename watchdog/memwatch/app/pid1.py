"""PID 1 of a container: passes signals on to memwatch, reaps orphans, keeps the exit status, and is nothing else.

It steps aside before memwatch imports anything, so it stays small, and nothing that goes wrong in memwatch is its end:
when memwatch itself is killed, the trainer runs on, and init waits for it instead.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent: Ctrl-C at a terminal, for one
_PID_BYTES = 8


def fork_from_pid1() -> Callable[[int], None]:
    """Fork: PID 1 stays here for good and exits as memwatch or the trainer did; this returns in the other process.

    What is returned is to be told the PID of each trainer.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored one, as inherited, would lose every exit status
    # The kernel drops what PID 1 does not handle, unless it is blocked: then it waits for sigwaitinfo().
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    trainer = mmap.mmap(-1, _PID_BYTES)  # shared with all that are forked from here
    memwatch = os.fork()
    if memwatch:
        sys.exit(_Init(memwatch, trainer).run())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def announce(pid: int) -> None:
        trainer[:] = pid.to_bytes(_PID_BYTES, "little")

    return announce


class _Init:
    """Waits for signals, one at a time; nobody is in a hurry here."""

    def __init__(self, memwatch: int, announced: mmap.mmap) -> None:
        self._memwatch, self._announced = memwatch, announced
        self._ended: dict[int, int] = {}  # of memwatch and of the trainer: exit status, or minus a signal's number
        self._told = False

    def run(self) -> int:
        """The exit code, when all that matter have ended."""
        while True:
            info = signal.sigwaitinfo(signal.valid_signals())
            if info.si_signo != signal.SIGCHLD:
                self._pass_on(info)
            elif (code := self._reap()) is not None:
                return code

    @property
    def _trainer(self) -> int:
        """The latest trainer; 0: there was none yet."""
        return int.from_bytes(self._announced[:], "little")

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        if self._memwatch in self._ended:
            _send(self._trainer, info.si_signo)
        elif info.si_code != SI_KERNEL or _is_hangup_of_ours(info.si_signo):
            _send(self._memwatch, info.si_signo)  # what the terminal sent has reached memwatch: it is in the same group

    def _reap(self) -> int | None:
        """Reap whoever ended; the exit code, when neither memwatch nor a trainer that it left behind runs on."""
        for pid, status in _dead():
            if pid in (self._memwatch, self._trainer):
                self._ended[pid] = status
        if self._memwatch not in self._ended:
            return None
        if _is_child(self._trainer):
            self._tell()
            return None
        status = self._ended.get(self._trainer, self._ended[self._memwatch])
        return status if status >= 0 else 128 - status

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        how = self._ended[self._memwatch]
        text = f"memwatch: memwatch itself has ended ({f'signal {-how}' if how < 0 else f'exit status {how}'}); "
        text += f"the trainer, PID {self._trainer}, goes on unwatched{_where(self._trainer)}\n"
        try:
            os.write(2, text.encode(errors="replace"))
        except OSError:  # nobody listens
            pass


def _dead() -> list[tuple[int, int]]:
    """Everybody who has ended, with the exit status, or minus the number of the signal that killed it; reaped."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # that was the last
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def _is_child(pid: int) -> bool:
    """Whether it is ours, as every orphan is, and not reaped yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:  # none of ours; 0 is no PID
        return False
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # another user's by now; nothing that happens here may end PID 1
        pass


def _is_hangup_of_ours(number: int) -> bool:
    """A terminal that goes away tells the leader of its session alone."""
    return number == signal.SIGHUP and os.getsid(0) == os.getpid()


def _where(pid: int) -> str:
    try:
        return f"; its output goes on in {os.readlink(f'/proc/{pid}/fd/1')}"  # noqa: PTH115 - pathlib is large
    except OSError:
        return ""
