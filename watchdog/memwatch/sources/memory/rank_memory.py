"""Which processes of a tree are which rank: an agent gives each its variables, and what it starts belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memwatch.core.measurements import RankMemory
from memwatch.core.memory_accounting import ProcessMemory
from memwatch.sources.target.process_identity import read_environ


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank, by the process that its agent started."""

    rank: int
    local_rank: int
    pid: int


class RankMember(ProcessMemory):
    """A process that may belong to a rank."""

    __slots__ = ("layout", "pid", "rank")

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        self.layout: tuple[int, int] | None = None
        self.rank: Rank | None = None


class RankTracker:
    """Tells the ranks below a process. There are none below one that is a rank itself: all would inherit its variables.

    A rank that was forked and never started a program, as multiprocessing starts one, shows no variables of its own.
    """

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._root = root
        self._none = "LOCAL_RANK" in (read_environ(pid, root) or {})
        self._groups: tuple[tuple[Rank, tuple[RankMember, ...]], ...] = ()

    def of_new(self, process: RankMember, parent: RankMember) -> Rank | None:
        """The rank of a new process; a fork has the environment of its parent, and need not be asked."""
        if parent.rank is not None or self._none or process.layout == parent.layout:
            return parent.rank
        return self.of_program(process)

    def of_program(self, process: RankMember) -> Rank | None:
        """The rank of a process that has started a program: the one it belongs to, or its own."""
        if process.rank is not None or self._none:
            return process.rank
        return parse_rank(process.pid, read_environ(process.pid, self._root) or {})

    def order(self, members: Iterable[RankMember]) -> None:
        """Those that have memory now."""
        groups: dict[Rank, list[RankMember]] = {}
        for process in members:
            if process.rank is not None:
                groups.setdefault(process.rank, []).append(process)
        self._groups = tuple(
            (rank, tuple(group)) for rank, group in sorted(groups.items(), key=lambda one: one[0].rank)
        )

    def memory(self, now: float) -> tuple[RankMemory, ...]:
        """Of each rank, by number; pages that ranks share are counted at none, or at the one that holds them first."""
        return tuple(
            RankMemory(rank.rank, rank.local_rank, rank.pid, _used(group, now), tuple(one.pid for one in group))
            for rank, group in self._groups
        )


def parse_rank(pid: int, environ: Mapping[str, str]) -> Rank | None:
    """The rank that these variables make of a process."""
    numbers = [environ.get(name, "") for name in ("RANK", "LOCAL_RANK")]
    if not all(text.isascii() and text.isdigit() and len(text) < 10 for text in numbers):
        return None
    return Rank(int(numbers[0]), int(numbers[1]), pid)


def _used(group: Sequence[ProcessMemory], now: float) -> int:
    """Anonymous pages, and of file and shared pages what visits found to be its own."""
    own = sum(one.own_bytes(now) for one in group)
    return own + sum(
        int(one.shared_bytes * one.page_sample.shared_share) for one in group if one.page_sample is not None
    )
