"""The keys pressed in the live view, read one at a time, without Enter."""

from __future__ import annotations

import os
import re
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from memwatch.core.events import Event, ExaminationAsked
from memwatch.errors import SourceError

EXAMINE = "c"
UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
_MAX_KEYS = 64  # bytes read at once (chosen)
_KEY = re.compile(r"\x1b(?:\[[0-9;]{0,8}[A-Za-z~]|O[A-Z])|.", re.DOTALL)
_NAMES = {  # as xterm, Linux's console and screen send them
    **{
        f"\x1b{kind}{letter}": name for kind in "[O" for letter, name in zip("ABHF", (UP, DOWN, HOME, END), strict=True)
    },
    **{"\x1b[5~": PAGE_UP, "\x1b[6~": PAGE_DOWN, "\x1b[1~": HOME, "\x1b[4~": END, "\x1b[7~": HOME, "\x1b[8~": END},
}


class Keyboard:
    """A source of events: `c` requests an examination, other keys go to `pressed`. `close` restores the terminal.

    Arrows and the like go by their names above.
    """

    name = "keyboard"

    def __init__(self, stream: TextIO, pressed: Callable[[str], None]) -> None:
        """Raises SourceError if no key can arrive: `stream` is not a terminal, or belongs to another job."""
        self._pressed, self._is_closed = pressed, False
        try:
            # An open file description of our own, so that O_NONBLOCK does not affect the shell.
            self._fd = os.open(f"/proc/self/fd/{stream.fileno()}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError) as error:
            raise SourceError("no keyboard: stdin cannot be read") from error
        try:
            self._set_mode()
        except (OSError, termios.error) as error:
            os.close(self._fd)
            raise SourceError("no keyboard: stdin is no terminal of this job") from error

    def _set_mode(self) -> None:
        if not self._in_foreground():
            raise OSError("it belongs to another job")
        self._modes = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSANOW)

    def fileno(self) -> int:
        """Readable when a key was pressed."""
        return self._fd

    def poll(self, now: float) -> Sequence[Event]:
        """Returns the events that were requested by the keys pressed since the last call."""
        if self._is_closed:
            return ()
        try:
            keys = os.read(self._fd, _MAX_KEYS).decode("ascii", "replace") if self._in_foreground() else ""
        except BlockingIOError:
            return ()
        except OSError:
            keys = ""
        if not keys:
            self._stop_listening()
        pressed = [_NAMES.get(key, key) for key in _KEY.findall(keys)]
        for key in pressed:
            if key != EXAMINE:
                self._pressed(key)
        return [ExaminationAsked(now)] if EXAMINE in pressed else ()

    def _stop_listening(self) -> None:
        """Called when the terminal is gone or another job's: replaces it by an eventfd, which is never readable."""
        self.close()
        self._is_closed = True
        silent = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if silent != self._fd:
            os.dup2(silent, self._fd, inheritable=False)
            os.close(silent)

    def close(self) -> None:
        """Restores the terminal."""
        with suppress(OSError, termios.error):
            if self._in_foreground():
                termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)
        os.close(self._fd)

    def _in_foreground(self) -> bool:
        """Whether this job is in the foreground; OSError if the terminal is gone, or the file is not one."""
        return os.tcgetpgrp(self._fd) == os.getpgrp()
