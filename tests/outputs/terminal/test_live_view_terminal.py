"""The live view: what a real terminal gets."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.outputs.terminal.live_view_terminal import LiveView, print_screen
from support.snapshots import FakeClock, make_dead, make_diagnosis, make_snapshot
from support.stopwatch import CpuStopwatch, Stopwatch

ROOT = Path(__file__).parents[3]
ENTER, LEAVE, HIDE, SHOW = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """A pty whose leader is read by a thread; `drawn` is what a terminal emulator would have got."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.leader, follower = os.openpty()
        self.stream = os.fdopen(follower, "w")
        self.resize(width, height)
        self.drawn = b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        self._reader.start()

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                self.drawn += os.read(self.leader, 65536)
            except OSError:  # EIO: nobody holds the other end any more
                return

    def close(self) -> bytes:
        """All that was drawn."""
        self.stream.close()
        self._reader.join(timeout=5)
        os.close(self.leader)
        return self.drawn


@contextmanager
def terminal(**size: int) -> Iterator[Terminal]:
    made = Terminal(**size)
    try:
        yield made
    finally:
        if not made.stream.closed:
            made.stream.close()


def test_the_terminal_is_given_back():
    with terminal() as tty:
        tty.read()
        view = LiveView(tty.stream, FakeClock())
        view.publish(make_snapshot(), ())
        view.on_watch_end(make_dead())
        view.on_watch_end(make_dead())
        drawn = tty.close()
    assert drawn.startswith(ENTER + b"\x1b[H" + HIDE) or (ENTER in drawn[:20] and HIDE in drawn[:40])
    assert drawn.endswith(SHOW)
    assert (drawn.count(ENTER), drawn.count(LEAVE), drawn.count(SHOW)) == (1, 1, 1)
    assert b"grows" in drawn


def test_a_view_that_was_never_drawn_writes_nothing():
    with terminal() as tty:
        tty.read()
        LiveView(tty.stream, FakeClock()).on_watch_end(make_snapshot())
        assert tty.close() == b""


def test_only_what_changed_is_sent_and_not_too_often():
    with terminal() as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        snapshot = make_snapshot()
        view.publish(snapshot, ())
        clock.t += 0.1
        view.publish(replace(snapshot, phase="too-early"), ())
        clock.t += 0.2
        view.publish(replace(snapshot, phase="in-time"), ())
        view.publish(replace(snapshot, phase="told"), make_snapshot().notices)
        view.on_watch_end(snapshot)
        drawn = tty.close()
    assert b"too-early" not in drawn
    assert b"in-time" in drawn
    assert b"told" in drawn
    assert drawn.count(b"Replay Buffer") == 1


def test_keys_change_what_is_shown_at_once() -> None:
    with terminal(width=120, height=50) as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        view.keys = {"d": "details: all of it", "h": "help"}
        snapshot = make_snapshot(13, diagnosis=make_diagnosis())
        for key in ("", "x", "d", "h", "h"):
            view.press(key)
            assert view.wants_snapshot()
            time.sleep(0.1)  # the reader takes all of a frame
            view.publish(snapshot, ())
            assert not view.wants_snapshot()
        view.on_watch_end(snapshot)
        drawn = tty.close()
    assert b"d details  h help" in drawn and b"details: all of it" in drawn
    assert drawn.count(b"attributes that grow each generation") == 1 and b"ReplayBuffer.add (buffer.py:41)" in drawn


def test_a_paused_view_stands_still_while_the_watch_goes_on() -> None:
    with terminal() as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        for key, phase in (("", "before"), ("p", "hidden"), ("", "hidden"), ("p", "after")):
            view.press(key)
            clock.t += 1
            view.publish(make_snapshot(phase=phase), ())
            time.sleep(0.1)
        view.on_watch_end(make_snapshot())
        drawn = tty.close()
    assert b"PAUSED" in drawn and b"hidden" not in drawn and b"after" in drawn


def test_one_screen_is_printed_as_wide_as_the_terminal_and_without_controls_elsewhere(tmp_path: Path) -> None:
    with terminal(width=90, height=30) as tty:
        tty.read()
        print_screen(tty.stream, make_snapshot())
        drawn = tty.close()
    assert ENTER not in drawn and b"\x1b[36m" in drawn and len(drawn.splitlines()) < 30
    with open(tmp_path / "screen", "w", encoding="utf-8") as file:
        print_screen(file, make_snapshot())
    text = (tmp_path / "screen").read_text()
    assert (
        "\x1b" not in text
        and "OOM at generation 13" in text
        and all(line == line.rstrip() for line in text.split("\n"))
    )


def test_a_resize_draws_the_whole_screen_anew():
    with terminal() as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        view.publish(make_snapshot(), ())
        tty.resize(120, 40)
        clock.t += 1
        view.publish(make_snapshot(), ())
        view.on_watch_end(make_snapshot())
        drawn = tty.close()
    assert drawn.count(b"Replay Buffer") == 2
    assert b"evolve" in drawn
    assert drawn.count(b"\x1b[2J") == 2


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_watch():
    with terminal(width=250, height=80) as tty:  # nobody reads
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        began = Stopwatch()
        for i in range(60):
            clock.t += 1
            tty.resize(250 - i % 2, 80)  # a whole frame each time
            view.publish(make_snapshot(), ())
        assert began.undisturbed_seconds < 10
        tty.read()  # now it is read again
        time.sleep(0.2)
        clock.t += 1
        view.publish(make_snapshot(phase="after"), ())
        view.on_watch_end(make_snapshot())
        drawn = tty.close()
    assert b"after" in drawn
    assert drawn.endswith(SHOW)


def test_a_terminal_that_hangs_up_is_no_error():
    tty = Terminal()
    view = LiveView(tty.stream, FakeClock())
    view.publish(make_snapshot(), ())
    os.close(tty.leader)
    view.publish(make_snapshot(phase="other"), make_snapshot().notices)
    view.on_watch_end(make_snapshot())
    tty.stream.close()


def test_no_colour_means_no_colour():
    drawn = _run_in_terminal("pass", NO_COLOR="1")
    assert b"memwatch" in drawn
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", drawn)
    assert re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", _run_in_terminal("pass"))


PROGRAM = """
import os, signal, sys, time
from support.snapshots import FakeClock, make_snapshot
from memwatch.outputs.terminal.live_view_terminal import LiveView
view = LiveView(sys.stdout, FakeClock())
view.publish(make_snapshot(), ())
{how}
"""


@pytest.mark.parametrize(
    "how",
    ["pass", "raise RuntimeError('bug')", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"],
)
def test_whatever_ends_the_program_the_terminal_is_given_back(how):
    drawn = _run_in_terminal(how)
    assert ENTER in drawn
    assert drawn.rindex(LEAVE) > drawn.rindex(ENTER)
    assert drawn.rindex(SHOW) > drawn.rindex(HIDE)


def _run_in_terminal(how: str, **environ: str) -> bytes:
    tty = Terminal()
    tty.read()
    try:
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(how=how)],
            env={"PYTHONPATH": f"{ROOT / 'watchdog'}:{ROOT / 'tests'}", "TERM": "xterm-256color", **environ},
            stdin=tty.stream,
            stdout=tty.stream,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    finally:
        drawn = tty.close()
    return drawn


def test_it_costs_less_than_a_three_hundredth_of_a_core_at_one_frame_a_second():
    with terminal(width=120, height=40) as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        snapshot = make_snapshot(20, 2)
        view.publish(snapshot, ())
        first = snapshot.resources[0]
        moving = []
        for i in range(100):
            usage = replace(first.usage, used_bytes=first.usage.used_bytes + i * 10**8)
            resources = (replace(first, usage=usage), *snapshot.resources[1:])
            moving.append(replace(snapshot, t=snapshot.t + i, resources=resources))
        took, stopwatch = [], CpuStopwatch()
        for each in moving:
            clock.t += 1
            began = time.thread_time()
            view.publish(each, ())
            took.append(time.thread_time() - began)
        view.on_watch_end(snapshot)
        tty.close()
    # One of the fastest, since others take from the caches: 0.0015 s when this was written, most of it the chart.
    assert sorted(took)[10] / stopwatch.slowness < 1 / 300
