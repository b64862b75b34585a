"""Estimates how many pages each process of a tree has to itself, from a random sample of its pages.

New processes are sampled first, the others in rotation: every few seconds while they copy pages, else one a minute.
Sampling one process reads some hundred short runs of pages, none of which delays the process (see pagemap).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memwatch.core.measurements import PageSamplingCost
from memwatch.core.memory_accounting import (
    UNSEEN_RUNS,
    PageSample,
    ProcessMemory,
    Share,
    TreeTotals,
    copied,
    sampled_share,
    update_copy_rates,
)
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.memory.pagemap import (
    ANON_OWN,
    ANON_SHARED,
    FILE_OWN,
    FILE_SHARED,
    HUGE,
    PAGES_PER_RUN,
    ZERO,
    AddressSpace,
    FileKey,
    FileMapping,
    PagemapFile,
    file_mask,
    mask,
    read_address_space,
)

_TARGET_ERROR = 0.012  # standard error of all samples together that is aimed at, as a fraction of the tree's memory
_MIN_TREE_BYTES = 256 << 20  # a smaller tree is sampled as if it were this large
_MIN_RUNS, _MAX_RUNS = 16, 256  # runs of pages in one sample
_CHECKED_EVERY = 4  # every fourth run is looked up in elder processes; all, if one of these has pages that no elder has
_MAX_ELDERS = 8  # processes that are checked for a page
_MISSED_FRACTION = 0.03  # of the tree's memory: the copied pages that a round may miss
_ROUND_SECONDS, _MIN_ROUND_SECONDS, _MAX_ROUND_SECONDS = 3.0, 2.0, 1800.0  # of one rotation: first, least, most
_MAX_WAIT_SECONDS = 60.0  # between two samples of forks while nothing is copied, however many forks there are
_ROUND_FACTOR = 2.0  # by which each round is longer than the one before while little is copied
_SPACE_SECONDS, _SPACE_BYTES = 10.0, 1 << 24  # age and change of size up to which an elder's mappings are reused
_SLICE_SECONDS = 0.02  # for samples within one call
_VFORK_SECONDS = 0.25  # A fork is sampled from this age on: most programs that start another one have done so (chosen).
_CREDIT_SECONDS = 15.0  # of unused CPU share are kept; new processes may use as much in advance

# CPU seconds of a sample, of a read, of a scan and of a line of maps, measured on an idle machine. The sampler's own
# CPU time is three times that on a busy machine, so that a budget by it would allow fewer samples there.
_SAMPLE_SECONDS, _READ_SECONDS, _SCAN_SECONDS, _MAPPING_SECONDS = 60e-6, 3e-6, 2e-6, 3e-6

_Run = tuple[int, bytes, int, int]  # its index, the kinds of its pages, the first page, the number of pages


@dataclass(frozen=True, slots=True)
class PageSamplingBudget:
    """CPU that sampling may use, as on an idle machine; the shares are fractions of one core."""

    cpu_share_per_gib: float = 0.0001  # per GiB of RSS; reading smaps_rollup each second takes 150 times as much
    min_cpu_share: float = 0.0004
    max_cpu_share: float = 0.006  # 0 turns sampling off

    def cpu_share(self, rss_bytes: int) -> float:
        """The fraction of a core to spend on a tree with this sum of RSS."""
        return min(max(self.cpu_share_per_gib * rss_bytes / 2**30, self.min_cpu_share), self.max_cpu_share)


@dataclass(slots=True, eq=False)
class SampledProcess(ProcessMemory):
    """A process of the tree whose pages can be sampled."""

    pid: int = field(kw_only=True)
    layout: tuple[int, int] | None = None  # addresses of code and stack, which a fork shares with its parent
    size_bytes: int = 0
    has_exited: bool = False
    is_queued: bool = False  # for a sample out of turn
    failure: str = ""  # of the latest attempt to sample it
    runs: int = 0  # in the next sample; 0: not known yet
    address_space: AddressSpace | None = None
    address_space_bytes: int = 0  # its size when the mappings were read
    address_space_t: float = 0.0
    parent: SampledProcess | None = None
    fork_seen_t: float | None = None  # when it was to be sampled first

    def may_share_memory(self, now: float) -> bool:
        """Whether it may have no memory of its own, only its parent's, as between vfork and exec.

        The kernel shows all its pages as its own then, and its figures are those of its parent.
        """
        parent = self.parent
        if parent is None or self.layout != parent.layout or self.page_sample is not None:
            return False
        if self.fork_seen_t is None:
            self.fork_seen_t = now
        if not self.predates_watch and now - self.fork_seen_t < _VFORK_SECONDS:
            return True
        figures = self.size_bytes, self.anon_bytes, self.shared_bytes
        return figures == (parent.size_bytes, parent.anon_bytes, parent.shared_bytes)

    @property
    def has_memory(self) -> bool:
        """False for a zombie, which stays in the tree until its parent has reaped it."""
        return not self.has_exited and self.size_bytes > 0

    def has_changed(self, step_bytes: int) -> bool:
        """Its memory has changed by more than `step_bytes` since its page sample, which no longer describes it."""
        old = self.page_sample
        return old is not None and (
            old.anon_bytes - self.anon_bytes > step_bytes or abs(old.shared_bytes - self.shared_bytes) > step_bytes
        )


class SharedPageSampler:
    """Samples the pages of a tree's processes, within a budget of CPU."""

    def __init__(self, root: str = "/proc", budget: PageSamplingBudget | None = None) -> None:
        self._proc, self._budget = root, budget or PageSamplingBudget()
        self._credit = self._max_debt = 0.0  # CPU seconds that may be used now; in advance
        self._t: float | None = None
        self._used_bytes = self._aim_bytes = 0.0  # of the tree; the standard error that one sample may have
        self._new: deque[SampledProcess] = deque()
        self._queue: deque[SampledProcess] = deque()
        self._round_seconds, self._next_sample_t = _ROUND_SECONDS, 0.0
        self._forks = 1
        self.copy_bytes_per_second = 0.0  # of all processes together
        self.cost = PageSamplingCost()

    def enqueue(self, member: SampledProcess) -> None:
        """Sample `member` as soon as the budget allows: it is new, or runs another program, or has changed much."""
        if not member.is_queued and self._budget.max_cpu_share:
            member.is_queued = True
            self._new.append(member)

    def drop_exited(self) -> None:
        """Forget exited processes that wait to be sampled, which may take half an hour."""
        self._new = deque(member for member in self._new if not member.has_exited)
        self._queue = deque(member for member in self._queue if not member.has_exited)

    def sample_within_budget(self, now: float, members: Sequence[SampledProcess], whole: TreeTotals) -> bool:
        """Sample `members`, given eldest first, as far as the budget allows; return whether one was sampled."""
        if not self._new and now < self._next_sample_t:
            return False
        self._add_credit(now, whole.rss_bytes)
        self._forks = max(1, sum(not member.eldest for member in members))
        self._used_bytes = max(whole.used_bytes, _MIN_TREE_BYTES)
        self._aim_bytes = (
            _TARGET_ERROR * self._used_bytes / math.sqrt(self._forks)
        )  # the forks' errors partly cancel out
        samples_before, until = self.cost.visits, time.perf_counter() + _SLICE_SECONDS
        while (member := self._next_process(now)) is not None:
            self._sample_process(now, member, members)
            if time.perf_counter() >= until:
                break
        return self.cost.visits != samples_before

    def _add_credit(self, now: float, rss_bytes: int) -> None:
        share = self._budget.cpu_share(rss_bytes)
        passed = _CREDIT_SECONDS if self._t is None else max(0.0, now - self._t)
        most = self._max_debt = _CREDIT_SECONDS * share
        self._credit = min(most, self._credit + passed * share)
        self._t = now

    def _next_process(self, now: float) -> SampledProcess | None:
        for _ in range(len(self._new)):
            if self._credit <= -self._max_debt:
                break
            member = self._new.popleft()
            if member.may_share_memory(now) and member.has_memory:
                self._new.append(member)
                continue
            member.is_queued = False
            if member.has_memory:
                if member.page_sample is None and member not in self._queue:
                    if not self._queue:
                        self._schedule_next(now)
                    self._queue.append(member)
                return member  # the rotation is not delayed: where processes always start, it would never be due
        return self._next_in_queue(now) if now >= self._next_sample_t and self._credit > 0 else None

    def _next_in_queue(self, now: float) -> SampledProcess | None:
        for _ in range(len(self._queue)):
            member = self._queue.popleft()
            if not member.has_memory:
                continue
            self._queue.append(member)
            if not member.eldest or member.page_sample is None or now - member.page_sample.t >= _MAX_ROUND_SECONDS:
                self._schedule_next(now)
                return member
        self._next_sample_t = now + _MAX_WAIT_SECONDS
        return None

    def _schedule_next(self, now: float) -> None:
        due_t = max(self._next_sample_t, now - self._round_seconds) + self._round_seconds / self._forks
        self._next_sample_t = min(due_t, now + self._round_seconds)

    def _sample_process(self, now: float, member: SampledProcess, members: Sequence[SampledProcess]) -> None:
        began = time.thread_time()
        sampling = _PageSampling(member, members, self._aim_bytes, self._proc, now)
        member.failure = ""
        try:
            self._apply_sample(member, sampling.sample(), members)
        except TargetGoneError:
            pass
        except SourceError as error:
            member.failure, member.page_sample = str(error), None
            self._round_seconds = self._max_round_seconds()
        finally:
            sampling.close()
        self._credit -= sampling.cost_seconds
        cost, pages, seconds = self.cost, PAGES_PER_RUN * sampling.reads, time.thread_time() - began
        refused = cost.refused + bool(member.failure)
        self.cost = PageSamplingCost(cost.visits + 1, refused, cost.pages + pages, cost.cpu_seconds + seconds)

    def _apply_sample(self, member: SampledProcess, sample: PageSample, members: Sequence[SampledProcess]) -> None:
        before, member.page_sample = member.page_sample, sample
        if not member.eldest:
            wanted = member.runs * (sample.error_bytes / self._aim_bytes) ** 2
            member.runs = int(min(max(wanted, member.runs / 2, _MIN_RUNS), 2 * member.runs, _MAX_RUNS))
            if before is not None and sample.t > before.t:
                member.change = copied(before, sample)
        if before is not None:
            self.copy_bytes_per_second = update_copy_rates([fork for fork in members if not fork.eldest])
            self._adjust_round()

    def _adjust_round(self) -> None:
        """Lengthen the round with each sample, up to where it would miss too many copied pages."""
        longest = self._max_round_seconds()
        if self.copy_bytes_per_second:
            missed_bytes = _MISSED_FRACTION * self._used_bytes
            longest = min(longest, max(_MIN_ROUND_SECONDS, missed_bytes / self.copy_bytes_per_second))
        self._round_seconds = min(longest, self._round_seconds * _ROUND_FACTOR ** (1 / self._forks))

    def _max_round_seconds(self) -> float:
        return min(_MAX_ROUND_SECONDS, _MAX_WAIT_SECONDS * self._forks)


class _PageSampling:
    """Takes one page sample of one process, and holds the files that are open meanwhile."""

    def __init__(
        self, member: SampledProcess, members: Sequence[SampledProcess], aim_bytes: float, proc: str, now: float
    ) -> None:
        self._member, self._aim_bytes = member, aim_bytes
        self._elders = members[: members.index(member)]
        self._proc, self._now = proc, now
        self._open: dict[int, PagemapFile | None] = {}
        self._maps_lines = 0
        self._holders: dict[FileKey, list[tuple[SampledProcess, FileMapping]]] = {}

    def sample(self) -> PageSample:
        """Take the sample; TargetGoneError or SourceError."""
        member = self._member
        self._mine, self._space = PagemapFile(member.pid, self._proc), self._update_address_space(member)
        self._open[member.pid] = self._mine
        own = Share(1.0, 0.0) if member.eldest else self._anon_share()
        return PageSample(
            self._now,
            member.anon_bytes,
            member.shared_bytes,
            int(own.value * member.anon_bytes),
            int(own.error * member.anon_bytes),
            self._shared_share() if self._elders else 1.0,
        )

    @property
    def reads(self) -> int:
        """Runs of pages read so far, in all processes."""
        return sum(pages.reads for pages in self._opened())

    @property
    def cost_seconds(self) -> float:
        """CPU seconds that this work takes on an idle machine."""
        scans = sum(pages.scans for pages in self._opened())
        work = _READ_SECONDS * self.reads + _SCAN_SECONDS * scans + _MAPPING_SECONDS * self._maps_lines
        return _SAMPLE_SECONDS + work

    def close(self) -> None:
        for pages in self._opened():
            pages.close()

    def _opened(self) -> list[PagemapFile]:
        return [pages for pages in self._open.values() if pages is not None]

    def _update_address_space(self, member: SampledProcess) -> AddressSpace:
        """Read the mappings of `member` again if they may have changed too much since they were read."""
        change = abs(member.size_bytes - member.address_space_bytes)
        is_recent = member is not self._member and self._now - member.address_space_t < _SPACE_SECONDS
        if member.address_space is None or change > (_SPACE_BYTES if is_recent else 0):
            known = (member.address_space, *(elder.address_space for elder in self._elders))
            member.address_space = read_address_space(member.pid, self._proc, known)
            self._maps_lines += member.address_space.mappings
            member.address_space_bytes, member.address_space_t = member.size_bytes, self._now
        return member.address_space

    def _open_pagemap(self, elder: SampledProcess) -> PagemapFile | None:
        """None when the process has exited or may not be read."""
        if elder.pid not in self._open:
            try:
                self._open[elder.pid] = PagemapFile(elder.pid, self._proc)
            except SourceError:
                self._open[elder.pid] = None
        return self._open[elder.pid]

    # --- anonymous pages

    def _anon_share(self) -> Share:
        member, runs, read = self._member, self._space.anon, self._mine.read_page_kinds
        member.runs = member.runs or self._first_run_count(member.anon_bytes)
        own: list[int] = []
        present: list[int] = []
        shared: list[_Run] = []
        for i, (_, first, count) in enumerate(runs.sample(member.runs)):
            kinds = read(first, count)
            mine, others = kinds.count(ANON_OWN), kinds.count(ANON_SHARED)
            own.append(mine)
            present.append(mine + others)
            if others:
                shared.append((i, kinds, first, count))
        for i, orphans in self._orphans_by_run(shared):
            own[i] += orphans
        return sampled_share(own, present, runs.total)

    def _orphans_by_run(self, shared: list[_Run]) -> Iterator[tuple[int, int]]:
        """Yield for each run how many of its shared pages no elder has; mostly none, so some runs are checked first."""
        kin = [elder for elder in self._elders if elder.layout == self._member.layout][:_MAX_ELDERS]
        some = [(run[0], self._orphans_in_run(*run[1:], kin)) for run in shared[::_CHECKED_EVERY]]
        yield from some
        if any(orphans for _, orphans in some):
            rest = (run for i, run in enumerate(shared) if i % _CHECKED_EVERY)
            yield from ((run[0], self._orphans_in_run(*run[1:], kin)) for run in rest)

    def _orphans_in_run(self, kinds: bytes, first: int, count: int, kin: Sequence[SampledProcess]) -> int:
        left = mask(kinds, ANON_SHARED)
        for elder in kin:
            pages = self._open_pagemap(elder)
            if pages is None:
                continue
            theirs = pages.read_page_kinds(first, count)
            left &= ~mask(theirs, ANON_SHARED)
            # The kernel reports a huge page as exclusive when its first 4 KiB are.
            if alone := left & mask(theirs, ANON_OWN):
                left &= ~(alone & pages.scan_category(HUGE, first, count))
            if not left:
                return 0
        return (left & ~self._mine.scan_category(ZERO, first, count)).bit_count()

    # --- pages of files and shared memory

    def _shared_share(self) -> float:
        runs, files = self._space.file_runs, self._space.files
        own = present = 0
        wanted = self._first_run_count(self._member.shared_bytes)
        for index, first, count in runs.sample(wanted):
            kinds = self._mine.read_page_kinds(first, count)
            left = mask(kinds, FILE_SHARED)
            alone = kinds.count(FILE_OWN)
            present += alone + left.bit_count()
            own += alone + (self._held_first(files[index], left, first, count) if left else 0)
        return own / present if present else 0.0

    def _held_first(self, mapping: FileMapping, left: int, first: int, count: int) -> int:
        """Pages that others have too, but no elder one, wherever it maps them."""
        offset = mapping.offset + first - mapping.first
        for elder, theirs in self._holders_of(mapping.key):
            low = max(offset, theirs.offset)
            shown = min(offset + count, theirs.offset + theirs.count) - low
            pages = self._open_pagemap(elder) if shown > 0 else None
            if pages is not None:
                held = file_mask(pages.read_page_kinds(theirs.first + low - theirs.offset, shown))
                left &= ~(held << 8 * (low - offset))
            if not left:
                break
        return left.bit_count()

    def _holders_of(self, key: FileKey) -> list[tuple[SampledProcess, FileMapping]]:
        if key not in self._holders:
            self._holders[key] = [
                (elder, mapping)
                for elder in self._elders
                if (space := self._elder_space(elder)) is not None
                for mapping in space.by_file.get(key, ())
            ][:_MAX_ELDERS]
        return self._holders[key]

    def _elder_space(self, elder: SampledProcess) -> AddressSpace | None:
        """As of its latest sample; the trainer, which is not sampled, is read for this."""
        if elder is not self._elders[0]:
            return elder.address_space
        try:
            return self._update_address_space(elder)
        except SourceError:
            return elder.address_space

    def _first_run_count(self, size_bytes: int) -> int:
        """Runs to read of a process without a previous sample; a sample with no hit may miss UNSEEN_RUNS runs."""
        return int(min(max(UNSEEN_RUNS * size_bytes / self._aim_bytes, _MIN_RUNS), _MAX_RUNS))
