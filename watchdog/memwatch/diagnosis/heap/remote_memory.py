"""The memory of another process, read while it runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from struct import unpack_from

from memwatch.diagnosis.heap.zz_access import Access, open_memory
from memwatch.errors import SourceError, TargetGoneError

_LINE_FIELDS = 6


@dataclass(frozen=True, slots=True)
class Mapping:
    """A line of /proc/PID/maps."""

    start: int
    end: int
    permissions: str
    offset: int  # in the file
    path: str


# 00946000-00a85000 rw-p 00545000 fe:00 1051047    /usr/bin/python3.11
def parse_maps(text: str) -> list[Mapping]:
    """All mappings in the order of their addresses; SourceError for a line that is none."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, _LINE_FIELDS - 1)
        try:
            start, end = (int(bound[:17], 16) for bound in fields[0].split("-"))
            found.append(Mapping(start, end, fields[1], int(fields[2][:16], 16), fields[5] if len(fields) > 5 else ""))
        except (ValueError, IndexError) as error:
            raise SourceError(f"not a line of maps: {line[:80]!r}") from error
    return found


class Ranges:
    """Ranges of addresses; neighbours are one."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """In the order of their addresses."""
        self._all: list[tuple[int, int]] = []
        for start, end in ranges:
            if self._all and self._all[-1][1] == start:
                self._all[-1] = (self._all[-1][0], end)
            else:
                self._all.append((start, end))
        self._starts = [start for start, _ in self._all]

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Their parts between these addresses."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        found = []
        for low, high in self._all[at:]:
            if low >= end:
                break
            if high > start:
                found.append((max(low, start), min(high, end)))
        return found

    def __contains__(self, address: int) -> bool:
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._all[at][1]

    @property
    def end(self) -> int:
        """Of the highest."""
        return self._all[-1][1] if self._all else 0


class Memory:
    """Reads of one process. Each is of what is there at that moment: two reads may see two states."""

    def __init__(self, pid: int, root: str = "/proc", access: Access | None = None) -> None:
        """SourceError without the right to read it, TargetGoneError when there is no such process."""
        self.pid, self.folder = pid, f"{root}/{pid}"
        self._access = access or open_memory(pid, self.folder)
        self.refresh()

    def refresh(self) -> None:
        """Read the mappings anew: all of them, what is `writable`, what of that is `private` to it, and of `files`."""
        try:
            with open(f"{self.folder}/maps", encoding="utf-8", errors="surrogateescape") as file:
                self.maps = parse_maps(file.read())
        except OSError as error:
            raise TargetGoneError(f"process {self.pid} has ended") from error
        if not self.maps:
            raise TargetGoneError(f"process {self.pid} has no memory: it has ended")
        writable = [one for one in self.maps if one.permissions.startswith("rw")]
        self.writable = Ranges((one.start, one.end) for one in writable)
        self.private = Ranges((one.start, one.end) for one in writable if not one.path.startswith("/"))
        self.files = Ranges((one.start, one.end) for one in self.maps if one.path.startswith("/"))

    def close(self) -> None:
        """Give the way to it back."""
        self._access.close()

    def is_there(self) -> bool:
        """Its program still runs: it has not ended, and the process executes no other."""
        try:
            self.read(self.maps[0].start, 1)
        except TargetGoneError:
            return False
        except SourceError:  # unmapped since
            pass
        return self._access.is_there()

    def read(self, address: int, size: int) -> bytes:
        """So many bytes; SourceError when they are not all mapped."""
        try:
            raw = self._access.read(address, size)
        except (OSError, OverflowError, ValueError) as error:
            raise SourceError(f"{size} bytes at {address:#x} cannot be read: {error}") from error
        if len(raw) < size:
            if not raw:
                raise TargetGoneError(f"process {self.pid} has ended")
            raise SourceError(f"{size} bytes at {address:#x} are not all mapped")
        return raw

    def word(self, address: int) -> int:
        """A pointer, or a number of eight bytes."""
        return int.from_bytes(self.read(address, 8), "little")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """So many of them, one after the other."""
        return unpack_from(f"<{count}Q", self.read(address, 8 * count))

    def text(self, address: int, most: int = 256) -> str:
        """A string that ends with a zero byte; SourceError when it is longer, or no UTF-8."""
        raw = b""
        while len(raw) < most and b"\0" not in raw:
            page_left = 4096 - (address + len(raw)) % 4096
            raw += self.read(address + len(raw), min(64, page_left))
        head, end, _ = raw.partition(b"\0")
        try:
            if end and head:
                return head.decode()
        except UnicodeDecodeError:
            pass
        raise SourceError(f"no text at {address:#x}")
