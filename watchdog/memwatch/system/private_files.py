"""Folders and files of memwatch's own: closed to others, and no link leads elsewhere.

A file that is written whole, or not at all.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memwatch.errors import ConfigError

_ANYBODY_ELSE = 0o077


def ensure_private_dir(path: Path) -> Path:
    """`path`, which is there now and open to nobody else (0700), as are the folders that had to be made for it.

    OSError when it cannot be made, or when it, or a link in its place, is another user's. Root's is taken as it is: a
    volume that a container was given.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    found = path.stat()
    if not {found.st_uid, path.lstat().st_uid} <= {os.geteuid(), 0}:
        raise PermissionError(errno.EPERM, f"{path} is another user's", str(path))
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid() and mode & _ANYBODY_ELSE and not mode & stat.S_ISVTX:  # sticky: shared on purpose
        path.chmod(0o700)
    return path


def create_private_file(path: Path, flags: int = os.O_WRONLY) -> int:
    """A descriptor of a new file that nobody else can read (0600); OSError when anything is there, a link too."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextmanager
def atomic_writer(path: Path, option: str, suffixes: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """A function that writes the whole file; what was there stays till then.

    ConfigError at once when it could not be written, or has none of these suffixes; `option` is what named it.
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
        part.touch(exist_ok=False)  # nothing that was put there is written through
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
