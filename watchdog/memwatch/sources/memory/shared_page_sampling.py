"""Visits to the processes of a tree: how many of their pages are their own, told from a random sample of pages.

New processes are visited first, the others in turn: every few seconds while they copy pages, else one a minute.
A visit reads some hundred short runs of pages, none of which holds the process up (sources.pages).
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memwatch.core.measurements import PageSamplingCost
from memwatch.core.memory_accounting import (
    UNSEEN_RUNS,
    PageSample,
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
from memwatch.sources.memory.rank_memory import RankMember

_ERROR = 0.012  # of the whole tree: the standard error of all samples together that is aimed at
_SMALL_BYTES = 256 << 20  # a tree below this is sampled as if it were as large
_RUNS_LEAST, _RUNS_MOST = 16, 256  # in one visit
_CHECKED = 4  # each so many-th run is looked up in elder processes; all, when one of those has pages that none holds
_ELDERS = 8  # processes asked whether they hold a page
_GROWTH = 0.03  # of the tree, in copied pages, that a round may miss
_ROUND_SECONDS, _ROUND_LEAST, _ROUND_MOST = 3.0, 2.0, 1800.0
_WAIT_MOST = 60.0  # between two visits to forks in a still tree, however many there are
_SLOWER = 2.0  # from round to round while little is copied
_SPACE_SECONDS, _SPACE_BYTES = 10.0, 1 << 24  # for which an elder's mappings are used that have changed by so little

# What a visit costs by its work, as measured. Its CPU time is three times as long on a busy machine, and a budget in
# that would tell less of a tree the busier its machine is.
_VISIT_SECONDS, _READ_SECONDS, _MARK_SECONDS, _MAPPING_SECONDS = 60e-6, 3e-6, 2e-6, 3e-6

_World = tuple[str, float, Callable[[], float]]  # where /proc is, the time, and chance
_Run = tuple[int, bytes, int, int]  # its number, kinds of pages, first page, pages


@dataclass(frozen=True, slots=True)
class PageSamplingBudget:
    """What visits may cost, on a quiet machine."""

    cpu_share_per_gib: float = 0.0001  # of one core, by the sum of RSS: 1/150 of reading smaps_rollup each second
    least_cpu_share: float = 0.0004
    most_cpu_share: float = 0.006  # 0: no visits
    slice_seconds: float = 0.02  # within one look
    saved_seconds: float = 15.0  # for which an unspent share is kept, and new processes may take it in advance

    def share(self, rss_bytes: int) -> float:
        """The share of a core that a tree with this sum of RSS is worth."""
        return min(max(self.cpu_share_per_gib * rss_bytes / 2**30, self.least_cpu_share), self.most_cpu_share)


class SampledProcess(RankMember):
    """A member of the tree that can be visited."""

    __slots__ = ("gone", "queued", "refused", "runs", "size_bytes", "space", "space_size", "space_t")

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.size_bytes = 0
        self.gone = self.queued = False
        self.refused = ""  # why its latest visit gave nothing
        self.runs = 0  # for the next visit; 0: not known yet
        self.space: AddressSpace | None = None
        self.space_size, self.space_t = 0, 0.0

    @property
    def has_memory(self) -> bool:
        """A zombie has none, though it is there until its parent asks how it ended."""
        return not self.gone and self.size_bytes > 0

    def has_changed(self, step_bytes: int) -> bool:
        """It was visited, and holds so much less or more since that the shares found then do not go for it."""
        visit = self.page_sample
        return visit is not None and (
            visit.anon_bytes - self.anon_bytes > step_bytes or abs(visit.shared_bytes - self.shared_bytes) > step_bytes
        )


class SharedPageSampler:
    """Visits the processes of a tree, within a budget."""

    def __init__(
        self, root: str = "/proc", budget: PageSamplingBudget | None = None, chance: Callable[[], float] = random.random
    ) -> None:
        self._proc, self._chance = root, chance
        self._budget = budget or PageSamplingBudget()
        self._credit = self._most_debt = 0.0  # CPU seconds that may be spent now; by which it may fall short
        self._t: float | None = None
        self._new: deque[SampledProcess] = deque()
        self._turns: deque[SampledProcess] = deque()
        self._round_seconds, self._due_t = _ROUND_SECONDS, 0.0
        self._forks = 1
        self.copy_bytes_per_second = 0.0  # bytes/s, all processes together
        self.cost = PageSamplingCost()

    def enqueue(self, member: SampledProcess) -> None:
        """Visit it as soon as the budget allows: it is new, or another program now, or much changed."""
        if not member.queued and self._budget.most_cpu_share:
            member.queued = True
            self._new.append(member)

    def drop_exited(self) -> None:
        """Some have ended: who waits for a visit, or for a turn that may be half an hour away, is not kept for it."""
        self._new = deque(member for member in self._new if not member.gone)
        self._turns = deque(member for member in self._turns if not member.gone)

    def sample_within_budget(self, now: float, members: Sequence[SampledProcess], whole: TreeTotals) -> bool:
        """Go on with the visits as far as the budget allows; `members` from the eldest on. True: there was one."""
        if not self._new and now < self._due_t:
            return False
        self._earn(now, whole.rss_bytes)
        self._forks = max(1, sum(not member.eldest for member in members))
        visits, until = self.cost.visits, time.perf_counter() + self._budget.slice_seconds
        while (member := self._next(now)) is not None:
            self._visit(now, member, members, max(whole.used_bytes, _SMALL_BYTES))
            if time.perf_counter() >= until:
                break
        return self.cost.visits != visits

    def _earn(self, now: float, rss_bytes: int) -> None:
        saved_seconds, share = self._budget.saved_seconds, self._budget.share(rss_bytes)
        passed = saved_seconds if self._t is None else max(0.0, now - self._t)
        most = self._most_debt = saved_seconds * share
        self._credit = min(most, self._credit + passed * share)
        self._t = now

    def _next(self, now: float) -> SampledProcess | None:
        while self._new and self._credit > -self._most_debt:
            member = self._new.popleft()
            member.queued = False
            if member.has_memory:
                if member.page_sample is None and member not in self._turns:
                    if not self._turns:
                        self._wait(now)
                    self._turns.append(member)
                return member  # and no turn is put off: where others always come, none would ever be due
        return self._whose_turn(now) if now >= self._due_t and self._credit > 0 else None

    def _whose_turn(self, now: float) -> SampledProcess | None:
        for _ in range(len(self._turns)):
            member = self._turns.popleft()
            if not member.has_memory:
                continue
            self._turns.append(member)
            if not member.eldest or member.page_sample is None or now - member.page_sample.t >= _ROUND_MOST:
                self._wait(now)
                return member
        self._due_t = now + _WAIT_MOST
        return None

    def _wait(self, now: float) -> None:
        due_t = max(self._due_t, now - self._round_seconds) + self._round_seconds / self._forks
        self._due_t = min(due_t, now + self._round_seconds)

    def _visit(self, now: float, member: SampledProcess, members: Sequence[SampledProcess], used_bytes: int) -> None:
        began = time.thread_time()
        visit = _PageSampling(member, members, _aim_bytes(used_bytes, self._forks), (self._proc, now, self._chance))
        member.refused = ""
        try:
            self._learn(member, visit.make(), members, used_bytes)
        except TargetGoneError:
            pass
        except SourceError as error:
            member.refused, member.page_sample = str(error), None
            self._round_seconds = self._longest_round()
        finally:
            visit.close()
        self._credit -= visit.cost_seconds
        was, spent = self.cost, time.thread_time() - began
        self.cost = PageSamplingCost(
            was.visits + 1,
            was.refused + bool(member.refused),
            was.pages + PAGES_PER_RUN * visit.reads,
            was.cpu_seconds + spent,
        )

    def _learn(
        self, member: SampledProcess, visit: PageSample, members: Sequence[SampledProcess], used_bytes: int
    ) -> None:
        before, member.page_sample = member.page_sample, visit
        forks = self._forks
        if not member.eldest:
            aim = _aim_bytes(used_bytes, forks)
            wanted = member.runs * (visit.error_bytes / aim) ** 2
            member.runs = int(min(max(wanted, member.runs / 2, _RUNS_LEAST), 2 * member.runs, _RUNS_MOST))
            if before is not None and visit.t > before.t:
                member.change = copied(before, visit)
        if before is not None:
            self.copy_bytes_per_second = update_copy_rates([one for one in members if not one.eldest])
            self._pace(forks, used_bytes)

    def _pace(self, forks: int, used_bytes: int) -> None:
        """Slower with each visit, but not so slow that a round misses much of what is copied."""
        wanted = (
            max(_ROUND_LEAST, _GROWTH * used_bytes / self.copy_bytes_per_second)
            if self.copy_bytes_per_second
            else math.inf
        )
        self._round_seconds = min(self._longest_round(), self._round_seconds * _SLOWER ** (1 / forks), wanted)

    def _longest_round(self) -> float:
        return min(_ROUND_MOST, _WAIT_MOST * self._forks)


class _PageSampling:
    """One visit: the files that it has open, and what it reads of them."""

    def __init__(
        self, member: SampledProcess, members: Sequence[SampledProcess], aim_bytes: float, world: _World
    ) -> None:
        self._member, self._aim_bytes = member, aim_bytes
        self._elders = members[: members.index(member)]
        self._proc, self._now, self._chance = world
        self._open: dict[int, PagemapFile | None] = {}
        self._mappings = 0  # lines of maps read
        self._holders: dict[FileKey, list[tuple[SampledProcess, FileMapping]]] = {}

    def make(self) -> PageSample:
        """The visit; TargetGoneError or SourceError."""
        member = self._member
        self._mine, self._space = PagemapFile(member.pid, self._proc), self._space_of(member)
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
        """Runs of pages read so far."""
        return sum(pages.reads for pages in self._open.values() if pages is not None)

    @property
    def cost_seconds(self) -> float:
        """CPU that this much work takes where nothing else runs."""
        marks = sum(pages.marks for pages in self._open.values() if pages is not None)
        work = _READ_SECONDS * self.reads + _MARK_SECONDS * marks + _MAPPING_SECONDS * self._mappings
        return _VISIT_SECONDS + work

    def close(self) -> None:
        """Close what it opened."""
        for pages in self._open.values():
            if pages is not None:
                pages.close()

    def _space_of(self, member: SampledProcess) -> AddressSpace:
        by = abs(member.size_bytes - member.space_size)
        still = 0 if member is self._member or self._now - member.space_t >= _SPACE_SECONDS else _SPACE_BYTES
        if member.space is None or by > still:
            known = (member.space, *(elder.space for elder in self._elders))
            member.space = read_address_space(member.pid, self._proc, known)
            self._mappings += member.space.mappings
            member.space_size, member.space_t = member.size_bytes, self._now
        return member.space

    def _pages_of(self, elder: SampledProcess) -> PagemapFile | None:
        """None: it is gone, or not ours to read."""
        if elder.pid not in self._open:
            try:
                self._open[elder.pid] = PagemapFile(elder.pid, self._proc)
            except SourceError:
                self._open[elder.pid] = None
        return self._open[elder.pid]

    # --- anonymous pages

    def _anon_share(self) -> Share:
        member, runs, read = self._member, self._space.anon, self._mine.read_page_kinds
        member.runs = member.runs or _wanted(member.anon_bytes, self._aim_bytes)
        own: list[int] = []
        present: list[int] = []
        shared: list[_Run] = []
        for i, (_, first, count) in enumerate(runs.sample(member.runs, self._chance())):
            kinds = read(first, count)
            mine, others = kinds.count(ANON_OWN), kinds.count(ANON_SHARED)
            own.append(mine)
            present.append(mine + others)
            if others:
                shared.append((i, kinds, first, count))
        for i, orphans in self._all_orphans(shared):
            own[i] += orphans
        return sampled_share(own, present, runs.total)

    def _all_orphans(self, shared: list[_Run]) -> Iterator[tuple[int, int]]:
        """Pages of each run that others have too, but no elder one. Most often there are none: a part tells."""
        kin = [elder for elder in self._elders if elder.layout == self._member.layout][:_ELDERS]
        some = [(run[0], self._orphans(*run[1:], kin)) for run in shared[::_CHECKED]]
        yield from some
        if any(orphans for _, orphans in some):
            rest = (run for i, run in enumerate(shared) if i % _CHECKED)
            yield from ((run[0], self._orphans(*run[1:], kin)) for run in rest)

    def _orphans(self, kinds: bytes, first: int, count: int, kin: Sequence[SampledProcess]) -> int:
        left = mask(kinds, ANON_SHARED)
        for elder in kin:
            pages = self._pages_of(elder)
            if pages is None:
                continue
            theirs = pages.read_page_kinds(first, count)
            left &= ~mask(theirs, ANON_SHARED)
            # a huge page is told to be exclusive when the first 4 KiB of it are
            if alone := left & mask(theirs, ANON_OWN):
                left &= ~(alone & pages.scan_category(HUGE, first, count))
            if not left:
                return 0
        return (left & ~self._mine.scan_category(ZERO, first, count)).bit_count()

    # --- pages of files and shared memory

    def _shared_share(self) -> float:
        runs, files = self._space.file_runs, self._space.files
        own = present = 0
        wanted = _wanted(self._member.shared_bytes, self._aim_bytes)
        for stretch, first, count in runs.sample(wanted, self._chance()):
            kinds = self._mine.read_page_kinds(first, count)
            left = mask(kinds, FILE_SHARED)
            alone = kinds.count(FILE_OWN)
            present += alone + left.bit_count()
            own += alone + (self._held_first(files[stretch], left, first, count) if left else 0)
        return own / present if present else 0.0

    def _held_first(self, mapping: FileMapping, left: int, first: int, count: int) -> int:
        """Pages that others have too, but no elder one, wherever it maps them."""
        offset = mapping.offset + first - mapping.first
        for elder, theirs in self._holders_of(mapping.key):
            low = max(offset, theirs.offset)
            shown = min(offset + count, theirs.offset + theirs.count) - low
            pages = self._pages_of(elder) if shown > 0 else None
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
            ][:_ELDERS]
        return self._holders[key]

    def _elder_space(self, elder: SampledProcess) -> AddressSpace | None:
        """As of its latest visit; that of the trainer itself, which is never visited, is read for this."""
        if elder is not self._elders[0]:
            return elder.space
        try:
            return self._space_of(elder)
        except SourceError:
            return elder.space


def _aim_bytes(used_bytes: int, forks: int) -> float:
    """The standard error that one visit may have: those of many forks cancel out in part."""
    return _ERROR * used_bytes / math.sqrt(forks)


def _wanted(size_bytes: int, aim_bytes: float) -> int:
    """Runs of a process that nothing is known of: one run is the least that may be told wrong."""
    return int(min(max(UNSEEN_RUNS * size_bytes / aim_bytes, _RUNS_LEAST), _RUNS_MOST))
