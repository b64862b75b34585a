"""A process of memwatch's own that a relay feeds: a tracker's writer, or what sends notices. Its side of the talk."""

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

LONGEST_MESSAGE = 1 << 18
CLOSING_SECONDS = 60  # in which the rest has to be on its way, when memwatch has ended
_REASON_LENGTH = 300


class TrackerBackend(Protocol):
    """Where records go."""

    @property
    def problem(self) -> str:
        """What is wrong although it works; empty: nothing."""

    def write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Put them where they should be. Any error: they are to be handed on again."""

    def close(self) -> None:
        """There are no more."""


def serve() -> None:
    """Be what the first message on descriptor 0 orders; answer each, until nobody is there."""
    lower_priority()
    channel = _take_channel()
    recipient: TrackerBackend | None = None
    while message := _next_message(channel):
        signal.alarm(int(HUNG_SECONDS))  # memwatch may be gone by then, and nobody else would end what hangs
        try:
            if recipient is None:
                recipient = _open(json_and_yaml.from_json(message, TrackerWorkerSpec))
            else:
                recipient.write_records([json_and_yaml.from_json(line, dict) for line in message.splitlines()])
            answer = TrackerWorkerReply(True, recipient.problem)
        except MemwatchError as error:
            answer = TrackerWorkerReply(False, str(error))
        except Exception as error:  # of a package that is not ours
            answer = TrackerWorkerReply(False, printable(f"{type(error).__name__}: {error}", _REASON_LENGTH))
        signal.alarm(0)
        with suppress(OSError):  # memwatch has left: that shows with the next message
            os.write(channel, json_and_yaml.to_json(answer))
    signal.alarm(CLOSING_SECONDS)
    if recipient is not None:
        recipient.close()


def _take_channel() -> int:
    """Descriptor 0, out of reach of what this process starts: that must not hold on to it."""
    channel = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _next_message(channel: int) -> bytes:
    """Empty when memwatch has left."""
    try:
        return os.read(channel, LONGEST_MESSAGE)
    except ConnectionError:  # with an answer on the way
        return b""


def _open(order: TrackerWorkerSpec) -> TrackerBackend:
    """Each imports its package, and needs it alone."""
    if order.kind == "wandb":
        from memwatch.outputs.trackers.wandb_writer import WandbRun

        return WandbRun(order.run, order.command, **order.settings)
    if order.kind == "tensorboard":
        from memwatch.outputs.trackers.tensorboard_writer import TensorBoardWriter

        return TensorBoardWriter(order.run, **order.settings)
    from memwatch.outputs.trackers.apprise_sender import AppriseNotifier

    return AppriseNotifier(**order.settings)
