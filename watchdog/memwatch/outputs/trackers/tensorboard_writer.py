"""Figures as a TensorBoard event file, in a process of its own. No other module imports tensorboard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

VERSION = "brain.Event:2"


class TensorBoardWriter:
    """Writes a new file in `DIR/memwatch-RUN`, a folder of its own: TensorBoard expects one writer per folder."""

    problem = ""

    def __init__(self, run: str, *, dir: str) -> None:
        folder = Path(dir).absolute() / f"memwatch-{run}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"  # file names sort by time
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)  # EventFileWriter would import tensorflow if it is installed
        self._attempt: int | None = None
        self._write(Event(wall_time=time.time(), file_version=VERSION))

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes each at its generation or minute, rounded down, as the step. A new attempt is marked as a start:
        TensorBoard then drops what it has of this step and later ones."""
        for one in records:
            step, t = int(one["at"]), one["t"]
            if one["attempt"] != self._attempt:
                self._attempt = one["attempt"]
                self._write(Event(wall_time=t, step=step, session_log=SessionLog(status=SessionLog.START)))
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in one["figures"].items()]
            self._write(Event(wall_time=t, step=step, summary=Summary(value=values)))
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
