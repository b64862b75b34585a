"""Reads the memory of the trainer and all its descendants, in total and by rank."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memwatch.core.measurements import ChildMemory, RankMemory, TreeMemory
from memwatch.core.memory_accounting import ProcessMemory, TreeTotals, tree_totals
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole, unreadable
from memwatch.sources.memory.process_descendants import DescendantFinder
from memwatch.sources.memory.shared_page_sampling import PageSamplingBudget, SampledProcess, SharedPageSampler
from memwatch.sources.procfs import ProcStatus, parse_limits, parse_statm, parse_status, read_stat
from memwatch.sources.target.target_facts import parse_number, read_environ

_STATM_BYTES = 160  # seven numbers of up to 20 digits
_STATUS_SECONDS, _LIMITS_SECONDS = 20.0, 60.0  # between readings of the trainer's /proc/PID/status, and of its limits
_OTHER_SECONDS = 16.0  # between readings of the status of one of the others, in rotation; one takes 35 us
_RETRY_SECONDS = 1.0  # between attempts to read what failed, for example because no descriptor was left
_LARGEST = 6  # children that are named
_MAX_ENDED = 64  # exited processes whose parents are remembered
_RESAMPLE_FRACTION = 1 / 128  # of the tree's memory; a process that changed by more gets a new page sample
_FIRST_CHANGES = 3  # of a new process after which its layout is read again, since most forks exec at once


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank of a distributed run, with the PID that its launcher started."""

    rank: int
    local_rank: int
    pid: int


class _TreeProcess(SampledProcess):
    """One process of the tree; the open statm belongs to it, so a reused PID is never read."""

    __slots__ = ("_path", "data_bytes", "fd", "first_changes", "is_descendant", "rank", "statm", "status")

    def __init__(self, root: str, pid: int) -> None:
        super().__init__(pid=pid)
        self._path = f"{root}/{pid}/statm"
        self.statm = b""
        self.status = ProcStatus(None, None, None)  # as last read
        self.rank: Rank | None = None
        self.first_changes = _FIRST_CHANGES
        self.is_descendant = True  # of the trainer; else a member of its job, or below one
        try:
            self.fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(self._path, error) from error
        try:
            self.update()
        except SourceError:  # it exited between the opening and the reading
            self.close()
            raise

    def update(self) -> bool:
        """Read statm and return whether it has changed; TargetGoneError after the exit."""
        try:
            statm = os.pread(self.fd, _STATM_BYTES, 0)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if statm == self.statm:
            return False
        self.apply_statm(statm)
        return True

    def apply_statm(self, raw: bytes) -> None:
        self.statm = raw
        self.size_bytes, resident_bytes, self.shared_bytes, self.data_bytes = parse_statm(raw)
        self.anon_bytes = resident_bytes - self.shared_bytes

    def close(self) -> None:
        self.has_exited = True
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class TreeReader:
    """Reads the memory of a process and all its descendants: statm each time, new processes and details less often.

    A descendant whose parent has exited stays in the tree, since it still holds the job's memory. The address layout
    distinguishes forks from other programs, and page samples (shared_page_sampling) shared pages from own ones. Details
    that cannot be read keep their previous values, and the record says why in `stale`.
    """

    name = "procfs"

    def __init__(self, pid: int, root: str = "/proc", sampling_budget: PageSamplingBudget | None = None) -> None:
        """Begin with `pid` alone; TargetGoneError when there is no such process."""
        self._proc_root = root
        self._stale, self._retry_t = "", float("-inf")  # why details are old; when to retry
        self._root = _TreeProcess(root, pid)
        self._root.layout = self._read_layout(self._root)
        self._others: dict[int, _TreeProcess] = {}
        self._known = {pid}
        self._parents: dict[int, int] = {}  # of all processes found, the latest last
        self._members: tuple[_TreeProcess, ...] = ()  # those that have memory, the eldest first
        self._descendants = DescendantFinder(root)
        self._sampler = SharedPageSampler(root, sampling_budget)
        self._ranks = RankTracker(pid, root)
        self._next_status_t = self._next_limits_t = self._next_other_t = float("-inf")
        self._next_index = 0  # in `_others`: whose status is read next
        self._rlimits: tuple[int | None, int | None] = (None, None)
        self._sampled = False
        self._totals = TreeTotals(0, 0)
        self._record: TreeMemory | None = None  # the latest, until something changes
        self._update_members()

    def tree_pids(self) -> frozenset[int]:
        """The PIDs of the tree as of the latest reading, the trainer's included."""
        return frozenset(self._known)

    def parent_pids(self) -> Mapping[int, int]:
        """PID -> parent, at the time it was found, of descendants and of those that exited recently."""
        return self._parents

    def adopt(self, members: Mapping[int, int]) -> None:
        """Add processes that belong to the job but are no descendants, PID -> parent; what is below them follows."""
        self._add_processes(members, are_members=True)
        self._descendants.force_full_walk()

    def adopted_pids(self) -> frozenset[int]:
        """The PIDs of the tree that are no descendants of the trainer."""
        return frozenset(process.pid for process in self._others.values() if not process.is_descendant)

    def read_memory(self, now: float) -> TreeMemory:
        """Read the tree's memory; TargetGoneError when the trainer has exited or is a zombie, else SourceError."""
        if self._root.update():
            self._record = None
        if self._root.size_bytes == 0:
            raise TargetGoneError(f"process {self._root.pid} has no memory: it has ended")
        self._update_others()
        if self._stale and now >= self._retry_t:
            self._stale, self._retry_t = "", now + _RETRY_SECONDS
            self._next_status_t = self._next_limits_t = float("-inf")
            self._descendants.force_full_walk()
        if found := self._find_new(now):
            self._add_processes(found)
        if now >= self._next_status_t or now >= self._next_other_t:
            self._read_details(now)
        if self._record is None or self._record.stale != self._stale or self._sampler.copy_bytes_per_second:
            self._record = self._make_record(now)
        if len(self._members) > 1 and self._sampler.sample_within_budget(now, self._members, self._totals):
            self._record = self._make_record(now)
        return self._record

    def close(self) -> None:
        self._descendants.close()
        for process in (self._root, *self._others.values()):
            process.close()
        self._others.clear()

    # --- at each sample

    def _find_new(self, now: float) -> dict[int, int]:
        """Return PID -> parent of new processes; none when the search fails, and the known ones are still read."""
        try:
            return self._descendants.find_new(now, self._known)
        except TargetGoneError:
            raise
        except SourceError as error:
            self._note_failure(error)
            return {}

    def _note_failure(self, error: SourceError) -> None:
        """Keep the first failure for the record."""
        self._stale = self._stale or str(error)

    def _update_others(self) -> None:
        """Read the descendants' statm; inlined, as there may be 200 of them and most have not changed."""
        pread, changed, gone = os.pread, [], []
        for process in self._others.values():
            try:
                statm = pread(process.fd, _STATM_BYTES, 0)
            except OSError:
                gone.append(process)
                continue
            if statm != process.statm:
                process.apply_statm(statm)
                changed.append(process)
        if changed:
            self._apply_changes(changed)
        if gone:
            self._remove_exited(gone)

    def _apply_changes(self, changed: list[_TreeProcess]) -> None:
        step = int(self._totals.used_bytes * _RESAMPLE_FRACTION)
        self._record = None
        for process in changed:
            has_dropped_most = process.inherited_bytes > 2 * process.anon_bytes  # as after an exec
            if process.layout is None or process.first_changes or has_dropped_most:
                process.first_changes = max(0, process.first_changes - 1)
                self._update_layout(process)
            if process.has_changed(step):
                self._sampler.enqueue(process)
        if not all(process.size_bytes for process in changed):
            self._update_members()

    def _remove_exited(self, gone: list[_TreeProcess]) -> None:
        for process in gone:
            process.close()
            del self._others[process.pid]
            self._known.discard(process.pid)
        self._sampler.drop_exited()
        self._update_members()

    def _remember_parent(self, pid: int, parent_pid: int) -> None:
        self._parents.pop(pid, None)
        self._parents[pid] = parent_pid
        if len(self._parents) > len(self._known) + _MAX_ENDED:
            del self._parents[next(ended for ended in self._parents if ended not in self._known)]

    def _update_members(self) -> None:
        """Find who has memory, and the eldest of each family of forks."""
        members = [process for process in (self._root, *self._others.values()) if process.size_bytes]
        families = set()
        for process in members:
            process.eldest = process.layout not in families
            families.add(process.layout)
        self._members, self._record = tuple(members), None
        self._ranks.set_members(members)

    def _make_record(self, now: float) -> TreeMemory:
        root, others = self._root, self._members[1:]
        whole = self._totals = tree_totals(root, others, now)
        self._sampled = self._is_sampled(others)
        adopted = [process for process in others if not process.is_descendant]
        shmem = min(whole.shared_bytes, max(process.status.shmem_bytes or 0 for process in self._members))
        return TreeMemory(
            processes=len(self._members),
            rss_bytes=root.rss_bytes,
            used_bytes=whole.used_bytes,
            accounting="pages" if self._sampled else "anon+shmem" if others else "rss",
            anon_bytes=whole.anon_bytes,
            file_bytes=whole.shared_bytes - shmem,
            shmem_bytes=shmem,
            swap_bytes=self._swap_bytes(),
            virtual_bytes=root.size_bytes,
            data_bytes=max(0, root.data_bytes - (root.status.stack_bytes or 0)),  # statm counts stacks as data
            rlimit_as_bytes=self._rlimits[0],
            rlimit_data_bytes=self._rlimits[1],
            error_bytes=whole.error_bytes if self._sampled else None,
            cow_bytes=whole.cow_bytes if self._sampled else None,
            cow_bytes_per_second=whole.cow_bytes_per_second if self._sampled else None,
            stale=self._stale,
            reason=next((process.failure for process in others if process.failure), ""),
            survey_cost=self._sampler.cost,
            ranks=self._ranks.rank_memories(now),
            member_processes=len(adopted),
            member_bytes=sum(process.own_bytes(now) for process in adopted) if adopted else None,
            largest=_largest(others, now),
        )

    def _is_sampled(self, others: Sequence[_TreeProcess]) -> bool:
        """Most have a page sample; new processes that wait for theirs do not change the answer."""
        known = sum(process.page_sample is not None or (self._sampled and process.is_queued) for process in others)
        return known > 0 and 2 * known >= len(others)

    def _swap_bytes(self) -> int | None:
        """Bytes in swap; each family of forks counts once, by its largest member."""
        families: dict[tuple[int, int] | None, int] = {}
        for process in self._members:
            if process.status.swap_bytes is not None:
                families[process.layout] = max(families.get(process.layout, 0), process.status.swap_bytes)
        return sum(families.values()) if families else None

    # --- less often

    def _add_processes(self, found: Mapping[int, int], *, are_members: bool = False) -> None:
        """Add processes to the tree; `found` is PID -> parent."""
        for pid, parent_pid in found.items():
            if pid in self._known:
                continue
            try:
                process = _TreeProcess(self._proc_root, pid)
            except SourceError as error:
                if not isinstance(error.__cause__, ProcessLookupError | FileNotFoundError | PermissionError):
                    self._note_failure(error)
                continue
            parent = self._others.get(parent_pid, self._root)
            process.parent = parent
            process.is_descendant = parent.is_descendant and not are_members
            self._others[pid] = process
            self._known.add(pid)
            self._remember_parent(pid, parent_pid)
            self._read_status(process)
            process.layout = self._read_layout(process)
            process.rank = self._ranks.rank_of_new_process(process, parent)
            process.predates_watch = not self._totals.rss_bytes  # found by the first sample
            if process.layout == parent.layout:
                process.inherited_bytes = min(process.anon_bytes, parent.anon_bytes)
            self._sampler.enqueue(process)
        self._update_members()

    def _read_details(self, now: float) -> None:
        if now >= self._next_status_t:
            self._next_status_t = now + _STATUS_SECONDS
            self._read_status(self._root)
        if now >= self._next_limits_t:
            self._next_limits_t = now + _LIMITS_SECONDS
            self._read_limits()
            self._update_layout(self._root)
        if now >= self._next_other_t and self._others:
            self._next_other_t = now + _OTHER_SECONDS
            self._next_index = (self._next_index + 1) % len(self._others)
            process = tuple(self._others.values())[self._next_index]
            self._read_status(process)
            self._update_layout(process)

    def _read_limits(self) -> None:
        try:
            self._rlimits = parse_limits(read_whole(f"{self._proc_root}/{self._root.pid}/limits"))
        except TargetGoneError:
            raise
        except SourceError as error:
            self._note_failure(error)

    def _read_status(self, process: _TreeProcess) -> None:
        try:
            status = parse_status(read_whole(f"{self._proc_root}/{process.pid}/status"))
        except TargetGoneError:
            return
        except SourceError as error:
            self._note_failure(error)
            return
        if status != process.status:
            process.status, self._record = status, None

    def _update_layout(self, process: _TreeProcess) -> None:
        """Detect an exec: the process then has no inherited memory any more, and its page sample is void."""
        layout = self._read_layout(process)
        if layout is None or layout == process.layout:
            process.inherited_bytes = min(process.inherited_bytes, process.anon_bytes)
            return
        known, process.layout = process.layout is not None, layout
        process.rank = self._ranks.rank_of_new_program(process)
        if known:
            process.inherited_bytes, process.predates_watch = 0, False
            process.page_sample = process.change = process.address_space = None
            self._sampler.enqueue(process)
        self._update_members()

    def _read_layout(self, process: _TreeProcess) -> tuple[int, int] | None:
        try:
            return read_stat(process.pid, self._proc_root).layout
        except TargetGoneError:
            return None
        except SourceError as error:
            self._note_failure(error)
            return None


# --- ranks ------------------------------------------------------------------------------------------------------------


class RankTracker:
    """Finds the ranks below a process; a rank itself has none, since all its children inherit its variables.

    A rank that was forked without an exec, as by multiprocessing, has no variables of its own and is not found.
    """

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._proc = root
        self._has_no_ranks = "LOCAL_RANK" in (read_environ(pid, root) or {})
        self._groups: tuple[tuple[Rank, tuple[_TreeProcess, ...]], ...] = ()

    def rank_of_new_process(self, process: _TreeProcess, parent: _TreeProcess) -> Rank | None:
        """Return the rank of a new process; a fork has its parent's environment, which need not be read."""
        if parent.rank is not None or self._has_no_ranks or process.layout == parent.layout:
            return parent.rank
        return self.rank_of_new_program(process)

    def rank_of_new_program(self, process: _TreeProcess) -> Rank | None:
        """Return the rank of a process after an exec: the one it already belongs to, or that of its environment."""
        if process.rank is not None or self._has_no_ranks:
            return process.rank
        return parse_rank(process.pid, read_environ(process.pid, self._proc) or {})

    def set_members(self, members: Iterable[_TreeProcess]) -> None:
        """Group `members`, the processes that have memory now."""
        groups: dict[Rank, list[_TreeProcess]] = {}
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
    rank, local_rank = (parse_number(environ.get(name, "")) for name in ("RANK", "LOCAL_RANK"))
    return None if rank is None or local_rank is None else Rank(rank, local_rank, pid)


def _largest(processes: Sequence[_TreeProcess], now: float) -> tuple[ChildMemory, ...]:
    known = [ChildMemory(process.pid, process.status.name, process.own_bytes(now)) for process in processes]
    return tuple(heapq.nlargest(_LARGEST, known, key=lambda child: child.bytes))


def _used_bytes(group: Sequence[ProcessMemory], now: float) -> int:
    """Bytes of anonymous pages, plus the file and shared pages that page samples found to be the rank's own."""
    own = sum(process.own_bytes(now) for process in group)
    sampled = [(process.shared_bytes, process.page_sample) for process in group]
    return own + sum(int(shared * sample.shared_share) for shared, sample in sampled if sample is not None)
