"""A fake hierarchy of memory cgroups, version 1 or 2, below a fake /proc."""

from __future__ import annotations

from pathlib import Path

from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.cgroup_neighbours import NeighbourReader
from support.fakeproc import FakeProc

MB = 1 << 20
NONE_V1 = 9223372036854771712


def stat(cache: int, version: int = 2, hierarchical: int = NONE_V1) -> str:
    if version == 2:
        return f"anon 1\ninactive_file {cache - MB}\nactive_file {MB}\n"
    return (
        f"inactive_file 7\nactive_file 7\nhierarchical_memory_limit {hierarchical}\ntotal_swap {3 * MB}\n"
        f"total_inactive_file {cache - MB}\ntotal_active_file {MB}\n"
    )


def oom_kills(version: int, count: int) -> dict[str, str]:
    """The file of a group that counts them."""
    if version == 1:
        return {"memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n"}
    return {"memory.events.local": f"low 0\noom 3\noom_kill {count}\n"}


class Hierarchy:
    """A fake cgroup file system below a fake /proc."""

    def __init__(self, tmp_path: Path, version: int) -> None:
        self.version = version
        self.top = tmp_path / "cgroup"
        self.proc = FakeProc(tmp_path / "proc")
        self.proc.process(10, anon=MB)
        kind = "cgroup cgroup rw,memory" if version == 1 else "cgroup2 cgroup2 rw"
        self.proc.write("self/mountinfo", f"35 31 0:32 / {self.top} rw - {kind}\n")

    def group(self, path: str, usage: int = 0, limit: int | None = None, cache: int = MB, procs=(), **more) -> None:
        directory = self.top / path.strip("/")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in procs))
        if self.version == 1:
            files = {
                "memory.usage_in_bytes": usage,
                "memory.limit_in_bytes": limit or NONE_V1,
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "memory.use_hierarchy": 1,
            }
        else:
            files = {
                "memory.current": usage,
                "memory.max": limit or "max",
                "memory.events": "low 0\noom 3\noom_kill 5\n",
                "memory.events.local": "low 0\noom 3\noom_kill 2\n",
                "memory.swap.current": 3 * MB,
            }
        for name, content in (files | {"memory.stat": stat(cache, self.version)} | more).items():
            (directory / name).write_text(f"{content}\n")

    def join(self, path: str) -> None:
        self.proc.write("10/cgroup", f"4:memory:{path}\n" if self.version == 1 else f"0::{path}\n")

    def reader(self, *pids: int) -> CgroupReader:
        return self.reader_of(lambda: pids or (10,))

    def reader_of(self, tree_pids) -> CgroupReader:
        return CgroupReader(10, str(self.proc), NeighbourReader(10, tree_pids, str(self.proc)))
