"""Keys of a real terminal: what they ask for, and that the terminal is left as it was."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.errors import SourceError
from memwatch.outputs.terminal.keyboard import Keyboard

PROGRAM = """
import select, sys
from memwatch.outputs.terminal.keyboard import Keyboard
keys = []
keyboard = Keyboard(sys.stdin, keys.append)
print("ready", flush=True)
poll = select.poll()
poll.register(keyboard.fileno(), select.POLLIN)
while "q" not in keys:
    ready = poll.poll(1000)
    print(bool(ready), [type(event).__name__ for event in keyboard.poll(5.0)], "".join(keys), flush=True)
keyboard.close()
print("closed", flush=True)
"""


class Session:
    """A program whose terminal is the other end of a pty."""

    def __init__(self, command: list[str]) -> None:
        self.leader, self.follower = os.openpty()
        self.before = termios.tcgetattr(self.follower)
        self.process = subprocess.Popen(
            command,
            stdin=self.follower,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - tests have no threads here
        )

    def says(self, text: str) -> str:
        """The next line that has it."""
        for line in self.process.stdout or ():
            if text in line:
                return line.strip()
        raise AssertionError(f"it never said {text!r}")

    def press(self, keys: str) -> None:
        os.write(self.leader, keys.encode())


@contextmanager
def session(*command: str) -> Iterator[Session]:
    one = Session([*command])
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()
        os.close(one.leader)
        os.close(one.follower)


def test_keys_come_without_an_enter_and_the_terminal_is_left_as_it_was() -> None:
    with session(sys.executable, "-c", PROGRAM) as one:
        one.says("ready")
        one.press("c")
        assert one.says("True") == "True ['ExaminationAsked']"
        one.press("dcx")
        assert one.says("True").startswith("True [") and one.says("dx")
        assert not termios.tcgetattr(one.follower)[3] & (termios.ICANON | termios.ECHO)
        one.press("q")
        one.says("closed")
        assert termios.tcgetattr(one.follower) == one.before


def test_keys_that_are_several_bytes_have_names() -> None:
    with session(sys.executable, "-c", PROGRAM) as one:
        one.says("ready")
        one.press("\x1b[A\x1bOB\x1b[5~\x1b[6~x")
        assert one.says("True") == "True [] updownpage uppage downx"
        one.press("\x1b")
        assert one.says("True").endswith("x\x1b")


def test_a_terminal_of_another_job_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keys.py").write_text(PROGRAM)
    shell = f"set -m; {sys.executable} {tmp_path / 'keys.py'} & wait"
    with session("bash", "-c", shell) as one:
        assert "no terminal of this job" in one.says("SourceError")
        assert termios.tcgetattr(one.follower) == one.before


def test_a_terminal_that_goes_ends_no_sleep() -> None:
    with session("bash", "-c", f"trap '' HUP; {sys.executable} -c '{PROGRAM}'") as one:
        one.says("ready")
        os.close(one.leader)
        one.leader = os.open(os.devnull, os.O_RDONLY)
        end = time.monotonic() + 10
        while one.says("[]").startswith("True"):
            assert time.monotonic() < end, "it is readable for ever"


@pytest.mark.parametrize("path", [os.devnull, __file__])
def test_where_no_key_can_come_it_is_told(path: str) -> None:
    with open(path) as file, pytest.raises(SourceError, match="no terminal"):
        Keyboard(file, print)
