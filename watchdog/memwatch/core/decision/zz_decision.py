"""When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.checkpoint_timing import Checkpoints
from memwatch.core.decision.interrupt_rule import Moment
from memwatch.core.decision.policy import (
    POINT_GENERATIONS,
    POINT_ODDS,
    Policy,
    next_step_fits,
    runs_out_within,
    threatens,
)
from memwatch.core.engine.resource_monitor import Decision, Track
from memwatch.core.generation_ledger import Ledger

URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open


class Decider:
    """The judgement of one trainer process. Reads the ledger and the checkpoints that the engine keeps."""

    def __init__(self, policy: Policy, ledger: Ledger, checkpoints: Checkpoints) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._point: tuple[float, str] | None = None  # a good moment for an interrupt: since when, its kind
        self._firsts: dict[str, float] = {}  # when a resource first asked, and at each look since

    @property
    def pending(self) -> bool:
        """Another look is wanted."""
        return bool(self._firsts)

    @property
    def waits(self) -> bool:
        """A look is wanted whatever memory does: another one, or one at a good moment."""
        return self.pending or self._point is not None

    def good_moment(self, t: float, kind: str) -> None:
        """A generation has ended ("boundary"), or the trainer has just saved ("saved")."""
        self._point = (t, kind)

    def drop(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._point = None
        self._firsts.clear()

    def decide(self, t: float, tracks: Sequence[Track], lead: float, gap: float) -> Decision | None:
        """Judge this look; a decision only when an earlier look said the same. `gap`: seconds between two readings."""
        reasons = [Decision(track, kind) for track in tracks if (kind := self._reason(t, track, lead, gap))]
        if self._point is not None and not any(reason.kind == self._point[1] for reason in reasons):
            self._expire_point(t, *self._point)
        said, seen = {_resource(reason) for reason in reasons}, {track.usage.resource for track in tracks}
        self._firsts = {name: first for name, first in self._firsts.items() if name in said or name not in seen}
        confirmed = [reason for reason in reasons if self._confirms(t, _resource(reason))]
        return min(confirmed, key=lambda reason: URGENCY.index(reason.kind), default=None)

    def _expire_point(self, t: float, begun: float, kind: str) -> None:
        """Drop a good moment that was not taken, unless the save that is due then is still awaited."""
        step = self._ledger.step_seconds(t)
        awaited = kind == "boundary" and self._checkpoints.due_seconds(t) is not None
        if not awaited or t - begun > POINT_SHARE * (step or 0.0):
            self._point = None

    def _reason(self, t: float, track: Track, lead: float, gap: float) -> str | None:
        """Why the forecast of this resource asks for an interrupt now; None: it does not."""
        limit, forecast = track.usage.limit, track.outlook.forecast
        if limit is None or forecast is None or not threatens(track.outlook.verdict, forecast):
            return None
        moment = Moment(self._policy, self._ledger, t, track, limit, forecast, lead, gap)
        if not moment.is_believable():
            return None
        if moment.is_last():
            return "time" if moment.is_tight() else None
        return self._point_reason(moment)

    def _point_reason(self, moment: Moment) -> str | None:
        """At a boundary or after a save: the next step does not fit, so this is the last good moment."""
        if self._point is None or min(self._ledger.complete, moment.points) < POINT_GENERATIONS:
            return None
        if self._ledger.stalled(moment.track.usage.resource) or not moment.fits():
            return None
        if not (moment.is_new() and moment.is_clear()):
            return None
        (begun, kind), saves, lead = self._point, self._checkpoints, moment.lead
        step = saves.interval_seconds if kind == "saved" else None
        step = step if step is not None else self._ledger.step_seconds(moment.t)
        if step is None:
            return None
        due = saves.due_seconds(moment.t) if kind == "boundary" else None
        if due is not None and not runs_out_within(moment.forecast, due + lead):
            return None  # the trainer saves by itself before: that is the better moment
        left, ends = max(0.0, step - (moment.t - begun)), moment.track.outlook.ends
        if next_step_fits(moment.forecast, left, lead):
            return None
        if ends is not None and ends.too_late(left, moment.need) < POINT_ODDS:
            return None
        return kind if moment.could_fill(left + lead) else None

    def _confirms(self, t: float, resource: str) -> bool:
        """An earlier look, and each since, said so too; this is the first otherwise."""
        first_t = self._firsts.setdefault(resource, t)
        return t > first_t and t - first_t >= self._policy.second_look_seconds


def _resource(decision: Decision) -> str:
    return decision.track.usage.resource
