"""Finds the directory of a process's memory cgroup, from /proc/PID/cgroup and /proc/PID/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.errors import SourceError

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Membership:
    """The cgroup that accounts for a process's memory."""

    version: int  # 1 or 2
    path: str  # from the root of the reader's cgroup namespace


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted cgroup hierarchy that may account for memory."""

    version: int
    root: str  # the cgroup at the mount point; not "/" in containers without a cgroup namespace
    point: str


@dataclass(frozen=True, slots=True)
class CgroupLocation:
    """A cgroup's directory, and that of the topmost visible level."""

    directory: str
    top: str
    path: str  # as in /proc/PID/cgroup


# 4:memory:/docker/98b345b146fd
# 0::/
def parse_proc_cgroup(raw: bytes) -> Membership:
    """Prefer the v1 memory controller to the v2 hierarchy, as in hybrid setups; SourceError when there is neither."""
    unified = None
    for line in raw.split(b"\n"):
        number, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if not colon or not path.startswith(b"/"):
            continue
        if b"memory" in controllers.split(b","):
            return Membership(1, os.fsdecode(path))
        if number == b"0" and not controllers:
            unified = Membership(2, os.fsdecode(path))
    if unified is None:
        raise SourceError("the process is in no memory cgroup", "the kernel was built or started without one")
    return unified


# 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
# 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
def parse_mountinfo(raw: bytes) -> tuple[Mount, ...]:
    """Return the mounted v1 memory and v2 hierarchies, in the order of mounting; other lines are skipped."""
    mounts = []
    for line in raw.split(b"\n"):
        before, _, after = line.partition(b" - ")
        fields, kind = before.split(b" "), after.split(b" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        root, point = (os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), field)) for field in fields[3:5])
        if kind[0] == b"cgroup" and b"memory" in kind[2].split(b","):
            mounts.append(Mount(1, root, point))
        elif kind[0] == b"cgroup2":
            mounts.append(Mount(2, root, point))
    return tuple(mounts)


def locate(membership: Membership, mounts: Sequence[Mount], prefix: str = "") -> CgroupLocation | None:
    """Find the cgroup below the first mount that shows it; None when none does.

    `prefix` is put before each mount point: /proc/PID/root for another mount namespace.
    """
    for mount in mounts:
        below = _below(membership.path, mount.root)
        if mount.version != membership.version or below is None:
            continue
        top = prefix + mount.point
        directory = "/".join([top, *below])
        if os.path.isdir(directory):  # noqa: PTH112
            return CgroupLocation(directory, top, membership.path)
    return None


def _below(path: str, root: str) -> list[str] | None:
    """The names that lead from the cgroup `root` down to `path`; None when it is not below `root`."""
    names, above = ([name for name in where.split("/") if name] for where in (path, root))
    rest = names[len(above) :]
    return rest if names[: len(above)] == above and ".." not in rest else None
