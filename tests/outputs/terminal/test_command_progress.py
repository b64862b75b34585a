"""Bars of commands: on a terminal that waits for a second, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from memwatch.outputs.terminal.command_progress import ProgressBar


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """The far end, and what a command writes to."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    with os.fdopen(slave, "w") as stream:
        yield master, stream
    os.close(master)


def read(master: int) -> str:
    try:
        return os.read(master, 1 << 16).decode()
    except BlockingIOError:
        return ""


def test_work_that_takes_long_shows_how_far_it_is(terminal: tuple[int, TextIO]) -> None:
    master, stream = terminal
    seen = ""

    def work() -> Iterator[int]:
        nonlocal seen
        for i in range(0, 25_600, 256):
            yield from range(i, i + 256)
            time.sleep(0.02)
            seen += read(master)

    with ProgressBar("reading the history", stream, patience_seconds=0.1) as progress:
        assert sum(progress.track(work(), lambda i: i / 25_600)) == sum(range(25_600))
    seen += read(master)
    assert "reading the history" in seen and "━" in seen and "0:00:01" in seen
    assert seen.endswith("\x1b[2K") or "\x1b[?25h" in seen, "it is wiped, and the cursor is back"


def test_work_that_is_soon_done_shows_nothing(terminal: tuple[int, TextIO]) -> None:
    master, stream = terminal
    with ProgressBar("x", stream, patience_seconds=0.2) as progress:
        assert list(progress.track([1, 2], float)) == [1, 2]
    time.sleep(0.3)
    assert read(master) == ""


def test_what_is_no_terminal_gets_nothing() -> None:
    stream = io.StringIO()
    with ProgressBar("x", stream, patience_seconds=0.0) as progress:
        progress.update(0.5)
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_an_error_leaves_the_terminal_as_it_was(terminal: tuple[int, TextIO]) -> None:
    master, stream = terminal
    seen = ""
    with pytest.raises(KeyError), ProgressBar("x", stream, patience_seconds=0.0):
        deadline = time.monotonic() + 10.0
        while "x" not in seen and time.monotonic() < deadline:
            time.sleep(0.05)
            seen += read(master)
        raise KeyError
    assert "\x1b[?25h" in seen + read(master)
