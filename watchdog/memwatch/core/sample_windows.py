"""Windows of the latest samples: where one ends, and the fastest rise within one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, compress, count
from operator import gt, sub

WINDOW_SAMPLES = 6  # Samples that a rise may span (chosen).
PIECE_SAMPLES = 32  # Samples that are compared together with one bound on the fastest rise (chosen).
FIRST_FADE_SECONDS = 120.0  # Time in which a rise fades to 1/e until set_fade_seconds() is called (chosen).


def first_beyond(times: Sequence[float], start_t: float, seconds: float, low: int = 0) -> int:
    """The index of the first time, from `low` on, that is at least so many seconds after the start."""
    i = bisect_left(times, start_t + seconds, low)
    while i > low and times[i - 1] - start_t >= seconds:  # Sums and differences are rounded differently.
        i -= 1
    while i < len(times) and times[i] - start_t < seconds:
        i += 1
    return i


class PeakRate:
    """The fastest recent rise over a few samples; it fades as time passes."""

    def __init__(self) -> None:
        self._times: list[float] = []  # of the last WINDOW_SAMPLES
        self._used: list[float] = []
        self._fade_seconds = FIRST_FADE_SECONDS
        self._interval = 0.0  # usual seconds between samples
        self._fastest = self._fastest_t = self._t = 0.0  # the fastest rise, when it was, and the latest sample

    def set_fade_seconds(self, seconds: float) -> None:
        """Let a rise fade to 1/e in this time: two generations, so that one in each of them is not forgotten."""
        self._fastest, self._fastest_t = self.fastest, self._t
        self._fade_seconds = max(seconds, 1e-6)

    def restart(self) -> None:
        """Begin with a new process: the step to its first sample counts for nothing."""
        self._fastest, self._fastest_t = self.fastest, self._t
        self._times, self._used = [], []

    @property
    def fastest(self) -> float:
        """Bytes per second of the fastest rise, as far as it has not faded."""
        return self._faded(self._t)

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        """Add samples in order. A rise within less than half the usual interval counts as if it had taken that long."""
        if len(times) == 1:
            self._add_one(times[0], used[0])
            return
        for i in range(0, len(times), PIECE_SAMPLES):
            self._add_piece(times[i : i + PIECE_SAMPLES], used[i : i + PIECE_SAMPLES])

    def _faded(self, t: float) -> float:
        return self._fastest * math.exp((self._fastest_t - t) / self._fade_seconds)

    def _add_one(self, t: float, now: float) -> None:
        """Do as _add_piece, in a third of the time: of steady growth, a live watch adds each sample by itself."""
        times, used = [*self._times, t], [*self._used, now]
        if self._times:
            self._interval = _averaged(self._interval, t - times[-2])
            self._update_fastest(len(times) - 1, times, used, max(0.5 * self._interval, 1e-6))
        else:
            self._fastest_t = t
        self._t, self._times, self._used = t, times[-WINDOW_SAMPLES:], used[-WINDOW_SAMPLES:]

    def _add_piece(self, times: Sequence[float], used: Sequence[float]) -> None:
        done = known = len(self._times) or 1
        times, used = [*self._times, *times], [*self._used, *used]
        if not self._times:
            self._fastest_t = times[0]
        gaps = list(map(sub, times[1:], times))
        intervals = list(accumulate(gaps[known - 1 :], _averaged, initial=self._interval))
        slowest = self._faded(times[-1])
        fast = map(gt, map(sub, used[1:], used), [slowest * seconds for seconds in gaps])
        for k in compress(count(1), fast):  # A fast rise has a fast step in it.
            for i in range(max(k, done), min(k + WINDOW_SAMPLES, len(times))):
                self._update_fastest(i, times, used, max(0.5 * intervals[i - known + 1], 1e-6))
                done = i + 1
        self._interval = intervals[-1]
        self._t, self._times, self._used = times[-1], times[-WINDOW_SAMPLES:], used[-WINDOW_SAMPLES:]

    def _update_fastest(self, i: int, times: Sequence[float], used: Sequence[float], shortest: float) -> None:
        """Keep the fastest of the rises that end with sample `i`."""
        t, now, first = times[i], used[i], max(0, i - WINDOW_SAMPLES)
        before = fastest = self._faded(t)
        if now - min(used[first:i]) <= before * max(t - times[i - 1], shortest):
            return
        for k in range(first, i):
            if now > used[k]:
                seconds = max(t - times[k], shortest)
                if now - used[k] > fastest * seconds:
                    fastest = (now - used[k]) / seconds
        if fastest > before:
            self._fastest, self._fastest_t = fastest, t


def _averaged(interval: float, seconds: float) -> float:
    return interval + (seconds - interval) * 0.1 if interval else seconds
