"""Reads what a process belongs to: a pod and its container, a Slurm job, a unit. It asks no cluster for that.

The kubelet names pods and containers in the log files that it keeps for them; a process has its own pod's name in its
environment, where the downward API or the container's host name puts it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from memwatch.core.text_and_units import printable
from memwatch.core.trainer_rules import CgroupNames, Workload, parse_cgroup_path
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import read_whole

NAME_LENGTH = 120  # characters of a name that is shown or becomes a label
# trainer-0_training_main-9c0f...64 digits.log: pod, namespace, container
_LOG_LINK = re.compile(r"([^_/]+)_([^_/]+)_([^/]+)-([0-9a-f]{64})\.log")


def read_cgroups(pid: int, root: str = "/proc") -> tuple[str, ...]:
    """Its paths in all hierarchies; empty for a process that has ended."""
    try:
        lines = read_whole(f"{root}/{pid}/cgroup").splitlines()
    except SourceError:
        return ()
    return tuple(os.fsdecode(line.split(b":", 2)[-1]) for line in lines)


def read_workload(cgroups: Sequence[str], environ: Mapping[str, str], host: str = "/") -> Workload:
    """The names that a process with these cgroups and this environment belongs to."""
    found = [parse_cgroup_path(path) for path in cgroups]
    ids = CgroupNames(
        *(next(filter(None, (getattr(one, name) for one in found)), "") for name in CgroupNames.__slots__)
    )
    namespace = pod = container = ""
    if ids.container_id:
        namespace, pod, container = _from_log_link(ids.container_id, host) or ("", "", ids.container_id[:12])
    if ids.pod_uid and not pod:
        namespace, pod = _from_log_folder(ids.pod_uid, host) or (
            environ.get("POD_NAMESPACE", ""),
            environ.get("POD_NAME") or environ.get("HOSTNAME") or ids.pod_uid,
        )
    names = (ids.job or environ.get("SLURM_JOB_ID", ""), namespace, pod, container, ids.unit)
    return Workload(*(printable(name, NAME_LENGTH) for name in names))


def _from_log_link(container_id: str, host: str) -> tuple[str, str, str] | None:
    """Namespace, pod and container, by the name of the link to its log."""
    for path in Path(host, "var/log/containers").glob(f"*-{container_id}.log"):
        named = _LOG_LINK.fullmatch(path.name)
        if named is not None:
            return named[2], named[1], named[3]
    return None


def _from_log_folder(uid: str, host: str) -> tuple[str, str] | None:
    """Namespace and pod, by the name of the folder of its logs: NAMESPACE_POD_UID."""
    for path in Path(host, "var/log/pods").glob(f"*_{uid}"):
        namespace, _, pod = path.name.removesuffix(f"_{uid}").partition("_")
        if pod:
            return namespace, pod
    return None
