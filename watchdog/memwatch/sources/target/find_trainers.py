"""Finds all trainers of a node by rules: each family of processes once, with the rule that decides about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from memwatch.core.measurements import Target
from memwatch.core.text_and_units import printable
from memwatch.core.trainer_rules import TrainerRule, Workload
from memwatch.errors import AttachError
from memwatch.sources.target.process_table import (
    ProcessInfo,
    ancestors,
    families,
    family_tops,
    is_python,
    matching_processes,
    nearest_ancestor,
    open_gpus,
    read_programs,
    there_are_gpus,
)
from memwatch.sources.target.target_facts import identify, read_cgroups, read_environ, read_workload


@dataclass(frozen=True, slots=True)
class FoundTrainer:
    """A trainer, and what is to be done with it."""

    target: Target
    command: str  # printable
    rule: TrainerRule
    workload: Workload


class TrainerFinder:
    """Searches for the trainers of a node, again and again.

    A process that has outlived the trainer that started it is no trainer of its own.
    """

    def __init__(self, rules: Sequence[TrainerRule], root: str = "/proc", host: str = "/") -> None:
        self._rules, self._root, self._host = rules, root, host
        self._families: dict[int, set[int]] = {}  # by trainer: its PID and those of its descendants
        self._orphans = set[int]()

    def find(self) -> list[FoundTrainer]:
        """Return the trainers that are to be watched, by PID.

        The first rule that fits a family's topmost process decides about the family. AttachError for a regular
        expression that takes too long.
        """
        processes, has_gpus = read_programs(self._root), there_are_gpus()
        left_behind = (family for pid, family in self._families.items() if pid not in processes)
        self._orphans = self._orphans.union(*left_behind) & processes.keys()
        candidates = (one for pid, one in processes.items() if pid not in self._orphans)
        inspected = {one.pid: _Candidate(one, self._root, self._host, has_gpus=has_gpus) for one in candidates}
        decided = self._decide(processes, inspected)
        self._families = {pid: {one.pid for one in family} for pid, family in families(decided, processes).items()}
        found = []
        for pid, rule in sorted(decided.items()):
            with suppress(AttachError):  # it has ended meanwhile
                if rule.policy != "ignore":
                    target = identify(pid, self._root)
                    found.append(FoundTrainer(target, printable(processes[pid].command), rule, inspected[pid].workload))
        return found

    def _decide(
        self, processes: Mapping[int, ProcessInfo], inspected: Mapping[int, _Candidate]
    ) -> dict[int, TrainerRule]:
        """Return the rule for each topmost process of a family that one fits."""
        decided: dict[int, TrainerRule] = {}
        for rule in self._rules:
            free = [processes[pid] for pid in inspected if nearest_ancestor(pid, decided, processes) is None]
            fitting = {one.pid: one for one in _matching(rule, free) if inspected[one.pid].fits(rule)}
            above = set[int]().union(*(ancestors(pid, processes) for pid in decided))
            for top in family_tops(fitting, processes):
                if top.pid not in above:  # what it started is watched already, and would be counted twice
                    decided[top.pid] = rule
        return decided


def _matching(rule: TrainerRule, processes: Sequence[ProcessInfo]) -> Sequence[ProcessInfo]:
    return processes if rule.match is None else matching_processes(re.compile(rule.match), processes)


class _Candidate:
    """What the rules ask of one process, read when the first of them asks."""

    def __init__(self, process: ProcessInfo, root: str, host: str, *, has_gpus: bool) -> None:
        self._process, self._root, self._host, self._has_gpus = process, root, host, has_gpus

    def fits(self, rule: TrainerRule) -> bool:
        """Whether all but the command line fits."""
        if rule.gpu is not None and self._has_gpu != rule.gpu:
            return False
        if rule.match is None and not (is_python(self._process, self._root) or self._has_gpu):
            return False
        return not rule.names_place or rule.fits_place(self._cgroups, self.workload)

    @cached_property
    def workload(self) -> Workload:
        return read_workload(self._cgroups, read_environ(self._process.pid, self._root) or {}, self._host)

    @cached_property
    def _cgroups(self) -> tuple[str, ...]:
        return read_cgroups(self._process.pid, self._root)

    @cached_property
    def _has_gpu(self) -> bool:
        return self._has_gpus and bool(open_gpus(self._process.pid, self._root))
