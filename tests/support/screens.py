"""A program in a terminal: keys go in, and what a terminal emulator makes of its output is read."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyte

WAIT_SECONDS = 120.0
LEAVE = b"\x1b[?1049l"  # the alternate screen


class Screen:
    """What a program draws, on a screen of so many columns and lines; pyte keeps no second screen."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], size: tuple[int, int]) -> None:
        self.leader, self.follower = os.openpty()
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(*size)
        self.before = termios.tcgetattr(self.follower)
        self.process = subprocess.Popen(
            command,
            stdin=self.follower,
            stdout=self.follower,
            stderr=self.follower,
            env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - tests have no threads here
        )
        self.has_left = False  # the alternate screen

    @property
    def lines(self) -> list[str]:
        """As they stand, without what is blank at their ends."""
        self._take(0.0)
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def press(self, key: str) -> None:
        """One key."""
        os.write(self.leader, key.encode())

    def resize(self, width: int, height: int) -> None:
        """Another size from now on."""
        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._screen.resize(height, width)

    def until(self, condition: Callable[[str], object], seconds: float = WAIT_SECONDS) -> str:
        """The text, as soon as it is so."""
        end = time.monotonic() + seconds
        while not condition(self.text):
            assert time.monotonic() < end, f"it never came to that:\n{self.text}"
            assert self.process.poll() is None or self._take(0.1), f"it has ended:\n{self.text}"
            self._take(0.05)
        return self.text

    def wait(self) -> int:
        """Its exit code; what it draws meanwhile is read."""
        end = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it never ended:\n{self.text}"
            self._take(0.05)
        self._take(0.05)
        return self.process.returncode

    def _take(self, seconds: float) -> bool:
        taken = False
        while select.select([self.leader], [], [], seconds)[0]:
            seconds = 0.0
            try:
                part = os.read(self.leader, 65536)
            except OSError:  # EIO: nobody holds the other end
                break
            self.has_left = self.has_left or LEAVE in part
            self._stream.feed(part)
            taken = True
        return taken

    def close(self) -> None:
        """End the program, and give back the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.leader)
        os.close(self.follower)


@contextmanager
def screen(
    command: Sequence[str], environ: Mapping[str, str] | None = None, size: tuple[int, int] = (80, 24)
) -> Iterator[Screen]:
    """A program that is run in a terminal, and ended with the block."""
    one = Screen(command, environ or {}, size)
    try:
        yield one
    finally:
        one.close()
