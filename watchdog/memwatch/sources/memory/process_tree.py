"""The trainer and its descendants: who they are, and how much memory they use together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from memwatch.core.measurements import TreeMemory
from memwatch.core.memory_accounting import TreeTotals, tree_totals
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole, unreadable
from memwatch.sources.memory.process_descendants import DescendantFinder
from memwatch.sources.memory.rank_memory import RankTracker
from memwatch.sources.memory.shared_page_sampling import PageSamplingBudget, SampledProcess, SharedPageSampler
from memwatch.sources.procfs import ProcStatus, parse_limits, parse_statm, parse_status, read_stat

_STATM_BYTES = 160  # seven numbers of up to 20 digits
_DETAIL_SECONDS, _LIMITS_SECONDS = 20.0, 60.0  # between readings of the trainer's own status, and of its limits
_AGAIN_SECONDS = 1.0  # between tries to read what could not be read: no descriptor is left, say
_ENDED_KEPT = 64  # processes that have ended whose parents are remembered
_STEP = 128  # a process whose memory has changed by this part of the tree since its visit is visited again
_TURN_SECONDS = 16.0  # between those of one of the others, in turn: 35 us
_FIRST_CHANGES = 3  # of a new process after which it is asked whether it has started its program, as forks do at once


class _TreeProcess(SampledProcess):
    """One process of the tree. The held statm binds it to its identity: a recycled PID is not read by it."""

    __slots__ = ("_path", "data_bytes", "fd", "first_changes", "statm", "status")

    def __init__(self, root: str, pid: int) -> None:
        super().__init__(pid)
        self._path = f"{root}/{pid}/statm"
        self.statm = b""
        self.status: ProcStatus | None = None
        self.first_changes = _FIRST_CHANGES
        try:
            self.fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(self._path, error) from error
        try:
            self.update()
        except SourceError:  # it ended between the opening and the reading
            self.close()
            raise

    def update(self) -> bool:
        """Read statm, whether it has changed; TargetGoneError once the process is no more."""
        try:
            statm = os.pread(self.fd, _STATM_BYTES, 0)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if statm == self.statm:
            return False
        self.apply_statm(statm)
        return True

    def apply_statm(self, raw: bytes) -> None:
        """Know its memory by a new statm."""
        self.statm = raw
        self.size_bytes, resident_bytes, self.shared_bytes, self.data_bytes = parse_statm(raw)
        self.anon_bytes = resident_bytes - self.shared_bytes

    @property
    def shmem_bytes(self) -> int:
        """As of the latest status; none of it is known before."""
        return (self.status.shmem_bytes or 0) if self.status else 0

    @property
    def stack_bytes(self) -> int:
        """As of the latest status; statm counts it as data."""
        return (self.status.stack_bytes or 0) if self.status else 0

    @property
    def looks_like_another_program(self) -> bool:
        """It has dropped most of what it inherited, as one does that starts a program of its own."""
        return self.inherited_bytes > 2 * self.anon_bytes

    def close(self) -> None:
        """Close the held file."""
        self.gone = True
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class TreeReader:
    """The memory of a process and all its descendants: statm each time, the shape of the tree and details less often.

    A descendant whose parent has died stays in the tree, it still holds the job's memory. Forks are told from programs
    of their own by their address layout, shared pages from own ones by samples (sources.survey). Details that cannot be
    read stay as they were, and the record says so.
    """

    name = "procfs"

    def __init__(self, pid: int, root: str = "/proc", survey: PageSamplingBudget | None = None) -> None:
        """TargetGoneError when there is no such process."""
        self._proc = root
        self._stale, self._again_t = "", float("-inf")  # why details are not read anew; when that is tried again
        self._root = _TreeProcess(root, pid)
        self._root.layout = self._layout(self._root)
        self._others: dict[int, _TreeProcess] = {}
        self._known = {pid}
        self._parents: dict[int, int] = {}  # of all that were met, the latest last
        self._members: tuple[_TreeProcess, ...] = ()  # those that have memory, from the eldest on
        self._descendants = DescendantFinder(root)
        self._survey = SharedPageSampler(root, survey)
        self._ranks = RankTracker(pid, root)
        self._detail_t = self._limits_t = self._turn_t = float("-inf")
        self._turn = 0  # whose details are read next
        self._rlimits: tuple[int | None, int | None] = (None, None)
        self._sampled = False
        self._whole = TreeTotals(0, 0)
        self._record: TreeMemory | None = None  # the latest, while nothing has changed
        self._order()

    def tree_pids(self) -> frozenset[int]:
        """The PIDs of the tree, the trainer's own among them, as of the last read."""
        return frozenset(self._known)

    def parent_pids(self) -> Mapping[int, int]:
        """PID -> parent, as each was met, of the trainer's descendants and those that have ended lately."""
        return self._parents

    def read(self, now: float) -> TreeMemory:
        """The tree's memory; TargetGoneError when the trainer is gone or a zombie, else SourceError."""
        if self._root.update():
            self._record = None
        if self._root.size_bytes == 0:
            raise TargetGoneError(f"process {self._root.pid} has no memory: it has ended")
        self._update_others()
        if self._stale and now >= self._again_t:
            self._try_again(now)
        if found := self._newcomers(now):
            self._admit(found)
        if now >= self._detail_t or now >= self._turn_t:
            self._read_details(now)
        if self._record is None or self._record.stale != self._stale or self._survey.copy_bytes_per_second:
            self._record = self._make_record(now)
        if len(self._members) > 1 and self._survey.sample_within_budget(now, self._members, self._whole):
            self._record = self._make_record(now)
        return self._record

    def close(self) -> None:
        """Close all held files."""
        self._descendants.close()
        for process in (self._root, *self._others.values()):
            process.close()
        self._others.clear()

    # --- each look

    def _newcomers(self, now: float) -> dict[int, int]:
        """PID -> parent; none while nothing can be opened to look for them: those that are known are read on."""
        try:
            return self._descendants.find_new(now, self._known)
        except TargetGoneError:
            raise
        except SourceError as error:
            self._miss(error)
            return {}

    def _miss(self, error: SourceError) -> None:
        """The first of what cannot be read is told."""
        self._stale = self._stale or str(error)

    def _try_again(self, now: float) -> None:
        """All that may have been missed."""
        self._stale, self._again_t = "", now + _AGAIN_SECONDS
        self._detail_t = self._limits_t = float("-inf")
        self._descendants.force_full_walk()

    def _update_others(self) -> None:
        """Written out: 200 processes are read here, and most have not changed."""
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
            self._take_changes(changed)
        if gone:
            self._forget(gone)

    def _take_changes(self, changed: list[_TreeProcess]) -> None:
        step = self._whole.used_bytes // _STEP
        self._record = None
        for process in changed:
            if process.layout is None or process.first_changes or process.looks_like_another_program:
                process.first_changes = max(0, process.first_changes - 1)
                self._know_layout(process)
            if process.has_changed(step):
                self._survey.enqueue(process)
        if not all(process.size_bytes for process in changed):
            self._order()

    def _forget(self, gone: list[_TreeProcess]) -> None:
        for process in gone:
            process.close()
            del self._others[process.pid]
            self._known.discard(process.pid)
        self._survey.drop_exited()
        self._order()

    def _remember(self, pid: int, parent_pid: int) -> None:
        self._parents.pop(pid, None)
        self._parents[pid] = parent_pid
        if len(self._parents) > len(self._known) + _ENDED_KEPT:
            del self._parents[next(one for one in self._parents if one not in self._known)]

    def _order(self) -> None:
        """Who has memory, and who is the eldest of each family of forks."""
        members = [process for process in (self._root, *self._others.values()) if process.size_bytes]
        families = set()
        for process in members:
            process.eldest = process.layout not in families
            families.add(process.layout)
        self._members, self._record = tuple(members), None
        self._ranks.order(members)

    def _make_record(self, now: float) -> TreeMemory:
        root, others = self._root, self._members[1:]
        whole = self._whole = tree_totals(root, others, now)
        self._sampled = self._is_sampled(others)
        shmem = min(whole.shared_bytes, max(process.shmem_bytes for process in self._members))
        return TreeMemory(
            processes=len(self._members),
            rss_bytes=root.rss_bytes,
            used_bytes=whole.used_bytes,
            accounting="pages" if self._sampled else "anon+shmem" if others else "rss",
            anon_bytes=whole.anon_bytes,
            file_bytes=whole.shared_bytes - shmem,
            shmem_bytes=shmem,
            swap_bytes=self._swap(),
            virtual_bytes=root.size_bytes,
            data_bytes=max(0, root.data_bytes - root.stack_bytes),
            rlimit_as_bytes=self._rlimits[0],
            rlimit_data_bytes=self._rlimits[1],
            error_bytes=whole.error_bytes if self._sampled else None,
            cow_bytes=whole.cow_bytes if self._sampled else None,
            cow_bytes_per_second=whole.cow_bytes_per_second if self._sampled else None,
            stale=self._stale,
            reason=next((process.refused for process in others if process.refused), ""),
            survey_cost=self._survey.cost,
            ranks=self._ranks.memory(now),
        )

    def _is_sampled(self, others: Sequence[_TreeProcess]) -> bool:
        """Most were visited; new ones that wait for their visit do not change it."""
        known = sum(process.page_sample is not None or (self._sampled and process.queued) for process in others)
        return known > 0 and 2 * known >= len(others)

    def _swap(self) -> int | None:
        """Swap of each family of forks counted once, by its largest member."""
        families: dict[tuple[int, int] | None, int] = {}
        for process in self._members:
            if process.status is not None and process.status.swap_bytes is not None:
                families[process.layout] = max(families.get(process.layout, 0), process.status.swap_bytes)
        return sum(families.values()) if families else None

    # --- less often

    def _admit(self, found: Mapping[int, int]) -> None:
        """Take processes into the tree, given with their parents."""
        for pid, parent_pid in found.items():
            try:
                process = _TreeProcess(self._proc, pid)
            except SourceError as error:
                if not isinstance(error.__cause__, ProcessLookupError | FileNotFoundError | PermissionError):
                    self._miss(error)
                continue
            parent = self._others.get(parent_pid, self._root)
            self._others[pid] = process
            self._known.add(pid)
            self._remember(pid, parent_pid)
            self._read_status(process)
            process.layout = self._layout(process)
            process.rank = self._ranks.of_new(process, parent)
            process.met_late = not self._whole.rss_bytes  # the first look
            if process.layout == parent.layout:
                process.inherited_bytes = min(process.anon_bytes, parent.anon_bytes)
            self._survey.enqueue(process)
        self._order()

    def _read_details(self, now: float) -> None:
        if now >= self._detail_t:
            self._detail_t = now + _DETAIL_SECONDS
            self._read_status(self._root)
        if now >= self._limits_t:
            self._limits_t = now + _LIMITS_SECONDS
            self._read_limits()
            self._know_layout(self._root)
        if now >= self._turn_t and self._others:
            self._turn_t = now + _TURN_SECONDS
            self._turn = (self._turn + 1) % len(self._others)
            process = tuple(self._others.values())[self._turn]
            self._read_status(process)
            self._know_layout(process)

    def _read_limits(self) -> None:
        try:
            self._rlimits = parse_limits(read_whole(f"{self._proc}/{self._root.pid}/limits"))
        except TargetGoneError:
            raise
        except SourceError as error:
            self._miss(error)

    def _read_status(self, process: _TreeProcess) -> None:
        try:
            status = parse_status(read_whole(f"{self._proc}/{process.pid}/status"))
        except TargetGoneError:
            return
        except SourceError as error:
            self._miss(error)
            return
        if status != process.status:
            process.status, self._record = status, None

    def _know_layout(self, process: _TreeProcess) -> None:
        """Notice that it has started a program: what it held before, of another one, is gone."""
        layout = self._layout(process)
        if layout is None or layout == process.layout:
            process.inherited_bytes = min(process.inherited_bytes, process.anon_bytes)
            return
        known, process.layout = process.layout is not None, layout
        process.rank = self._ranks.of_program(process)
        if known:
            process.inherited_bytes, process.met_late = 0, False
            process.page_sample = process.change = process.space = None
            self._survey.enqueue(process)
        self._order()

    def _layout(self, process: _TreeProcess) -> tuple[int, int] | None:
        try:
            return read_stat(process.pid, self._proc).layout
        except TargetGoneError:
            return None
        except SourceError as error:
            self._miss(error)
            return None
