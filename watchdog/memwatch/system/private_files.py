"""Folders and files of memwatch's own: closed to others, and no link leads elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_ANYBODY_ELSE = 0o077


def folder(path: Path) -> Path:
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


def create(path: Path, flags: int = os.O_WRONLY) -> int:
    """A descriptor of a new file that nobody else can read (0600); OSError when anything is there, a link too."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
