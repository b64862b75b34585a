"""Follows a growing log file and splits it into lines, through rotation, truncation and redrawn progress bars."""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from memwatch.errors import ConfigError, SourceError
from memwatch.sources.log.skippable_lines import SkippableLines, line_template

LINE_BYTES = 64 * 1024  # of one line that are kept; the rest of a longer one is skipped
READ_BYTES = 128 * 1024  # in one read: more does not stay in the processor's cache
PATH_CHECK_SECONDS = 1.0  # between checks whether the path leads to a new file
STDIN = "-"  # as the path of a log
PIPE_BYTES = 1024 * 1024  # of standard input between two reads: what any user may set (fs.pipe-max-size)
# `docker logs -f` writes all old lines first. It begins within this time (kubectl asks over the network), and is done
# when the pipe is not full any more.
BACKLOG_SECONDS = 3.0
# After this time it is reported that standard input has ended: what writes it usually ends with the trainer.
REPORT_END_AFTER_SECONDS = 5.0
KEPT_BYTES = 64 * 1024  # of the end of standard input: as many as the cause of the trainer's end is looked for in
AWAIT_END_SECONDS = 1.0  # after the trainer's end: `docker logs -f` passes on the last lines within milliseconds
_COMPARED_BYTES = 64  # the latest bytes, which are read again at the next read to notice an overwritten file

_HINT = "give --log the file that the trainer's output is written to"
_UNFINISHED_NUMBER = re.compile(rb"[0-9.,/ ]+$")


class LogSegment(NamedTuple):
    r"""The text between two line ends or carriage returns, without them; never empty."""

    data: bytes
    byte: int  # offset of its first byte in the file
    line: int  # from 1; lines end at \n only, so a bar redrawn with \r stays on its line


class LogSegmenter:
    r"""Splits a stream of bytes into segments, the same ones for any chunking; holds at most LINE_BYTES.

    Lines that `skippable_lines` knows are left out: the templates of all lines of a chunk are made and looked up at
    once, in 0.2 us per line.
    """

    def __init__(self, byte: int = 0, line: int = 1, skippable_lines: SkippableLines | None = None) -> None:
        self._held = bytearray()
        self._start = self._next = byte
        self._line = line
        self._skippable_lines = skippable_lines or SkippableLines()
        self._lines_left = self._skippable_lines.clear_after_lines
        self._after_return = False  # the held text follows a \r: it is the latest drawing of a bar

    def split(self, chunk: bytes) -> Iterator[LogSegment]:
        """Yield the segments that `chunk` completes and that must be parsed; exhaust it before the next call."""
        templates = line_template(chunk).split(b"\n")
        if len(templates) > self._lines_left:
            end = sum(map(len, templates[: self._lines_left])) + self._lines_left
            templates, chunk, rest = [*templates[: self._lines_left], b""], chunk[:end], chunk[end:]
            yield from self._split_lines(chunk, templates)
            self._skippable_lines.clear()
            self._lines_left = self._skippable_lines.clear_after_lines
            yield from self.split(rest)
        else:
            yield from self._split_lines(chunk, templates)

    def continue_at(self, byte: int) -> LogSegmenter:
        """Return a segmenter that continues at `byte`, with this one's count of lines."""
        return LogSegmenter(byte, self._line, self._skippable_lines)

    def flush(self) -> list[LogSegment]:
        """Return the held text as a segment, when no more will come."""
        held = [LogSegment(bytes(self._held), self._start, self._line)] if self._held else []
        self._held.clear()
        return held

    def unfinished_bar(self) -> LogSegment | None:
        r"""Return the latest drawing of a progress bar, which ends without a \r until the next; it stays held.

        A number at its very end is left out: the writer's buffer may have cut it off.
        """
        shown = _UNFINISHED_NUMBER.sub(b"", self._held) if self._after_return else b""
        return LogSegment(bytes(shown), self._start, self._line) if shown else None

    def skip(self, count: int) -> None:
        """Skip `count` NUL bytes, a hole in the file."""
        self._next += count
        if not self._held:
            self._start = self._next

    def _split_lines(self, chunk: bytes, templates: list[bytes]) -> Iterator[LogSegment]:
        """Yield the segments of `chunk`, whose lines have `templates`; the last one is not complete yet."""
        held = len(templates.pop())
        end = len(chunk) - held
        begun = self._complete_held_line(chunk[: len(templates[0])]) if self._held and templates else []
        byte, line = self._next, self._line
        if templates:
            self._after_return = chunk[end - 1 : end] == b"\r"
            self._line += chunk.count(b"\n") if b"\r" in chunk else len(templates)  # `in` takes a tenth of count()
            self._start = byte + end
        self._hold(chunk[end:])
        self._next += len(chunk)
        self._lines_left -= len(templates)
        yield from begun
        yield from self._segments_to_parse(chunk, templates, byte, line, bool(begun))

    def _complete_held_line(self, piece: bytes) -> list[LogSegment]:
        self._hold(piece)
        return self.flush()

    def _segments_to_parse(
        self, chunk: bytes, templates: list[bytes], byte: int, line: int, first: int
    ) -> Iterator[LogSegment]:
        """Yield the lines from `first` on that must be parsed; the chunk begins at `byte` and in `line`."""
        skippable_lines = self._skippable_lines
        irrelevant, must_read = skippable_lines.irrelevant, skippable_lines.must_read_next
        if not must_read and irrelevant.issuperset(templates):
            return
        done = start = counted = 0
        for i, template in enumerate(templates):
            if (template in irrelevant and not must_read) or i < first:
                continue
            start += sum(map(len, templates[done:i])) + i - done
            done = i
            raw = chunk[start : start + len(template)]
            if skippable_lines.can_skip(template, raw):
                continue
            text = raw.lstrip(b"\0")  # NULs are the hole that a truncation left
            if text:
                line += chunk.count(b"\n", counted, start)
                counted = start
                yield LogSegment(text[:LINE_BYTES], byte + start + len(raw) - len(text), line)
                must_read = skippable_lines.must_read_next

    def _hold(self, piece: bytes) -> None:
        text = piece if self._held else piece.lstrip(b"\0")
        if not self._held:
            self._start += len(piece) - len(text)
        self._held += text[: LINE_BYTES - len(self._held)]


class LogTail:
    """Follows a path through rotation, copytruncate, truncation, late creation and deletion.

    An idle read costs one fstat, and one stat of the path per second. Only regular files are followed, and a symbolic
    link only if its owner is root, memwatch's user, or the owner of the file behind it: otherwise a user who may write
    to the log's folder could choose what a more privileged memwatch reads. When the path leads to anything else, the
    previous file is read on, and `path_error` says why.
    """

    def __init__(self, path: Path | str, skippable_lines: SkippableLines | None = None) -> None:
        self.path, self._name = Path(path), os.fspath(path)
        self._skippable_lines = skippable_lines or SkippableLines()
        self.path_error: SourceError | None = None  # why the file now at the path is not followed
        self.restarts = 0  # at byte 0, after a rotation or a truncation
        self.old_bytes: int | None = None  # how many are from before the first read, where the size does not say it
        self._fd: int | None = None
        self._identity = (0, 0)
        self._position = 0
        self._last_bytes = b""
        self._segmenter = LogSegmenter(skippable_lines=self._skippable_lines)
        self._shown_bar: LogSegment | None = None
        self._next_path_check_t = 0.0

    @property
    def position(self) -> int:
        """Bytes of the current file that have been read."""
        return self._position

    def size(self) -> int:
        """Bytes in the current file; SourceError when there is none."""
        return os.fstat(self._opened()).st_size

    def written_t(self) -> float:
        """Unix time when the current file was last written; SourceError when there is none."""
        return os.fstat(self._opened()).st_mtime

    def read_segments(self, now: float, limit: int = READ_BYTES) -> Iterable[LogSegment]:
        """Read at most `limit` new bytes and return their segments; SourceError when the log cannot be read.

        The segments are split off lazily, so that parsing one of them can make others skippable. Consume them all.
        """
        fd = self._opened()
        try:
            size = os.fstat(fd).st_size
            if size < self._position:
                self._restart()
            if size > self._position:
                return self._read_new(fd, limit)
            if now >= self._next_path_check_t:
                self._next_path_check_t = now + PATH_CHECK_SECONDS
                return self._check_path()
        except OSError as error:
            self.close()
            raise SourceError(f"log {self.path} cannot be read: {error.strerror}", _HINT) from error
        return self._unfinished_bar()

    def flush(self) -> list[LogSegment]:
        """Return the last, unfinished line, when the file will not grow any more."""
        return self._segmenter.flush()

    def read_last_bytes(self, count: int) -> bytes:
        """Return the last `count` bytes of the current file; SourceError when there is none."""
        fd = self._opened()
        return _read_at(fd, max(0, os.fstat(fd).st_size - count), count)

    def skip_to(self, byte: int) -> None:
        """Continue with the first line that begins at `byte` or later; skipped lines are not counted."""
        start = max(byte - 1, 0)
        skipped = os.pread(self._opened(), LINE_BYTES, start)
        self._position = start + (skipped.find(b"\n") + 1 or len(skipped))
        self._segmenter = self._segmenter.continue_at(self._position)
        self._last_bytes = b""

    def await_end(self) -> None:
        """Wait a moment for what a trainer that has ended wrote last; in a file it is there already."""

    def close(self) -> None:
        """Close the file; the next read opens it again and continues at its position."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _opened(self) -> int:
        return self._fd if self._fd is not None else self._hold(*open_regular_file(self.path))

    def _hold(self, fd: int, identity: tuple[int, int]) -> int:
        if self._identity not in ((0, 0), identity):
            self._restart()
        self._fd, self._identity, self.path_error = fd, identity, None
        return fd

    def _restart(self) -> None:
        self.restarts += 1
        self._position, self._last_bytes, self._shown_bar = 0, b"", None
        self._segmenter = LogSegmenter(skippable_lines=self._skippable_lines)

    def _read_new(self, fd: int, limit: int = READ_BYTES) -> Iterable[LogSegment]:
        """Read new bytes, after checking that those before them are unchanged."""
        seen = self._last_bytes
        if seen and os.pread(fd, len(seen), self._position - len(seen)) != seen:
            self._restart()  # truncated and grown beyond our position between two reads
        new = _read_at(fd, self._position, limit)
        if new.startswith(b"\0") and (hole := self._hole(fd)):
            self._segmenter.skip(hole)
            self._position, self._last_bytes = self._position + hole, b""
            return self._read_new(fd, limit)
        self._position += len(new)
        self._last_bytes = (self._last_bytes + new[-_COMPARED_BYTES:])[-_COMPARED_BYTES:]
        return self._segmenter.split(new)

    def _hole(self, fd: int) -> int:
        """Bytes of the hole at our position: a writer without O_APPEND leaves one after a truncation."""
        try:
            return os.lseek(fd, self._position, os.SEEK_DATA) - self._position
        except OSError:  # not supported here, or nothing but a hole up to the end
            return 0

    def _check_path(self) -> Iterable[LogSegment]:
        """Switch to a new file at the path once it has content: until then the old one may still be written."""
        self.path_error = None
        try:
            status = os.stat(self._name)  # noqa: PTH116 - faster, and called each second
        except OSError:
            return self._unfinished_bar()  # renamed or deleted: the open file may still be written
        if (status.st_dev, status.st_ino) == self._identity or (stat.S_ISREG(status.st_mode) and not status.st_size):
            return self._unfinished_bar()
        try:
            opened = open_regular_file(self.path)
        except SourceError as error:
            self.path_error = SourceError(f"{error}; what was there before is read on", error.hint)
            return self._unfinished_bar()
        left = self._segmenter.flush()
        self.close()
        return chain(left, self._read_new(self._hold(*opened)))

    def _unfinished_bar(self) -> list[LogSegment]:
        bar = self._segmenter.unfinished_bar()
        if bar is None or bar == self._shown_bar:
            return []
        self._shown_bar = bar
        return [bar]


class PipeTail(LogTail):
    """Reads standard input, such as `docker logs -f`, without waiting for it; keeps the last KEPT_BYTES.

    The lines that are there at first are old. After its end `path_error` says so.
    """

    def __init__(self, skippable_lines: SkippableLines | None = None, stdin: int = 0) -> None:
        super().__init__(STDIN, skippable_lines)
        self.old_bytes = sys.maxsize
        self._stdin, self._kept = stdin, b""
        self._first_t: float | None = None
        self._ended_t: float | None = None
        self._read_t, self._read_bytes = -1.0, 0  # the latest time of reading, and what was read then
        self._poll = select.poll()
        self._poll.register(stdin, select.POLLIN)
        with suppress(OSError):  # no pipe, or the pipes of the user are too many
            fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def size(self) -> int:
        return self._position

    def read_segments(self, now: float, limit: int = READ_BYTES) -> Iterable[LogSegment]:
        if now != self._read_t:
            self._begin_poll(now)
        if self._ended_t is not None:
            if now - self._ended_t >= REPORT_END_AFTER_SECONDS:
                self.path_error = SourceError("standard input has ended: the watch goes on without it", _HINT)
            return ()
        try:
            new = os.read(self._stdin, limit) if self._poll.poll(0) else None
        except OSError as error:
            raise SourceError(f"standard input cannot be read: {error.strerror}", _HINT) from error
        if new is None:
            return self._unfinished_bar()
        if not new:
            self._ended_t = now
            self._end_backlog()
            return self._segmenter.flush()
        self._position += len(new)
        self._read_bytes += len(new)
        self._kept = (self._kept + new)[-KEPT_BYTES:]
        return self._segmenter.split(new)

    def read_last_bytes(self, count: int) -> bytes:
        return self._kept[-count:]

    def await_end(self) -> None:
        ended = select.poll()
        ended.register(self._stdin, 0)  # that nobody can write any more is reported all the same
        ended.poll(AWAIT_END_SECONDS * 1000)

    def all_segments(self) -> Iterator[LogSegment]:
        """Yield all that comes, waiting for it until the end."""
        while new := os.read(self._stdin, READ_BYTES):
            yield from self._segmenter.split(new)

    def _begin_poll(self, now: float) -> None:
        self._first_t = now if self._first_t is None else self._first_t
        if now - self._first_t >= BACKLOG_SECONDS and self._read_bytes < PIPE_BYTES:
            self._end_backlog()
        self._read_t, self._read_bytes = now, 0

    def _end_backlog(self) -> None:
        if self.old_bytes == sys.maxsize:
            self.old_bytes = self._position


def make_tail(path: Path | str, skippable_lines: SkippableLines | None = None) -> LogTail:
    """Return the tail of a file or, where `path` is `-`, of standard input; ConfigError when that is a terminal."""
    if os.fspath(path) != STDIN:
        return LogTail(path, skippable_lines)
    if os.isatty(0):
        raise ConfigError(
            "standard input is a terminal: no log comes from there",
            "as in: docker logs -f c 2>&1 | memwatch --pid 1234 --log -",
        )
    is_file = stat.S_ISREG(os.fstat(0).st_mode)
    return LogTail("/proc/self/fd/0", skippable_lines) if is_file else PipeTail(skippable_lines)


def _read_at(fd: int, position: int, most: int) -> bytes:
    """Read at most `most` bytes; the buffer fits the rest of the file, as one of a megabyte costs 0.1 ms."""
    there = os.fstat(fd).st_size - position
    return os.pread(fd, max(0, min(most, there)), position)


def open_regular_file(path: Path) -> tuple[int, tuple[int, int]]:
    """Open a regular file and return its descriptor and (device, inode); SourceError for anything else."""
    try:
        named = path.lstat()
        if not stat.S_ISREG(path.stat().st_mode):  # checked first: opening a pipe would already disturb it
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
    if not _is_allowed(named, status):
        os.close(fd)
        text = f"log {path} is a link of user {named.st_uid} to a file of user {status.st_uid}"
        raise SourceError(text, "give --log the file itself, or make the link root's: chown -h root")
    return fd, (status.st_dev, status.st_ino)


def _is_allowed(named: os.stat_result, opened: os.stat_result) -> bool:
    """The opened file is the one that was at the path, or one that a link there may lead to."""
    if stat.S_ISLNK(named.st_mode):
        return named.st_uid in (0, os.geteuid(), opened.st_uid)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)  # otherwise a link has replaced it meanwhile
