"""Plain lines: what is told, and that no reader holds up the watch."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

import pytest

from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Notice
from memwatch.outputs.terminal.plain_and_json_lines import (
    MAX_FORECAST_INTERVAL_SECONDS,
    JsonLines,
    PlainLines,
    wants_live_view,
)
from support.snapshots import SENTENCE, make_notices, make_snapshot
from support.stopwatch import Stopwatch

SNAPSHOT = make_snapshot()


@contextmanager
def pipe(encoding: str = "utf-8") -> Iterator[tuple[int, TextIO]]:
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding=encoding) as stream:
        yield read, stream
    os.close(read)


def told(*notices: Notice, verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    PlainLines(stream, verbose, local_time=time.gmtime).publish(SNAPSHOT, notices)
    return stream.getvalue().splitlines()


def test_a_line_has_the_time_the_event_and_the_text():
    line = told(*make_notices())[-1]
    assert line.split() == ["10:33:20", "warn", *SENTENCE.split()]


def test_a_line_begins_anew_where_a_progress_bar_stands() -> None:
    stream, is_open = io.StringIO(), [True, False]
    sink = PlainLines(
        stream, local_time=time.gmtime, label="memwatch: ", is_coloured=True, is_within_line=lambda: is_open.pop(0)
    )
    sink.publish(SNAPSHOT, [Notice(0.0, "warn", "OOM"), Notice(1.0, "attached", "a")])
    first, second = "00:00:00 memwatch: warn         OOM", "00:00:01 memwatch: attached     a"
    assert stream.getvalue() == f"\n\x1b[33m{first}\x1b[0m\n{second}\n"


def test_markers_are_told_only_when_asked_for():
    notices = [Notice(0, "marker", "m"), Notice(0, "generation", "g"), Notice(0, "attached", "a")]
    assert [line.split()[1] for line in told(*notices)] == ["attached"]
    assert len(told(*notices, verbose=True)) == 3


def outlooks(*verdicts: str, seconds: float = MAX_FORECAST_INTERVAL_SECONDS, resource: str = "host") -> list[Notice]:
    """Forecasts so far apart; `growing!` has an end in sight."""
    return [
        Notice(
            i * seconds,
            "forecast",
            verdict,
            {"resource": resource, "verdict": verdict.rstrip("!"), "eta_s": 60.0 if "!" in verdict else None},
        )
        for i, verdict in enumerate(verdicts)
    ]


def words(*notices: Notice) -> list[str]:
    return [line.split()[-1] for line in told(*notices)]


def test_a_forecast_is_told_when_its_verdict_changes():
    notices = outlooks("warming_up", "growing", "growing", "leak", "leak", "growing", "stable")
    assert words(*notices) == ["warming_up", "growing", "leak", "growing", "stable"]
    assert len(told(*notices, verbose=True)) == 7


def test_that_nothing_grows_is_told_once_whatever_it_is_called():
    assert words(*outlooks("warming_up", *["stable", "plateau"] * 9)) == ["warming_up", "stable"]


def test_what_comes_and_goes_is_told_a_few_times_an_hour():
    hours, most = ["stable", "growing"] * 1080, 6 * 3600 / MAX_FORECAST_INTERVAL_SECONDS
    assert len(told(*outlooks(*hours, seconds=10))) == pytest.approx(most, abs=2)
    alarms = [verdict.replace("growing", "growing!") for verdict in hours]
    assert len(told(*outlooks(*alarms, seconds=10))) == pytest.approx(2 * most, abs=2)


def test_while_a_watch_is_young_it_is_told_more_often_than_later():
    attached = Notice(0, "attached", "attached")
    young = words(attached, *outlooks(*["stable", "growing"] * 60, seconds=5))
    assert 6 <= len(young) <= 12, "ten minutes"
    assert len(young) < len(words(attached, *outlooks(*["stable", "growing"] * 360, seconds=5))) <= len(young) + 4


@pytest.mark.parametrize("grave", [["growing!"], ["leak"], ["growing!", "leak"], ["growing", "growing!", "leak"]])
def test_what_is_grave_is_told_at_once_however_often_less_grave_was(grave):
    calm = ["stable", "growing"] * 99
    assert words(*outlooks(*calm, "stable", *grave, seconds=1))[-1] == grave[-1]
    assert words(*outlooks(*calm, "growing", *grave, seconds=1))[-1] == grave[-1]


def test_that_growth_is_over_is_told_after_a_while_if_not_at_once():
    """Each generation brings a forecast."""
    hours = outlooks(*["growing!", "stable"] * 9, *["stable"] * 60, seconds=60)
    assert words(*hours)[-1] == "stable"


def test_growth_that_fits_has_no_end_in_sight():
    fits = [Notice(i, "forecast", "fits", {"verdict": "growing", "eta_s": 9.0, "finishes": True}) for i in range(2)]
    assert words(*outlooks("stable"), *fits, *outlooks("growing!")) == ["stable", "fits", "growing!"]


def test_what_was_told_of_one_resource_is_not_told_of_another():
    host, gpu = outlooks(*["stable"] * 9), outlooks(*["plateau"] * 9, resource="gpu0")
    both = [one for pair in zip(host, gpu, strict=True) for one in pair]
    assert words(*both) == ["stable", "plateau"]


def test_of_a_new_trainer_all_is_told_again():
    life = [Notice(0, "attached", "attached"), *outlooks("warming_up", "leak", seconds=1)]
    assert words(*life, *life) == ["attached", "warming_up", "leak"] * 2


def test_whatever_a_history_has_in_place_of_a_verdict_is_no_error():
    odd = [Notice(i, "forecast", str(i), {"verdict": odd, "resource": odd}) for i, odd in enumerate((None, [], {}, 7))]
    assert words(*odd) == ["0", "1", "2", "3"], "each of another resource"


def test_a_clock_that_is_set_back_silences_nothing():
    late = [replace(one, t=one.t + 1e6) for one in outlooks(*["growing!", "stable"] * 9, seconds=1)]
    assert words(*late, *outlooks("growing!", "stable", seconds=1))[-1] == "stable"


def test_a_warning_is_always_told():
    notices = [Notice(i, "warn", "w", {"verdict": "leak"}) for i in range(2)]
    assert len(told(*notices)) == 2


def test_escapes_do_not_pass():
    (line,) = told(Notice(0, "warn", "\x1b]0;title\x07\x1b[2Jred\r\nnext\udcff"))
    assert line.isprintable()
    assert "title" not in line


def test_a_stream_that_cannot_encode_it_gets_a_substitute():
    with pipe(encoding="ascii") as (read, stream):
        PlainLines(stream).publish(SNAPSHOT, [Notice(0, "warn", "größer · █")])
        assert os.read(read, 1000).split()[2:] == [b"gr??er", b"?", b"?"]


def test_json_lines_are_what_the_encoder_makes():
    stream = io.StringIO()
    sink = JsonLines(stream, to_json_line)
    sink.publish(SNAPSHOT, make_notices())
    sink.on_watch_end(SNAPSHOT)
    assert stream.getvalue().splitlines() == [to_json_line(notice) for notice in make_notices()]


def test_a_closed_pipe_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        sink = PlainLines(stream)
        sink.publish(SNAPSHOT, make_notices())
        sink.publish(SNAPSHOT, make_notices())
        sink.on_watch_end(SNAPSHOT)


def test_a_full_pipe_never_blocks_and_loses_nothing_that_is_read_later():
    long = "x" * 390
    with pipe() as (read, stream):
        sink = PlainLines(stream)
        began = Stopwatch()
        for i in range(500):  # 200 kB; a pipe holds 64 KiB
            sink.publish(SNAPSHOT, [Notice(0, "warn", f"{i} {long}")])
        assert began.undisturbed_seconds < 10
        got = b""
        while got.count(b"\n") < 500:
            got += os.read(read, 65536)
            sink.publish(SNAPSHOT, ())
    assert [int(line.split()[2]) for line in got.splitlines()] == list(range(500))


def test_a_line_longer_than_a_pipe_arrives_whole():
    with pipe() as (read, stream):
        sink = JsonLines(stream, lambda notice: "x" * 200_000)
        sink.publish(SNAPSHOT, make_notices()[:1])
        got = b""
        while not got.endswith(b"\n"):
            got += os.read(read, 65536)
            sink.publish(SNAPSHOT, ())
    assert len(got) == 200_001


def test_close_waits_only_a_little():
    with pipe() as (_, stream):
        sink = PlainLines(stream)
        for _ in range(500):
            sink.publish(SNAPSHOT, [Notice(0, "warn", "x" * 390)])
        began = Stopwatch()
        sink.on_watch_end(SNAPSHOT)
        assert began.seconds > 0.5 and began.undisturbed_seconds < 5


@pytest.mark.parametrize(("term", "live"), [("xterm-256color", True), ("dumb", False), ("", False), (None, False)])
def test_the_live_view_needs_a_terminal_that_can(term, live):
    leader, follower = os.openpty()
    environ = {} if term is None else {"TERM": term}
    with os.fdopen(follower, "w") as stream:
        assert wants_live_view(stream, environ) is live
    assert not wants_live_view(io.StringIO(), environ)
    os.close(leader)
