"""Time and sleep of the real world."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SystemClock:
    """Unix time at its making, from there on counted by the machine's uptime, which nobody can set."""

    def __init__(self) -> None:
        self._origin = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Seconds, as Unix time; suspended time counts."""
        return self._origin + time.clock_gettime(time.CLOCK_BOOTTIME)

    def advance_to(self, t: float) -> None:
        """Go on from `t` where it is not reached yet: what was kept before the machine's clock was set back is past."""
        self._origin += max(0.0, t - self.now())


class Sleeper:
    """A sleep that ends early when a watched descriptor becomes readable or memwatch gets a signal.

    Within its `with` block `signals` go to `on_signal`; without one they set `stopped_by` and the caller ends its loop.
    """

    def __init__(
        self,
        watched: Iterable[int] = (),
        signals: Iterable[signal.Signals] = STOP_SIGNALS,
        on_signal: Callable[[int], None] | None = None,
    ) -> None:
        self.stopped_by: str | None = None
        self._signals, self._on_signal = tuple(signals), on_signal or self._stop
        self._poll = select.poll()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for descriptor in (self._wake_read, *watched):
            self._poll.register(descriptor, select.POLLIN)
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Sleeper:
        # a handler alone would not end poll(): Python goes on with it, so the wake-up descriptor is polled as well
        before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._undo.append(lambda: signal.set_wakeup_fd(before))
        for number in self._signals:
            handler = signal.signal(number, self._handle)
            self._undo.append(lambda number=number, handler=handler: signal.signal(number, handler))  # type: ignore[misc]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        while self._undo:
            self._undo.pop()()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def sleep(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until something happens: whether it did."""
        if self.stopped_by is not None:
            return True
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if any(descriptor == self._wake_read for descriptor, _ in ready):
            os.read(self._wake_read, 4096)
        return bool(ready)

    def sleep_until_signal(self, seconds: float) -> None:
        """Sleep for `seconds`, whatever is watched; a signal that came since the last sleep, or comes, ends it."""
        if self.stopped_by is None:
            signals = select.poll()
            signals.register(self._wake_read, select.POLLIN)
            if signals.poll(max(0.0, seconds) * 1000):
                os.read(self._wake_read, 4096)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._on_signal(number)

    def _stop(self, number: int) -> None:
        self.stopped_by = signal.Signals(number).name
