"""Reports checkpoints that are being written or complete, by the trainer's open files and by watched folders."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from itertools import chain, islice
from pathlib import PurePath
from typing import NamedTuple

from memwatch.core.events import CheckpointSeen
from memwatch.core.text_and_units import format_bytes, printable
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import HeldFile

FD_SECONDS = 1.0  # Interval of reading /proc/PID/fd, unless it is urgent (chosen).
QUIET_SECONDS = 10.0  # The same while the process hardly writes and has as many files open as before (chosen).
FEW_BYTES = 16384  # Some lines of a log; the check takes 5 us, reading the folder 40 us (measured).
FOLDER_SECONDS = 5.0  # Interval of reading the folders, unless it is urgent (chosen).
CPU_SHARE = 0.0005  # Share of a core for each of the two: expensive reads are made more rarely (chosen).
URGENT_CPU_SHARE = 0.05
FILE_TICK_SECONDS = 0.01  # The clock of file times may be this much behind: a tick of the kernel (10 ms at HZ=100).
SETTLE_SECONDS = 2.0  # A closed file that has not changed for this long is complete (chosen).
STALL_SECONDS = 30.0  # An open file that has not changed for this long is e.g. a replay memmap, no checkpoint (chosen).
MAX_WRITE_SECONDS = 900.0  # A file that is written for longer is a data stream and no checkpoint (chosen).
REPEAT_SECONDS = 10.0  # Interval of reports that a checkpoint is still being written (chosen).
MANY_FILES = 64  # From so many known files on, removed ones are forgotten: a bound on memory.
LEARNED_MAX = 8  # Folders that are added because a checkpoint was written there: a bound on time.
FILES_MAX = 5000  # Files read in a folder, or in all searched folders: a bound on time.

FileId = tuple[int, int]  # device and inode


class Fingerprint(NamedTuple):
    """It changes when a file is written or replaced."""

    file_id: FileId
    size: int
    mtime_ns: int


@dataclass(slots=True)
class _Open:
    """A file with a checkpoint's name that the trainer has open for writing."""

    path: str
    size: int
    position: int
    since_t: float
    moved_t: float
    writing: bool  # False: it was open at the attach and has not changed since
    kept: bool = False  # it stays open and is no checkpoint

    def update(self, now: float, path: str, size: int, position: int) -> None:
        self.path = path
        if (size, position) != (self.size, self.position):
            if not self.writing:
                self.since_t = now
            self.size, self.position, self.moved_t, self.writing = size, position, now, True
        elif now - self.moved_t > STALL_SECONDS:
            self.kept = True
        if self.writing and now - self.since_t > MAX_WRITE_SECONDS:
            self.kept = True


@dataclass(slots=True)
class _Closed:
    """A file that has changed and must stay unchanged for a while before it counts."""

    path: str
    fingerprint: Fingerprint
    since_t: float  # when it was first seen
    still_t: float  # since when it has not changed
    opened: bool  # it was seen open for writing


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

    It reads which files the trainer's process has open for writing: one is a checkpoint if its name or a glob fits, and
    if it grows or its position moves. It also reads folders (those of `globs`, else the usual ones and those where a
    checkpoint was written) for files that are new or changed and then unchanged for SETTLE_SECONDS. With `globs`, a
    file that fits none of them is never "saved". A rename into place is followed by inode. Each of the two readings
    uses at most CPU_SHARE of a core, or URGENT_CPU_SHARE when urgent.
    """

    name = "checkpoint"

    def __init__(
        self,
        pid: int,
        globs: Sequence[str] = (),
        cwd: str | None = None,
        root: str = "/proc",
        *,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.urgent = False
        self._process = f"{root}/{pid}"
        self._activity = Activity(self._process)
        self._globs = tuple(str(PurePath(cwd or "/", pattern)) for pattern in globs)
        self._usual_folders = UsualCheckpointFolders(cwd) if cwd and not globs else None
        self._learned: list[str] = []  # patterns of the folders where a checkpoint was written
        self._fds_pacer = _PollPacer(FD_SECONDS, cpu_clock)
        self._folders_pacer = _PollPacer(FOLDER_SECONDS, cpu_clock)
        self._has_read_fds = self._has_read_folders = False
        self._open: dict[FileId, _Open] = {}
        self._active: tuple[int, int] | None = None  # just before the last read
        self._known: dict[str, Fingerprint] = {}
        self._closed: dict[str, _Closed] = {}
        self._ignored: set[str] = set()  # data files, written to all the time
        self._many = MANY_FILES  # known files from which on those that are gone are forgotten
        self._reported_t = float("-inf")
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
        if denied is not None:
            raise denied
        return self._report(now) if has_read or self._closed else []

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
        before = [closed for closed in self._closed.values() if closed.fingerprint.mtime_ns < sent_ns]
        for closed in before:
            self._known[closed.path] = closed.fingerprint
            del self._closed[closed.path]

    def resume_after_signal(self, now: float, asked_t: float) -> None:
        """Count checkpoints since a signal at `asked_t`, after which memwatch was restarted, as new."""
        since_ns = int((asked_t - FILE_TICK_SECONDS) * 1e9)
        for entry in self._open.values():
            mark = fingerprint(entry.path)
            entry.writing = entry.writing or (mark is not None and mark.mtime_ns >= since_ns)
        for path in self._watched_files():
            mark = fingerprint(path)
            if mark is not None and mark.mtime_ns >= since_ns and mark.file_id not in self._open:
                self._closed.setdefault(path, _Closed(path, mark, now, now, opened=False))

    def checkpoints_at_exit(self, now: float, *, killed: bool) -> list[CheckpointSeen]:
        """Call when the trainer is gone: nobody writes any more, so each changed file that is complete is saved.

        `killed`: ended by a signal; then a file that was open at the last read counts as cut off, and so does one that
        was written to after that read, unless it has its end.
        """
        still_open = {entry.path for entry in self._open.values()}
        for key, entry in self._open.items():
            self._note_closed(now, key, entry)
        self._open = {}
        names = {closed.fingerprint.file_id: closed.path for closed in self._closed.values()}
        self._read_folders(now)

        def is_over(closed: _Closed) -> bool:
            name = names.get(closed.fingerprint.file_id)  # as of the last read
            quiet = closed.path not in still_open and (closed.opened or closed.still_t < now)
            return bool(has_zip_end(closed.path)) or (name is not None and (quiet or name != closed.path))

        done = [c for c in self._closed.values() if self._follow(now, c) and (not killed or is_over(c))]
        self._closed.clear()
        whole = [closed for closed in done if self._is_complete(closed)]
        return [self._saved(now, whole)] if whole else []

    def close(self) -> None:
        self._activity.close()

    # --- files that are open

    def _is_quiet(self, now: float) -> bool:
        """Whether nothing suggests that the process writes a file."""
        if self.urgent or not self._has_read_fds or not all(entry.kept for entry in self._open.values()):
            return False
        seen, before = self._activity.read(), self._active
        if seen is None or before is None or now - self._fds_pacer.last_t >= QUIET_SECONDS:
            self._active = seen
            return False
        quiet = seen[0] == before[0] and seen[1] - before[1] < FEW_BYTES
        self._active = before if quiet else seen
        return quiet

    def _read_fds(self, now: float) -> None:
        found = self._open_checkpoints()
        closed = self._open.keys() - found.keys()
        if closed and self._has_ended():
            return  # its end closed them: checkpoints_at_exit() decides whether they are complete
        for key, (path, size, position) in found.items():
            if key in self._open:
                self._open[key].update(now, path, size, position)
            else:
                self._open[key] = _Open(path, size, position, now, now, writing=self._has_read_fds)
        self._has_read_fds = True
        self._closed = {
            path: c for path, c in self._closed.items() if c.fingerprint.file_id not in found
        }  # open once more
        for key in [key for key in self._open if key in closed]:
            self._note_closed(now, key, self._open.pop(key))

    def _has_ended(self) -> bool:
        """Whether the process is ending: its descriptors belong to root then, and it has no memory any more."""
        try:
            with open(f"{self._process}/statm", "rb") as file:
                return file.read(2) == b"0 "
        except OSError:
            return True

    def _open_checkpoints(self) -> dict[FileId, tuple[str, int, int]]:
        """Path, size and position of files that are open for writing and named like a checkpoint."""
        found: dict[FileId, tuple[str, int, int]] = {}
        try:
            numbers = os.listdir(f"{self._process}/fd")  # noqa: PTH208 -- names are wanted, a Path each would cost the most
        except PermissionError as error:
            if self._has_ended():
                return found
            hint = "Run memwatch as the trainer's user, or configure checkpoint globs: they are watched in any case."
            raise SourceError("not permitted to see the trainer's open files", hint) from error
        except OSError:
            return found  # It has ended.
        for number in numbers:
            try:
                path = os.readlink(f"{self._process}/fd/{number}")  # noqa: PTH115 -- as above: 2 us against 8
                if not path.startswith("/") or not (_has_checkpoint_name(path) or self._is_configured(path)):
                    continue
                position = write_position(f"{self._process}/fdinfo/{number}")
                seen = os.stat(f"{self._process}/fd/{number}") if position is not None else None  # noqa: PTH116
            except OSError:
                continue  # It was closed meanwhile.
            if position is not None and seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_nlink:
                found[seen.st_dev, seen.st_ino] = (path, seen.st_size, position)
        return found

    def _is_configured(self, path: str) -> bool:
        return any(fnmatch(path, pattern) for pattern in self._globs)

    def _note_closed(self, now: float, key: FileId, entry: _Open) -> None:
        mark = fingerprint(entry.path)
        if mark is None or mark.file_id != key:
            mark = Fingerprint(key, entry.size, 0)  # If it was renamed or removed, _follow searches for it.
        if entry.kept or not entry.writing:
            self._known[entry.path] = mark
            return
        self._closed[entry.path] = _Closed(entry.path, mark, entry.since_t, now, opened=True)
        pattern = f"{glob.escape(os.path.dirname(entry.path))}/*"  # noqa: PTH120
        if pattern not in self._learned and len(self._learned) < LEARNED_MAX and not self._globs:
            self._learned.append(pattern)
            for path in filter(
                _has_checkpoint_name, islice(_matches(pattern), FILES_MAX)
            ):  # Existing files are not new.
                if path not in self._closed and (seen := fingerprint(path)) and seen.file_id != key:
                    self._known.setdefault(path, seen)

    # --- files in folders

    def _read_folders(self, now: float) -> None:
        known = self._known
        for path in self._watched_files():
            mark = fingerprint(path)
            if mark is None or known.get(path) == mark or path in self._closed or path in self._ignored:
                continue
            known[path] = mark
            if self._has_read_folders and mark.file_id not in self._open:
                since = next((c.since_t for c in self._closed.values() if c.fingerprint.file_id == mark.file_id), now)
                self._closed[path] = _Closed(path, mark, since, now, opened=False)
        self._has_read_folders = True
        if len(known) >= self._many:
            for path in list(filter(is_gone, known)):
                del known[path]
            self._many = max(MANY_FILES, 2 * len(known))

    def _watched_files(self) -> Iterable[str]:
        usual = self._usual_folders.files() if self._usual_folders is not None else ()
        paths = islice(chain(usual, _matches(*self._globs, *self._learned)), FILES_MAX)
        return paths if self._globs else filter(_has_checkpoint_name, paths)

    def _follow(self, now: float, closed: _Closed) -> bool:
        """Update a file; False when it is gone, renamed into a file that is followed already, or dropped."""
        mark = fingerprint(closed.path)
        if mark is None or (mark.file_id != closed.fingerprint.file_id and is_temporary(closed.path)):
            moved = find_by_inode(closed.path, closed.fingerprint)
            if moved is None or moved in self._closed:
                return False
            closed.path, mark = moved, fingerprint(moved)
        if mark is None:
            return False
        if now - closed.since_t > MAX_WRITE_SECONDS:
            self._ignored.add(closed.path)
            return False
        if mark != closed.fingerprint:
            closed.fingerprint, closed.still_t = mark, now
        return True

    # --- reports

    def _report(self, now: float) -> list[CheckpointSeen]:
        if not (self._open or self._closed):
            return []
        self._closed = {c.path: c for c in list(self._closed.values()) if self._follow(now, c)}
        writing = [entry.path for entry in self._open.values() if entry.writing and not entry.kept]
        busy = writing + [c.path for c in self._closed.values() if now - c.still_t < SETTLE_SECONDS]
        if busy:
            return self._writing(now, busy[0])
        done = [closed for closed in self._closed.values() if self._is_complete(closed)]
        mapped = mapped_inodes(f"{self._process}/maps") if any(not closed.opened for closed in done) else set()
        for closed in done:
            del self._closed[closed.path]
            self._known[closed.path] = closed.fingerprint
            if closed.fingerprint.file_id[1] in mapped:
                self._ignored.add(closed.path)
        done = [closed for closed in done if closed.path not in self._ignored]
        return [self._saved(now, done)] if done else []

    def _is_complete(self, closed: _Closed) -> bool:
        """Whether it is not empty, has its final name, matches the patterns, and is complete."""
        wanted = not is_temporary(closed.path) and (not self._globs or self._is_configured(closed.path))
        return wanted and closed.fingerprint.size > 0 and is_whole(closed.path)

    def _writing(self, now: float, path: str) -> list[CheckpointSeen]:
        if now - self._reported_t < REPEAT_SECONDS:
            return []
        self._reported_t = now
        return [CheckpointSeen(now, "writing", f"file: {printable(path)} is being written")]

    def _saved(self, now: float, files: Sequence[_Closed]) -> CheckpointSeen:
        self._reported_t = float("-inf")
        main = max(files, key=lambda closed: closed.fingerprint.size)
        size = format_bytes(main.fingerprint.size)
        text = f"file: {printable(main.path)}, {size}, still for {now - main.still_t:.1f} s"
        if len(files) > 1:
            text += f", and {len(files) - 1} more"
        opened = [closed for closed in files if closed.opened]
        took = max((c.still_t for c in opened), default=0.0) - min((c.since_t for c in opened), default=0.0)
        return CheckpointSeen(now, "saved", text, max(0.0, took) if opened else None)


def _has_checkpoint_name(path: str) -> bool:
    return looks_like_checkpoint(path.rpartition("/")[2])


def _matches(*patterns: str) -> Iterator[str]:
    for pattern in patterns:
        yield from glob.iglob(pattern, recursive=True)  # noqa: PTH207


# --- files ------------------------------------------------------------------------------------------------------------

_SUFFIX = r"\.(?:pt|pth|ckpt|npz|npy|pkl|pickle|safetensors|h5|hdf5|keras|msgpack|bin|joblib|orbax|distcp)"
_NAME = re.compile(rf"{_SUFFIX}(?:\.(?:gz|bz2|xz|zst))?(?:[._-]?(?:tmp|temp|part|partial|new)[\w.-]*|~)?$", re.I)
_BARE_NAME = re.compile(r"(?:^|[._-])(?:ckpt|checkpoint)\w*(?:[.-]\w+)*$", re.I)
_TEMPORARY = re.compile(
    r"(?:^\.?(?:tmp|temp)|[._-](?:tmp|temp|part|partial|new)[\w.-]*$|~$|\.orbax-checkpoint-tmp)", re.I
)
_FOLDER = re.compile("ckpt|checkpoint|save|model")
_TEXT = (".log", ".txt", ".json", ".yaml", ".yml", ".csv", ".py", ".md")
_ZIP, _ZIP_END, _ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", 65557  # torch.save and numpy.savez write zip files

_STILL_NS = 2_000_000_000  # A folder that was changed less than this ago may change again without a new mtime.


@lru_cache(maxsize=256)
def looks_like_checkpoint(name: str) -> bool:
    """Whether a file is a checkpoint by its name: model.pt, replay.npz.tmp, ckpt-12, .checkpoint_3.part."""
    return bool(_NAME.search(name)) or (bool(_BARE_NAME.search(name)) and not name.lower().endswith(_TEXT))


def is_whole(path: str) -> bool:
    """Whether a file is complete: not so a zip (torch.save, numpy.savez) without its end."""
    found = has_zip_end(path)
    return os.path.exists(path) if found is None else found  # noqa: PTH110 -- no zip, or not permitted to look inside


def has_zip_end(path: str) -> bool | None:
    """Whether a zip has its end; None for other files, which do not show whether they are complete."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != _ZIP:
                return None
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _ZIP_TAIL))
            return _ZIP_END in file.read()
    except OSError:
        return None


def write_position(path: str) -> int | None:
    """Return the file position of a descriptor that is open for writing; None for a read-only one.

    pos:\t4096\nflags:\t0100001\n...: flags are octal, their last two bits are the access mode.
    """
    with open(path, "rb") as file:
        fields = dict(line.partition(b":")[::2] for line in file.read(256).splitlines())
    try:
        return int(fields[b"pos"]) if int(fields[b"flags"], 8) & os.O_ACCMODE else None
    except (KeyError, ValueError):
        return None


class Activity:
    """Counts the open files of a process (/proc/PID) and the bytes that it has written."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._io = HeldFile(f"{process}/io")  # kept open, as the folder: opening costs ten times as much as reading
        self._files = -1

    def read(self) -> tuple[int, int] | None:
        """Return both, or None where unknown: before Linux 6.2, for another user's process, or after its end.

        rchar: 799852904\nwchar: 523082608\n...: written by calls. write_bytes: pages made dirty, through mappings, too.
        """
        try:
            if self._files < 0:
                self._files = os.open(f"{self._process}/fd", os.O_PATH | os.O_CLOEXEC)
            fields, count = self._io.read_bytes().split(), os.fstat(self._files).st_size
            return (count, int(fields[3]) + int(fields[11])) if count else None
        except (OSError, SourceError, ValueError, IndexError):
            self.close()
            return None

    def close(self) -> None:
        """Close the descriptors; a later read opens them again."""
        self._io.close()
        if self._files >= 0:
            os.close(self._files)
            self._files = -1


def fingerprint(path: str) -> Fingerprint | None:
    """Return a value that changes when the file is written or replaced; None when there is no regular file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 -- for every file at every read
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Fingerprint((seen.st_dev, seen.st_ino), seen.st_size, seen.st_mtime_ns)


def is_gone(path: str) -> bool:
    """Whether the file is gone; False where that is not known."""
    try:
        os.stat(path)  # noqa: PTH116 -- a Path would intern each name
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def mapped_inodes(path: str) -> set[int]:
    """Return inodes of files that are mapped shared and writable: a replay memory changes them, no checkpoint.

    7f1c-7f2c rw-s 00000000 fe:00 131087   /runs/replay.bin
    """
    try:
        with open(path, "rb") as file:
            fields = (line.split(None, 5) for line in file if b" rw-s " in line)
            return {int(f[4]) for f in fields if len(f) > 4}
    except (OSError, ValueError):
        return set()


def find_by_inode(path: str, mark: Fingerprint) -> str | None:
    """Find the file's new name within its folder."""
    try:
        with os.scandir(os.path.dirname(path)) as entries:  # noqa: PTH120
            return next((e.path for e in islice(entries, FILES_MAX) if e.inode() == mark.file_id[1]), None)
    except OSError:
        return None


class UsualCheckpointFolders:
    """Finds checkpoints below a folder without the user's patterns."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, list[os.DirEntry[str]]]] = {}  # mtime and entries, by folder

    def files(self) -> Iterator[str]:
        """List files named like a checkpoint in the folder, in its folders named after checkpoints or models, and
        in subfolders of the former (`checkpoints/step_100/`). A folder that has not changed is not read again."""
        inner: list[os.DirEntry[str]] = []
        for entry in self._entries(self._folder):
            yield entry.path
            if _FOLDER.search(entry.name) and _is_folder(entry):
                inner.append(entry)
        for outer in inner:
            for entry in self._entries(outer.path):
                yield entry.path
                if "checkpoint" in outer.name and _is_folder(entry):
                    yield from (one.path for one in self._entries(entry.path))

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        """List folders, and files with a checkpoint's name, without hidden ones."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116 -- for every folder at every read
            known = self._known.get(folder)
            if known is not None and known[0] == changed_ns:
                return known[1]
            with os.scandir(folder) as listed:
                shown = [entry for entry in listed if not entry.name.startswith(".")]
        except OSError:
            return []
        entries = [entry for entry in shown if looks_like_checkpoint(entry.name) or _is_folder(entry)]
        if len(self._known) >= FILES_MAX:
            self._known.clear()
        if time.time_ns() - changed_ns > _STILL_NS:
            self._known[folder] = changed_ns, entries
        return entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_temporary(path: str) -> bool:
    """Whether the name is a temporary one, under which a file is written before it is renamed."""
    return bool(_TEMPORARY.search(path.rpartition("/")[2]))
