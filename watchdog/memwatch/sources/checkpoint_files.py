"""Reads files and folders: what a process has open for writing, what is new below a folder, what a file holds."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from memwatch.errors import SourceError
from memwatch.sources.kernel_files import HeldFile

FILES_MAX = 2000  # Files read in one walk: 3 us each (measured), and about 0.5 kB of memory.
FOLDERS_MAX = 1000  # Folders visited in one walk: 5 us each where nothing has changed (measured).
ENTRIES_MAX = 2000  # Entries listed of one folder.
MANY_ENTRIES = 200  # Of a folder with more files (a data set), those are read that are new or named like a checkpoint.
TEXT_BYTES = 4096  # Text that is shorter is a summary or a configuration, whatever it is called (chosen).
BIG_BYTES = 300_000  # A file of this size in a folder that the run has made is taken for a save at once (chosen).
_HEAD_BYTES = 512  # of a file that are looked at
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a]")  # bytes that no text has
_TAIL_BYTES = 64  # by which an appended file is recognised
_OF_PROJECT = (".git", "pyproject.toml", "setup.py", "requirements.txt", "environment.yml")
# --output_dir /runs/a | hydra.run.dir=/runs/a | -o ../out
_SAVE_OPTION = re.compile(r"(?<![a-z])(?:o$|out|sav|ckpt|checkpoint|work|log|run|exp|result|model|default_root)", re.I)
_MAX_ABOVE, _MAX_NAMED = 3, 8  # levels up to a project's folder, and folders of a command line: bounds on time
_STILL_NS = 2_000_000_000  # A folder that was changed less than this ago may change again without a new mtime.

FileId = tuple[int, int]  # device and inode


class Fingerprint(NamedTuple):
    """It changes when a file is written or replaced."""

    file_id: FileId
    size: int
    mtime_ns: int


class OpenFile(NamedTuple):
    """A regular file that a process has open for writing, in bytes."""

    path: str
    size: int
    position: int


# --- names ------------------------------------------------------------------------------------------------------------

_HINT = re.compile(r"checkpoint|ckpt|model|weights|snapshot|epoch|generation|optimizer|save[ds]?(?![a-z])|best", re.I)
_OUTPUT = re.compile(
    r"(?:^|[^a-z])(?:predictions?|preds?|logits?|probs?|outputs?|samples?|metrics?|results?|scores?)(?![a-z])", re.I
)
_TEMPORARY = re.compile(
    r"(?:^\.?(?:tmp|temp)|[._-](?:tmp|temp|part|partial|new)[\w.-]*$|~$|\.orbax-checkpoint-tmp)", re.I
)
_TEMPORARY_FOLDER = re.compile(r"^\.?(?:tmp|temp)[._-]|[._-](?:tmp|temp|partial)$|\.orbax-checkpoint-tmp", re.I)
_SHARD = re.compile(r"of[-_.]?\d|(?:^|[^a-z])rank|shard|^__\d", re.I)
_DIGITS = re.compile(r"\d+")
_NO_FOLDERS = ("/dev/", "/proc/", "/sys/", "/memfd:", "/anon_hugepage")
_CACHES = ("__pycache__", "site-packages", "dist-packages", "node_modules", ".cache", ".git", ".triton", ".nv")


def may_be_checkpoint(path: str) -> bool:
    """Whether a file at this path may be a checkpoint: not in /proc, a package's folder, a cache, nor deleted.

    A file right in /dev/shm is shared memory of the program, unless its name says otherwise.
    """
    if path.startswith(_NO_FOLDERS):
        folder, _, name = path.rpartition("/")
        is_saved = folder.startswith("/dev/shm/") or (folder == "/dev/shm" and _suggests(name))  # noqa: S108 -- read only
        return is_saved and not path.endswith(" (deleted)")
    return path.startswith("/") and not path.endswith(" (deleted)") and not any(f"/{c}/" in path for c in _CACHES)


def name_suggests_checkpoint(path: str, root: str = "") -> bool:
    """Whether the name of a file, or of a folder of it below `root`, says checkpoint, model, epoch ..."""
    below = path[len(root) :] if root and path.startswith(root) else "/".join(path.rsplit("/", 3)[-2:])
    return _suggests(below)


def name_suggests_output(path: str) -> bool:
    """Whether the name of the file says that it is what a model gave: predictions, samples, scores."""
    return bool(_OUTPUT.search(path.rpartition("/")[2]))


def is_called_checkpoint(path: str) -> bool:
    """Whether the file itself is called a checkpoint: then even a short text is one."""
    return bool(re.search("checkpoint|ckpt", path.rpartition("/")[2], re.I))


@lru_cache(maxsize=256)
def _suggests(name: str) -> bool:
    return bool(_HINT.search(name))


@lru_cache(maxsize=256)
def skeleton(path: str) -> str:
    """The path without its numbers: the same for each save of a series."""
    return _DIGITS.sub("#", path)


def is_shard(path: str) -> bool:
    """Whether the number in a file's name counts parts of one save: model-00001-of-00003, rank_3, __0_0.distcp."""
    return bool(_SHARD.search(path.rpartition("/")[2]))


def is_temporary(path: str) -> bool:
    """Whether the name, or its folder's, is one under which files are written before they are renamed."""
    folder, _, name = path.rpartition("/")
    folder = folder.rpartition("/")[2]  # tmp-checkpoint-100, not /tmp/tmp_8x1, where somebody works
    return bool(_TEMPORARY.search(name) or (_TEMPORARY_FOLDER.search(folder) and _suggests(folder)))


# --- contents ---------------------------------------------------------------------------------------------------------

_ZIP, _ZIP_END, _ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", 65557  # torch.save and numpy.savez write zip files
_SERIALIZED = (_ZIP, b"\x89HDF", b"\x93NUMPY", b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"{L\x00")  # also pickle
_OTHER = (
    *(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF", b"RIFF", b"\x1aE\xdf\xa3", b"\x7fELF", b"<!DOCTYPE"),
    # A SQLite database, its -wal and -shm, and its -journal (www.sqlite.org/walformat.html, fileformat2.html).
    *(b"SQLite", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\x18\xe2\x2d\x00", b"\xd9\xd5\x05\xf9\x20"),
)


def read_part(path: str, start: int, size: int) -> bytes:
    """Read bytes of a regular file; empty when it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(file, size, start)
    except OSError:
        return b""
    finally:
        os.close(file)


def content_kind(path: str) -> str:
    """Tell "serialized" (zip, pickle, HDF5 ...), "text", "lines" of it, "other" (a picture), or "": unknown."""
    head = read_part(path, 0, _HEAD_BYTES)
    if not head:
        return ""
    if head.startswith(_OTHER) or head[4:8] == b"ftyp":
        return "other"
    is_pickle = head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    is_safetensors = head[8:10] == b'{"' and head[4:8] == bytes(4)
    if is_pickle or is_safetensors or head.startswith(_SERIALIZED):
        return "serialized"
    if _BINARY.search(head):
        return ""
    return "lines" if b"\n" in head else "text"


def is_whole(path: str) -> bool:
    """Whether a file is complete: not so a zip (torch.save, numpy.savez) without its end."""
    found = has_zip_end(path)
    return os.path.exists(path) if found is None else found  # noqa: PTH110 -- no zip, or not permitted to look inside


def has_zip_end(path: str) -> bool | None:
    """Whether a zip has its end; None for other files, which do not show whether they are complete."""
    if read_part(path, 0, 4) != _ZIP:
        return None
    mark = fingerprint(path)
    return mark is not None and _ZIP_END in read_part(path, max(0, mark.size - _ZIP_TAIL), _ZIP_TAIL)


def tail(path: str, size: int) -> bytes:
    """The last bytes of a file's first `size`: they stay when it is appended to, and change when it is rewritten."""
    return read_part(path, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))


# --- descriptors ------------------------------------------------------------------------------------------------------


def write_position(path: str) -> int | None:
    """Return the file position of a descriptor that is open for writing; None for a read-only or an appending one.

    pos:\t4096\nflags:\t0100001\n...: flags are octal, their last two bits are the access mode.
    """
    with open(path, "rb") as file:
        fields = dict(line.partition(b":")[::2] for line in file.read(256).splitlines())
    try:
        flags = int(fields[b"flags"], 8)
        return int(fields[b"pos"]) if flags & os.O_ACCMODE and not flags & os.O_APPEND else None
    except (KeyError, ValueError):
        return None


def open_files(process: str, excluded: set[str]) -> dict[FileId, OpenFile]:
    """The regular files that a process (/proc/PID) has open for writing; PermissionError for another user's.

    Its stdin, stdout and stderr are added to `excluded`, whose paths are left out, as are files opened for appending.
    """
    found: dict[FileId, OpenFile] = {}
    for number in os.listdir(f"{process}/fd"):  # noqa: PTH208 -- names are wanted, a Path each would cost the most
        try:
            path = os.readlink(f"{process}/fd/{number}")  # noqa: PTH115 -- as above: 2 us against 8
            if number in ("0", "1", "2"):
                excluded.add(path)
            if path in excluded or not may_be_checkpoint(path):
                continue
            position = write_position(f"{process}/fdinfo/{number}")
            seen = os.stat(f"{process}/fd/{number}") if position is not None else None  # noqa: PTH116
        except OSError:
            continue  # It was closed meanwhile.
        if position is not None and seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_nlink:
            found[seen.st_dev, seen.st_ino] = OpenFile(path, seen.st_size, position)
    return found


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


def bytes_written(pid: int) -> int:
    """Return what a process has written since it began, as Activity.read; 0 where that cannot be read."""
    with closing(Activity(f"/proc/{pid}")) as activity:
        seen = activity.read()
        return 0 if seen is None else seen[1]


# --- files and folders ------------------------------------------------------------------------------------------------


def fingerprint(path: str) -> Fingerprint | None:
    """Return a value that changes when the file is written or replaced; None when there is no regular file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 -- for every file at every read
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Fingerprint((seen.st_dev, seen.st_ino), seen.st_size, seen.st_mtime_ns)


def changed_ns(folder: str) -> int | None:
    """When an entry of the folder was last created, renamed or removed, in file time; None where that is not known."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 -- for every new file
    except OSError:
        return None


def is_shared(folder: str) -> bool:
    """Whether everybody writes to this folder, as to /tmp: what is new in it may be of any program."""
    try:
        return bool(os.stat(folder).st_mode & stat.S_ISVTX)  # noqa: PTH116 -- as changed_ns
    except OSError:
        return False


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this folder, or in it; False where the folder is not known."""
    return folder != "" and f"{path}/".startswith(f"{folder}/")


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


def project_folders(cwd: str, argv: Sequence[str]) -> list[str]:
    """Return the folders of the project that a trainer belongs to, which are above its own or its script's."""
    if not cwd:
        return []
    script = next((word for word in argv[1:] if word.endswith(".py")), "")
    starts = cwd, os.path.dirname(os.path.normpath(os.path.join(cwd, script)))  # noqa: PTH118, PTH120
    found = dict.fromkeys(map(_project_above, starts))
    return [folder for folder in found if folder and not is_below(folder, cwd)]


def _project_above(start: str) -> str:
    """Return the nearest folder, this one or above, that is a project's; empty where there is none, or no other's."""
    for folder in [Path(start), *Path(start).parents][: _MAX_ABOVE + 1]:
        if any((folder / name).exists() for name in _OF_PROJECT):
            return "" if is_shared(str(folder)) else str(folder)
    return ""


def named_folders(cwd: str, argv: Sequence[str]) -> list[str]:
    """Return the folders outside `cwd` that options of a command line give for saves: `--save-dir ../out`."""
    if not cwd:
        return []
    found = dict[str, None]()
    for word, following in zip(argv[1:], [*argv[2:], ""], strict=False):
        name, joined, value = word.partition("=")
        path = value if joined else following
        if len(found) < _MAX_NAMED and "/" in path[1:] and not path.startswith("-") and _SAVE_OPTION.search(name):
            found[os.path.normpath(os.path.join(cwd, path))] = None  # noqa: PTH118
    return [path for path in found if not is_below(path, cwd)]


class _Listing(NamedTuple):
    changed_ns: int
    files: tuple[str, ...]  # names
    folders: tuple[str, ...]


class FolderWalk:
    """Finds the files below folders, the shallow ones first. A folder that has not changed is not listed again."""

    def __init__(self) -> None:
        self._listed: dict[str, _Listing] = {}

    def files(self, roots: Iterable[str], depth: int | None = None, without: Container[str] = ()) -> Iterator[str]:
        """Yield paths of files in `roots` and, `depth` levels deep (None: any), below them; symbolic links count.

        Folders of `without` are passed over, with what is in them.

        Hidden folders and files, caches, packages and virtual environments are left out.
        """
        pending = deque((root, 0) for root in roots)
        visited: set[FileId] = set()
        count = 0
        while pending:
            folder, level = pending.popleft()
            if len(visited) >= FOLDERS_MAX or count >= FILES_MAX:
                return
            before = self._listed.get(folder)
            listing = None if folder in without else self._list(folder, visited)
            if listing is None:
                continue
            if depth is None or level < depth:
                pending.extend((f"{folder}/{name}", level + 1) for name in listing.folders)
            for name in self._wanted(listing, before):
                count += 1
                yield f"{folder}/{name}"

    def _wanted(self, listing: _Listing, before: _Listing | None) -> Iterable[str]:
        if len(listing.files) <= MANY_ENTRIES:
            return listing.files
        known = set(listing.files if before is None else before.files)
        return islice((name for name in listing.files if name not in known or _suggests(name)), FILES_MAX // 2)

    def _list(self, folder: str, visited: set[FileId]) -> _Listing | None:
        try:
            seen = os.stat(folder)  # noqa: PTH116 -- for every folder at every read
            if (seen.st_dev, seen.st_ino) in visited:
                return None  # a symbolic link led here again
            visited.add((seen.st_dev, seen.st_ino))
            known = self._listed.get(folder)
            if known is not None and known.changed_ns == seen.st_mtime_ns:
                return known
            with os.scandir(folder) as entries:
                listed = islice(entries, ENTRIES_MAX)
                shown = [entry for entry in listed if not entry.name.startswith(".") and entry.name not in _CACHES]
        except OSError:
            return None
        names = {entry.name for entry in shown}
        if "pyvenv.cfg" in names:
            shown, names = [], set()
        folders = tuple(entry.name for entry in shown if _is_folder(entry))
        listing = _Listing(seen.st_mtime_ns, tuple(names.difference(folders)), folders)
        if len(self._listed) >= 2 * FOLDERS_MAX:
            self._listed.clear()
        if time.time_ns() - seen.st_mtime_ns < _STILL_NS:
            listing = listing._replace(changed_ns=-1)
        self._listed[folder] = listing
        return listing


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
