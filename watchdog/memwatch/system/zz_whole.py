"""A file that is written whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memwatch.errors import ConfigError


@contextmanager
def opened(path: Path, option: str, suffixes: Sequence[str]) -> Iterator[Callable[[str], None]]:
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
