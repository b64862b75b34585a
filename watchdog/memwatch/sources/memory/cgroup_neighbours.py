"""Finds the processes beside the trainer's tree in its cgroup: members of its job, and others."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from memwatch.core.measurements import CgroupLevel, Neighbour, Neighbours
from memwatch.core.proc_stat import ProcStat
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole, unreadable
from memwatch.sources.procfs import Statm, parse_pids, parse_statm, read_lineage, read_stat
from memwatch.sources.target.target_facts import read_argv, read_environ

if TYPE_CHECKING:
    from memwatch.core.events import NeighboursSeen

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
            from memwatch.core.events import NeighboursSeen  # which an examination's process does not need

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


# Variables that name a job; those of one row together. torchrun's run ID is "none" where no user gave one.
JOB_VARIABLES = (
    ("RAY_JOB_ID",),
    ("RAY_ADDRESS",),
    ("SLURM_JOB_ID",),
    ("TORCHELASTIC_RUN_ID",),
    ("MASTER_ADDR", "MASTER_PORT"),
    ("PBS_JOBID",),
    ("LSB_JOBID",),
)
# A process that has another value of one of these is of another job, or another rank, which is a trainer of its own.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_ID")
_DISTINCT = (*(name for names in JOB_VARIABLES for name in names), *_RANKS)
_NO_JOB = ("", "none")
# A raylet, which is no child of the driver, starts workers with these before it knows for which driver; they and the
# driver have logs of one Ray session open (Ray 2.60):
# /tmp/ray/session_2026-11-25_15-49-01_697845_4824/logs/python-core-driver-01000000ffffffff_4978.log
_RAY_WORKER = {"RAY_JOB_ID", "RAY_RAYLET_PID"}
_RAY_LOG = re.compile(r"(.*/session_[^/]+)/logs/")
_RAY_DRIVER = re.compile(r"(.*/session_[^/]+)/logs/python-core-driver-")
# /user.slice/user-1000.slice/session-3.scope, /user.slice/user-1000.slice/user@1000.service/app.slice/app-code.scope
_SESSION_WIDE = re.compile(r"/(user\.slice|user@\d+\.service|session-[^/]*\.scope)(/|$)")
_OWN_UNIT = re.compile(r"/run-[^/]*\.(service|scope)$")  # systemd-run --user --scope


def is_job_cgroup(path: str) -> bool:
    """Whether a cgroup with this path may hold one job alone: it is no login session's."""
    return _SESSION_WIDE.search(path) is None or _OWN_UNIT.search(path) is not None


class JobMembership:
    """Decides for each process beside the trainer's tree; the environment of each is read once."""

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._pid, self._proc = pid, root
        self._environ: Mapping[str, str] | None = None  # of the trainer: what names its job
        self._shares: dict[int, tuple[int, bool]] = {}  # PID -> start in ticks, whether it has the job's environment
        self.files_read = 0  # by the latest search

    def find_members(
        self, found: Sequence[ProcStat], tree: Collection[int], cgroup: str, *, all_known: bool
    ) -> dict[int, str]:
        """Return PID -> reason of the members among `found`, the processes beside the `tree` in its `cgroup`.

        `all_known`: there are no others in it. SourceError when the trainer cannot be read.
        """
        self.files_read = 0
        if not found:
            return {}
        trainer = read_stat(self._pid, self._proc)
        ancestors = self._lineage(trainer.parent_pid)
        kin = ancestors | self._lineage(os.getpid())  # memwatch, and who started it
        below = _descendants(found, tree)  # of the tree, which will find them
        candidates = [each for each in found if each.pid not in kin and each.pid not in below]
        later = [each for each in candidates if each.start_ticks > trainer.start_ticks]
        is_jobs = all_known and len(later) == len(candidates) and is_job_cgroup(cgroup)
        reasons = {each.pid: "environment" for each in candidates if self._is_by_environment(each, trainer)}
        layouts = {each.pid: each.layout for each in found}
        for each in later:
            reason = _kinship(each, trainer, tree, ancestors, layouts=layouts, is_jobs=is_jobs)
            if reason:
                reasons.setdefault(each.pid, reason)
        self._shares = {each.pid: self._shares[each.pid] for each in candidates if each.pid in self._shares}
        return reasons

    def _lineage(self, pid: int) -> set[int]:
        """Return the process and all above it."""
        found = {stat.pid for stat in read_lineage(pid, self._proc)}
        self.files_read += len(found)
        return found

    def _is_by_environment(self, process: ProcStat, trainer: ProcStat) -> bool:
        """Whether it has the job's environment, or is a worker of the Ray session that the trainer drives."""
        if self._environ is None:
            environ = read_environ(self._pid, self._proc) or {}
            self._environ = {name: environ[name] for name in _DISTINCT if environ.get(name, "") not in _NO_JOB}
        is_later = process.start_ticks > trainer.start_ticks
        if not (is_later or any(all(name in self._environ for name in names) for names in JOB_VARIABLES)):
            return False
        start, shares = self._shares.get(process.pid, (None, False))
        if start != process.start_ticks:
            self.files_read += 1
            environ = read_environ(process.pid, self._proc) or {}
            shares = shares_job(self._environ, environ)
            if is_later and not shares and environ.keys() >= _RAY_WORKER:
                session = self._ray_session(self._pid, _RAY_DRIVER)
                shares = bool(session) and session == self._ray_session(process.pid, _RAY_LOG)
            self._shares[process.pid] = process.start_ticks, shares
        return shares

    def _ray_session(self, pid: int, log: re.Pattern[str]) -> str:
        """Return the folder of the Ray session in whose logs a process has a file open; empty: in none's."""
        folder = f"{self._proc}/{pid}/fd"
        try:
            for name in os.listdir(folder):  # noqa: PTH208
                self.files_read += 1
                with suppress(OSError):
                    if found := log.match(os.readlink(f"{folder}/{name}")):  # noqa: PTH115
                        return found[1]
        except OSError:
            pass
        return ""


def shares_job(own: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two environments name the same job, and not two ranks of it."""
    if any(name in own and name in other and own[name] != other[name] for name in _DISTINCT):
        return False
    return any(all(name in own and own[name] == other.get(name) for name in names) for names in JOB_VARIABLES)


def _descendants(found: Sequence[ProcStat], tree: Collection[int]) -> set[int]:
    """The PIDs of those in `found` that are below a process of the tree."""
    below = set[int]()
    while more := {each.pid for each in found if each.parent_pid in tree or each.parent_pid in below} - below:
        below |= more
    return below


def _kinship(
    process: ProcStat,
    trainer: ProcStat,
    tree: Collection[int],
    ancestors: Collection[int],
    *,
    layouts: Mapping[int, tuple[int, int] | None],
    is_jobs: bool,
) -> str:
    """Why a process that started after the trainer belongs to its job; empty: it does not.

    `is_jobs`: the cgroup is the job's alone.
    """
    parent = process.parent_pid
    is_orphan = parent in (0, 1) or parent in ancestors
    has_layout = process.layout is not None and process.layout[1] != 0  # both are 0 where it is not permitted
    if has_layout and process.layout == trainer.layout and is_orphan and layouts.get(parent) != process.layout:
        return "fork"
    if process.group_id in tree or process.session_id in tree:
        return "session"
    has_own_terminal = process.terminal not in (0, trainer.terminal)
    is_left_alone = parent in (0, 1) or (is_orphan and process.session_id != process.pid)
    if is_jobs and is_left_alone and not has_own_terminal and process.session_id != trainer.session_id:
        return "cgroup"
    return ""
