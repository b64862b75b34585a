"""Groups the processes of a tree by rank, from the RANK and LOCAL_RANK that the launcher sets for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memwatch.core.measurements import RankMemory
from memwatch.core.memory_accounting import ProcessMemory
from memwatch.sources.target.target_facts import read_environ


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank of a distributed run, with the PID that its launcher started."""

    rank: int
    local_rank: int
    pid: int


class RankMember(ProcessMemory):
    """A process that may belong to a rank."""

    __slots__ = ("layout", "pid", "rank")

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        self.layout: tuple[int, int] | None = None  # addresses of code and stack, which a fork shares with its parent
        self.rank: Rank | None = None


class RankTracker:
    """Finds the ranks below a process; a rank itself has none, since all its children inherit its variables.

    A rank that was forked without an exec, as by multiprocessing, has no variables of its own and is not found.
    """

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._root = root
        self._has_no_ranks = "LOCAL_RANK" in (read_environ(pid, root) or {})
        self._groups: tuple[tuple[Rank, tuple[RankMember, ...]], ...] = ()

    def rank_of_new_process(self, process: RankMember, parent: RankMember) -> Rank | None:
        """Return the rank of a new process; a fork has its parent's environment, which need not be read."""
        if parent.rank is not None or self._has_no_ranks or process.layout == parent.layout:
            return parent.rank
        return self.rank_of_new_program(process)

    def rank_of_new_program(self, process: RankMember) -> Rank | None:
        """Return the rank of a process after an exec: the one it already belongs to, or that of its environment."""
        if process.rank is not None or self._has_no_ranks:
            return process.rank
        return parse_rank(process.pid, read_environ(process.pid, self._root) or {})

    def set_members(self, members: Iterable[RankMember]) -> None:
        """Group `members`, the processes that have memory now."""
        groups: dict[Rank, list[RankMember]] = {}
        for process in members:
            if process.rank is not None:
                groups.setdefault(process.rank, []).append(process)
        ordered = sorted(groups.items(), key=lambda item: item[0].rank)
        self._groups = tuple((rank, tuple(group)) for rank, group in ordered)

    def rank_memories(self, now: float) -> tuple[RankMemory, ...]:
        """Memory of each rank, by number; a page that ranks share counts for the first to hold it, or for none."""
        return tuple(
            RankMemory(
                rank.rank, rank.local_rank, rank.pid, _used_bytes(group, now), tuple(process.pid for process in group)
            )
            for rank, group in self._groups
        )


def parse_rank(pid: int, environ: Mapping[str, str]) -> Rank | None:
    """The rank that a process has by its environment; None without two valid numbers."""
    numbers = [environ.get(name, "") for name in ("RANK", "LOCAL_RANK")]
    if not all(text.isascii() and text.isdigit() and len(text) < 10 for text in numbers):
        return None
    return Rank(int(numbers[0]), int(numbers[1]), pid)


def _used_bytes(group: Sequence[ProcessMemory], now: float) -> int:
    """Bytes of anonymous pages, plus the file and shared pages that page samples found to be the rank's own."""
    own = sum(process.own_bytes(now) for process in group)
    sampled = [(process.shared_bytes, process.page_sample) for process in group]
    return own + sum(int(shared * sample.shared_share) for shared, sample in sampled if sample is not None)
