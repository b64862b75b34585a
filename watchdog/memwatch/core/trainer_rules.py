"""The rules of `memwatch serve`: which processes of a node are its trainers, and what is done with each."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["watch", "observe", "ignore"]  # observe: never signalled; ignore: not even watched


@dataclass(frozen=True, slots=True)
class Workload:
    """What a process belongs to, by the names that people give it; empty where it belongs to none."""

    job: str = ""  # the Slurm job's ID
    namespace: str = ""  # of Kubernetes
    pod: str = ""  # its name; its UID where the name is not known
    container: str = ""  # its name; the first 12 digits of its ID where the name is not known
    unit: str = ""  # of systemd

    @property
    def pod_path(self) -> str:
        """`training/trainer-0`; empty outside of pods."""
        return "/".join(filter(None, (self.namespace, self.pod)))


@dataclass(frozen=True, slots=True)
class TrainerRule:
    """What must hold of a process (all that is given), and what is done with it and its descendants.

    Names are patterns: * and ? stand for anything. Without `match` only Python programs fit, and those that use a GPU.
    """

    match: str | None = None  # a regular expression for the command line
    unit: str | None = None  # a systemd unit
    cgroup: str | None = None  # a path as in /proc/PID/cgroup, or one above it
    job: str | None = None  # a Slurm job's ID
    namespace: str | None = None
    pod: str | None = None  # a name or a UID
    container: str | None = None  # a name, or the start of an ID
    gpu: bool | None = None  # whether it has an NVIDIA GPU open
    policy: PolicyName = "watch"

    @property
    def names_place(self) -> bool:
        """Whether it asks for the process's cgroups."""
        places = (self.unit, self.cgroup, self.job, self.namespace, self.pod, self.container)
        return any(place is not None for place in places)

    def fits_place(self, cgroups: Sequence[str], workload: Workload) -> bool:
        """Whether a process with these cgroups, one for each hierarchy, fits by them."""
        if self.cgroup is not None:
            inside = f"/{self.cgroup.strip('/')}/*"
            if not any(fnmatch.fnmatchcase(f"{path}/", inside) for path in cgroups):
                return False
        return (
            _fits(self.unit, workload.unit)
            and _fits(self.job, workload.job)
            and _fits(self.namespace, workload.namespace)
            and _fits(self.pod, workload.pod)
            and _fits(self.container, workload.container)
        )


def _fits(pattern: str | None, name: str) -> bool:
    return pattern is None or (name != "" and fnmatch.fnmatchcase(name, pattern))


_POD = re.compile(r"(?:^|/|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=/|$)")
_CONTAINER = re.compile(r"(?:^|/|-)([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_JOB = re.compile(r"/job_([0-9]+)(?=/|$)")
_UNIT = re.compile(r"/([^/]+\.(?:service|scope))(?=/|$)")


@dataclass(frozen=True, slots=True)
class CgroupNames:
    """The IDs that a cgroup's path contains; empty where there are none."""

    pod_uid: str = ""
    container_id: str = ""  # 64 hexadecimal digits
    job: str = ""
    unit: str = ""


def parse_cgroup_path(path: str) -> CgroupNames:
    """Read the IDs in a cgroup's path.

    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a7c..._....slice/cri-containerd-9c0f...64.scope
    /kubepods/besteffort/pod8a7c...-.../9c0f...64
    /slurm/uid_1000/job_4711/step_0/task_0
    /system.slice/trainer.service/worker
    """
    pods, containers, jobs = _POD.findall(path), _CONTAINER.findall(path), _JOB.findall(path)
    units = [] if pods or containers else _UNIT.findall(path)
    return CgroupNames(
        pods[-1].replace("_", "-") if pods else "",
        containers[-1] if containers else "",
        jobs[-1] if jobs else "",
        units[-1] if units else "",
    )
