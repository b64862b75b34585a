"""Saw-teeth: memory that climbs and is collected at once, in a beat of its own that no marker tells."""

from __future__ import annotations

from memwatch.core.rhythm import Rhythm
from memwatch.core.stats import deviation, median

FALL_SHARE = 0.05  # of the level: a smaller fall is no collection
FALL_UNREST = 8.0  # ... nor one that is within so many times the usual change from sample to sample
UNREST_SAMPLES = 64
ENOUGH = 5  # teeth that make a beat
REGULAR = 0.4  # robust deviation of their lengths, as a share, up to which they are one
LATE = 1.4  # a tooth that lasts so many times the usual one may be none


class Teeth:
    """Told the samples of one process; finds the beat of its collections."""

    def __init__(self) -> None:
        self._unrest = 0.0
        self._seen = 0
        self._last: float | None = None
        self._top = 0.0
        self._falling = False
        self._rhythm: Rhythm | None = None
        self._count = 0

    def observe(self, t: float, used: float) -> None:
        """A sample at t, not before the last one."""
        last, self._last = self._last, used
        if last is None:
            self._top = used
            return
        change = abs(used - last)
        if self._seen > 8:  # a fall is not the usual unrest
            change = min(change, 4.0 * self._unrest)
        self._seen = min(self._seen + 1, UNREST_SAMPLES)
        self._unrest += (change - self._unrest) / self._seen
        fall = max(FALL_SHARE * self._top, FALL_UNREST * self._unrest)
        if self._falling:
            self._falling = used < last
            self._top = used
        elif self._top - used > fall:
            self._falling = True
            self._top = used
            self._begin(t)
        elif used > self._top:
            self._top = used
        if self._rhythm is not None:
            self._rhythm.observe(t, used)

    def _begin(self, t: float) -> None:
        if self._rhythm is None:
            self._rhythm = Rhythm(0.0, t, None)
        else:
            self._count += 1
            self._rhythm.begin(t, float(self._count))

    def beat(self, t: float) -> Rhythm | None:
        """The teeth as generations, if they come regularly."""
        rhythm = self._rhythm
        if rhythm is None or len(rhythm.shapes) < ENOUGH:
            return None
        lengths = rhythm.lengths()
        usual = median(lengths)
        if deviation(lengths) > REGULAR * usual or t - rhythm.start_t > LATE * usual:
            return None
        return rhythm
