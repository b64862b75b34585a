"""Follows a TensorBoard event file: the steps that its records are of.

A record is a length of 8 bytes, a checksum of 4, a serialized `Event` and another checksum of 4
(tensorboard/compat/proto/event.proto: wall_time = 1, step = 2, file_version = 3, summary = 5).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import unpack_from

from memwatch.core.events import Event, GenerationSeen
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError
from memwatch.sources.log.log_source import MAX_POLL_CPU_SECONDS
from memwatch.sources.log.log_tail import open_regular_file

EVENT_FILE = "events.out.tfevents"  # begins the name of each
_HEAD_BYTES, _CHECKSUM_BYTES = 12, 4  # before and after the data of a record
_MOST_BYTES = 1 << 31  # of one record, which is what protobuf allows
_LOOKED_AT_BYTES = 64  # of its data: the step comes first, before what was written at it
_CHUNK_BYTES = 128 * 1024
_STEP, _SUMMARY = 2, 5  # fields
_FIXED_BYTES = {1: 8, 5: 4}  # of a field, by its wire type


class TensorBoardEvents:
    """A source of events: each poll returns the highest step that was written so far.

    Losses and validations may count in different units into one file: the highest step is of the finest one.
    """

    def __init__(
        self, path: Path | str, name: str = "log", *, cpu_seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self.name, self.paths = name, [Path(path)]
        self.unit: str | None = None  # "step", from the second step on
        self._cpu_seconds = cpu_seconds
        self._fd: int | None = None
        self._byte = self._old_bytes = 0  # where the next record begins; the file's size at the first poll
        self._step: int | None = None

    @property
    def catching_up(self) -> bool:
        """There are old records left to read."""
        return self._fd is None or self._byte < self._old_bytes

    def poll(self, now: float) -> Iterable[Event]:
        """Return the latest step if it has risen; SourceError when the file cannot be read, or is none."""
        if self._fd is None:
            self._fd, _ = open_regular_file(self.paths[0])
            self._old_bytes = os.fstat(self._fd).st_size
        step, was_old = self._step, self._byte < self._old_bytes
        until = self._cpu_seconds() + MAX_POLL_CPU_SECONDS
        while has_more := self._read_chunk(self._fd):
            if self._cpu_seconds() >= until:
                break
        if not has_more:  # the last record is not whole yet, and is a new one when it is
            self._old_bytes = min(self._old_bytes, self._byte)
        if self._step is None or self._step == step or self._byte < self._old_bytes:
            return ()
        self.unit = "step" if step is not None or was_old else None
        return (GenerationSeen(now, self._step, unit="step", at="end", before_watch=was_old),)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read_chunk(self, fd: int) -> bool:
        """Read the next records; False at the end of what is whole."""
        left = os.fstat(fd).st_size - self._byte
        chunk, at = os.pread(fd, _CHUNK_BYTES, self._byte), 0
        while at + _HEAD_BYTES <= len(chunk):
            (length,) = unpack_from("<Q", chunk, at)
            if length > _MOST_BYTES:
                raise SourceError(f"{printable(str(self.paths[0]))} is no event file", "name a log with --log")
            data = chunk[at + _HEAD_BYTES : at + _HEAD_BYTES + min(length, _LOOKED_AT_BYTES)]
            end = at + _HEAD_BYTES + length + _CHECKSUM_BYTES
            if end > left or len(data) < min(length, _LOOKED_AT_BYTES):
                break
            if (step := _step_of(data)) is not None and (self._step is None or step > self._step):
                self._step = step
            at = end
        self._byte += at
        return at > 0


def _step_of(data: bytes) -> int | None:
    """The step of a serialized Event, whose beginning is given; None for one that is of no step."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire_type = key >> 3, key & 7
        if field == _SUMMARY:
            return 0  # the step is left out where it is 0
        if wire_type == 0:
            value, at = _varint(data, at)
            if field == _STEP:
                return value if value < 1 << 63 else None
        elif wire_type == 2:
            length, at = _varint(data, at)
            at += length
        else:
            at += _FIXED_BYTES.get(wire_type, len(data))
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at
