"""Signals the trainer: only its own process, by pidfd, with a signal that it handles."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import signal
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from memwatch.core.measurements import Target
from memwatch.core.proc_stat import ProcStat, parse_stat
from memwatch.errors import AttachError, ConfigError, NoTrainerError, SourceError, TargetGoneError

DEFAULT_SIGNALS = ("SIGINT", "SIGTERM")

_MASK_LINE = re.compile(rb"^(Sig(?:Pnd|Blk|Ign|Cgt)|ShdPnd):\s+([0-9a-f]+)$", re.MULTILINE)

_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # system calls; the same on every architecture but alpha

# struct pidfd_info (include/uapi/linux/pidfd.h, Linux >= 6.13): mask, cgroupid, eleven u32, exit_code; 64 bytes.
_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, struct pidfd_info)
_PIDFD_INFO_EXIT = 1 << 3  # Linux >= 6.15; available once the process is reaped


# --- which signal -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignalPlan:
    """The signal that interrupts the trainer, and why that one."""

    signal: str | None  # None: the trainer ignores every wanted signal and cannot be interrupted
    handled: bool  # False: the trainer does not catch it and ends without a checkpoint
    ignored: tuple[str, ...]  # wanted signals that would have no effect
    reason: str  # one line for people


def choose_signal(status: bytes, wanted: Sequence[str] = DEFAULT_SIGNALS) -> SignalPlan:
    """Choose the first of `wanted` that the trainer catches, by SigCgt and SigIgn in its /proc/PID/status.

    Python catches SIGINT (KeyboardInterrupt) unless it was started with SIGINT ignored, as `cmd &` in a script does
    (`nohup` alone ignores SIGHUP only). It does not catch SIGTERM by itself: that signal ends it without a
    checkpoint, so it is the last choice. ConfigError for a name that is no signal, SourceError for a foreign file.
    """
    numbers = {name: signal_number(name) for name in wanted}
    blocked, ignored_mask, caught = _masks(status)
    ignored = tuple(name for name, number in numbers.items() if _has(ignored_mask, number))
    handled = [name for name, number in numbers.items() if name not in ignored and _has(caught | blocked, number)]
    handled.sort(key=lambda name: _has(blocked, numbers[name]))  # a blocked signal comes late, or by sigwait
    unhandled = [name for name in numbers if name not in ignored and name not in handled]
    chosen = next(iter(handled + unhandled), None)
    return SignalPlan(chosen, chosen in handled, ignored, _reason(chosen, chosen in handled, ignored))


def _reason(chosen: str | None, handled: bool, ignored: Sequence[str]) -> str:
    text = f"the trainer ignores {' and '.join(ignored)}" if ignored else ""
    if "SIGINT" in ignored:
        text += " (started in the background of a script, by `cmd &`?)"
    if chosen is None:
        return f"{text}: memwatch cannot interrupt it, only warn"
    if handled:
        return f"{text}; memwatch will send {chosen}, which it catches" if text else f"it catches {chosen}"
    text = f"{text}, and " if text else "the trainer "
    return f"{text}does not handle {chosen}: it would end without a checkpoint"


def signal_number(name: str) -> int:
    """Return the number of a signal's name; ConfigError when this system has no such signal."""
    try:
        return int(signal.Signals[name])
    except KeyError as error:
        raise ConfigError(f"{name!r} is not a signal", "Write names as SIGINT, SIGTERM, SIGHUP.") from error


# SigBlk:	0000000000000000
# SigIgn:	0000000001001000
# SigCgt:	0000000000000002
def _masks(status: bytes) -> tuple[int, int, int]:
    """Parse the masks of blocked, ignored and caught signals: bit 0 is signal 1."""
    found = dict(_MASK_LINE.findall(status))
    try:
        return int(found[b"SigBlk"], 16), int(found[b"SigIgn"], 16), int(found[b"SigCgt"], 16)
    except KeyError as error:
        raise SourceError(f"/proc/PID/status has no {error.args[0].decode()} line") from error


def _has(mask: int, number: int) -> bool:
    return bool(mask >> (number - 1) & 1)


# --- sending it ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The exit status of a process: one of the two is known."""

    exit_code: int | None
    signal: str | None

    @staticmethod
    def from_returncode(code: int) -> ExitStatus:
        """Decode a status as `subprocess` reports it: minus N when signal N ended the process."""
        if code >= 0:
            return ExitStatus(code, None)
        try:
            return ExitStatus(None, signal.Signals(-code).name)
        except ValueError:  # a real-time signal between SIGRTMIN and SIGRTMAX
            return ExitStatus(None, f"signal {-code}")

    @staticmethod
    def from_wait_status(status: int) -> ExitStatus:
        """Decode a status as waitpid() returns it."""
        return ExitStatus.from_returncode(os.waitstatus_to_exitcode(status))


class PidfdSignaller:
    """Signals the trainer's process by a pidfd, which never refers to another process.

    `is_same` is called after the pidfd is opened: if the PID was recycled before, it is another process's, and the
    constructor raises NoTrainerError. Without pidfd_open (Linux < 5.3, a seccomp filter) `.problem` says so, sending
    fails, and the start time shows whether the process lives.
    """

    def __init__(
        self, target: Target, is_same: Callable[[Target], bool], *, pidfd_open: Callable[[int], int] | None = None
    ) -> None:
        if target.pid <= 1 or target.pid == os.getpid():
            raise AttachError(f"process {target.pid} is never signalled", "Name the trainer's PID.")
        self.target = target
        self.problem = ""
        self._is_same = is_same
        self._exit: ExitStatus | None = None
        self._ended = select.poll()  # select() fails on descriptors past 1023
        self._fd: int | None = None
        try:
            self._fd = (pidfd_open or open_pidfd)(target.pid)
        except ProcessLookupError as error:
            raise NoTrainerError(f"no process {target.pid}", "It may have ended.") from error
        except OSError as error:
            self.problem = f"no pidfd of process {target.pid}: {error.strerror}"
        else:
            self._ended.register(self._fd, select.POLLIN)
        if not is_same(target):
            self.close()
            raise NoTrainerError(f"process {target.pid} has ended, or is another one by now", "Name it anew.")

    def send_signal(self, signal_name: str) -> None:
        """Signal the trainer's process alone. TargetGoneError when it ended (a zombie too), SourceError if refused."""
        number = signal_number(signal_name)
        if self.gone():
            raise TargetGoneError(f"process {self.target.pid} has ended")
        if self._fd is None:
            raise SourceError(
                f"{signal_name} not sent: {self.problem}", "memwatch signals by pidfd only: Linux >= 5.3."
            )
        try:
            send_by_pidfd(self._fd, number)
        except ProcessLookupError as error:
            raise TargetGoneError(f"process {self.target.pid} has ended") from error
        except OSError as error:
            hint = "Run memwatch as the trainer's user or with CAP_KILL." if error.errno == errno.EPERM else ""
            raise SourceError(f"{signal_name} not sent to process {self.target.pid}: {error.strerror}", hint) from error

    def may_signal(self) -> bool:
        """Whether the kernel would deliver a signal, tested with signal 0."""
        if self._fd is None:
            return False
        try:
            send_by_pidfd(self._fd, 0)
        except OSError:
            return False
        return True

    def fileno(self) -> int:
        """Return the pidfd, which is readable when the process has ended; ValueError without one."""
        if self._fd is None:
            raise ValueError(self.problem or "closed")
        return self._fd

    def gone(self) -> bool:
        if self._fd is None:
            return not self._is_same(self.target)
        return bool(self._ended.poll(0))

    def dying(self, root: str = "/proc") -> bool:
        """Whether it has ended or is about to: a SIGKILL is pending, or it has begun to exit."""
        found = self._read_stat(root)
        if found is None or found.is_exiting:
            return True
        try:
            with open(f"{root}/{self.target.pid}/status", "rb") as file:
                masks = {name: int(mask, 16) for name, mask in _MASK_LINE.findall(file.read(8192))}
        except OSError:
            return True
        return _has(masks.get(b"SigPnd", 0) | masks.get(b"ShdPnd", 0), signal.SIGKILL)

    def exit_status(self) -> ExitStatus | None:
        """Return its exit status although memwatch is not its parent; None while it runs and where it is unknown.

        Before it is reaped /proc/PID/stat has the status, afterwards the pidfd (Linux >= 6.15). Between the
        two, and for good on older kernels, it is None: call again a moment later.
        """
        if self._exit is None and self._fd is not None and self.gone():
            status = _reaped_wait_status(self._fd)
            if status is None:
                status = self._zombie_wait_status()
            self._exit = ExitStatus.from_wait_status(status) if status is not None else None
        return self._exit

    def _zombie_wait_status(self) -> int | None:
        found = self._read_stat()
        if found is None or found.state != "Z":
            return None
        if found.wait_status:
            return found.wait_status
        # Without permission to trace the process the kernel reports 0, whatever the status is. Root may lack the
        # permission, too. This link is readable under the same condition.
        try:
            os.readlink(f"/proc/{self.target.pid}/ns/user")  # noqa: PTH115
        except OSError:
            return None
        return found.wait_status

    def _read_stat(self, root: str = "/proc") -> ProcStat | None:
        """Return the trainer's /proc/PID/stat; None when it is unreadable or the PID is another process's by now."""
        try:
            with open(f"{root}/{self.target.pid}/stat", "rb") as file:
                found = parse_stat(file.read(4096))
        except (OSError, ValueError):
            return None
        return found if found.start_ticks == self.target.start_ticks else None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self.problem = None, "closed"


class ChildrenSignaller:
    """Signals processes below the watched one: the ranks of a torchrun agent, or the program that a shell runs.

    Why `agent` is the default for torchrun: the agent passes a signal that it receives on to all ranks and waits 30 s
    for them before SIGKILL; a checkpoint must fit into that. With `ranks` there is no such timeout, but the first rank
    that ends with an error makes the agent SIGTERM the others, including the one that is still saving: use it only for
    trainers whose ranks all handle SIGTERM, or exit together. Each signal goes to one process, never to a group.
    (torch/distributed/elastic/multiprocessing/api.py: PContext.close, SubprocessContext._poll)
    """

    def __init__(self, children: Callable[[], Sequence[Target]], is_same: Callable[[Target], bool]) -> None:
        self._children = children
        self._is_same = is_same

    def send_signal(self, signal_name: str) -> None:
        """Signal each that runs now; TargetGoneError if there is none, SourceError if one refused."""
        sent, refused = False, None
        for child in self._children():
            try:
                with closing(PidfdSignaller(child, self._is_same)) as signaller:
                    signaller.send_signal(signal_name)
                sent = True
            except (AttachError, TargetGoneError):
                continue  # it ended meanwhile
            except SourceError as error:
                refused = error
        if refused is not None:
            raise refused
        if not sent:
            raise TargetGoneError("none of the processes that would be signalled runs")


def _reaped_wait_status(pidfd: int) -> int | None:
    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:  # the kernel is too old
        return None
    mask, *_, wait_status = _INFO.unpack(buffer)
    return int(wait_status) if mask & _PIDFD_INFO_EXIT else None


def open_pidfd(pid: int) -> int:
    """Open a pidfd, which is closed on exec; OSError."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return system_call(_PIDFD_OPEN, pid, 0)


def send_by_pidfd(pidfd: int, number: int) -> None:
    """Signal the process that `pidfd` holds; OSError."""
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(pidfd, number)
    else:
        system_call(_PIDFD_SEND_SIGNAL, pidfd, number, None, 0)


def system_call(number: int, *arguments: int | None) -> int:
    """Make a system call that Python lacks when it was built on old kernel headers, as conda's; OSError."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    result = int(call(ctypes.c_long(number), *[None if one is None else ctypes.c_long(one) for one in arguments]))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
