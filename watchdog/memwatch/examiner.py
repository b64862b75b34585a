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


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """An examination that goes on."""

    asked: Diagnose
    process: subprocess.Popen[bytes]
    answer: IO[bytes]


class Examiner:
    """One at a time. A source of events: what was found."""

    name = "diagnosis"

    def __init__(self, target: Target, paths: Sequence[str] = (), code: str = _CODE) -> None:
        """`paths`: whose size is told each time."""
        self._target, self._paths, self._code = target, tuple(paths), code
        self._under_way: _UnderWay | None = None
        self._failed: list[Diagnosed] = []

    def begin(self, asked: Diagnose) -> None:
        """Start it, unless one goes on; what hinders it is its outcome."""
        if self._under_way is not None:
            return
        paths = tuple(dict.fromkeys((*self._paths, *asked.paths)))
        try:
            # memory without a name, no pipes: nobody waits for the other
            with _memory("order") as order:
                uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
                order.write(wire.to_json(Order(self._target, asked.types, paths, asked.memory_bytes, uptime)))
                order.seek(0)
                answer = _memory("examination")
                self._under_way = _UnderWay(asked, children.start(self._code, order, answer), answer)
        except OSError as error:
            reason = f"no process can be started: {error}"
            self._failed.append(Diagnosed(asked.t, asked, Examination(census_reason=reason)))

    def poll(self, now: float) -> Sequence[Event]:
        """What has ended since."""
        failed, self._failed = self._failed, []
        under_way = self._under_way
        if under_way is None:
            return failed
        status = under_way.process.poll()
        if status is None and now - under_way.asked.t < SECONDS:
            return failed
        found = _read(under_way.answer) if status == 0 else None
        self.close()
        if found is None:
            how = f"took more than {SECONDS:g} s" if status is None else f"ended with status {status}"
            found = Examination(census_reason=f"the examination {how}")
        return [*failed, Diagnosed(now, under_way.asked, found)]

    def close(self) -> None:
        """End what goes on."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.process.kill()
            under_way.process.wait()
            under_way.answer.close()


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(f"memwatch {name}"), "w+b", buffering=0)


def _read(answer: IO[bytes]) -> Examination | None:
    answer.seek(0)
    try:
        return wire.from_json(answer.read(_ANSWER_BYTES), Examination)
    except wire.ShapeError:
        return None
