"""Saw-teeth: memory that climbs and is collected at once, in a beat of its own that no marker tells."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.forecast.generation_tracker import GenerationTracker
from memwatch.core.robust_statistics import median, robust_sd

FALL_SHARE = 0.05  # of the level: a smaller fall is no collection
FALL_UNREST = 8.0  # ... nor one that is within so many times the usual change from sample to sample
UNREST_SAMPLES = 64
MIN_TEETH = 5  # teeth that make a beat
REGULAR = 0.4  # robust deviation of their lengths, as a share, up to which they are one
OVERDUE_FACTOR = 1.4  # a tooth that lasts so many times the usual one may be none


class SawtoothDetector:
    """Told the samples of one process; finds the beat of its collections."""

    def __init__(self) -> None:
        self._unrest = 0.0
        self._seen = 0
        self._last: float | None = None
        self._top = 0.0
        self._falling = False
        self._rhythm: GenerationTracker | None = None
        self._count = 0

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        """Samples, in order and not before the last one."""
        if self._last is None:
            self._last = self._top = used[0]
            times, used = times[1:], used[1:]
        last, top, falling = self._last, self._top, self._falling
        unrest, seen, told = self._unrest, self._seen, 0
        for i, now in enumerate(used):
            change = abs(now - last)
            if change > 4.0 * unrest and seen > 8:  # a fall is not the usual unrest
                change = 4.0 * unrest
            if seen < UNREST_SAMPLES:
                seen += 1
            unrest += (change - unrest) / seen
            if falling:
                falling = now < last
                top = now
            elif now > top:
                top = now
            elif top - now > FALL_SHARE * top and top - now > FALL_UNREST * unrest:
                falling = True
                top = now
                self._tell(times[told:i], used[told:i])
                self._begin(times[i])
                told = i
            last = now
        self._last, self._top, self._falling, self._unrest, self._seen = last, top, falling, unrest, seen
        self._tell(times[told:], used[told:])

    def _tell(self, times: Sequence[float], used: Sequence[float]) -> None:
        if self._rhythm is not None:
            self._rhythm.add_samples(times, used)

    def _begin(self, t: float) -> None:
        if self._rhythm is None:
            self._rhythm = GenerationTracker(0.0, t, None)
        else:
            self._count += 1
            self._rhythm.begin_generation(t, float(self._count))

    def cycle(self, t: float) -> GenerationTracker | None:
        """The teeth as generations, if they come regularly."""
        rhythm = self._rhythm
        if rhythm is None or len(rhythm.summaries) < MIN_TEETH:
            return None
        lengths = rhythm.lengths()
        usual = median(lengths)
        if robust_sd(lengths) > REGULAR * usual or t - rhythm.start_t > OVERDUE_FACTOR * usual:
            return None
        return rhythm
