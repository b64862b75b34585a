"""A log is followed through all that happens to log files, with real files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.errors import SourceError
from memwatch.sources.log.log_tail import (
    BACKLOG_SECONDS,
    KEPT_BYTES,
    LINE_BYTES,
    PIPE_BYTES,
    READ_BYTES,
    REPORT_END_AFTER_SECONDS,
    LogSegment,
    LogSegmenter,
    LogTail,
    PipeTail,
)
from support.stopwatch import CpuStopwatch

NOBODY = 65534


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def tail(log: Path) -> Iterator[LogTail]:
    tail = LogTail(log)
    yield tail
    tail.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def texts(segments: Iterable[LogSegment]) -> list[bytes]:
    return [segment.data for segment in segments]


class Polls:
    """Polls a second apart, as the daemon makes them."""

    def __init__(self, tail: LogTail) -> None:
        self._tail, self._now = tail, 0.0

    def __call__(self) -> list[bytes]:
        self._now += 1.0
        return texts(self._tail.read_segments(self._now))


@pytest.fixture
def poll(tail: LogTail) -> Polls:
    return Polls(tail)


# --- segments ---


def test_each_segment_knows_its_byte_and_line() -> None:
    segments = list(LogSegmenter().split(b"one\n\ntwo\r\nbar 1\rbar 2\nlast"))
    assert segments == [
        LogSegment(b"one", 0, 1),
        LogSegment(b"two", 5, 3),
        LogSegment(b"bar 1", 10, 4),
        LogSegment(b"bar 2", 16, 4),
    ]


def test_an_unfinished_line_is_held_until_it_is_complete() -> None:
    segmenter = LogSegmenter()
    assert list(segmenter.split(b"Generation 1")) == []
    assert list(segmenter.split(b"3 / 25")) == []
    assert list(segmenter.split(b"\n")) == [LogSegment(b"Generation 13 / 25", 0, 1)]


def test_the_rest_of_a_long_line_is_skipped_in_bounded_memory() -> None:
    segmenter = LogSegmenter()
    for _ in range(64):
        assert list(segmenter.split(b"x" * LINE_BYTES)) == []
        assert len(segmenter._held) <= LINE_BYTES
    assert list(segmenter.split(b"\nnext\n")) == [
        LogSegment(b"x" * LINE_BYTES, 0, 1),
        LogSegment(b"next", 64 * LINE_BYTES + 1, 2),
    ]


def test_a_bar_without_a_line_end_is_shown_without_a_number_that_may_be_cut_off() -> None:
    segmenter = LogSegmenter()
    list(segmenter.split(b"\rEpoch 1:  13%|#  | 5/3"))
    assert segmenter.unfinished_bar() == LogSegment(b"Epoch 1:  13%|#  |", 1, 1)
    list(segmenter.split(b"8 [00:01]"))
    assert segmenter.unfinished_bar() == LogSegment(b"Epoch 1:  13%|#  | 5/38 [00:01]", 1, 1)
    assert LogSegmenter().unfinished_bar() is None


@given(
    st.lists(st.sampled_from([b"a", b"12", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\x1b[A", b"x" * 999])), st.data()
)
def test_chunks_make_no_difference(parts: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(parts)
    whole = LogSegmenter()
    expected = [*whole.split(raw), *whole.flush()]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces, found = LogSegmenter(), []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += pieces.split(raw[start:end])
    assert found + pieces.flush() == expected
    for segment in expected:
        assert raw[segment.byte : segment.byte + len(segment.data)] == segment.data
        assert raw[: segment.byte].count(b"\n") == segment.line - 1


# --- files ---


def test_new_lines_come_once(log: Path, poll: Polls) -> None:
    log.write_bytes(b"one\n")
    assert poll() == [b"one"]
    assert poll() == []
    append(log, b"two\nthr")
    assert poll() == [b"two"]
    append(log, b"ee\n")
    assert poll() == [b"three"]


def test_a_log_may_come_late(log: Path, poll: Polls) -> None:
    with pytest.raises(SourceError, match="does not exist") as caught:
        poll()
    assert caught.value.hint
    log.write_bytes(b"first\n")
    assert poll() == [b"first"]


def test_a_renamed_log_is_read_to_its_end_before_the_new_one(log: Path, poll: Polls) -> None:
    log.write_bytes(b"one\n")
    poll()
    with log.open("ab") as writer:
        log.rename(log.with_suffix(".1"))
        writer.write(b"still the old one\npart")
        writer.flush()
        log.write_bytes(b"new\n")
        assert poll() == [b"still the old one"]
        assert poll() == [b"part", b"new"]


def test_an_empty_new_file_does_not_draw_away_from_the_one_that_is_still_written(log: Path, poll: Polls) -> None:
    log.write_bytes(b"one\n")
    poll()
    with log.open("ab") as writer:
        log.rename(log.with_suffix(".1"))
        log.touch()
        assert poll() == []
        writer.write(b"late\n")
        writer.flush()
        assert poll() == [b"late"]
    append(log, b"new\n")
    assert poll() == [b"new"]


def test_a_copied_and_truncated_log_begins_anew(log: Path, tail: LogTail, poll: Polls) -> None:
    log.write_bytes(b"a long first line\n")
    poll()
    os.truncate(log, 0)
    assert poll() == []
    append(log, b"after\n")
    assert list(tail.read_segments(9.0)) == [LogSegment(b"after", 0, 1)]
    assert tail.restarts == 1


def test_a_truncated_log_that_grew_longer_than_before_is_noticed(log: Path, tail: LogTail, poll: Polls) -> None:
    log.write_bytes(b"short\n")
    poll()
    os.truncate(log, 0)
    append(log, b"another first line\nand more\n")
    assert poll() == [b"another first line", b"and more"]
    assert tail.restarts == 1


def test_a_writer_that_goes_on_behind_a_hole_is_followed(log: Path, poll: Polls) -> None:
    with log.open("wb", buffering=0) as writer:
        writer.write(b"x" * 50 + b"\n")
        poll()
        os.truncate(log, 0)
        writer.seek(50 * 1024 * 1024)  # as a writer without O_APPEND keeps its place
        writer.write(b"behind the hole\n")
    found = [text for _ in range(60) for text in poll()]
    assert found == [b"behind the hole"]


def test_a_deleted_log_is_read_on_while_it_is_held(log: Path, poll: Polls) -> None:
    with log.open("ab", buffering=0) as writer:
        writer.write(b"one\n")
        poll()
        log.unlink()
        writer.write(b"two\n")
        assert poll() == [b"two"]
        assert poll() == []
    log.write_bytes(b"reborn\n")
    assert poll() == [b"reborn"]


def test_a_bar_is_shown_once_it_is_quiet_and_again_when_drawn_anew(log: Path, poll: Polls) -> None:
    append(log, b"\rEpoch 1: 10%|#| 1/9 [00:01]")
    assert poll() == []
    assert poll() == [b"Epoch 1: 10%|#| 1/9 [00:01]"]
    assert poll() == []
    append(log, b"\rEpoch 2: 10%|#| 1/9 [00:01]")
    assert poll() == [b"Epoch 1: 10%|#| 1/9 [00:01]"]
    assert poll() == [b"Epoch 2: 10%|#| 1/9 [00:01]"]


def test_a_quiet_line_that_is_no_bar_stays_held(log: Path, poll: Polls) -> None:
    append(log, b"Generation 1")
    assert [poll(), poll(), poll()] == [[], [], []]


def test_one_poll_reads_a_bounded_part_of_a_backlog(log: Path, tail: LogTail, poll: Polls) -> None:
    log.write_bytes(b"0123456789abcde\n" * (3 * READ_BYTES // 16))
    assert len(poll()) == READ_BYTES // 16
    assert tail.position == READ_BYTES
    assert len(poll()) + len(poll()) == 2 * READ_BYTES // 16


def test_a_gigabyte_without_a_line_end_is_passed_in_bounded_memory(log: Path, tail: LogTail) -> None:
    with log.open("wb") as file:
        file.write(b"begin")
        file.seek(2**30)
        file.write(b"\nnext\n")
    found: list[LogSegment] = []
    for now in range(2**30 // READ_BYTES + 4):
        found += tail.read_segments(float(now))
    assert [(len(s.data), s.byte) for s in found] == [(LINE_BYTES, 0), (4, 2**30 + 1)]


def test_the_middle_of_a_log_can_be_left_out(log: Path, tail: LogTail) -> None:
    log.write_bytes(b"".join(b"line %04d\n" % i for i in range(1000)))
    tail.skip_to(5005)
    segments = list(tail.read_segments(0.0))
    assert segments[0].data == b"line 0501"
    assert segments[0].byte == 5010
    tail.skip_to(5000)
    assert next(iter(tail.read_segments(0.0))).data == b"line 0500"


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(SourceError, match="not a regular file") as caught:
            LogTail(path).read_segments(0.0)
        assert caught.value.hint


def replaced_by(kind: str, log: Path) -> None:
    log.rename(log.with_suffix(".1"))
    if kind == "pipe":
        os.mkfifo(log)
    elif kind == "folder":
        log.mkdir()
    else:
        log.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_what_takes_the_place_of_a_log_is_told_and_the_log_is_read_on(
    log: Path, tail: LogTail, poll: Polls, kind: str
) -> None:
    log.write_bytes(b"one\n")
    poll()
    replaced_by(kind, log)
    assert poll() == []
    assert "not a regular file; what was there before is read on" in str(tail.path_error)
    append(log.with_suffix(".1"), b"two\n")
    assert poll() == [b"two"] and tail.path_error is not None
    if log.is_dir():
        log.rmdir()
    else:
        log.unlink()
    log.write_bytes(b"three\n")
    assert poll() == [b"three"] and tail.path_error is None


def test_a_link_is_followed_and_again_when_it_leads_to_another_file(log: Path, poll: Polls, tail: LogTail) -> None:
    first, second = log.with_suffix(".1"), log.with_suffix(".2")
    first.write_bytes(b"one\n")
    second.write_bytes(b"two\n")
    log.symlink_to(first)
    assert poll() == [b"one"]
    log.with_suffix(".new").symlink_to(second)
    log.with_suffix(".new").rename(log)
    assert poll() == [b"two"] and tail.path_error is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have two users")
def test_a_link_that_another_user_made_to_what_is_not_his_is_not_followed(
    log: Path, tmp_path: Path, poll: Polls, tail: LogTail
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"roots\n")
    log.write_bytes(b"one\n")
    poll()
    log.rename(log.with_suffix(".1"))
    log.symlink_to(secret)
    os.chown(log, NOBODY, NOBODY, follow_symlinks=False)
    assert poll() == []
    assert f"a link of user {NOBODY} to a file of user 0" in str(tail.path_error)
    with pytest.raises(SourceError, match="a link of user"):
        LogTail(log).read_segments(0.0)
    os.chown(secret, NOBODY, NOBODY)
    assert poll() == [b"roots"] and tail.path_error is None


def test_a_closed_tail_goes_on_where_it_stopped(log: Path, tail: LogTail, poll: Polls) -> None:
    log.write_bytes(b"one\n")
    poll()
    tail.close()
    append(log, b"two\n")
    assert poll() == [b"two"]


def test_an_idle_poll_is_cheap(log: Path, tail: LogTail) -> None:
    log.write_bytes(b"one\n")
    list(tail.read_segments(0.0))
    stopwatch = CpuStopwatch()
    for i in range(2000):
        tail.read_segments(i / 10)
    assert stopwatch.seconds / 2000 < 200e-6  # about 3 us; the bound leaves room for a busy machine


# --- standard input ---


@pytest.fixture
def pipe() -> Iterator[tuple[PipeTail, int]]:
    read, write = os.pipe()
    yield PipeTail(stdin=read), write
    os.close(read)


def test_a_pipe_gives_the_segments_of_a_file_and_never_waits(
    pipe: tuple[PipeTail, int], log: Path, tail: LogTail
) -> None:
    piped, write = pipe
    seen: list[LogSegment] = []
    expected: list[LogSegment] = []
    for number, piece in enumerate([b"one\ntw", b"o\n 10%|#  |\r 20", b"%|## |", b"", b"\r\nthree"]):
        os.write(write, piece)
        append(log, piece)
        seen += piped.read_segments(float(number))
        expected += tail.read_segments(float(number))
    os.close(write)
    seen += piped.read_segments(9.0)
    assert seen == [*expected, *tail.flush()]
    assert texts(seen)[-1] == b"three" and piped.read_last_bytes(5) == b"three"


def test_what_a_pipe_holds_at_first_is_old_and_its_end_is_an_error(pipe: tuple[PipeTail, int]) -> None:
    piped, write = pipe
    os.write(write, b"old\n")
    assert texts(piped.read_segments(0.0)) == [b"old"]
    os.set_blocking(write, False)
    now, total = 1.0, 4
    while now < BACKLOG_SECONDS + 5:  # a writer that is faster than the polls: the pipe is full at each of them
        total += os.write(write, b"x" * (PIPE_BYTES - 1) + b"\n")
        while piped.position < total:
            list(piped.read_segments(now))
        now += 1
    assert piped.old_bytes is not None and piped.old_bytes > total
    assert len(piped.read_last_bytes(PIPE_BYTES)) == KEPT_BYTES
    list(piped.read_segments(now))
    os.write(write, b"new\n")
    assert texts(piped.read_segments(now + 1)) == [b"new"]
    assert piped.old_bytes == total
    os.close(write)
    assert texts(piped.read_segments(now + 2)) == [] and piped.path_error is None
    assert texts(piped.read_segments(now + 2 + REPORT_END_AFTER_SECONDS)) == []
    assert "standard input has ended" in str(piped.path_error)
