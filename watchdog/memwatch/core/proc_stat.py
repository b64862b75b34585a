"""Parses /proc/PID/stat: the identity of a process, its parent, and whether it still runs."""

from __future__ import annotations

from dataclasses import dataclass

_PF_EXITING, _PF_SIGNALED, _PF_KTHREAD = 0x4, 0x400, 0x00200000  # include/linux/sched.h
_KTHREADD = 2  # the parent of every kernel thread
_FIELDS_AFTER_NAME = 20  # state (field 3) up to starttime (field 22)


@dataclass(frozen=True, slots=True)
class ProcStat:
    """The fields of /proc/PID/stat that identity, kinship and liveness need."""

    pid: int
    name: str  # as the program chose it: up to 15 bytes of anything, `foo) Z ` too
    state: str  # one letter; "Z" and "X" are dead
    parent_pid: int
    group_id: int  # of its process group; -1 while it is reaped, as is the next
    session_id: int
    terminal: int  # the device number of its controlling terminal; 0: it has none
    flags: int
    start_ticks: int
    layout: tuple[int, int] | None  # addresses of code and stack, the same in forks; None: it is being started
    wait_status: int | None  # field 52, in the format of wait(); 0 without permission, meaningful in a zombie only

    @property
    def dead(self) -> bool:
        return self.state in "ZXx"

    @property
    def is_exiting(self) -> bool:
        """Whether it has begun to exit or to die of a signal, or has ended."""
        return self.dead or bool(self.flags & (_PF_EXITING | _PF_SIGNALED))

    @property
    def kernel_thread(self) -> bool:
        return bool(self.flags & _PF_KTHREAD) or (self.pid == _KTHREADD and self.parent_pid == 0)


def parse_stat(data: bytes) -> ProcStat:
    """Parse the file's content; ValueError when it is not as the kernel writes it.

    1234 (foo) Z ) S 1 1234 1234 0 -1 4194304 ... : the name ends at the last parenthesis, whatever it contains.
    """
    head, opened, rest = data.partition(b" (")
    name, closed, tail = rest.rpartition(b") ")
    fields = tail.split()
    if not opened or not closed or len(fields) < _FIELDS_AFTER_NAME or len(fields[0]) != 1:
        raise ValueError("not a line of /proc/PID/stat")
    return ProcStat(
        pid=_int(head),
        name=name.decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent_pid=_int(fields[1]),
        group_id=_signed(fields[2]),
        session_id=_signed(fields[3]),
        terminal=_signed(fields[4]),
        flags=_int(fields[6]),
        start_ticks=_int(fields[19]),
        layout=(_int(fields[23]), _int(fields[25])) if len(fields) > 25 and _int(fields[23]) else None,
        wait_status=_int(fields[49]) if len(fields) > 49 else None,
    )


def _signed(field: bytes) -> int:
    return -_int(field[1:]) if field.startswith(b"-") else _int(field)


def _int(field: bytes) -> int:
    if not field.isdigit() or len(field) > 20:  # 2**64 - 1 has 20 digits
        raise ValueError(f"not a number in /proc/PID/stat: {field[:40]!r}")
    return int(field)
