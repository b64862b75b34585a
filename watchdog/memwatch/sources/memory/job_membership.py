"""Which processes that are no descendants of the trainer belong to its job: workers that a daemon started, orphans.

A process that started before the trainer belongs to its job by the environment of a job alone. A later one belongs to
it if it is a worker of the Ray session that the trainer drives, if it was forked by the trainer, if the trainer leads
its session or process group, or if nobody can have started it but the job: it has no parent left, and is in a cgroup
in which nothing ran before the trainer. That cgroup is a container's, a Slurm step's, a unit's. A login session's,
which holds its user's shells and browser, says nothing, nor does a process that the trainer's parent, such as a script
that starts several trainings, started beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from memwatch.core.proc_stat import ProcStat
from memwatch.sources.procfs import read_lineage, read_stat
from memwatch.sources.target.target_facts import read_environ

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
