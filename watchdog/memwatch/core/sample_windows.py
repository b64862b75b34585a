"""Windows of the latest samples: where one ends, and the fastest rise within one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, compress, count
from operator import gt, sub

WINDOW_SAMPLES = 6  # samples
PIECE = 32  # samples, most of which are told at a glance to be no faster than what is known
FIRST_MEMORY_SECONDS = 120.0


def first_beyond(times: Sequence[float], start_t: float, seconds: float, low: int = 0) -> int:
    """Index of the first time, from `low` on, that is so many seconds after the start, or later."""
    i = bisect_left(times, start_t + seconds, low)
    while i > low and times[i - 1] - start_t >= seconds:  # sums and differences are rounded in their own ways
        i -= 1
    while i < len(times) and times[i] - start_t < seconds:
        i += 1
    return i


class PeakRate:
    """Rises over the last few samples; the fastest fades over `remember` seconds."""

    def __init__(self) -> None:
        self._times: list[float] = []  # of the last WINDOW samples
        self._used: list[float] = []
        self._memory = FIRST_MEMORY_SECONDS
        self._interval = 0.0  # usual seconds between samples
        self._fastest = self._fastest_t = self._t = 0.0  # the fastest rise, when it was, and the latest sample

    def set_fade_seconds(self, seconds: float) -> None:
        """Let a rise fade to a third in this time: two generations, so that a rise in each of them is not forgotten."""
        self._fastest, self._fastest_t = self.fastest, self._t
        self._memory = max(seconds, 1e-6)

    def restart(self) -> None:
        """A new process: the fall to it is no rise, its rises are its own."""
        self._fastest, self._fastest_t = self.fastest, self._t
        self._times, self._used = [], []

    @property
    def fastest(self) -> float:
        """Bytes a second, as far as it has not faded."""
        return self._faded(self._t)

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        """Samples in order. A rise over a jittered, very short time counts over half the usual one."""
        if len(times) == 1:
            self._take_one(times[0], used[0])
            return
        for i in range(0, len(times), PIECE):
            self._take(times[i : i + PIECE], used[i : i + PIECE])

    def _faded(self, t: float) -> float:
        return self._fastest * math.exp((self._fastest_t - t) / self._memory)

    def _take_one(self, t: float, now: float) -> None:
        times, used = [*self._times, t], [*self._used, now]
        if self._times:
            self._interval = _learnt(self._interval, t - times[-2])
            self._look_back(len(times) - 1, times, used, max(0.5 * self._interval, 1e-6))
        else:
            self._fastest_t = t
        self._t, self._times, self._used = t, times[-WINDOW_SAMPLES:], used[-WINDOW_SAMPLES:]

    def _take(self, times: Sequence[float], used: Sequence[float]) -> None:
        done = known = len(self._times) or 1
        times, used = [*self._times, *times], [*self._used, *used]
        if not self._times:
            self._fastest_t = times[0]
        gaps = list(map(sub, times[1:], times))
        intervals = list(accumulate(gaps[known - 1 :], _learnt, initial=self._interval))
        slowest = self._faded(times[-1])
        fast = map(gt, map(sub, used[1:], used), [slowest * seconds for seconds in gaps])
        for k in compress(count(1), fast):  # a fast rise has a fast step in it
            for i in range(max(k, done), min(k + WINDOW_SAMPLES, len(times))):
                self._look_back(i, times, used, max(0.5 * intervals[i - known + 1], 1e-6))
                done = i + 1
        self._interval = intervals[-1]
        self._t, self._times, self._used = times[-1], times[-WINDOW_SAMPLES:], used[-WINDOW_SAMPLES:]

    def _look_back(self, i: int, times: Sequence[float], used: Sequence[float], shortest: float) -> None:
        """Take the fastest of the rises to this sample."""
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


def _learnt(interval: float, seconds: float) -> float:
    return interval + (seconds - interval) * 0.1 if interval else seconds
