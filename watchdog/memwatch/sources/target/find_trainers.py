"""Finds all trainers of a node by rules: each family of processes once, with the rule that decides about it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property

from memwatch.core.measurements import Target
from memwatch.core.trainer_rules import TrainerRule, Workload
from memwatch.errors import AttachError
from memwatch.sources.target.process_table import (
    ProcessInfo,
    family_tops,
    is_python,
    matching_processes,
    memwatch_pids,
    nearest_ancestor,
    open_gpus,
    read_processes,
)
from memwatch.sources.target.target_facts import identify, read_environ
from memwatch.sources.target.workload import read_cgroups, read_workload


@dataclass(frozen=True, slots=True)
class FoundTrainer:
    """A trainer, and what is to be done with it."""

    target: Target
    command: str  # printable
    rule: TrainerRule
    workload: Workload


def find_trainers(rules: Sequence[TrainerRule], root: str = "/proc", host: str = "/") -> list[FoundTrainer]:
    """Return the trainers that are to be watched, by PID.

    The first rule that fits a family's topmost process decides about the family. AttachError for a regular expression
    that takes too long.
    """
    processes = {one.pid: one for one in read_processes(root)}
    for own in memwatch_pids(processes):
        del processes[own]
    looks = {pid: _Look(process, root, host) for pid, process in processes.items()}
    decided: dict[int, TrainerRule] = {}
    for rule in rules:
        free = [one for one in processes.values() if nearest_ancestor(one.pid, decided, processes) is None]
        fitting = {one.pid: one for one in _matching(rule, free) if looks[one.pid].fits(rule)}
        above = {pid for found in decided for pid in _ancestors(found, processes)}
        for top in family_tops(fitting, processes):
            if top.pid not in above:  # its memory is counted with the trainer's that it has started otherwise
                decided[top.pid] = rule
    found = []
    for pid, rule in sorted(decided.items()):
        with suppress(AttachError):  # it has ended meanwhile
            if rule.policy != "ignore":
                found.append(FoundTrainer(identify(pid, root), looks[pid].command, rule, looks[pid].workload))
    return found


def _matching(rule: TrainerRule, processes: Sequence[ProcessInfo]) -> Sequence[ProcessInfo]:
    return processes if rule.match is None else matching_processes(re.compile(rule.match), processes)


def _ancestors(pid: int, processes: Mapping[int, ProcessInfo]) -> set[int]:
    found = set[int]()
    while pid in processes and (pid := processes[pid].parent) not in found:
        found.add(pid)
    return found


class _Look:
    """What the rules ask of one process, read when the first of them asks."""

    def __init__(self, process: ProcessInfo, root: str, host: str) -> None:
        self._process, self._root, self._host = process, root, host

    def fits(self, rule: TrainerRule) -> bool:
        """Whether all but the command line fits."""
        if rule.gpu is not None and self._has_gpu != rule.gpu:
            return False
        if rule.match is None and not (is_python(self._process, self._root) or self._has_gpu):
            return False
        return not rule.names_place or rule.fits_place(self._cgroups, self.workload)

    @property
    def command(self) -> str:
        return self._process.command

    @cached_property
    def workload(self) -> Workload:
        return read_workload(self._cgroups, read_environ(self._process.pid, self._root) or {}, self._host)

    @cached_property
    def _cgroups(self) -> tuple[str, ...]:
        return read_cgroups(self._process.pid, self._root)

    @cached_property
    def _has_gpu(self) -> bool:
        return _there_are_gpus() and bool(open_gpus(self._process.pid, self._root))


@cache
def _there_are_gpus() -> bool:
    return any(name.startswith("nvidia") and name[6:].isdecimal() for name in os.listdir("/dev"))  # noqa: PTH208
