"""The process that TrackerProxy hands records to, which writes them to a tracker or sends messages."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from memwatch.core.text_and_units import printable
from memwatch.errors import MemwatchError
from memwatch.outputs.trackers.tracker_proxy import HUNG_SECONDS, TrackerWorkerReply, TrackerWorkerSpec
from memwatch.system import json_and_yaml
from memwatch.system.process_priority import lower_priority

MAX_MESSAGE_BYTES = 1 << 18  # more than MESSAGE_BYTES of tracker_proxy
CLOSING_SECONDS = 60  # time to deliver the rest when memwatch has ended (chosen)
_REASON_LENGTH = 300  # characters (chosen)


class TrackerBackend(Protocol):
    """Writes records to one tracker, or sends them as messages."""

    @property
    def problem(self) -> str:
        """What is wrong although records are written; empty if nothing is."""

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes the records. After any error they are handed on again."""

    def close(self) -> None:
        """Delivers what is left; no more records follow."""


def serve() -> None:
    """Opens the tracker that the first message on descriptor 0 names; replies to each message until memwatch leaves."""
    lower_priority()
    channel = _take_channel()
    backend: TrackerBackend | None = None
    while message := _next_message(channel):
        signal.alarm(int(HUNG_SECONDS))  # memwatch may be gone by then, and nobody else would end a hung process
        try:
            if backend is None:
                backend = _open(json_and_yaml.from_json(message, TrackerWorkerSpec))
            else:
                backend.write_records([json_and_yaml.from_json(line, dict) for line in message.splitlines()])
            reply = TrackerWorkerReply(True, backend.problem)
        except MemwatchError as error:
            reply = TrackerWorkerReply(False, str(error))
        except Exception as error:  # of the tracker's package
            reply = TrackerWorkerReply(False, printable(f"{type(error).__name__}: {error}", _REASON_LENGTH))
        signal.alarm(0)
        with suppress(OSError):  # memwatch has left, as the next read will show
            os.write(channel, json_and_yaml.to_json(reply))
    signal.alarm(CLOSING_SECONDS)
    if backend is not None:
        backend.close()


def _take_channel() -> int:
    """Moves descriptor 0 to one that the children of this process do not inherit: they must not keep it open."""
    channel = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return channel


def _next_message(channel: int) -> bytes:
    """Empty when memwatch has left."""
    try:
        return os.read(channel, MAX_MESSAGE_BYTES)
    except ConnectionError:  # it left before it had read a reply
        return b""


def _open(spec: TrackerWorkerSpec) -> TrackerBackend:
    """Imports only the package that is needed."""
    if spec.kind == "wandb":
        from memwatch.outputs.trackers.wandb_writer import WandbRun

        return WandbRun(spec.run, spec.command, **spec.settings)
    if spec.kind == "mlflow":
        from memwatch.outputs.trackers.mlflow_writer import MlflowRun

        return MlflowRun(spec.run, spec.command, **spec.settings)
    if spec.kind == "tensorboard":
        from memwatch.outputs.trackers.tensorboard_writer import TensorBoardWriter

        return TensorBoardWriter(spec.run, **spec.settings)
    from memwatch.outputs.trackers.apprise_sender import AppriseNotifier

    return AppriseNotifier(**spec.settings)
