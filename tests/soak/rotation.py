"""A log rotated as logrotate does it."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEPT = 3


def rotations(log: Path) -> Iterator[None]:
    """Each step is one: by renaming, and by copying and truncating, in turn."""
    while True:
        _pack(log)
        log.rename(_aside(log))  # its writer notices when it writes next, into what is packed at the next rotation
        yield
        _pack(log)
        shutil.copy(log, _aside(log))
        with log.open("r+b") as file:
            file.truncate(0)
        yield


def _aside(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def _packed(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}.gz")


def _pack(log: Path) -> None:
    """What was set aside the last time is compressed, the older ones move on."""
    for number in range(KEPT - 1, 1, -1):
        with suppress(FileNotFoundError):
            _packed(log, number).replace(_packed(log, number + 1))
    with suppress(FileNotFoundError):
        with _aside(log).open("rb") as plain, gzip.open(_packed(log, 2), "wb") as packed:
            shutil.copyfileobj(plain, packed)
        _aside(log).unlink()
