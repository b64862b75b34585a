"""How wide the interval of a forecast must be, from how far this run's earlier forecasts of the same end have moved.

Locally weighted conformal prediction in spirit (Lei and others, JASA 113, 2018; Gibbs and Candès, NeurIPS 2021): the
interval that the models give is multiplied by what their own past errors ask for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memwatch.core.robust_statistics import NORMAL_95

CHECKED_SHARE = 0.3  # of the time that was left when a forecast was made: then it is compared with the latest one
APART = 1.15  # times the time watched at the last kept forecast: neighbours make the same error and tell it once
PRIOR_FORECASTS = 8.0  # that the models' own width counts for (of 4, 8, 12 on 204 traces: 12 holds less, 4 no more)
LEAST_HALF = 1e-3  # of the time left: no forecast is more exact
MOST_ERROR = 5.0  # standard deviations that one forecast tells at most: beyond, growth has become another
USUAL_ERROR = math.sqrt(2.0 / math.pi)  # of a normal distribution: mean distance from its middle, in deviations


@dataclass(frozen=True, slots=True)
class _KeptForecast:
    """Seconds on one clock."""

    made_t: float
    low_t: float
    middle_t: float
    high_t: float  # infinity: perhaps never

    def error(self, middle_t: float) -> float:
        """How far off it was as a later forecast sees it, in the standard deviations that it should move by meanwhile.

        What is not known of the end becomes known evenly until then: that share of the variance.
        """
        half = self.middle_t - self.low_t if middle_t < self.middle_t else self.high_t - self.middle_t
        deviation = math.sqrt(CHECKED_SHARE) * max(half, LEAST_HALF * (self.middle_t - self.made_t)) / NORMAL_95
        return min(MOST_ERROR, abs(middle_t - self.middle_t) / deviation)


class IntervalCalibration:
    """Told each forecast; says by which factor the next interval must be wider."""

    def __init__(self) -> None:
        self._kept: list[_KeptForecast] = []
        self._next_t = 0.0
        self._errors, self._count = USUAL_ERROR * PRIOR_FORECASTS, PRIOR_FORECASTS  # sum, number

    @property
    def factor(self) -> float:
        """At least 1: a decision that rests on the early end must not come later because all went well so far."""
        return max(1.0, self._errors / self._count / USUAL_ERROR)

    def add_forecast(self, t: float, left: tuple[float, float, float]) -> None:
        """At t, seconds since the watch began: the 5, 50 and 95 % quantiles of the seconds left; infinity for never."""
        low_t, middle_t, high_t = (t + seconds for seconds in left)
        if math.isinf(middle_t):
            return
        due = [one for one in self._kept if t - one.made_t >= CHECKED_SHARE * (one.middle_t - one.made_t)]
        for one in due:
            self._kept.remove(one)
            self._errors += one.error(middle_t)
            self._count += 1.0
        if t >= self._next_t:
            self._next_t = APART * t
            self._kept.append(_KeptForecast(t, low_t, middle_t, high_t))

    def forget_kept(self) -> None:
        """The end is another one: a new limit, or a new process."""
        self._kept.clear()
