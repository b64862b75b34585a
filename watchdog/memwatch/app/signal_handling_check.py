"""Checks from outside whether the trainer handles the signal of an interrupt, in a short-lived process each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memwatch.core.measurements import SignalHandling, Target
from memwatch.errors import SourceError
from memwatch.sources.target.target_facts import is_same_process
from memwatch.system.clock import process_age_seconds
from memwatch.system.python_workers import Task, serve_task

if TYPE_CHECKING:
    from memwatch.actions.signal_sender import SignalPlan
    from memwatch.app.watch_session import ExaminationBudget
    from memwatch.core.events import Event

FIRST_CHECK_AGE_SECONDS = 5.0  # of the trainer: a younger one is still importing its modules (chosen)
NEXT_CHECK_SECONDS = (20.0, 120.0)  # after the first and the second check; there are three at most (chosen)
TASK_CPU_SECONDS = 0.25  # of one check (measured), most of it Python's start and imports
RETRY_SECONDS = 30.0  # after a check that the budget of several watches did not permit (chosen)
TASK_SECONDS = 30.0  # then the process is killed: it has a low priority and may wait for a core
_CODE = "from memwatch.app.signal_handling_check import serve; serve()"


@dataclass(frozen=True, slots=True)
class SignalHandlingRequest:
    """The request to the process that checks."""

    target: Target
    signal: str


class SignalHandlingCheck:
    """Checks once the trainer is old enough, and up to two times later. An event source that reports what it finds."""

    name = "signal handling"

    def __init__(
        self,
        target: Target,
        plan: Callable[[], SignalPlan],
        code: str = _CODE,
        budget: ExaminationBudget | None = None,
    ) -> None:
        """`plan` chooses the signal of an interrupt by what the trainer's process catches and ignores now.

        `budget` is for the checks of several trainers, and for their examinations.
        """
        self._target, self._plan, self._code, self._budget = target, plan, code, budget
        self._due_t: float | None = None
        self._checks = 0
        self._signal = ""
        self._task: Task[SignalHandling] | None = None

    def poll(self, now: float) -> Sequence[Event]:
        if self._task is not None:
            found = self._task.poll(now)
            if found is None:
                return []
            self._task = None
            return self._report(now, _unknown(self._signal, found) if isinstance(found, str) else found)
        if self._due_t is None:
            self._due_t = now + max(0.0, FIRST_CHECK_AGE_SECONDS - process_age_seconds(self._target.start_ticks))
        return self._check(now) if now >= self._due_t else []

    def _check(self, now: float) -> Sequence[Event]:
        self._due_t = now + (NEXT_CHECK_SECONDS[self._checks] if self._checks < len(NEXT_CHECK_SECONDS) else math.inf)
        self._checks += 1
        plan = self._plan()
        if plan.signal is None:  # It ignores all of them, as a remark has said.
            return []
        if not plan.handled:
            return self._report(now, SignalHandling(plan.signal, False, reason="it is not caught"))
        if self._budget is not None and not self._budget.take(TASK_CPU_SECONDS):
            self._due_t, self._checks = now + RETRY_SECONDS, self._checks - 1
            return []
        self._signal = plan.signal
        request = SignalHandlingRequest(self._target, plan.signal)
        self._task = Task(self._code, request, SignalHandling, name="the check", seconds=TASK_SECONDS, now=now)
        return []

    def _report(self, now: float, found: SignalHandling) -> Sequence[Event]:
        from memwatch.core.events import SignalHandlingSeen  # which the child of this module does not need

        if found.handled:
            self._due_t = math.inf
        if found.handled is None and self._checks == 1:  # It may still import its modules.
            return []
        return [SignalHandlingSeen(now, found)]

    def close(self) -> None:
        if self._task is not None:
            self._task.kill()
            self._task = None


def serve() -> None:
    """In a process of its own: answer a SignalHandlingRequest with a SignalHandling."""
    serve_task(SignalHandlingRequest, _answer)


def _answer(request: SignalHandlingRequest) -> SignalHandling:
    try:
        return check_signal_handling(request.target, request.signal)
    except Exception as error:  # a bug in memwatch: nobody reads the output of this process
        return _unknown(request.signal, f"internal error: {type(error).__name__}: {error}")


def check_signal_handling(target: Target, signal_name: str) -> SignalHandling:
    """Look at a trainer that catches this signal."""
    from memwatch.diagnosis.signal_handling import read_signal_handling

    try:
        found = read_signal_handling(target.pid, signal_name)
    except SourceError as error:
        return _unknown(signal_name, str(error))
    return found if is_same_process(target) else _unknown(signal_name, "it ended meanwhile")


def _unknown(signal_name: str, reason: str) -> SignalHandling:
    return SignalHandling(signal_name, None, reason=reason)
