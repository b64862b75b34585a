"""Folders and files that only memwatch's user can read, and files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memwatch.errors import ConfigError

_GROUP_AND_OTHERS = 0o077


def ensure_private_dir(path: Path) -> Path:
    """Return `path`, a folder that nobody else can open (0700); it and its parents are created where missing.

    OSError when that fails, or when the folder, or a link in its place, belongs to another user. A folder of root's is
    accepted as it is: it may be a volume of a container.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    found = path.stat()
    if not {found.st_uid, path.lstat().st_uid} <= {os.geteuid(), 0}:
        raise PermissionError(errno.EPERM, f"{path} is another user's", str(path))
    mode = stat.S_IMODE(found.st_mode)
    is_shared = bool(mode & stat.S_ISVTX)  # the sticky bit of a folder like /tmp
    if found.st_uid == os.geteuid() and mode & _GROUP_AND_OTHERS and not is_shared:
        path.chmod(0o700)
    return path


def create_private_file(path: Path, flags: int = os.O_WRONLY) -> int:
    """Create a file that nobody else can read (0600), return its descriptor; OSError when the path or a link exists."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextmanager
def atomic_writer(path: Path, option: str, suffixes: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes the whole file; an earlier file stays until then.

    ConfigError at once when the file cannot be written or has none of `suffixes`; `option` begins its text.
    """
    if path.suffix.lower() not in suffixes:
        kind = path.suffix or "no suffix"
        raise ConfigError(
            f"{option} {path}: {kind} is not a kind of file that memwatch writes here",
            f"name a file that ends in {' or '.join(suffixes)}; a browser makes a PNG or a PDF of it",
        )
    part = path.with_name(f".{path.name}.{os.getpid()}")

    def write(text: str) -> None:
        with _writing(path, option):
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    with _writing(path, option):
        part.touch(exist_ok=False)  # never write through a file or a link that somebody else put there
    try:
        yield write
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path, option: str) -> Iterator[None]:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        yield
    except OSError as error:
        hint = "name a file in a folder that can be written to"
        raise ConfigError(f"{option} {path}: cannot be written: {error.strerror or error}", hint) from error
