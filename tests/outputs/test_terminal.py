"""The live view: what a frame says, and what a real terminal gets."""

from __future__ import annotations

import dataclasses
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
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from memwatch.core import model as m
from memwatch.outputs.terminal import LiveView, Look, frame
from support.snapshots import FakeClock, make_dead, make_diagnosis, make_snapshot, make_view

ROOT = Path(__file__).parents[2]
ENTER, LEAVE, HIDE, SHOW = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[?25h"


def lines_of(
    snapshot: m.Snapshot, width: int = 80, height: int = 24, footer: str = "", details: bool = False, **options
) -> list[str]:
    look = Look(width, height, local_time=time.gmtime, **options)
    return ["".join(segment.text for segment in line).rstrip() for line in frame(snapshot, look, footer, details)]


FRAME = """\
memwatch pid 4242  python main.py --population 32 -…  watched 2 h 42 m  11:35:50
OOM at generation 13 of 25 (12-14), in 5 h 10 m; limit: cgroup 175.0 GB; grows
12.9 GB/generation, in evaluate

host  ██████████████████████░░░░░░░░░░░░░░░░░░░░   91.5 GB of 175.0 GB  52%
      leak, +12.9 GB/generation · 83.5 GB left · limit: cgroup /kubepods/pod7
generation 7 of 25 · evaluate · warned · checkpoint 5 m ago, takes 12 s
Replay Buffer 15,680 / 50,000   Population 32
without nvml: no NVIDIA driver

   gen      time     start       end    change      peak  evaluate     train
     1      25 m    1.2 GB   14.1 GB  +12.9 GB   14.5 GB  +11.6 GB   +1.3 GB
     2      25 m   14.1 GB   27.0 GB  +12.9 GB   27.4 GB  +11.6 GB   +1.3 GB
     3      25 m   27.0 GB   39.9 GB  +12.9 GB   40.3 GB  +11.6 GB   +1.3 GB
     4      25 m   39.9 GB   52.8 GB  +12.9 GB   53.2 GB  +11.6 GB   +1.3 GB
     5      25 m   52.8 GB   65.7 GB  +12.9 GB   66.1 GB  +11.6 GB   +1.3 GB
     6      25 m   65.7 GB   78.6 GB  +12.9 GB   79.0 GB  +11.6 GB   +1.3 GB
     7       now   78.6 GB   91.5 GB  +12.9 GB   91.9 GB  +11.6 GB   +1.3 GB

08:53:20 attached   watching python main.py (pid 4242)
09:43:20 forecast   grows 12.9 GB/generation
10:33:20 warn       OOM at generation 13 of 25 (12-14), in 5 h 10 m; limit: cgr…

http://127.0.0.1:9877/
"""


def test_a_frame_reads_like_this():
    assert lines_of(make_snapshot(), footer="http://127.0.0.1:9877/") == FRAME.splitlines()


def test_a_wide_frame_has_every_phase_and_where_the_checkpoint_time_is_from():
    text = "\n".join(lines_of(make_snapshot(), 120, 40))
    assert "evolve" in text
    assert "takes 12 s (measured)" in text


def test_a_narrow_frame_keeps_the_phase_in_which_memory_moves():
    head = next(line for line in lines_of(make_snapshot(), 72) if line.lstrip().startswith("gen "))
    assert head.split() == ["gen", "time", "start", "end", "change", "peak", "evaluate"]


def test_the_newest_generations_are_those_that_are_shown():
    lines = lines_of(make_snapshot(300), 120, 60)
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("gen "))
    assert [line.split()[0] for line in lines[at + 1 : at + 13]] == [str(i) for i in range(289, 301)]
    assert lines[at + 13] == ""


def test_gpus_have_bars_and_say_how_they_are_attributed():
    text = "\n".join(lines_of(make_snapshot(gpus=2), 100, 30))
    assert "NVIDIA H200, exact" in text


def test_where_not_all_gpus_fit_the_fullest_are_shown():
    snapshot = make_snapshot(gpus=16)
    last = snapshot.resources[-1]
    full = replace(last, usage=replace(last.usage, used_bytes=140 * 10**9))
    lines = lines_of(replace(snapshot, resources=(*snapshot.resources[:-1], full)), 80, 24)
    assert [line.split()[0] for line in lines if line.startswith(("gpu", "host"))][:3] == ["host", "gpu15", "gpu0"]


def test_what_was_found_stands_below_the_sentence():
    found = make_snapshot(diagnosis=make_diagnosis())
    lines = lines_of(found, 100, 30)
    at = next(i for i, line in enumerate(lines) if line.startswith("LEAK FOUND in evaluate: +56.4 GB/generation"))
    assert "numpy.ndarray 6,960 -> 20,880" in lines[at] + lines[at + 1] and lines[at + 2].strip() == ""
    dead = lines_of(make_dead(diagnosis=make_diagnosis()), 100, 30)
    assert not any(line.startswith("LEAK FOUND") for line in dead), "then it is in the summary"


def test_the_end_is_told_with_its_evidence():
    text = " ".join(lines_of(make_dead()))
    assert "killed by the kernel's OOM killer at the cgroup's limit: memory.events oom_kill 0 -> 1;" in text


def test_before_anything_is_known():
    nothing = make_snapshot(
        resources=(), sample=None, target=None, generation=None, phase=None, gauges=(), sources=(), notices=(),
        sentence="no reading yet", started_t=None, checkpoint_t=None, state=m.State.WATCHING,
    )  # fmt: skip
    assert "no markers in the log yet: time alone · no checkpoint seen, takes 12 s" in lines_of(nothing)


def test_a_terminal_without_utf8_gets_ascii():
    text = "".join(lines_of(make_snapshot(), 200, 30, ascii_only=True))
    assert text.isascii()
    assert "####" in text


hostile = st.text(st.characters(), max_size=60)


@example(66, 24, "", "0000000⺀⺀", 0)
@settings(max_examples=80, deadline=None)
@given(st.integers(1, 250), st.integers(1, 80), hostile, hostile, st.integers(0, 10))
def test_a_frame_fits_its_terminal_and_has_no_control_character(width, height, foreign, phase, gpus):
    rows = (m.GenerationRow(1, 0, 0.0, 1.0, 0, 1, 1, (m.PhaseRow(phase, 0.0, 1.0, 1, 1),)),)
    snapshot = make_snapshot(
        3,
        gpus,
        command=foreign,
        sentence=foreign,
        unit=phase,
        phase=phase,
        gauges=(m.Gauge(foreign, 1.5, 2.5, 0.0),),
        sources=(m.SourceHealth("log", False, foreign, 0.0),),
        notices=(m.Notice(0.0, "warn", foreign),),
        resources=(replace(make_view(), generations=rows, usage=m.Usage("host", 5, m.Limit(0, foreign, -5))),),
    )
    lines = frame(snapshot, Look(width, height), foreign)
    assert len(lines) == height
    for line in lines:
        text = "".join(segment.text for segment in line)
        assert cell_len(text) == width
        assert text.isprintable()


# --- on a real terminal -------------------------------------------------------------------------------------------


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
        view.close(make_dead())
        view.close(make_dead())
        drawn = tty.close()
    assert drawn.startswith(ENTER + b"\x1b[H" + HIDE) or (ENTER in drawn[:20] and HIDE in drawn[:40])
    assert drawn.endswith(SHOW)
    assert (drawn.count(ENTER), drawn.count(LEAVE), drawn.count(SHOW)) == (1, 1, 1)
    assert b"grows" in drawn


def test_a_view_that_was_never_drawn_writes_nothing():
    with terminal() as tty:
        tty.read()
        LiveView(tty.stream, FakeClock()).close(make_snapshot())
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
        view.close(snapshot)
        drawn = tty.close()
    assert b"too-early" not in drawn
    assert b"in-time" in drawn
    assert b"told" in drawn
    assert drawn.count(b"Replay Buffer") == 1


def test_a_key_shows_what_grows_in_detail_and_back():
    with terminal(width=120, height=50) as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        view.has_keys = True
        snapshot = make_snapshot(13, diagnosis=make_diagnosis())
        for key in ("", "x", "d"):
            view.press(key)
            clock.t += 1
            time.sleep(0.1)  # the reader takes all of a frame
            view.publish(snapshot, ())
        view.close(snapshot)
        drawn = tty.close()
    assert drawn.count(b"c: examine now | d: details") == 1 and drawn.count(b"d: back") == 1
    assert drawn.count(b"attributes that grow by the generation") == 1 and b"ReplayBuffer.add (buffer.py:41)" in drawn
    assert any("not examined" in line for line in lines_of(make_snapshot(), details=True))


def test_a_resize_draws_the_whole_screen_anew():
    with terminal() as tty:
        tty.read()
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        view.publish(make_snapshot(), ())
        tty.resize(120, 40)
        clock.t += 1
        view.publish(make_snapshot(), ())
        view.close(make_snapshot())
        drawn = tty.close()
    assert drawn.count(b"Replay Buffer") == 2
    assert b"evolve" in drawn
    assert drawn.count(b"\x1b[2J") == 2


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_watch():
    with terminal(width=250, height=80) as tty:  # nobody reads
        clock = FakeClock()
        view = LiveView(tty.stream, clock)
        began = time.monotonic()
        for i in range(60):
            clock.t += 1
            tty.resize(250 - i % 2, 80)  # a whole frame each time
            view.publish(make_snapshot(), ())
        assert time.monotonic() - began < 10
        tty.read()  # now it is read again
        time.sleep(0.2)
        clock.t += 1
        view.publish(make_snapshot(phase="after"), ())
        view.close(make_snapshot())
        drawn = tty.close()
    assert b"after" in drawn
    assert drawn.endswith(SHOW)


def test_a_terminal_that_hangs_up_is_no_error():
    tty = Terminal()
    view = LiveView(tty.stream, FakeClock())
    view.publish(make_snapshot(), ())
    os.close(tty.leader)
    view.publish(make_snapshot(phase="other"), make_snapshot().notices)
    view.close(make_snapshot())
    tty.stream.close()


def test_no_colour_means_no_colour():
    drawn = _run_in_terminal("pass", NO_COLOR="1")
    assert b"memwatch" in drawn
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", drawn)
    assert re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", _run_in_terminal("pass"))


PROGRAM = """
import os, signal, sys, time
from support.snapshots import FakeClock, make_snapshot
from memwatch.outputs.terminal import LiveView
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
        began = time.thread_time()
        for each in moving:
            clock.t += 1
            view.publish(each, ())
        took = time.thread_time() - began
        view.close(snapshot)
        tty.close()
    assert took / 100 < 0.002  # seconds a frame; 0.0004 when this was written


def test_phases_lose_an_ending_that_they_share():
    parts = tuple(m.PhaseRow(f"{phase}_population", 0.0, 3.0, 3, 3) for phase in ("evaluate", "train"))
    view = dataclasses.replace(make_view(), generations=(m.GenerationRow(1, 0, 0.0, 9.0, 0, 9, 9, parts),))
    [table] = [line for line in lines_of(make_snapshot(resources=(view,))) if "change" in line]
    assert table.split()[-2:] == ["evaluate", "train"]
