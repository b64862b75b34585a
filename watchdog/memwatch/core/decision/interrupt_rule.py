"""One look at one resource that is forecast to meet its limit: whether it is the last at which a checkpoint is sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    POINT_GENERATIONS,
    SILENT_STAKE,
    STAKE_LEADS,
    STARTUP_LEADS,
    WAITS,
    Policy,
    Stakes,
    believable,
    counts,
    has_settled,
    is_last_moment,
    is_overdue,
    runs_out_within,
)
from memwatch.core.engine.resource_monitor import Track
from memwatch.core.forecast.time_to_limit import Ends
from memwatch.core.forecast.zz_near import Need
from memwatch.core.generation_ledger import Ledger
from memwatch.core.measurements import Limit
from memwatch.core.snapshot import Forecast

FEW_STAKE = 0.5  # times what is at stake where few generations say how high one goes
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
YOUNG_ODDS = 0.9  # of being too late: less is no reason to act in the first generations
AS_HIGH = 0.005  # of the highest so far: farther below it there is no new growth yet
CLEAR = 4.0  # standard errors: levels depend on each other, and of many lines the steepest was chosen
LATELY, RISEN = 0.25, 0.02  # of what was watched, of the limit: what comes and goes rises less from one to the next
PLAIN_CLEAR = 15.0  # standard errors: so clear ...
PLAIN_POINTS = 12  # ... in so many of 16 blocks of time ...
PLAIN_LEADS = 20.0  # ... for so many lead times, growth is no start-up, though nobody tells generations
NEW_POINTS = 9  # levels from which on growth is no accident, even below what was in use before
SOON_SHARE = 0.25  # of a generation: what rose within more may have fallen again by then
BLOCKS = 8  # of the time watched: without generations, what is recent


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds and bytes. `lead`: from the look until a checkpoint is complete; `gap`: between two readings."""

    policy: Policy
    ledger: Ledger
    t: float
    track: Track
    limit: Limit
    forecast: Forecast
    lead: float
    gap: float

    @property
    def need(self) -> Need:
        """What a checkpoint takes."""
        return Need(self.lead, self.track.needed_bytes)

    @property
    def watched(self) -> float:
        """How long this process is known."""
        return self.t - self.track.first_t

    @property
    def points(self) -> float:
        """Levels that the growth was seen in."""
        trend = self.track.outlook.trend
        return math.inf if trend is None else trend.points

    def is_believable(self) -> bool:
        """The forecast rests on enough."""
        return believable(self.forecast, self.watched, self.lead, self.limit.headroom_bytes, self.limit.bytes)

    def fits(self) -> bool:
        """There is memory for a checkpoint that is asked for now, also if what rises goes on rising until it begins."""
        seconds = DELIVERY_SECONDS + self.policy.second_look_seconds
        step = self.ledger.step_seconds(self.t)
        seconds = seconds if step is None else min(seconds, SOON_SHARE * step)
        return self.limit.headroom_bytes >= self.track.save_bytes + self.track.rise(seconds)

    def is_last(self) -> bool:
        """A checkpoint still fits, in time and memory; later it might not."""
        ends = self.track.outlook.ends
        if ends is None:
            return runs_out_within(self.forecast, self.lead)
        if not counts(ends.too_late(ends.step_seconds, self.need), self.policy.confidence) or not self.is_new():
            return False
        return self._is_last_of_young(ends) if self._is_young() else self._is_last_of_all(ends)

    def _is_last_of_young(self, ends: Ends) -> bool:
        gain = self.track.forecaster.gain(self.lead) + self.track.save_bytes  # what is beneath a save of before counts
        if gain <= min(AS_HIGH * self.track.peak, 0.5 * self.limit.headroom_bytes):
            return False
        odds = ends.too_late(self.gap, self.need) if self.fits() else 0.0
        return max(ends.odds(self.lead), odds) >= YOUNG_ODDS

    def _is_last_of_all(self, ends: Ends) -> bool:
        stake = max(self.watched, STAKE_LEADS * self.lead)
        stake *= SILENT_STAKE if self.forecast.generation is None else 1.0
        stake *= FEW_STAKE if ends.seen < POINT_GENERATIONS else 1.0
        stakes, odds = Stakes(stake, ends.left(self.lead, stake), self.track.never), ends.odds(self.lead)
        if is_overdue(odds, stakes):
            return self.fits() or odds >= YOUNG_ODDS
        waits = (max(share * ends.step_seconds, self.gap) for share in WAITS)
        return self.fits() and is_last_moment(partial(ends.too_late, need=self.need), waits, stakes)

    def is_tight(self) -> bool:
        """What is left could be used up: by the fastest rise of late, or by growth and a peak, or by a checkpoint."""
        forecaster, lead = self.track.forecaster, self.lead
        if self._is_young():  # growth that is over is no threat yet
            return self.limit.headroom_bytes <= ROOM_FACTOR * forecaster.rise(lead)
        step = self.ledger.step_seconds(self.t)
        share = 1.0 if step is None else min(1.0, lead / step)
        climb = self.ledger.climb_bytes(self.track.usage.resource, share) or 0
        most = max(forecaster.peak_rate() * lead, forecaster.reach_bytes, climb, self.need.bytes)
        return self.limit.headroom_bytes <= ROOM_FACTOR * most

    def could_fill(self, seconds: float) -> bool:
        """What is left beside a checkpoint could be used up by as many generations' growth."""
        climb = self.ledger.climb_bytes(self.track.usage.resource)
        generations = max(1.0, seconds / (self.ledger.step_seconds(self.t) or math.inf))
        return climb is None or self.limit.headroom_bytes - self.need.bytes <= ROOM_FACTOR * climb * generations

    def is_new(self) -> bool:
        """Memory has been where it was not before, or the growth was seen for long."""
        if self.points >= NEW_POINTS:
            return True
        recent = self.ledger.step_seconds(self.t) or self.watched / BLOCKS
        return self.track.forecaster.gain(recent) >= -AS_HIGH * self.track.peak

    def is_clear(self) -> bool:
        """The growth is no accident: so the levels say, or memory has lately been far above all before."""
        forecaster = self.track.forecaster
        return forecaster.clarity >= CLEAR or forecaster.gain(LATELY * self.watched) >= RISEN * self.limit.bytes

    def _is_young(self) -> bool:
        """Little has been seen, and little is lost; or what was seen tells little."""
        if self.watched < STARTUP_LEADS * self.lead or not self.is_clear() or self._may_be_teeth():
            return True
        if self.ledger.silent(self.t):
            return not (has_settled(self.watched, self.lead) or self._has_beat() or self._is_plain())
        least = POINT_GENERATIONS + int(self.points < POINT_GENERATIONS)  # growth that not all of them show: one more
        return self.ledger.complete < least

    def _is_plain(self) -> bool:
        """Growth that goes through most of what was watched, or has begun after a calm, and that for long."""
        forecaster = self.track.forecaster
        if self.watched < PLAIN_LEADS * self.lead or forecaster.clarity < PLAIN_CLEAR:
            return False
        return self.points >= PLAIN_POINTS or (forecaster.begins and self.points > POINT_GENERATIONS)

    def _has_beat(self) -> bool:
        """Enough teeth stand for the generations that nobody tells."""
        ends = self.track.outlook.ends
        by_part = ends is not None and ends.near is not None and len(ends.near.outline.highs) > 1
        return by_part and POINT_GENERATIONS < self.points < math.inf

    def _may_be_teeth(self) -> bool:
        """Growth in few levels, and less than what memory does within a generation: that of teeth out of step."""
        ends, trend = self.track.outlook.ends, self.track.outlook.trend
        if ends is None or trend is None or trend.points >= POINT_GENERATIONS:
            return False
        return trend.growth_per_second * ends.step_seconds * trend.points < self.track.forecaster.reach_bytes
