"""Follows files that tell a trainer's step: TensorBoard event files, and the states of Hugging Face's Trainer.

A record of an event file is a length of 8 bytes, a checksum of 4, a serialized `Event` and another checksum of 4
(tensorboard/compat/proto/event.proto: wall_time = 1, step = 2, file_version = 3, summary = 5).
A state is written with each checkpoint:
out/checkpoint-500/trainer_state.json: {"epoch": 2.0, "global_step": 500, "log_history": [...], "max_steps": 1250, ...}
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
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


STATE_FILE = "trainer_state.json"
CHECK_SECONDS = 5.0  # between two looks for a newer one: a checkpoint takes about as long (chosen)
_CHECKPOINT = "checkpoint-"  # begins the name of each checkpoint's folder
_PART_BYTES = 1 << 16  # of its beginning and its end: between them is the history of the losses
_FIELD = re.compile(rb'^  "(global_step|max_steps)": (\d{1,18})\b', re.MULTILINE)


class TrainerStateFiles:
    """A source of events: the step of the latest state that lies in one folder, or in its checkpoints."""

    def __init__(self, path: Path | str, name: str = "log") -> None:
        """`path`: one of the states."""
        self.name, self.paths = name, [Path(path)]
        self.unit: str | None = None  # "step", once a state was read
        self.catching_up = False  # each state tells all
        folder = Path(path).parent
        self._folder = folder.parent if folder.name.startswith(_CHECKPOINT) else folder
        self._read_t = 0.0  # when the latest state that was read was written
        self._check_t = float("-inf")
        self._step: int | None = None

    def poll(self, now: float) -> Iterable[Event]:
        """Return the step of a new state; SourceError when there is none, or it is none of a Trainer."""
        if now < self._check_t:
            return ()
        self._check_t = now + CHECK_SECONDS
        written, path = max(self._states(), default=(0.0, None))
        if path is None:
            raise SourceError(f"there is no {printable(str(self.paths[0]))} (any more)", "name a log with --log")
        if written <= self._read_t:
            return ()
        (step, total), was_old, known = _read(path), self.unit is None, self._step
        self._read_t, self.unit, self._step = written, "step", step
        if step == known:
            return ()
        return (GenerationSeen(now, step, total=total, unit="step", at="end", before_watch=was_old),)

    def close(self) -> None:
        """Nothing: no file stays open."""

    def _states(self) -> Iterable[tuple[float, Path]]:
        for path in (self._folder / STATE_FILE, *self._folder.glob(f"{_CHECKPOINT}*/{STATE_FILE}")):
            with suppress(OSError):  # a checkpoint that the Trainer removes, for a newer one
                yield path.stat().st_mtime, path


def _read(path: Path) -> tuple[int, int | None]:
    """Return the step of a state and the last step; None for one without end."""
    try:
        with path.open("rb") as file:
            text = file.read(_PART_BYTES)
            file.seek(max(len(text), os.fstat(file.fileno()).st_size - _PART_BYTES))
            text += file.read(_PART_BYTES)
    except OSError as error:
        raise SourceError(f"{printable(str(path))}: {error.strerror}", "name a log with --log") from error
    found = {name: int(value) for name, value in _FIELD.findall(text)}
    if b"global_step" not in found:
        raise SourceError(f"{printable(str(path))} is no state of a Trainer, or not whole", "name a log with --log")
    return found[b"global_step"], found.get(b"max_steps") or None
