"""Follow a growing log file: bytes -> segments (pieces of lines), through rotation, truncation and progress bars."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from memwatch.errors import SourceError

LINE_BYTES = 64 * 1024  # what is kept of one line; the rest of a longer one is skipped
READ_BYTES = 1024 * 1024  # what one poll reads at most; a larger backlog is left for the next
PATH_CHECK_SECONDS = 1.0  # how often the path is looked at for a new file
_SEEN_BYTES = 64  # the last bytes read, compared at the next read: an overwritten file is noticed

_END = re.compile(rb"[\r\n]")
_HINT = "give --log the file that the trainer's output is written to"
_UNFINISHED_NUMBER = re.compile(rb"[0-9.,/ ]+$")


class Segment(NamedTuple):
    r"""What stands between two line ends or carriage returns, without them. Never empty."""

    data: bytes
    byte: int  # offset of its first byte in the file
    line: int  # from 1; lines end at \n only, so a bar redrawn with \r stays on its line


class Segmenter:
    r"""Cut a stream of bytes into segments; the same ones for any chunking. Holds at most LINE_BYTES."""

    def __init__(self, byte: int = 0, line: int = 1) -> None:
        self._held = bytearray()
        self._start = self._next = byte
        self._line = line
        self._after_return = False  # a \r stands before what is held: it is the latest drawing of a bar

    def feed(self, chunk: bytes) -> list[Segment]:
        """The segments that `chunk` completes."""
        found: list[Segment] = []
        end = 0
        for match in _END.finditer(chunk):
            self._take(chunk[end : match.start()], found)
            end = match.end()
            newline = match[0] == b"\n"
            self._after_return = not newline
            self._line += newline
            self._start = self._next + end
        self._hold(chunk[end:])
        self._next += len(chunk)
        return found

    def successor(self, byte: int) -> Segmenter:
        """A segmenter that goes on at `byte`, with this one's count of lines."""
        return Segmenter(byte, self._line)

    def flush(self) -> list[Segment]:
        """What is held although no line end came, once no more will come."""
        held = [Segment(bytes(self._held), self._start, self._line)] if self._held else []
        self._held.clear()
        return held

    def bar(self) -> Segment | None:
        r"""The latest drawing of a progress bar, which stays without a \r until the next; not counted as fed.

        A number at its very end may be cut off by the writer's buffer, so it is left out.
        """
        shown = _UNFINISHED_NUMBER.sub(b"", self._held) if self._after_return else b""
        return Segment(bytes(shown), self._start, self._line) if shown else None

    def skip(self, count: int) -> None:
        """`count` bytes of NUL (a hole in the file) stand here and need not be fed."""
        self._next += count
        if not self._held:
            self._start = self._next

    def _take(self, piece: bytes, found: list[Segment]) -> None:
        """The end of a segment has come."""
        if self._held:
            self._hold(piece)
            found += self.flush()
        elif text := self._without_nuls(piece):  # nearly always: a whole line at once
            found.append(Segment(text[:LINE_BYTES], self._start, self._line))

    def _hold(self, piece: bytes) -> None:
        text = piece if self._held else self._without_nuls(piece)
        self._held += text[: LINE_BYTES - len(self._held)]

    def _without_nuls(self, piece: bytes) -> bytes:
        """NULs that a truncation left before the text are no text."""
        text = piece.lstrip(b"\0")
        self._start += len(piece) - len(text)
        return text


class LogTail:
    """Follow `path`: rename-and-create rotation, copytruncate, truncation, late creation and deletion.

    An idle poll costs one fstat, and one stat of the path per second. Only regular files are followed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.restarts = 0  # how often the reading began anew at byte 0: rotation or truncation
        self._fd: int | None = None
        self._identity = (0, 0)
        self._position = 0
        self._seen = b""
        self._segmenter = Segmenter()
        self._shown_bar: Segment | None = None
        self._path_due = 0.0

    @property
    def position(self) -> int:
        """Bytes of the present file that are read."""
        return self._position

    def size(self) -> int:
        """Bytes in the present file; SourceError when there is none."""
        return os.fstat(self._opened()).st_size

    def read(self, now: float, limit: int = READ_BYTES) -> list[Segment]:
        """The segments that came since the last call (of at most `limit` bytes); SourceError when unreadable."""
        fd = self._opened()
        try:
            size = os.fstat(fd).st_size
            if size < self._position:
                self._restart()
            if size > self._position:
                return self._read_new(fd, limit)
            if self._rotated(now):
                return self._follow_to_new_file()
        except OSError as error:
            self.close()
            raise SourceError(f"log {self.path} cannot be read: {error.strerror}", _HINT) from error
        return self._quiet_bar()

    def rest(self) -> list[Segment]:
        """The last, unfinished line, once the file is known to grow no more."""
        return self._segmenter.flush()

    def skip_to(self, byte: int) -> None:
        """Go on with the first line that begins at `byte` or later; lines are then counted without those left out."""
        start = max(byte - 1, 0)
        near = os.pread(self._opened(), LINE_BYTES, start)
        self._position = start + (near.find(b"\n") + 1 or len(near))
        self._segmenter = self._segmenter.successor(self._position)
        self._seen = b""

    def close(self) -> None:
        """Give the file back; the next read() opens it again and goes on where this one stopped."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _opened(self) -> int:
        if self._fd is not None:
            return self._fd
        fd, identity = _open_regular(self.path)
        if self._identity not in ((0, 0), identity):
            self._restart()
        self._fd, self._identity = fd, identity
        return fd

    def _restart(self) -> None:
        self.restarts += 1
        self._position, self._seen, self._shown_bar = 0, b"", None
        self._segmenter = Segmenter()

    def _read_new(self, fd: int, limit: int = READ_BYTES) -> list[Segment]:
        """Read on, after a look whether the bytes before are still those that were read."""
        seen = self._seen
        chunk = _read_at(fd, self._position - len(seen), limit + len(seen))
        if not chunk.startswith(seen):  # truncated and grown beyond our place between two polls
            self._restart()
            chunk, seen = _read_at(fd, 0, limit), b""
        new = chunk[len(seen) :]
        if new.startswith(b"\0") and (hole := self._hole(fd)):
            self._segmenter.skip(hole)
            self._position, self._seen = self._position + hole, b""
            return self._read_new(fd, limit)
        self._position += len(new)
        self._seen = chunk[-_SEEN_BYTES:]
        return self._segmenter.feed(new)

    def _hole(self, fd: int) -> int:
        """Bytes of the hole at our place: a writer without O_APPEND leaves one after a truncation."""
        try:
            return os.lseek(fd, self._position, os.SEEK_DATA) - self._position
        except OSError:  # not supported here, or nothing but a hole up to the end
            return 0

    def _rotated(self, now: float) -> bool:
        """A new file with content has taken the path's place (an empty one can wait: the old may still be written)."""
        if now < self._path_due:
            return False
        self._path_due = now + PATH_CHECK_SECONDS
        try:
            status = self.path.stat()
        except OSError:
            return False  # renamed or deleted, nothing new yet: the held file may still be written to
        changed = (status.st_dev, status.st_ino) != self._identity
        return changed and stat.S_ISREG(status.st_mode) and status.st_size > 0

    def _follow_to_new_file(self) -> list[Segment]:
        left = self._segmenter.flush()
        self.close()
        return left + self._read_new(self._opened())

    def _quiet_bar(self) -> list[Segment]:
        bar = self._segmenter.bar()
        if bar is None or bar == self._shown_bar:
            return []
        self._shown_bar = bar
        return [bar]


def _read_at(fd: int, position: int, most: int) -> bytes:
    """At most `most` bytes, into no larger a buffer than is needed: a megabyte of it for each new line costs 0.1 ms."""
    there = os.fstat(fd).st_size - position
    return os.pread(fd, max(0, min(most, there)), position)


def _open_regular(path: Path) -> tuple[int, tuple[int, int]]:
    """A held descriptor and (device, inode) of a regular file; SourceError for anything else."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # looked at first: opening a pipe would already disturb it
            raise SourceError(f"log {path} is not a regular file", _HINT + "; a pipe can be read by its owner only")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as error:
        raise SourceError(f"log {path} does not exist (yet)", "it is followed as soon as it is created") from error
    except OSError as error:
        raise SourceError(f"log {path} cannot be opened: {error.strerror}", _HINT) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise SourceError(f"log {path} is not a regular file", _HINT)
    return fd, (status.st_dev, status.st_ino)
