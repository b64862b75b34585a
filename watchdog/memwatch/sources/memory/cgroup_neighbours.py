"""Finds the processes beside the trainer's tree in its cgroup: members of its job, and others."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from memwatch.core.events import NeighboursSeen
from memwatch.core.measurements import CgroupLevel, Neighbour, Neighbours
from memwatch.core.proc_stat import ProcStat
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole, unreadable
from memwatch.sources.memory.job_membership import JobMembership
from memwatch.sources.procfs import Statm, parse_pids, parse_statm, read_stat
from memwatch.sources.target.target_facts import read_argv

_STRANGERS_BYTES = 32 << 20  # RSS that other processes, such as a shell, may have together in an owned cgroup
# Seconds between two searches: while the trainer is alone, a level has a limit, and no more of it was taken than
# strangers may have; while none has a limit; before the first finding of others is confirmed.
_ALONE_SECONDS, _UNLIMITED_SECONDS, _CONFIRM_SECONDS = 10.0, 80.0, 2.0
# Neighbours are followed at this interval at least, at the next share of the time watched, so that a week has some
# thousand events, and as seldom as searches with this share of a core allow: with 1,000 processes once a minute.
_FOLLOW_SECONDS, _AGE_SHARE, _CPU_SHARE = 2.0, 1 / 200, 0.0005
_ALL_CPU_SHARE = 0.005  # of all searches for the trainers of a node
_FILE_SECONDS = 15e-6  # CPU seconds to read one file (measured, as in process_descendants)
_LARGEST = 4  # neighbours that are named
_NAME_CHARS = 40
# A cgroup that was removed meanwhile, and a threaded one, which has no processes of its own.
_EMPTY_ERRNOS = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)


@dataclass(slots=True)
class _Found:
    """A process beside the trainer's own tree."""

    pid: int
    is_inside: bool  # the trainer's own cgroup, or one below it
    memory: Statm | None  # None: it cannot be read, or is outside memwatch's PID namespace
    stat: ProcStat | None
    member: str = ""  # why it belongs to the job; empty: it does not

    @property
    def rss_bytes(self) -> int:
        """One that cannot be read counts as too large."""
        return _STRANGERS_BYTES + 1 if self.memory is None else self.memory.resident_bytes

    @property
    def anon_bytes(self) -> int:
        return 0 if self.memory is None else self.memory.resident_bytes - self.memory.shared_bytes


class NeighbourReader:
    """Searches the trainer's cgroup, or that above it whose limit is the nearest, for processes beside its tree.

    The trainer's cgroup is its own ("owned") if the others in it have at most 32 MiB of RSS together. An owned cgroup
    must fail two searches before it counts as shared: the other may be a worker that the tree reader has not found yet.
    Members of the job are passed to `adopt`, PID -> parent; they and all below them are in `adopted_pids` from then on.
    """

    name = "neighbours"

    def __init__(
        self,
        pid: int,
        tree_pids: Callable[[], Collection[int]],
        root: str = "/proc",
        *,
        adopt: Callable[[Mapping[int, int]], None] = lambda _: None,
        adopted_pids: Callable[[], Collection[int]] = tuple,
        watches: Callable[[], int] = lambda: 1,
    ) -> None:
        """`watches` is how many such readers this memwatch has for trainers of the same machine."""
        self._watches = watches
        self._tree_pids, self._proc, self._adopt, self._adopted_pids = tree_pids, root, adopt, adopted_pids
        self._membership = JobMembership(pid, root)
        self._seen: NeighboursSeen | None = None  # not polled yet
        self._first_t = math.inf  # of the first search
        self._names: dict[int, tuple[int, str]] = {}  # PID -> start in ticks, name
        self._members: dict[int, str] = {}  # PID -> why
        self._files_read = 0  # in the latest search
        self.begin_cgroup("")

    def begin_cgroup(self, directory: str) -> None:
        """The trainer is in this cgroup from now on."""
        self._directory = directory
        self._owned = self._is_limited = self._has_neighbours = False
        self._consecutive_strangers = 0  # searches in a row
        self._next_t = self._grown_t = -math.inf  # of the next search, and of one because of growth
        self._charged_bytes = 0  # of the nearest limit, at the latest search

    def check_owned(self, now: float, levels: Sequence[tuple[str, CgroupLevel]]) -> bool:
        """Return the latest finding, whether the innermost level is the trainer's own; search again when it is due.

        `levels`: the directory of each, and its reading. A search is due at once when there is a limit for the first
        time, and soon when, of a trainer that is alone, more was taken than strangers may have.
        """
        limited = [(level.limit_bytes - level.charged_bytes, directory, level)
                   for directory, level in levels if level.limit_bytes is not None]  # fmt: skip
        begins, self._is_limited = bool(limited) and not self._is_limited, bool(limited)
        nearest = min(limited)[1:] if limited else None
        charged = nearest[1].charged_bytes if nearest is not None else 0
        has_grown = charged - self._charged_bytes > _STRANGERS_BYTES
        is_suspect = has_grown and not self._has_neighbours and now >= self._grown_t
        if now >= self._next_t or begins or is_suspect:
            self._first_t = min(self._first_t, now)
            self._files_read, self._charged_bytes = 0, charged
            if nearest is not None:
                wait = self._follow(now, nearest[0], nearest[1].path, levels[0][1].path)
            else:
                wait = self._search_unlimited(levels[0][1].path)
            share = min(_CPU_SHARE, _ALL_CPU_SHARE / max(1, self._watches()))
            least = self._files_read * _FILE_SECONDS / share
            self._next_t, self._grown_t = now + max(wait, least), now + min(wait, max(_CONFIRM_SECONDS, least))
        return self._owned

    def poll(self, now: float) -> Iterable[NeighboursSeen]:
        """Return what the latest search found in a cgroup with a limit, if that is new."""
        seen, self._seen = self._seen, None
        return () if seen is None else (seen,)

    def close(self) -> None: ...

    # --- searches; each returns the seconds until the next

    def _search_unlimited(self, own_path: str) -> float:
        """No decision depends on who is here, but members of the job count in its use. The root is not theirs alone."""
        with_members = own_path != "/"
        try:
            self._identify(self._directory, own_path, with_members=with_members)
        except SourceError:
            return _UNLIMITED_SECONDS
        return _CONFIRM_SECONDS if self._owned and self._consecutive_strangers else _UNLIMITED_SECONDS

    def _follow(self, now: float, directory: str, path: str, own_path: str) -> float:
        """Report who is in `directory`, whose limit is the nearest; an unreadable one keeps the previous finding."""
        try:
            found = self._identify(directory, own_path, with_members=True)
        except SourceError:
            return _ALONE_SECONDS
        others = [each for each in found if not each.member]
        has_members, known = len(others) < len(found), self._has_neighbours
        self._has_neighbours = has_members or sum(each.rss_bytes for each in others) > _STRANGERS_BYTES
        if self._has_neighbours or known:
            self._seen = NeighboursSeen(now, self._summary(path, found if self._has_neighbours else []))
        if self._has_neighbours:
            return max(_FOLLOW_SECONDS, (now - self._first_t) * _AGE_SHARE)
        return _ALONE_SECONDS

    def _identify(self, directory: str, own_path: str, *, with_members: bool) -> list[_Found]:
        """Find the processes beside the tree in and below a cgroup; adopt members, and note whose its innermost is.

        Without members the search ends as soon as there are too many strangers.
        """
        tree, adopted = self._tree_pids(), self._adopted_pids()
        found, room = list[_Found](), _STRANGERS_BYTES
        for pid, is_inside in self._pids(directory):
            if pid == os.getpid() or (pid in tree and pid not in adopted):
                continue
            one = self._read(pid, is_inside)
            if one is not None and (one.stat is None or one.stat.parent_pid != os.getpid()):  # an examination, say
                one.member = self._members.get(pid, "member's child") if pid in adopted else ""
                found.append(one)
                room -= one.rss_bytes if is_inside else 0
                if room < 0 and not with_members:
                    break
        if with_members:
            self._adopt_members(found, tree, own_path)
        strangers = sum(each.rss_bytes for each in found if each.is_inside and not each.member)
        self._update_owned(strangers > _STRANGERS_BYTES)
        return found

    def _update_owned(self, has_strangers: bool) -> None:
        self._consecutive_strangers = self._consecutive_strangers + 1 if has_strangers else 0
        if not has_strangers or not self._owned or self._consecutive_strangers >= 2:
            self._owned = not has_strangers

    def _adopt_members(self, found: Sequence[_Found], tree: Collection[int], own_path: str) -> None:
        inside = [each for each in found if each.is_inside and not each.member]
        stats = [each.stat for each in inside if each.stat is not None]
        reasons = self._membership.find_members(stats, tree, own_path, all_known=len(stats) == len(inside))
        self._files_read += self._membership.files_read
        for each in inside:
            each.member = reasons.get(each.pid, "")
        if reasons:
            self._members |= reasons
            self._adopt({stat.pid: stat.parent_pid for stat in stats if stat.pid in reasons})

    # --- reading

    def _pids(self, directory: str) -> Iterator[tuple[int, bool]]:
        """Each PID in and below a cgroup, and whether it is in the trainer's; SourceError when one cannot be read."""
        for path, _, _ in os.walk(directory, onerror=_refuse):
            self._files_read += 2
            is_inside = path == self._directory or path.startswith(f"{self._directory}/")
            try:
                pids = parse_pids(read_whole(f"{path}/cgroup.procs"))
            except SourceError as error:
                if getattr(error.__cause__, "errno", None) in _EMPTY_ERRNOS:
                    continue
                raise
            yield from ((pid, is_inside) for pid in pids)

    def _read(self, pid: int, is_inside: bool) -> _Found | None:
        """Return a process; None when it has exited."""
        if pid == 0:  # it is outside memwatch's PID namespace
            return _Found(pid, is_inside, None, None)
        self._files_read += 2
        try:
            memory = parse_statm(read_whole(f"{self._proc}/{pid}/statm"))
            return _Found(pid, is_inside, memory, read_stat(pid, self._proc))
        except TargetGoneError:
            return None
        except SourceError:
            return _Found(pid, is_inside, None, None)

    def _summary(self, path: str, found: Sequence[_Found]) -> Neighbours:
        members = [each for each in found if each.member]
        others = [each for each in found if not each.member]
        largest = sorted(found, key=lambda each: (-each.anon_bytes, each.pid))[:_LARGEST]
        self._names = {each.pid: self._name(each.stat) for each in largest if each.stat is not None}
        return Neighbours(
            path,
            others_bytes=sum(each.anon_bytes for each in others),
            others=len(others),
            members_bytes=sum(each.anon_bytes for each in members),
            members=len(members),
            largest=tuple(
                Neighbour(each.pid, self._names[each.pid][1], each.anon_bytes, each.member)
                for each in largest
                if each.pid in self._names
            ),
        )

    def _name(self, stat: ProcStat) -> tuple[int, str]:
        known = self._names.get(stat.pid)
        if known is not None and known[0] == stat.start_ticks:
            return known
        self._files_read += 1
        return stat.start_ticks, process_name(read_argv(stat.pid, self._proc), stat.name)


# ["/usr/bin/python3", "-u", "driver.py"] -> "python3 driver.py"
# ["ray::Worker.step"] -> "ray::Worker.step"
def process_name(argv: Sequence[str], comm: str) -> str:
    """Return the program and the script or module that it runs, printable; `comm` without a command line."""
    if not argv:
        return printable(comm, _NAME_CHARS)
    program = PurePath(argv[0]).name
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    is_python = program.startswith("python") and script and "-c" not in argv[1:2]
    return printable(f"{program} {PurePath(script).name}" if is_python else program, _NAME_CHARS)


def _refuse(error: OSError) -> None:
    if error.errno not in _EMPTY_ERRNOS:
        raise unreadable(str(error.filename), error) from error
