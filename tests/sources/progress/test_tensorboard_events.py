"""The steps in TensorBoard's event files, as its own writer and a writer of ours leave them."""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memwatch.core.events import GenerationSeen
from memwatch.errors import SourceError
from memwatch.sources.progress.progress_files import EVENT_FILE, TensorBoardEvents
from support.wheels import TRACKERS

VERSION = b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"


def varint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low | 0x80]) + varint(value >> 7) if value > low else bytes([low])


def record(data: bytes) -> bytes:
    return struct.pack("<QI", len(data), 0) + data + bytes(4)


def of_step(step: int, size: int = 20) -> bytes:
    """A summary of so many bytes; a step of 0 is left out."""
    number = b"\x10" + varint(step) if step else b""
    return record(b"\x09" + struct.pack("<d", 1.5) + number + b"\x2a" + varint(size) + bytes(size))


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TensorBoardEvents]:
    path = tmp_path / "events.out.tfevents.1.host"
    path.touch()
    with closing(TensorBoardEvents(path)) as opened:
        yield opened


def write(source: TensorBoardEvents, *records: bytes) -> None:
    with source.paths[0].open("ab") as file:
        file.write(b"".join(records))


def steps(source: TensorBoardEvents, now: float = 1.0) -> list[tuple[float, bool]]:
    return [(event.index, event.before_watch) for event in source.poll(now) if isinstance(event, GenerationSeen)]


def test_the_latest_step_is_told_as_it_rises(source: TensorBoardEvents) -> None:
    assert steps(source) == [] and source.unit is None
    write(source, record(VERSION), of_step(0))
    assert steps(source) == [(0, False)] and source.unit is None
    write(source, of_step(100), of_step(200), of_step(200))
    assert steps(source) == [(200, False)] and source.unit == "step"
    assert steps(source) == []
    write(source, of_step(70_000, 500_000), of_step(70_100))
    assert steps(source) == [(70_100, False)]


def test_what_was_there_before_the_watch_is_old(source: TensorBoardEvents) -> None:
    write(source, record(VERSION), *map(of_step, range(0, 5000, 10)))
    assert steps(source) == [(4990, True)] and source.unit == "step" and not source.catching_up
    write(source, of_step(5000))
    assert steps(source) == [(5000, False)]


def test_of_two_counters_the_finer_one_is_the_clock(source: TensorBoardEvents) -> None:
    """A loss for each hundred steps, a validation for each epoch."""
    told = []
    for epoch in range(1, 4):
        for batch in range(1, 4):
            write(source, of_step(300 * epoch + 100 * batch))
            told += steps(source)
        write(source, of_step(epoch))
        told += steps(source)
    assert [step for step, _ in told] == [*range(400, 1300, 100)]


def test_a_record_that_is_not_whole_is_waited_for(source: TensorBoardEvents) -> None:
    whole = of_step(7, 300_000)
    write(source, of_step(3), whole[:100])
    assert steps(source) == [(3, True)]
    write(source, whole[100:-1])
    assert steps(source) == []
    write(source, whole[-1:])
    assert steps(source) == [(7, False)]


def test_another_file_of_that_name_is_refused(source: TensorBoardEvents) -> None:
    write(source, b"Epoch 1/3 of a text file, whatever its name\n")
    with pytest.raises(SourceError, match="is no event file"):
        steps(source)


def test_a_long_file_is_read_in_parts(source: TensorBoardEvents) -> None:
    write(source, *map(of_step, range(300_000)))
    told, polls = [], 0
    while source.catching_up:
        told, polls = told + steps(source), polls + 1
    assert told == [(299_999, True)] and polls > 1


REAL = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in (0, 20, 40, 300_000_000_000):
    loss = Summary(value=[Summary.Value(tag="loss", simple_value=2)])
    writer.add_event(Event(wall_time=1.5, step=step, summary=loss))
writer.close()
"""


def test_the_files_of_tensorboards_own_writer_are_read(tmp_path: Path) -> None:
    python = TRACKERS / "bin" / "python"
    if not python.exists():
        pytest.skip("needs tensorboard: make tools")
    subprocess.run([python, "-c", REAL, str(tmp_path)], check=True, timeout=120, capture_output=True)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(EVENT_FILE)
    with closing(TensorBoardEvents(path)) as source:
        assert steps(source, time.time()) == [(300_000_000_000, True)]
