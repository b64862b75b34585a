"""What a file shows of itself: named like a checkpoint, whole, changed, being written, moved to another name."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

FILES_MAX = 5000  # files looked at in a folder, or in all that are searched

_SUFFIX = r"\.(?:pt|pth|ckpt|npz|npy|pkl|pickle|safetensors|h5|hdf5|keras|msgpack|bin|joblib|orbax|distcp)"
_NAME = re.compile(rf"{_SUFFIX}(?:\.(?:gz|bz2|xz|zst))?(?:[._-]?(?:tmp|temp|part|partial|new)[\w.-]*|~)?$", re.I)
_BARE_NAME = re.compile(r"(?:^|[._-])(?:ckpt|checkpoint)\w*(?:[.-]\w+)*$", re.I)
_TEMPORARY = re.compile(
    r"(?:^\.?(?:tmp|temp)|[._-](?:tmp|temp|part|partial|new)[\w.-]*$|~$|\.orbax-checkpoint-tmp)", re.I
)
_FOLDER = re.compile("ckpt|checkpoint|save|model")
_TEXT = (".log", ".txt", ".json", ".yaml", ".yml", ".csv", ".py", ".md")
_ZIP, _ZIP_END, _ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", 65557  # torch.save and numpy.savez write zip files

_STILL_NS = 2_000_000_000  # a folder that was changed later may be changed again without another time

Fingerprint = tuple[int, int, int, int]  # device, inode, size, mtime_ns


@lru_cache(maxsize=256)
def looks_like_checkpoint(name: str) -> bool:
    """By its name alone: model.pt, replay.npz.tmp, ckpt-12, .checkpoint_3.part."""
    return bool(_NAME.search(name)) or (bool(_BARE_NAME.search(name)) and not name.lower().endswith(_TEXT))


def is_whole(path: str) -> bool:
    """False when the file is a zip (torch.save, numpy.savez) without its end: the writer was cut off."""
    found = has_zip_end(path)
    return os.path.exists(path) if found is None else found  # noqa: PTH110 -- no zip, or not permitted to look inside


def has_zip_end(path: str) -> bool | None:
    """Whether a zip has its end; None for another kind of file, which does not show whether it is whole."""
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
    """The file position of a descriptor that is open for writing; None for a read-only one.

    pos:\t4096\nflags:\t0100001\n...: flags are octal, their last two bits are the access mode.
    """
    with open(path, "rb") as file:
        fields = dict(line.partition(b":")[::2] for line in file.read(256).splitlines())
    try:
        return int(fields[b"pos"]) if int(fields[b"flags"], 8) & os.O_ACCMODE else None
    except (KeyError, ValueError):
        return None


class Activity:
    """How many files a process (/proc/PID) has open, and the bytes that it has written."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._files = self._io = -1  # held: opening costs ten times as much as reading

    def read(self) -> tuple[int, int] | None:
        """Both, or None where that is not told: before Linux 6.2, of another user's process, or after its end.

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
        """Give back what is held; a later read takes it anew."""
        for fd in (self._files, self._io):
            if fd >= 0:
                os.close(fd)
        self._files = self._io = -1


def fingerprint(path: str) -> Fingerprint | None:
    """Another one whenever the file was written to or replaced; None when there is no regular file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 -- for every file at every look
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) if stat.S_ISREG(seen.st_mode) else None


def is_gone(path: str) -> bool:
    """There is no such file any more; False where that may not be known."""
    try:
        os.stat(path)  # noqa: PTH116 -- a Path would intern each name
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def mapped_inodes(path: str) -> set[int]:
    """Inodes of files that are mapped shared and writable: their changes are a replay memory's, not a checkpoint's.

    7f1c-7f2c rw-s 00000000 fe:00 131087   /runs/replay.bin
    """
    try:
        with open(path, "rb") as file:
            fields = (line.split(None, 5) for line in file if b" rw-s " in line)
            return {int(f[4]) for f in fields if len(f) > 4}
    except (OSError, ValueError):
        return set()


def find_by_inode(path: str, mark: Fingerprint) -> str | None:
    """Where the file went within its folder."""
    try:
        with os.scandir(os.path.dirname(path)) as entries:  # noqa: PTH120
            return next((e.path for e in islice(entries, FILES_MAX) if e.inode() == mark[1]), None)
    except OSError:
        return None


class UsualCheckpointFolders:
    """Where checkpoints lie below a folder that nobody has named."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, list[os.DirEntry[str]]]] = {}  # when it was changed, what is in it

    def files(self) -> Iterator[str]:
        """What is named like a checkpoint in the folder, in those in it that are named after checkpoints or models, and
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
        """Folders, and files with a name that fits; hidden ones left out."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116 -- for every folder at every look
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
    """By its name: written under it to be renamed."""
    return bool(_TEMPORARY.search(path.rpartition("/")[2]))
