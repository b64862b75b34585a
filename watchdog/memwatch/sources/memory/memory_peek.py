"""A look at a trainer's memory that takes 10 us: enough to see that a sample should not wait until it is due."""

from __future__ import annotations

import os

from memwatch.errors import SourceError
from memwatch.sources.kernel_files import HeldFile, parse_count

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_USAGE_FILES = ("memory.current", "memory.usage_in_bytes")  # of cgroup version 2 and 1


class MemoryPeek:
    """Reads the memory of the trainer's first process, and that of its cgroup, which has its workers."""

    def __init__(self, pid: int) -> None:
        self._statm = HeldFile(f"/proc/{pid}/statm", 128)
        self._directory: str | None = None
        self._usage: HeldFile | None = None

    def read_cgroup(self, directory: str | None) -> None:
        """Read the cgroup with this directory from now on; None where it has others' processes, too."""
        if directory == self._directory:
            return
        self.close()
        self._directory, self._usage = directory, None
        if directory is not None:
            paths = [f"{directory}/{name}" for name in _USAGE_FILES]
            self._usage = HeldFile(next((path for path in paths if os.access(path, os.R_OK)), paths[0]), 32)

    def read(self) -> tuple[int, int]:
        """Return the bytes of the process and of the cgroup; 0 for what cannot be read."""
        return self._resident_bytes(), self._cgroup_bytes()

    def close(self) -> None:
        for file in (self._statm, self._usage):
            if file is not None:
                file.close()

    def _resident_bytes(self) -> int:
        try:
            return parse_count(self._statm.read_bytes().split()[1], _PAGE_BYTES)
        except (SourceError, IndexError):
            return 0

    def _cgroup_bytes(self) -> int:
        try:
            return 0 if self._usage is None else parse_count(self._usage.read_bytes().strip())
        except SourceError:
            return 0
