"""/proc/PID/stat as bytes -> facts: who a process is, whose child, whether it still runs."""

from __future__ import annotations

from dataclasses import dataclass

_PF_EXITING, _PF_SIGNALED, _PF_KTHREAD = 0x4, 0x400, 0x00200000  # include/linux/sched.h
_KTHREADD = 2  # every kernel thread is its child
_FIELDS_AFTER_NAME = 20  # state (field 3) up to starttime (field 22)


@dataclass(frozen=True, slots=True)
class ProcStat:
    """The fields of /proc/PID/stat that identity and liveness need."""

    pid: int
    name: str  # as the program chose it: up to 15 bytes of anything, `foo) Z ` too
    state: str  # one letter; "Z" and "X" are dead
    parent_pid: int
    flags: int
    start_ticks: int
    layout: tuple[int, int] | None  # where code and stack begin, the same in forks; None: it is being started
    wait_status: int | None  # field 52, as wait() gives it; 0 without permission, meaningful in a zombie only

    @property
    def dead(self) -> bool:
        """A zombie, or even less."""
        return self.state in "ZXx"

    @property
    def is_exiting(self) -> bool:
        """It has begun to exit or to die of a signal, or has ended."""
        return self.dead or bool(self.flags & (_PF_EXITING | _PF_SIGNALED))

    @property
    def kernel_thread(self) -> bool:
        """No program of a user."""
        return bool(self.flags & _PF_KTHREAD) or (self.pid == _KTHREADD and self.parent_pid == 0)


def parse_stat(data: bytes) -> ProcStat:
    """ValueError when `data` is not what the kernel writes.

    1234 (foo) Z ) S 1 1234 1234 0 -1 4194304 ... : the name ends at the last parenthesis, whatever it contains.
    """
    head, opened, rest = data.partition(b" (")
    name, closed, tail = rest.rpartition(b") ")
    fields = tail.split()
    if not opened or not closed or len(fields) < _FIELDS_AFTER_NAME or len(fields[0]) != 1:
        raise ValueError("not a line of /proc/PID/stat")
    return ProcStat(
        pid=_whole(head),
        name=name.decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent_pid=_whole(fields[1]),
        flags=_whole(fields[6]),
        start_ticks=_whole(fields[19]),
        layout=_layout(*fields[23:26]) if len(fields) > 25 else None,
        wait_status=_whole(fields[49]) if len(fields) > 49 else None,
    )


def _layout(code: bytes, _: bytes, stack: bytes) -> tuple[int, int] | None:
    return (_whole(code), _whole(stack)) if _whole(code) else None


def _whole(field: bytes) -> int:
    if not field.isdigit() or len(field) > 20:  # 2**64 - 1 has 20
        raise ValueError(f"not a number in /proc/PID/stat: {field[:40]!r}")
    return int(field)
