"""The system's clock, a sleep that signals end, and a limit of CPU time for a user's regular expressions."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SystemClock:
    """Unix time at its creation, from there on counted by the machine's uptime, which nobody can set."""

    def __init__(self) -> None:
        self._origin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Return seconds, as Unix time; the time for which the machine is suspended counts."""
        return self._origin + time.clock_gettime(time.CLOCK_BOOTTIME)

    def advance_to(self, t: float) -> None:
        """Continue from `t` if that is ahead: events stored before the clock was set back stay in the past."""
        self._origin += max(0.0, t - self.now())


def process_age_seconds(start_ticks: int) -> float:
    """Return for how long a process has run that began so many clock ticks after the machine: /proc/PID/stat."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


def process_start_t(start_ticks: int) -> float:
    """Return the Unix time when such a process began."""
    return time.time() - process_age_seconds(start_ticks)


@contextmanager
def signal_handlers(numbers: Iterable[int], handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` with each of these signals that memwatch gets, until the block ends."""
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Sleeper:
    """A sleep that ends early when a watched descriptor becomes readable or memwatch gets a signal.

    Within its `with` block `signals` are passed to `on_signal`.
    """

    def __init__(
        self, watched: Iterable[int], signals: Iterable[signal.Signals], on_signal: Callable[[int], None]
    ) -> None:
        self._signals, self._on_signal = tuple(signals), on_signal
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._signal_poll, self._poll = select.poll(), select.poll()
        self._signal_poll.register(self._wake_read, select.POLLIN)
        for descriptor in (self._wake_read, *watched):
            self._poll.register(descriptor, select.POLLIN)
        self._stack = ExitStack()

    def __enter__(self) -> Sleeper:
        # A handler alone would not end poll(), which Python continues: the wake-up descriptor is polled as well.
        before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._stack.callback(signal.set_wakeup_fd, before)
        self._stack.enter_context(signal_handlers(self._signals, self._on_signal))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def sleep(self, seconds: float) -> bool:
        """Sleep for `seconds` or until something happens; return whether it did."""
        return self._wait(self._poll, seconds)

    def sleep_until_signal(self, seconds: float) -> None:
        """Sleep for `seconds`, whatever is watched; a signal that came since the last sleep, or comes, ends it."""
        self._wait(self._signal_poll, seconds)

    def _wait(self, poll: select.poll, seconds: float) -> bool:
        ready = poll.poll(max(0.0, seconds) * 1000)
        if any(descriptor == self._wake_read for descriptor, _ in ready):
            os.read(self._wake_read, 4096)
        return bool(ready)


class CpuTimeExceededError(Exception):
    """The work took more CPU time than its limit."""


def run_with_cpu_limit(cpu_seconds: float, work: Callable[[], _T]) -> _T:
    """Return what `work` returns; CpuTimeExceededError when it uses more CPU time, to within 10 ms. Main thread only.

    `re` checks for signals every 4,096 steps (CPython 3.10 to 3.15), and the exception of a handler ends the search.
    `work` must leave nothing half done. The timer costs 8 us, no thread and no descriptor; the CPU time of other
    processes is not counted.
    """
    under_way = True

    def interrupt_work(_number: int, _frame: FrameType | None) -> None:
        if under_way:
            raise CpuTimeExceededError

    before = signal.signal(signal.SIGVTALRM, interrupt_work)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
        try:
            return work()
        finally:
            under_way = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)  # stop the timer before the earlier handler is restored
        signal.signal(signal.SIGVTALRM, before)
