"""Examinations that the engine asks for, each in a short-lived process of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from memwatch import children, wire
from memwatch.core.examination import Examination
from memwatch.core.model import Diagnose, Diagnosed, Event, Target

SECONDS = 180.0  # after which an examination is ended: it gives way to others, and may wait long for a core
_ANSWER_BYTES = 16 << 20
_CODE = "from memwatch.examine import serve; serve()"


@dataclass(frozen=True, slots=True)
class Order:
    """What the other process is told."""

    target: Target
    types: tuple[str, ...]  # whose holders are told
    paths: tuple[str, ...]  # whose size is told
    memory_bytes: int  # that it may take
    uptime: float  # seconds, at which it was asked for
    record_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """An examination that goes on."""

    asked: Diagnose
    process: subprocess.Popen[bytes]
    answer: IO[bytes]


class Examiner:
    """One at a time, and beside it one recording. A source of events: what was found."""

    name = "diagnosis"

    def __init__(self, target: Target, code: str = _CODE) -> None:
        self._target, self._code = target, code
        self._under_way: dict[bool, _UnderWay] = {}  # by whether it is a recording
        self._failed: list[Diagnosed] = []

    def begin(self, asked: Diagnose) -> None:
        """Start it, unless one of its kind goes on; what hinders it is its outcome."""
        is_recording = asked.record_seconds > 0.0
        if is_recording in self._under_way:
            return
        try:
            # memory without a name, no pipes: nobody waits for the other
            with _memory("order") as order:
                uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
                bounds = asked.memory_bytes, uptime, asked.record_seconds
                order.write(wire.to_json(Order(self._target, asked.types, asked.paths, *bounds)))
                order.seek(0)
                answer = _memory("examination")
                process = children.start(self._code, order, answer)
                self._under_way[is_recording] = _UnderWay(asked, process, answer)
        except OSError as error:
            reason = f"no process can be started: {error}"
            self._failed.append(Diagnosed(asked.t, asked, Examination(census_reason=reason)))

    def poll(self, now: float) -> Sequence[Event]:
        """What has ended since."""
        ended, self._failed = self._failed, []
        for kind, one in list(self._under_way.items()):
            status = one.process.poll()
            if status is None and now - one.asked.t < SECONDS + one.asked.record_seconds:
                continue
            found = _read(one.answer) if status == 0 else None
            self._end(kind)
            if found is None:
                how = f"took more than {SECONDS:g} s" if status is None else f"ended with status {status}"
                found = Examination(census_reason=f"the examination {how}")
            ended.append(Diagnosed(now, one.asked, found))
        return ended

    def close(self) -> None:
        """End what goes on."""
        for kind in list(self._under_way):
            self._end(kind)

    def _end(self, kind: bool) -> None:
        one = self._under_way.pop(kind)
        one.process.kill()
        one.process.wait()
        one.answer.close()


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"memwatch {name}"), "w+b", buffering=0)


def _read(answer: IO[bytes]) -> Examination | None:
    answer.seek(0)
    try:
        return wire.from_json(answer.read(_ANSWER_BYTES), Examination)
    except wire.ShapeError:
        return None
