"""A log rotated as logrotate does it."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

KEPT = 3


def rotations(log: Path) -> Iterator[None]:
    """Each step is one: by renaming, and by copying and truncating, in turn."""
    aside = log.with_name(f"{log.name}.1")
    packed = [log.with_name(f"{log.name}.{number}.gz") for number in range(2, KEPT + 1)]
    while True:
        _pack(aside, packed)
        log.rename(aside)  # its writer notices when it writes next, into what is packed at the next rotation
        yield
        _pack(aside, packed)
        shutil.copy(log, aside)
        with log.open("r+b") as file:
            file.truncate(0)
        yield


def _pack(aside: Path, packed: Sequence[Path]) -> None:
    """What was set aside the last time is compressed, the older ones move on."""
    for newer, older in reversed(list(pairwise(packed))):
        with suppress(FileNotFoundError):
            newer.replace(older)
    with suppress(FileNotFoundError):
        with aside.open("rb") as plain, gzip.open(packed[0], "wb") as file:
            shutil.copyfileobj(plain, file)
        aside.unlink()
