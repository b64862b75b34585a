"""The state of a checkpoint file: its name, whether it is complete, changed, being written, or renamed."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

FILES_MAX = 5000  # Files read in a folder, or in all searched folders: a bound on time.

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

Fingerprint = tuple[int, int, int, int]  # device, inode, size, mtime_ns


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
        self._files = self._io = -1  # kept open: opening costs ten times as much as reading

    def read(self) -> tuple[int, int] | None:
        """Return both, or None where unknown: before Linux 6.2, for another user's process, or after its end.

        rchar: 799852904\nwchar: 523082608\n...: written by calls. write_bytes: pages made dirty, through mappings, too.
        """
        try:
            if self._io < 0:
                self._files = os.open(f"{self._process}/fd", os.O_PATH | os.O_CLOEXEC)
                self._io = os.open(f"{self._process}/io", os.O_RDONLY | os.O_CLOEXEC)
            count, told = os.fstat(self._files).st_size, os.pread(self._io, 512, 0).split()
            return (count, int(told[3]) + int(told[11])) if count else None
        except (OSError, ValueError, IndexError):
            self.close()
            return None

    def close(self) -> None:
        """Close the descriptors; a later read opens them again."""
        for fd in (self._files, self._io):
            if fd >= 0:
                os.close(fd)
        self._files = self._io = -1


def fingerprint(path: str) -> Fingerprint | None:
    """Return a value that changes when the file is written or replaced; None when there is no regular file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 -- for every file at every read
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) if stat.S_ISREG(seen.st_mode) else None


def is_gone(path: str) -> bool:
    """Whether the file is gone; False where that is not known."""
    try:
        os.stat(path)  # noqa: PTH116 -- a Path would intern each name
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
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
            return next((e.path for e in islice(entries, FILES_MAX) if e.inode() == mark[1]), None)
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
