"""The NVML helper as memwatch sees it: a child that is asked, may hang, and is killed then."""

from __future__ import annotations

import time
from collections.abc import Iterable

from memwatch.errors import SourceError
from memwatch.sources.gpu.nvml_helper_messages import MAX_HELPER_MESSAGE_BYTES, Begin, NvmlAnswer, encode_question
from memwatch.system.child_process import Worker

LEAVING_S = 2.0  # for nvmlShutdown and the end of a helper that is let go
CLOSING_S = 0.3  # the same when memwatch ends
MOST_STUCK = 2  # helpers that cannot be killed, before none is started any more

HANGS = "a GPU may hang: look at dmesg for Xid"

_CODE = "from memwatch.sources.gpu.nvml_helper import serve; serve()"


class NvmlHelper(Worker):
    """A running `nvml.serve`. No call waits for it; it ends with memwatch."""

    def __init__(self, begin: Begin, code: str = _CODE) -> None:
        """Start it; SourceError when that cannot be done."""
        try:
            super().__init__(code, begin.encode())
        except OSError as error:
            raise SourceError(f"no process can be started for NVML: {error}") from error

    def send_question(self, tree: Iterable[int], t: float, wait_s: float) -> None:
        """Put a question for t, in so many seconds; SourceError when it has ended."""
        try:
            self.send(encode_question(tree, t, wait_s))
        except OSError as error:
            raise self._ended() from error

    def receive_answer(self) -> NvmlAnswer | None:
        """The answer, None while there is none; SourceError when it has ended instead, or answers nonsense."""
        message = self.receive(MAX_HELPER_MESSAGE_BYTES)
        if message == b"":
            raise self._ended()
        return None if message is None else NvmlAnswer.decode(message)

    def _ended(self) -> SourceError:
        return SourceError(f"NVML's helper {self.exit_text()}", "NVML may have crashed: does nvidia-smi, too?")


class NvmlHelperPool:
    """One helper at work at most, and those that are on their way out."""

    def __init__(self, code: str = _CODE) -> None:
        """`code`: what each of them runs."""
        self._code = code
        self.at_work: NvmlHelper | None = None
        self._leaving: list[tuple[NvmlHelper, float]] = []  # each with the time at which it is killed

    @property
    def pids(self) -> frozenset[int]:
        """Those of all that have not ended."""
        rest = [helper for helper, _ in self._leaving]
        return frozenset(helper.pid for helper in (self.at_work, *rest) if helper is not None)

    def start(self, begin: Begin, now: float) -> NvmlHelper:
        """A new one at work; SourceError while too many hang that cannot be killed."""
        if len(self._leaving) >= MOST_STUCK and not self.reap(now):
            raise SourceError(f"NVML hangs in {len(self._leaving)} processes that cannot be killed", HANGS)
        self.at_work = NvmlHelper(begin, self._code)
        return self.at_work

    def dismiss(self, now: float, kill: bool = False) -> None:
        """Let the one at work go; it is killed now, or when it has not ended LEAVING_S later."""
        helper, self.at_work = self.at_work, None
        if helper is not None:
            helper.close_channel()
            self._leaving.append((helper, now if kill else now + LEAVING_S))
            self.reap(now)

    def reap(self, now: float) -> bool:
        """Kill those whose time is up, forget those that have ended; whether there is room for another."""
        for helper, end_t in self._leaving:
            if now >= end_t:
                helper.kill()
        self._leaving = [(helper, end_t) for helper, end_t in self._leaving if not helper.has_exited()]
        return len(self._leaving) < MOST_STUCK

    def close(self) -> None:
        """Let all go: within half a second, whatever NVML does."""
        self.dismiss(0.0)
        deadline = time.monotonic() + CLOSING_S
        for helper, _ in self._leaving:
            if not helper.has_exited(max(0.0, deadline - time.monotonic())):
                helper.kill()
                helper.has_exited(0.05)
        self._leaving = []
