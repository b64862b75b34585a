"""Follow a growing log file: bytes -> segments (pieces of lines), through rotation, truncation and progress bars."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from memwatch.errors import SourceError
from memwatch.sources.log.line_templates import SkippableLines, line_template

LINE_BYTES = 64 * 1024  # what is kept of one line; the rest of a longer one is skipped
READ_BYTES = 128 * 1024  # what one read takes at most: more does not stay in the processor's cache
PATH_CHECK_SECONDS = 1.0  # how often the path is looked at for a new file
_SEEN_BYTES = 64  # the last bytes read, compared at the next read: an overwritten file is noticed

_HINT = "give --log the file that the trainer's output is written to"
_UNFINISHED_NUMBER = re.compile(rb"[0-9.,/ ]+$")


class LogSegment(NamedTuple):
    r"""What stands between two line ends or carriage returns, without them. Never empty."""

    data: bytes
    byte: int  # offset of its first byte in the file
    line: int  # from 1; lines end at \n only, so a bar redrawn with \r stays on its line


class LogSegmenter:
    r"""Cut a stream of bytes into segments; the same ones for any chunking. Holds at most LINE_BYTES.

    What `chatter` knows to lead nowhere is not cut out at all: a chunk is brought into its form as a whole, and the
    lines of it are looked up in one go, 0.2 us a line.
    """

    def __init__(self, byte: int = 0, line: int = 1, chatter: SkippableLines | None = None) -> None:
        self._held = bytearray()
        self._start = self._next = byte
        self._line = line
        self._chatter = chatter or SkippableLines()
        self._lines_left = self._chatter.period
        self._after_return = False  # a \r stands before what is held: it is the latest drawing of a bar

    def feed(self, chunk: bytes) -> Iterator[LogSegment]:
        """The segments that `chunk` completes and that must be read. To be exhausted before anything else is asked."""
        forms = line_template(chunk).split(b"\n")
        if len(forms) > self._lines_left:
            end = sum(map(len, forms[: self._lines_left])) + self._lines_left
            forms, chunk, rest = [*forms[: self._lines_left], b""], chunk[:end], chunk[end:]
            yield from self._cut(chunk, forms)
            self._chatter.forget()
            self._lines_left = self._chatter.period
            yield from self.feed(rest)
        else:
            yield from self._cut(chunk, forms)

    def successor(self, byte: int) -> LogSegmenter:
        """A segmenter that goes on at `byte`, with this one's count of lines."""
        return LogSegmenter(byte, self._line, self._chatter)

    def flush(self) -> list[LogSegment]:
        """What is held although no line end came, once no more will come."""
        held = [LogSegment(bytes(self._held), self._start, self._line)] if self._held else []
        self._held.clear()
        return held

    def bar(self) -> LogSegment | None:
        r"""The latest drawing of a progress bar, which stays without a \r until the next; not counted as fed.

        A number at its very end may be cut off by the writer's buffer, so it is left out.
        """
        shown = _UNFINISHED_NUMBER.sub(b"", self._held) if self._after_return else b""
        return LogSegment(bytes(shown), self._start, self._line) if shown else None

    def skip(self, count: int) -> None:
        """`count` bytes of NUL (a hole in the file) stand here and need not be fed."""
        self._next += count
        if not self._held:
            self._start = self._next

    def _cut(self, chunk: bytes, forms: list[bytes]) -> Iterator[LogSegment]:
        """The segments of `chunk`, whose lines have these forms; what the last holds is not complete yet."""
        held = len(forms.pop())
        end = len(chunk) - held
        begun = self._complete(chunk[: len(forms[0])]) if self._held and forms else []
        byte, line = self._next, self._line
        if forms:
            self._after_return = chunk[end - 1 : end] == b"\r"
            self._line += (
                chunk.count(b"\n") if b"\r" in chunk else len(forms)
            )  # to look is 10 times as fast as to count
            self._start = byte + end
        self._hold(chunk[end:])
        self._next += len(chunk)
        self._lines_left -= len(forms)
        yield from begun
        yield from self._read(chunk, forms, byte, line, bool(begun))

    def _complete(self, piece: bytes) -> list[LogSegment]:
        self._hold(piece)
        return self.flush()

    def _read(self, chunk: bytes, forms: list[bytes], byte: int, line: int, first: int) -> Iterator[LogSegment]:
        """The lines from the `first` on that must be read; the chunk begins at `byte` and in `line`."""
        chatter = self._chatter
        idle, attentive = chatter.irrelevant, chatter.must_read_next
        if not attentive and idle.issuperset(forms):
            return
        done = start = counted = 0
        for i, form in enumerate(forms):
            if (form in idle and not attentive) or i < first:
                continue
            start += sum(map(len, forms[done:i])) + i - done
            done = i
            raw = chunk[start : start + len(form)]
            if chatter.can_skip(form, raw):
                continue
            text = raw.lstrip(b"\0")  # NULs that a truncation left before the text are no text
            if text:
                line += chunk.count(b"\n", counted, start)
                counted = start
                yield LogSegment(text[:LINE_BYTES], byte + start + len(raw) - len(text), line)
                attentive = chatter.must_read_next

    def _hold(self, piece: bytes) -> None:
        text = piece if self._held else piece.lstrip(b"\0")
        if not self._held:
            self._start += len(piece) - len(text)
        self._held += text[: LINE_BYTES - len(self._held)]


class LogTail:
    """Follow `path`: rename-and-create rotation, copytruncate, truncation, late creation and deletion.

    An idle poll costs one fstat, and one stat of the path per second. Only regular files are followed, and a symbolic
    link only if its owner is root, memwatch's own user, or the owner of the file that it leads to: who may write to the
    log's folder would else choose what a more powerful memwatch reads. Where the path leads to anything else, the file
    that it led to is read on, and `displaced` says why.
    """

    def __init__(self, path: Path | str, chatter: SkippableLines | None = None) -> None:
        self.path, self._name = Path(path), os.fspath(path)
        self._chatter = chatter or SkippableLines()  # knows the lines that nobody needs
        self.path_error: SourceError | None = None  # what has taken the path's place cannot be followed
        self.restarts = 0  # how often the reading began anew at byte 0: rotation or truncation
        self._fd: int | None = None
        self._identity = (0, 0)
        self._position = 0
        self._seen = b""
        self._segmenter = LogSegmenter(chatter=self._chatter)
        self._shown_bar: LogSegment | None = None
        self._path_due = 0.0

    @property
    def position(self) -> int:
        """Bytes of the present file that are read."""
        return self._position

    def size(self) -> int:
        """Bytes in the present file; SourceError when there is none."""
        return os.fstat(self._opened()).st_size

    def read(self, now: float, limit: int = READ_BYTES) -> Iterable[LogSegment]:
        """The segments that came since the last call (of at most `limit` bytes); SourceError when unreadable.

        They are cut out as they are taken, so that what one of them teaches counts for the next. Take all of them.
        """
        fd = self._opened()
        try:
            size = os.fstat(fd).st_size
            if size < self._position:
                self._restart()
            if size > self._position:
                return self._read_new(fd, limit)
            if now >= self._path_due:
                self._path_due = now + PATH_CHECK_SECONDS
                return self._look_at_path()
        except OSError as error:
            self.close()
            raise SourceError(f"log {self.path} cannot be read: {error.strerror}", _HINT) from error
        return self._quiet_bar()

    def flush(self) -> list[LogSegment]:
        """The last, unfinished line, once the file is known to grow no more."""
        return self._segmenter.flush()

    def last(self, count: int) -> bytes:
        """The last bytes of the present file, read or not; SourceError when there is none."""
        fd = self._opened()
        return _read_at(fd, max(0, os.fstat(fd).st_size - count), count)

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
        return self._fd if self._fd is not None else self._hold(*_open_regular(self.path))

    def _hold(self, fd: int, identity: tuple[int, int]) -> int:
        if self._identity not in ((0, 0), identity):
            self._restart()
        self._fd, self._identity, self.path_error = fd, identity, None
        return fd

    def _restart(self) -> None:
        self.restarts += 1
        self._position, self._seen, self._shown_bar = 0, b"", None
        self._segmenter = LogSegmenter(chatter=self._chatter)

    def _read_new(self, fd: int, limit: int = READ_BYTES) -> Iterable[LogSegment]:
        """Read on, after a look whether the bytes before are still those that were read."""
        seen = self._seen
        if seen and os.pread(fd, len(seen), self._position - len(seen)) != seen:
            self._restart()  # truncated and grown beyond our place between two polls
        new = _read_at(fd, self._position, limit)
        if new.startswith(b"\0") and (hole := self._hole(fd)):
            self._segmenter.skip(hole)
            self._position, self._seen = self._position + hole, b""
            return self._read_new(fd, limit)
        self._position += len(new)
        self._seen = (self._seen + new[-_SEEN_BYTES:])[-_SEEN_BYTES:]
        return self._segmenter.feed(new)

    def _hole(self, fd: int) -> int:
        """Bytes of the hole at our place: a writer without O_APPEND leaves one after a truncation."""
        try:
            return os.lseek(fd, self._position, os.SEEK_DATA) - self._position
        except OSError:  # not supported here, or nothing but a hole up to the end
            return 0

    def _look_at_path(self) -> Iterable[LogSegment]:
        """Go over to a new file with content (an empty one can wait: the old may still be written), if there is one."""
        self.path_error = None
        try:
            status = os.stat(self._name)  # noqa: PTH116 -- often
        except OSError:
            return self._quiet_bar()  # renamed or deleted, nothing new yet: the held file may still be written to
        if (status.st_dev, status.st_ino) == self._identity or (stat.S_ISREG(status.st_mode) and not status.st_size):
            return self._quiet_bar()
        try:
            opened = _open_regular(self.path)
        except SourceError as error:
            self.path_error = SourceError(f"{error}; what was there before is read on", error.hint)
            return self._quiet_bar()
        left = self._segmenter.flush()
        self.close()
        return chain(left, self._read_new(self._hold(*opened)))

    def _quiet_bar(self) -> list[LogSegment]:
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
        named = path.lstat()
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
    if not _is_meant(named, status):
        os.close(fd)
        text = f"log {path} is a link of user {named.st_uid} to a file of user {status.st_uid}"
        raise SourceError(text, "give --log the file itself, or make the link root's: chown -h root")
    return fd, (status.st_dev, status.st_ino)


def _is_meant(named: os.stat_result, opened: os.stat_result) -> bool:
    """What was opened is what stood at the path, or what a link there may lead to."""
    if stat.S_ISLNK(named.st_mode):
        return named.st_uid in (0, os.geteuid(), opened.st_uid)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)  # else it was swapped for a link meanwhile
