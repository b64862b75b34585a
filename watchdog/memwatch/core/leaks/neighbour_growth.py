"""How fast the memory of others in the trainer's cgroup grows: growth that is not the trainer's code's."""

from __future__ import annotations

from collections import deque

from memwatch.core.measurements import Neighbours
from memwatch.core.robust_statistics import straight_line
from memwatch.core.snapshot import NeighbourGrowth

READINGS = (
    32  # Latest readings whose slope is the growth; they are 2 s apart at first, later 1/200 of the time (chosen).
)
MIN_READINGS = 3  # Fewer show no trend (chosen).


class NeighbourGrowthTracker:
    """Follows the readings of the neighbours of one trainer process."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Neighbours]] = deque(maxlen=READINGS)

    def begin_attempt(self) -> None:
        self._readings.clear()

    @property
    def latest(self) -> Neighbours | None:
        return self._readings[-1][1] if self._readings else None

    def add(self, t: float, neighbours: Neighbours) -> None:
        latest = self.latest
        if latest is not None and latest.cgroup != neighbours.cgroup:  # the limit of another level is the nearest now
            self._readings.clear()
        self._readings.append((t, neighbours))

    def growth(self, counts_others: bool) -> NeighbourGrowth | None:
        """Return the growth, None before it is known; `counts_others`: the memory that is forecast is the cgroup's."""
        if len(self._readings) < MIN_READINGS:
            return None
        times = [t for t, _ in self._readings]
        others = straight_line(times, [each.others_bytes for _, each in self._readings]).slope
        members = straight_line(times, [each.members_bytes for _, each in self._readings]).slope
        before = {each.pid: each.bytes for each in self._readings[0][1].largest}
        grown = [(each.bytes - before.get(each.pid, 0), each) for each in self._readings[-1][1].largest]
        rising = [each for more, each in sorted(grown, key=lambda pair: -pair[0]) if more > 0]
        return NeighbourGrowth(
            others_per_second=others if counts_others else 0.0,
            members_per_second=members,
            largest_other=next((each for each in rising if not each.member), None) if counts_others else None,
            largest_member=next((each for each in rising if each.member), None),
        )
