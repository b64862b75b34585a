"""Processes that not even SIGKILL ends, as in an uninterruptible call of a driver: the kernel's freezer holds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.mainjob import until


@contextmanager
def frozen(name: str) -> Iterator[Callable[[int], None]]:
    """A function that freezes a process; at the end all are thawed, and end if they were told to. Version 1 only."""
    folder = Path(f"/sys/fs/cgroup/freezer/{name}-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer: {error}")
    (folder / "freezer.state").write_text("FROZEN")
    try:
        yield lambda pid: (folder / "cgroup.procs").write_text(str(pid)) and None
    finally:
        (folder / "freezer.state").write_text("THAWED")
        until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()
