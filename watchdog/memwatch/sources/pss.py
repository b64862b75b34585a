"""The rare, budgeted measurement of shared pages: /proc/PID/smaps_rollup, which stalls the process that it reads.

While the kernel walks the pages, about 23 ms per GiB of 4 KiB pages, the process cannot map or unmap memory. So a
process for which that would take longer than the stated stall is never read, the CPU time spent is a fixed share of
the wall clock, and all of it is exported.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.model import PssCost
from memwatch.core.sharing import Measured, Member, measured_aside
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.reading import number, read_whole

_ROLLUP_LINE = re.compile(rb"^(Rss|Pss|Private_Clean|Private_Dirty): +([0-9]+) kB$", re.MULTILINE)
_SECONDS_PER_BYTE = 0.023 / 2**30  # measured on 4 GiB of 4 KiB pages: 94 ms
_NEW_PASS_SECONDS = 10.0  # after this long when many processes are new


@dataclass(frozen=True, slots=True)
class PssBudget:
    """What the measurement may cost."""

    stall_seconds: float = 0.05  # of one process, by estimate; a larger one is refused
    cpu_share: float = 0.001  # of one core, on average
    slice_seconds: float = 0.02  # within one tick
    every_seconds: float = 60.0  # between passes


class Measurable(Member):
    """A member of the tree that can be measured."""

    __slots__ = ("fork_of_root", "pid")

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        self.fork_of_root = True


class PssMeter:
    """Measures the processes of a tree, one pass at a time, a slice per tick."""

    def __init__(self, root: str = "/proc", budget: PssBudget | None = None) -> None:
        self._proc = root
        self._budget = budget or PssBudget()
        self._seconds_per_byte = _SECONDS_PER_BYTE
        self._credit = self._full_credit = 100 * self._budget.cpu_share  # CPU seconds that may be spent now
        self._credit_t: float | None = None
        self._pass_t: float | None = None
        self._queue: list[Measurable] = []
        self.cost = PssCost()
        self.aside_bytes: int | None = None  # see core.sharing.tree_bytes
        self.root_measured = False

    def advance(self, now: float, root: Measurable, others: Sequence[Measurable]) -> None:
        """Go on with the measurement as far as the budget allows at `now`."""
        if self._credit_t is not None:
            earned = max(0.0, now - self._credit_t) * self._budget.cpu_share
            self._credit = min(self._full_credit, self._credit + earned)
        self._credit_t = now
        if not self._queue:
            if not self._due(now, others):
                return
            self._queue = [*others, root]
        until = time.perf_counter() + self._budget.slice_seconds
        while self._queue and time.perf_counter() < until:
            self._measure(self._queue.pop())
        if not self._queue:
            self._finish(now, root, others)

    def forget(self) -> None:
        """The tree is a single process again: what was shared is no more."""
        self._queue.clear()
        self._pass_t = self.aside_bytes = None
        self.root_measured = False

    def _due(self, now: float, others: Sequence[Measurable]) -> bool:
        if self._credit <= 0:
            return False
        if self._pass_t is None:
            return True
        new = sum(member.measured is None for member in others)
        wait = _NEW_PASS_SECONDS if 4 * new > len(others) else self._budget.every_seconds
        return now - self._pass_t >= wait

    def _measure(self, member: Measurable) -> None:
        member.measured = None
        if member.rss_bytes * self._seconds_per_byte > self._budget.stall_seconds:
            self._count(refused=1)
            return
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            rollup = parse_smaps_rollup(read_whole(f"{self._proc}/{member.pid}/smaps_rollup"), member.anon_bytes)
        except TargetGoneError:
            return
        except SourceError:
            self._count(refused=1)
            return
        cpu = time.thread_time() - cpu
        self._credit -= cpu
        self._count(reads=1, cpu=cpu, stall=time.perf_counter() - wall)
        if rollup.rss_bytes > 2**26:  # below, the cost of the call itself hides that of the pages
            pace = (self._seconds_per_byte + cpu / rollup.rss_bytes) / 2
            self._seconds_per_byte = max(_SECONDS_PER_BYTE, pace)
        member.measured = rollup

    def _finish(self, now: float, root: Measurable, others: Sequence[Measurable]) -> None:
        forks = [m.measured for m in others if m.measured and m.fork_of_root]
        strangers = [m.measured for m in others if m.measured and not m.fork_of_root]
        self._pass_t = now
        self.root_measured = root.measured is not None
        self.aside_bytes = measured_aside(root.measured, forks, strangers) if forks or strangers else None
        self._count(passes=1)

    def _count(self, reads: int = 0, refused: int = 0, passes: int = 0, cpu: float = 0.0, stall: float = 0.0) -> None:
        was = self.cost
        self.cost = PssCost(
            was.reads + reads,
            was.refused + refused,
            was.passes + passes,
            was.cpu_seconds + cpu,
            max(was.largest_stall_seconds, stall),
        )


# 5624081b0000-7ffd206c0000 ---p 00000000 00:00 0                          [rollup]
# Rss:                1692 kB
# Pss:                 354 kB
# Private_Clean:         0 kB
# Private_Dirty:       116 kB
def parse_smaps_rollup(raw: bytes, anon_bytes: int) -> Measured:
    """RSS, PSS and private pages of one process; SourceError when any is missing."""
    fields = {name: number(value, 1024) for name, value in _ROLLUP_LINE.findall(raw)}
    try:
        uss = fields[b"Private_Clean"] + fields[b"Private_Dirty"]
        return Measured(fields[b"Rss"], fields[b"Pss"], uss, anon_bytes)
    except KeyError as error:
        raise SourceError(f"smaps_rollup has no {error.args[0].decode()}") from error
