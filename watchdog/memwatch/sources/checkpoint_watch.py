"""Reports checkpoints that are being written or complete: files that the trainer writes, again and again.

A file is written: it is created, grows, is closed or renamed. Files that are written together are one save. It is
complete when they are closed and still, or when the next save of the same series begins. A save is a checkpoint if its
like was written before, or at the first time if a name, its content or its size suggests it.
"""

from __future__ import annotations

import glob
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import islice
from pathlib import PurePath

from memwatch.core.events import CheckpointSeen
from memwatch.core.text_and_units import format_bytes, printable
from memwatch.errors import SourceError
from memwatch.sources import checkpoint_files as files
from memwatch.sources.checkpoint_files import Activity, FileId, Fingerprint, FolderWalk, OpenFile, fingerprint

FD_SECONDS = 1.0  # Interval of reading /proc/PID/fd, unless it is urgent (chosen).
QUIET_SECONDS = 10.0  # The same while the process hardly writes and has as many files open as before (chosen).
FEW_BYTES = 16384  # Some lines of a log; the check takes 5 us, reading the folder 40 us (measured).
FOLDER_SECONDS = 5.0  # Interval of walking all folders, unless it is urgent (chosen).
SAVES_SECONDS = 1.0  # The same for the folders where the trainer saves (chosen).
CPU_SHARE = 0.0005  # Share of a core for each of the three: expensive reads are made more rarely (chosen).
URGENT_CPU_SHARE = 0.05
FILE_TICK_SECONDS = 0.01  # The clock of file times may be this much behind: a tick of the kernel (10 ms at HZ=100).
SETTLE_SECONDS = 2.0  # Closed files that are unchanged for this long are complete, before a save was seen (chosen).
SETTLE_LEAST_SECONDS = 0.5  # The same where saves are short: else it is as long as the longest of the latest (chosen).
STALL_SECONDS = 30.0  # An open file that has not changed for this long is e.g. a replay memmap, no checkpoint (chosen).
MAX_WRITE_SECONDS = 900.0  # A file that is written for longer is a data stream and no checkpoint (chosen).
REPEAT_SECONDS = 10.0  # Interval of reports that a checkpoint is still being written (chosen).
NEXT_SAVE_SECONDS = 1.0  # Numbered files in a folder that are further apart are two saves, not parts of one (chosen).
LIKE_SIZE = 3.0  # Two saves of a series differ by this factor at most (chosen: boosted trees grow).
SMALL_BYTES = 1000  # A file without a telling name that is smaller holds a status, not a model (chosen).
SMALL_TEXT_BYTES = 16_384  # The same of text without lines, as JSON (chosen).
SAVES_KEPT = 5  # Latest saves, by which their length and what is on disk are known (chosen).
MANY_FILES = 64  # From so many known files on, removed ones are forgotten: a bound on memory.
OWN_SHARE = 0.5  # Of a file that the job must have written: calls and pages are counted, holes are not (chosen).
SERIES_MAX = 256  # Series of files that are told apart: a bound on memory.
PROJECT_DEPTH = 2  # Of the project around the trainer's own folder: checkpoints/run-1/3.pt (chosen).
LEARNED_DEPTH = 1  # Of folders outside the trainer's own that are read: its save may be a folder in one of them.
LEARNED_MAX = 8  # Latest folders in which a checkpoint was written that are read: a bound on time.


@dataclass(slots=True)
class _Open:
    """A file that the trainer has open for writing."""

    path: str
    size: int
    position: int
    since_t: float
    moved_t: float
    writing: bool  # False: it was open at the attach and has not changed since
    kept: bool = False  # it stays open and is no checkpoint
    suggests: bool = False  # it looks like a checkpoint

    def update(self, now: float, seen: OpenFile) -> None:
        self.path = seen.path
        if (seen.size, seen.position) != (self.size, self.position):
            if not self.writing:
                self.since_t = now
            self.size, self.position, self.moved_t, self.writing = seen.size, seen.position, now, True
        elif now - self.moved_t > STALL_SECONDS:
            self.kept = True
        if self.writing and now - self.since_t > MAX_WRITE_SECONDS:
            self.kept = True


@dataclass(slots=True)
class _Written:
    """A file that has changed and must stay unchanged for a while before it counts."""

    path: str
    mark: Fingerprint
    since_t: float  # when it was first seen
    still_t: float  # since when it has not changed
    opened: bool  # it was seen open for writing
    first_ns: int  # file time when it was first seen
    bytes_before: int | None = None  # that the process had written just before it changed; None: not known
    gone: bool = False  # it was not there at the last look: perhaps its folder was renamed


@dataclass(slots=True)
class _Series:
    """Files with the same path but for numbers."""

    writes: int = 0  # whole ones
    size: int = 0  # of the latest
    is_checkpoint: bool = False
    is_foreign: bool = False  # another program has written the latest


class _PollPacer:
    """Decides when to read again: after `period`, later if reading is expensive."""

    def __init__(self, period: float, cpu_clock: Callable[[], float]) -> None:
        self._period = period
        self._cpu_clock = cpu_clock
        self.last_t = float("-inf")
        self._cost = 0.0  # CPU seconds of the last read

    def due(self, now: float, urgent: bool) -> bool:
        pause = self._cost / URGENT_CPU_SHARE if urgent else max(self._period, self._cost / CPU_SHARE)
        return now - self.last_t >= pause

    def measure(self, now: float, read: Callable[[float], None]) -> None:
        started = self._cpu_clock()
        self.last_t = now
        try:
            read(now)
        finally:
            self._cost = self._cpu_clock() - started


class CheckpointWatch:
    """An EventSource of CheckpointSeen. While `urgent` is set, it reads at every poll.

    A file that was not seen open counts if the process, or one of `member_pids`, has written as many bytes meanwhile.
    It reads which files the trainer's process has open for writing, and walks for files that are new or changed the
    folders below its own, those around it in its project, those that its command line names, and those where a
    checkpoint was written. With `globs`, a file that fits none of them is never
    "saved". A rename is followed by inode. Each reader uses at most CPU_SHARE of a core, or URGENT_CPU_SHARE when
    urgent. `excluded`: paths that are no checkpoint: the trainer's log, memwatch's own history.
    """

    name = "checkpoint"

    def __init__(
        self,
        pid: int,
        globs: Sequence[str] = (),
        cwd: str | None = None,
        root: str = "/proc",
        *,
        argv: Sequence[str] = (),
        excluded: Iterable[str] = (),
        member_pids: Callable[[], Iterable[int]] = lambda: (),
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.urgent = False
        self._process = f"{root}/{pid}"
        self._activity, self._member_pids = Activity(self._process), member_pids
        self._bytes_before: int | None = None  # that the process had written at the last look at folders
        self._bytes_now: int | None = None  # the same at this one
        self._globs = tuple(str(PurePath(cwd or "/", pattern)) for pattern in globs)
        self._cwd = "" if cwd is None else cwd.rstrip("/")
        self._walk = FolderWalk()
        self._project, self._named = files.project_folders(self._cwd, argv), files.named_folders(self._cwd, argv)
        self._learned: deque[str] = deque(maxlen=LEARNED_MAX)  # folders outside its own where a checkpoint was written
        self._saves_in: deque[str] = deque(maxlen=LEARNED_MAX)  # folders in which the trainer saves
        self._fds_pacer = _PollPacer(FD_SECONDS, cpu_clock)
        self._folders_pacer = _PollPacer(FOLDER_SECONDS, cpu_clock)
        self._saves_pacer = _PollPacer(SAVES_SECONDS, cpu_clock)
        self._has_read_fds = self._has_read_folders = False
        self._since_ns = time.time_ns() - int(FILE_TICK_SECONDS * 1e9)
        self._open: dict[FileId, _Open] = {}
        self._active: tuple[int, int] | None = None  # just before the last read
        self._known: dict[str, Fingerprint] = {}
        self._written: dict[str, _Written] = {}  # of the save under way
        self._series: dict[str, _Series] = {}
        self._tails: dict[str, tuple[Fingerprint, bytes]] = {}  # by path: its latest write, and the end of it
        self._ignored = set(excluded)  # also data files, written to all the time
        self._many = MANY_FILES  # known files from which on those that are gone are forgotten
        self._took: deque[float] = deque(maxlen=SAVES_KEPT)  # seconds of the latest saves
        self._on_disk: deque[_Written] = deque(maxlen=SAVES_KEPT)  # the largest file of each of the latest saves
        self._reported_t: float | None = None  # when the save under way was last reported as being written
        self._out: list[CheckpointSeen] = []
        self._denied = False

    def poll(self, now: float) -> list[CheckpointSeen]:
        """Return new events; SourceError, once, when the trainer's open files are not readable (folders still are)."""
        has_read = False
        denied: SourceError | None = None
        if not self._denied and self._fds_pacer.due(now, self.urgent) and not self._is_quiet(now):
            has_read = True
            try:
                self._fds_pacer.measure(now, self._read_fds)
            except SourceError as error:
                self._denied, denied = True, error
        if self._folders_pacer.due(now, self.urgent):
            has_read = True
            self._folders_pacer.measure(now, self._read_folders)
        elif self._saves_in and self._saves_pacer.due(now, self.urgent):
            has_read = True
            self._saves_pacer.measure(now, self._read_saves)
        if denied is not None:
            raise denied
        if has_read or self._written:
            self._report(now)
        return self._pop()

    def _pop(self) -> list[CheckpointSeen]:
        out, self._out = self._out, []
        return out

    def add_logged(self, line: str) -> None:
        """A line of the log tells of a checkpoint: a path outside the trainer's folder in it is looked at."""
        for word in line.replace("'", " ").replace('"', " ").split():
            path = word.rstrip(".,:;)")
            if path.startswith("/") and files.may_be_checkpoint(path):
                folder = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
                is_above = self._cwd and self._cwd.startswith(f"{folder}/")  # perhaps a path with a space in it
                if not is_above or os.path.isfile(path):  # noqa: PTH113
                    self._learn(folder)

    def discard_before_signal(self, now: float, sent_ns: int) -> None:
        """Call just after a signal: a checkpoint that was complete when it was sent is not its effect.

        `sent_ns`: by the clock that stamps files, which stands still for a tick of some milliseconds: what was written
        in the tick of the signal counts as after it. A trainer may have saved before this is called.
        """
        if not self._denied:
            try:
                self._read_fds(now)
            except SourceError:
                self._denied = True
        self._read_folders(now)
        before = [written for written in self._written.values() if written.mark.mtime_ns < sent_ns]
        if any(entry.suggests and entry.writing for entry in self._open.values()):
            return  # they are of a save that goes on
        for written in before:
            del self._written[written.path]
        self._finish(now, before, before_signal=True)

    def resume_after_signal(self, now: float, asked_t: float) -> None:
        """Count checkpoints since a signal at `asked_t`, after which memwatch was restarted, as new."""
        since_ns = int((asked_t - FILE_TICK_SECONDS) * 1e9)
        for entry in self._open.values():
            mark = fingerprint(entry.path)
            entry.writing = entry.writing or (mark is not None and mark.mtime_ns >= since_ns)
        for path in self._watched_files():
            mark = fingerprint(path)
            if mark is not None and mark.mtime_ns >= since_ns and mark.file_id not in self._open:
                self._written.setdefault(path, _Written(path, mark, now, now, opened=False, first_ns=mark.mtime_ns))

    def checkpoints_at_exit(self, now: float, *, killed: bool) -> list[CheckpointSeen]:
        """Call when the trainer is gone: nobody writes any more, so each changed file that is complete is saved.

        `killed`: ended by a signal; then a file that was open at the last read counts as cut off, and so does one that
        was written to after that read, unless it has its end.
        """
        still_open = {entry.path for entry in self._open.values()}
        for key, entry in self._open.items():
            self._note_closed(now, key, entry)
        self._open = {}
        names = {written.mark.file_id: written.path for written in self._written.values()}
        self._read_folders(now)

        def is_over(written: _Written) -> bool:
            name = names.get(written.mark.file_id)  # as of the last read
            quiet = written.path not in still_open and (written.opened or written.still_t < now)
            return bool(files.has_zip_end(written.path)) or (name is not None and (quiet or name != written.path))

        self._follow_all(now)
        done = [written for written in self._written.values() if not killed or is_over(written)]
        self._written.clear()
        self._finish(now, done)
        return self._pop()

    def is_on_disk(self, path: str) -> bool:
        """Whether the checkpoint that was reported with this path is there, and has not been written to since."""
        saved = next((saved for saved in reversed(self._on_disk) if saved.path == path), None)
        mark = fingerprint(path)
        if saved is None or mark is None:  # reported to an earlier memwatch
            return mark is not None and mark.size > 0 and files.is_whole(path)
        return mark == saved.mark

    def close(self) -> None:
        self._activity.close()

    # --- files that are open

    def _is_quiet(self, now: float) -> bool:
        """Whether nothing suggests that the process writes a file."""
        if self.urgent or not self._has_read_fds or any(not e.kept and e.suggests for e in self._open.values()):
            return False
        seen, before = self._activity.read(), self._active
        if seen is None or before is None or now - self._fds_pacer.last_t >= QUIET_SECONDS:
            self._active = seen
            return False
        quiet = seen[0] == before[0] and seen[1] - before[1] < FEW_BYTES
        self._active = before if quiet else seen
        return quiet

    def _read_fds(self, now: float) -> None:
        found = self._open_files()
        closed = self._open.keys() - found.keys()
        if closed and self._has_ended():
            return  # its end closed them: checkpoints_at_exit() decides whether they are complete
        for key in [key for key in self._open if key in closed]:
            self._note_closed(now, key, self._open.pop(key))
        for key, seen in found.items():
            if key in self._open:
                self._open[key].update(now, seen)
            else:
                self._open[key] = _Open(seen.path, seen.size, seen.position, now, now, writing=self._has_read_fds)
                self._begin(now, seen.path, key, seen.size)
            entry = self._open[key]
            entry.suggests = entry.suggests or self._suggests(seen.path, seen.size)
        self._has_read_fds = True
        # A file of the save that is open once more is not complete.
        self._written = {path: w for path, w in self._written.items() if w.mark.file_id not in found}

    def _has_ended(self) -> bool:
        """Whether the process is ending: its descriptors belong to root then, and it has no memory any more."""
        try:
            with open(f"{self._process}/statm", "rb") as file:
                return file.read(2) == b"0 "
        except OSError:
            return True

    def _open_files(self) -> dict[FileId, OpenFile]:
        try:
            return files.open_files(self._process, self._ignored)
        except PermissionError as error:
            if self._has_ended():
                return {}
            hint = "Run memwatch as the trainer's user, or configure checkpoint globs: they are watched in any case."
            raise SourceError("not permitted to see the trainer's open files", hint) from error
        except OSError:
            return {}  # It has ended.

    def _note_closed(self, now: float, key: FileId, entry: _Open) -> None:
        mark = fingerprint(entry.path)
        if mark is None or mark.file_id != key:
            mark = Fingerprint(key, entry.size, 0)  # If it was renamed or removed, _follow searches for it.
        if entry.kept or not entry.writing:
            self._known[entry.path] = mark
            return
        self._written[entry.path] = _Written(entry.path, mark, entry.since_t, now, opened=True, first_ns=mark.mtime_ns)
        if entry.suggests:
            self._learn(os.path.dirname(entry.path))  # noqa: PTH120

    def _learn(self, folder: str) -> None:
        """Walk this folder too, unless everybody writes there; what is there already is not new."""
        if files.is_below(folder, self._cwd) or folder in self._learned or self._globs or files.is_shared(folder):
            return
        self._learned.append(folder)
        for path in self._walk.files([folder], depth=LEARNED_DEPTH):
            if path not in self._written and (seen := fingerprint(path)) and seen.mtime_ns < self._since_ns:
                self._known.setdefault(path, seen)

    # --- files in folders

    def _read_folders(self, now: float) -> None:
        self._note_changes(now, self._watched_files())
        self._has_read_folders = True
        if len(self._known) >= self._many:
            for path in list(filter(files.is_gone, self._known)):
                del self._known[path]
            self._many = max(MANY_FILES, 2 * len(self._known))

    def _read_saves(self, now: float) -> None:
        """Where the trainer saves: these folders, and their parents for the folder of the next save."""
        parents = [os.path.dirname(folder) for folder in self._saves_in]  # noqa: PTH120
        own = [parent for parent in parents if files.is_below(parent, self._cwd)]
        self._note_changes(now, self._walk.files(dict.fromkeys([*own, *self._saves_in]), depth=1))

    def _watched_files(self) -> Iterator[str]:
        if self._globs:
            for pattern in self._globs:
                yield from islice(glob.iglob(pattern, recursive=True), files.FILES_MAX)  # noqa: PTH207
            return
        yield from self._walk.files([self._cwd] if self._cwd else [])
        walked = {self._cwd}
        yield from self._walk.files(self._project, depth=PROJECT_DEPTH, without=walked)
        yield from self._walk.files([*self._named, *self._learned], depth=LEARNED_DEPTH, without=walked)

    def _note_changes(self, now: float, paths: Iterable[str]) -> None:
        known, changed = self._known, list[tuple[str, Fingerprint, bool]]()
        seen = self._activity.read()
        self._bytes_before, self._bytes_now = self._bytes_now, None if seen is None else seen[1]
        for path in paths:
            mark = fingerprint(path)
            if mark is None or known.get(path) == mark or path in self._ignored or path in self._written:
                continue
            is_new = path not in known
            is_renamed = is_new and self._has_read_folders and mark in known.values()
            known[path] = mark
            if not self._has_read_folders or mark.file_id in self._open:
                continue
            if is_new and mark.mtime_ns < self._since_ns:
                continue  # it was there before, beyond what was walked, or was moved here
            if is_renamed and not any(written.mark == mark for written in self._written.values()):
                continue  # a rotated log, the checkpoint before
            changed.append((path, mark, is_new))
        for path, mark, is_new in sorted(changed, key=lambda one: one[1].mtime_ns):
            self._note_change(now, path, mark, is_new)

    def _note_change(self, now: float, path: str, mark: Fingerprint, is_new: bool) -> None:
        earlier = next((w for w in self._written.values() if w.mark.file_id == mark.file_id), None)
        if earlier is not None and not files.is_gone(earlier.path):
            return  # another name for the same file
        if earlier is not None:  # it, or its folder, was renamed
            self._written.pop(earlier.path)
            earlier.path, earlier.gone = path, False
            if mark != earlier.mark:
                earlier.mark, earlier.still_t = mark, now
            self._written[path] = earlier
            return
        self._begin(now, path, mark.file_id, mark.size, mark.mtime_ns)
        first_ns = mark.mtime_ns
        if is_new:
            first_ns = min(first_ns, files.changed_ns(os.path.dirname(path)) or first_ns)  # noqa: PTH120
        self._written[path] = _Written(path, mark, now, now, False, first_ns, self._bytes_before)

    def _follow_all(self, now: float) -> None:
        for written in list(self._written.values()):
            path = written.path
            is_there = self._follow(now, written)
            if self._written.get(path) is written and not is_there:
                del self._written[path]
            if is_there:
                self._written.setdefault(written.path, written)

    def _follow(self, now: float, written: _Written) -> bool:
        """Update a file; False when it is gone, renamed into a file that is followed already, or dropped."""
        mark = fingerprint(written.path)
        if mark is None or (mark.file_id != written.mark.file_id and files.is_temporary(written.path)):
            moved = _find_by_inode(written.path, written.mark)
            if moved is None:
                is_first, written.gone = not written.gone, True
                if is_first:
                    self._read_folders(now)  # its folder may have another name
                return is_first and written.path in self._written
            if moved in self._written:
                self._written[moved].opened |= written.opened
                return False
            if self._written.get(written.path) is written:
                self._written[moved] = self._written.pop(written.path)
            written.path, mark = moved, fingerprint(moved)
        if mark is None:
            return False
        written.gone = False
        if now - written.since_t > MAX_WRITE_SECONDS:
            self._ignored.add(written.path)
            return False
        if mark != written.mark:
            self._begin(now, written.path, mark.file_id, mark.size, mark.mtime_ns)
            if written.path not in self._written:  # it was complete, and this is the next save
                self._written[written.path] = _Written(
                    written.path, mark, now, now, False, mark.mtime_ns, self._bytes_before
                )
                return False
            written.mark, written.still_t = mark, now
        return True

    # --- saves

    def _begin(self, now: float, path: str, key: FileId, size: int, mtime_ns: int | None = None) -> None:
        """A file begins to be written. If it is of the next save, what was written before it is complete."""
        if any(self._is_next_save(w, path, key, size, mtime_ns) for w in self._written.values()):
            done = [w for w in self._written.values() if w.path == path or fingerprint(w.path) in (w.mark, None)]
            self._written = {w.path: w for w in self._written.values() if w not in done}
            self._finish(now, done)

    def _is_next_save(self, before: _Written, path: str, key: FileId, size: int, mtime_ns: int | None) -> bool:
        gap_ns = (time.time_ns() if mtime_ns is None else mtime_ns) - before.mark.mtime_ns
        if before.path == path:  # one that is written again as it was is as large at once
            again = size == before.mark.size and before.mark.mtime_ns > 0 and gap_ns > NEXT_SAVE_SECONDS * 1e9
            return key != before.mark.file_id or size < before.mark.size or again
        if files.skeleton(before.path) != files.skeleton(path) or files.is_temporary(path):
            return False
        if os.path.dirname(before.path) != os.path.dirname(path):  # noqa: PTH120
            return True
        return not files.is_shard(path) and (gap_ns > NEXT_SAVE_SECONDS * 1e9 or files.is_gone(before.path))

    def _finish(self, now: float, done: Sequence[_Written], *, before_signal: bool = False) -> None:
        """These files are closed and complete: report them if they are a checkpoint."""
        for written in done:
            self._known[written.path] = written.mark
        saved = [written for written in done if self._is_checkpoint(written)]
        mapped = files.mapped_inodes(f"{self._process}/maps") if any(not w.opened for w in saved) else set()
        self._ignored.update(w.path for w in saved if w.mark.file_id[1] in mapped)
        saved = [written for written in saved if written.path not in self._ignored]
        if not saved:
            return
        main = max(saved, key=lambda written: written.mark.size)
        self._reported_t = None
        self._on_disk.append(replace(main))
        for folder in {os.path.dirname(written.path) for written in saved}:  # noqa: PTH120
            if folder in self._saves_in:
                self._saves_in.remove(folder)
            self._saves_in.append(folder)
        opened = [written for written in saved if written.opened]
        took = max((w.still_t for w in opened), default=0.0) - min((w.since_t for w in opened), default=0.0)
        last_ns = max(written.mark.mtime_ns for written in saved)
        took = max(0.0, took, (last_ns - min(w.first_ns or last_ns for w in saved)) / 1e9)
        self._took.append(took)
        size = format_bytes(main.mark.size)
        still = max(min(now - written.still_t for written in saved), min(_age(last_ns), FOLDER_SECONDS))
        text = f"file: {printable(main.path)}, {size}, still for {still:.1f} s"
        if len(saved) > 1:
            text += f", and {len(saved) - 1} more"
        self._out.append(CheckpointSeen(now, "saved", text, took, False, still, main.path, before_signal))

    def _is_checkpoint(self, written: _Written) -> bool:
        """Whether it is not empty, has its final name, fits the patterns, is complete, and looks like a checkpoint."""
        path, mark = written.path, written.mark
        if files.is_temporary(path) or mark.size == 0 or path in self._ignored:
            return False
        if self._globs:
            return self._is_configured(path) and files.is_whole(path)
        if not files.may_be_checkpoint(path) or not self._is_own(written):
            return False
        if files.is_gone(path):  # the next save has replaced it
            return self._suggests(path, mark.size)
        is_appended = self._is_appended(path, mark)
        if is_appended or not files.is_whole(path):
            return False
        series = self._series_of(path)
        is_like = series.size <= LIKE_SIZE * mark.size and mark.size <= LIKE_SIZE * series.size
        series.writes, series.size = series.writes + 1 if is_like or not series.writes else 1, mark.size
        if not series.is_checkpoint:
            is_repeated = series.writes > 1 and self._may_repeat(path, mark)
            series.is_checkpoint = is_repeated or self._suggests(path, mark.size)
        return series.is_checkpoint

    def _series_of(self, path: str) -> _Series:
        if len(self._series) >= SERIES_MAX:
            self._series = {name: one for name, one in self._series.items() if one.is_checkpoint}
        return self._series.setdefault(files.skeleton(path), _Series())

    def _is_own(self, written: _Written) -> bool:
        """Whether the job wrote it; where that is not known, as of the latest of its series."""
        if written.opened:
            return True
        series, seen, before = self._series_of(written.path), self._activity.read(), written.bytes_before
        if seen is not None and before is not None:
            least = OWN_SHARE * written.mark.size
            series.is_foreign = seen[1] - before < least and not any(
                files.bytes_written(pid) >= least for pid in self._member_pids()
            )
        return not series.is_foreign

    def _is_appended(self, path: str, mark: Fingerprint) -> bool:
        """Whether the file was only appended to since its last write: a log, a table, a stream of events."""
        before, end = self._tails.get(path, (None, b""))
        if len(self._tails) >= SERIES_MAX:
            self._tails.clear()
        self._tails[path] = mark, files.tail(path, mark.size)
        if before is None or before.file_id != mark.file_id or before.size >= mark.size:
            return False
        return files.tail(path, before.size) == end and files.content_kind(path) != "serialized"

    def _may_repeat(self, path: str, mark: Fingerprint) -> bool:
        """Whether its like may be a checkpoint though nothing suggests it: not a log, a table, a status, a picture."""
        kind = files.content_kind(path)
        if files.name_suggests_output(path) and not files.name_suggests_checkpoint(path, self._cwd):
            return False
        return kind not in ("other", "lines") and mark.size >= (SMALL_TEXT_BYTES if kind == "text" else SMALL_BYTES)

    def _suggests(self, path: str, size: int) -> bool:
        """Whether the name, the content or the size suggests a checkpoint, before it is written again."""
        if self._globs and self._is_configured(path):
            return True
        if (known := self._series.get(files.skeleton(path))) is not None and known.is_checkpoint:
            return True
        kind = files.content_kind(path)
        if files.name_suggests_checkpoint(path, self._cwd):
            is_short = kind in ("text", "lines") and size < files.TEXT_BYTES and not files.is_called_checkpoint(path)
            return kind != "other" and not is_short
        if files.name_suggests_output(path):
            return False
        return kind == "serialized" or (kind == "" and self._is_big_and_new(path, size))

    def _is_big_and_new(self, path: str, size: int) -> bool:
        """Whether it is large, and its folder has only files of this run."""
        folder = path.rpartition("/")[0]
        if size < files.BIG_BYTES or folder == self._cwd:
            return False
        return all(seen.mtime_ns >= self._since_ns for p, seen in self._known.items() if p.startswith(f"{folder}/"))

    def _is_configured(self, path: str) -> bool:
        return any(fnmatch(path, pattern) for pattern in self._globs)

    # --- reports

    @property
    def _settle_seconds(self) -> float:
        if not self._took:
            return SETTLE_SECONDS
        return min(SETTLE_SECONDS, max(SETTLE_LEAST_SECONDS, *self._took))

    def _report(self, now: float) -> None:
        if not (self._open or self._written or self._reported_t is not None):
            return
        self._follow_all(now)
        unsettled = [w for w in self._written.values() if not self._is_settled(now, w)]
        busy = [entry.path for entry in self._open.values() if entry.writing and entry.suggests and not entry.kept]
        busy += [
            w.path
            for w in unsettled
            if self._suggests(w.path, w.mark.size) and not self._is_table(now, w) and self._is_own(w)
        ]
        if busy:
            self._report_writing(now, busy[0])
            return
        waiting = [w for w in self._written.values() if w in unsettled or w.gone or files.is_temporary(w.path)]
        done = [written for written in self._written.values() if written not in waiting]
        self._written = {written.path: written for written in waiting}
        self._finish(now, done)
        if self._reported_t is not None and not any(w.gone or files.is_temporary(w.path) for w in waiting):
            self._reported_t = None
            self._out.append(CheckpointSeen(now, "dropped", "file: it was removed, or stays open: no checkpoint"))

    def _is_settled(self, now: float, written: _Written) -> bool:
        still = now - written.still_t
        if not self._denied and not written.gone:  # seen to be closed: its own time counts
            still = max(still, _age(written.mark.mtime_ns))
        return still >= self._settle_seconds

    def _is_table(self, now: float, written: _Written) -> bool:
        """Whether it is text to which a line is added all the time."""
        return now - written.since_t > STALL_SECONDS and files.content_kind(written.path) == "lines"

    def _report_writing(self, now: float, path: str) -> None:
        if self._reported_t is None or now - self._reported_t >= REPEAT_SECONDS:
            self._reported_t = now
            self._out.append(CheckpointSeen(now, "writing", f"file: {printable(path)} is being written"))


def _age(mtime_ns: int) -> float:
    """Seconds since this file time; 0 where it is not known."""
    return max(0.0, (time.time_ns() - mtime_ns) / 1e9) if mtime_ns else 0.0


def _find_by_inode(path: str, mark: Fingerprint) -> str | None:
    """Find the file's new name within its folder."""
    try:
        with os.scandir(os.path.dirname(path)) as entries:  # noqa: PTH120
            return next((e.path for e in islice(entries, files.FILES_MAX) if e.inode() == mark.file_id[1]), None)
    except OSError:
        return None
