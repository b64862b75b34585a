"""Records for trackers: figures of each generation and of tracked objects, by tag. MB is 1e6 bytes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memwatch.core.events import Notice
from memwatch.core.leaks.examination_history import COMPARABLE_REASONS
from memwatch.core.snapshot import ResourceView, Snapshot
from memwatch.core.text_and_units import printable

MINUTE_SECONDS = 60.0
TAG_LENGTH = 120
_NOT_IN_TAGS = re.compile(r"[^-\w.]+")
Figures = dict[str, float | int]


class TrackerRecords:
    """Chooses what is worth handing to a tracker (a relay's Digest).

    A record is `axis` ("generation" or "minute"), `at` on it, `t`, `attempt` and `figures` by tag. Generations are as
    the program counts. While the log has named none there is a record each minute since the run began, with tags of
    its own: `memory_by_minute/...`, not `memory/...`.
    """

    def __init__(self, tracked: Sequence[str] = (), monotonic: Callable[[], float] = time.monotonic) -> None:
        """`tracked` are paths of attributes, as the user wrote them."""
        self._tracked, self._monotonic = tracked, monotonic
        self._next_t = monotonic() + MINUTE_SECONDS
        self._by_minute = True

    def is_due(self) -> bool:
        """Whether a minute is over."""
        return self._by_minute and self._monotonic() >= self._next_t

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterator[Mapping[str, object]]:
        """Returns a record for each generation that ended, for the minute, and for objects that were examined."""
        self._by_minute = snapshot.generation is None
        ended = _ended(notices)
        for index, (t, figures) in ended.items():
            of_now = _outlooks(snapshot) if index == [*ended][-1] else {}
            yield _record(snapshot, t, figures | of_now, index)
        if self.is_due():
            self._next_t = self._monotonic() + MINUTE_SECONDS
            yield _record(snapshot, snapshot.t, _outlooks(snapshot) | _levels(snapshot), None)
        for notice in notices:
            is_compared = notice.event == "examined" and notice.fields["reason"] in COMPARABLE_REASONS
            if is_compared and (figures := self._objects(snapshot)):
                yield _record(snapshot, notice.t, figures, notice.fields["gen"])

    def _objects(self, snapshot: Snapshot) -> Figures:
        """Sizes of the attributes that the user tracks, from the latest examination that can be compared."""
        found: Figures = {}
        if snapshot.diagnosis is None:
            return found
        unit = "hour" if snapshot.diagnosis.unit == "hour" else "epoch"
        for one in snapshot.diagnosis.tracked:
            path = next((path for path in self._tracked if f".{one.name}".endswith(f".{path}")), one.name)
            found[f"{tag_name(path)}/size_mb"] = _mb(one.after)
            found[f"{tag_name(path)}/growth_mb_per_{unit}"] = _mb(one.per_unit)
        return found


def tag_name(text: str) -> str:
    """A tag without characters that trackers refuse: `Trainer.population[*]` becomes `Trainer.population_`."""
    return _NOT_IN_TAGS.sub("_", printable(text, TAG_LENGTH))


def _record(snapshot: Snapshot, t: float, figures: Figures, index: float | None) -> Mapping[str, object]:
    axis, at, prefix = "generation", index, "memory"
    if index is None:
        since = snapshot.t if snapshot.started_t is None else snapshot.started_t
        axis, at, prefix = "minute", round((t - since) / MINUTE_SECONDS), "memory_by_minute"
    tags = {f"{prefix}/{tag}": value for tag, value in figures.items() if math.isfinite(value)}
    return {"axis": axis, "at": at, "t": t, "attempt": snapshot.attempt, "figures": tags}


def _ended(notices: Sequence[Notice]) -> dict[float, tuple[float, Figures]]:
    """For each generation, when its end was seen and its row for each resource."""
    found: dict[float, tuple[float, Figures]] = {}
    for notice in notices:
        if notice.event == "generation":
            figures = found.setdefault(notice.fields["gen"], (notice.t, {}))[1]
            figures |= _row(notice.fields)
    return found


def _row(row: Mapping[str, Any]) -> Figures:
    """Of a generation that was seen only in part, the figures that hold all the same."""
    name = tag_name(row["resource"])
    figures = {f"{name}/used_mb": _mb(row["end"]), f"{name}/peak_mb": _mb(row["peak"])}
    if not row["partial"]:
        figures |= {"generation_seconds": row["seconds"], f"{name}/delta_mb": _mb(row["delta"])}
        figures |= {f"{name}/delta_mb/{tag_name(phase)}": _mb(delta) for phase, delta in row["phases"].items()}
    return figures


def _levels(snapshot: Snapshot) -> Figures:
    """The figures that stand in for a generation's while there is none."""
    found: Figures = {}
    for view in snapshot.resources:
        name = tag_name(view.usage.resource)
        found[f"{name}/used_mb"] = _mb(view.usage.used_bytes)
        if view.trend is not None:
            found[f"{name}/growth_mb_per_hour"] = _mb(3600 * view.trend.growth_per_second)
    return found


def _outlooks(snapshot: Snapshot) -> Figures:
    found: Figures = {"attempt": snapshot.attempt}
    for view in snapshot.resources:
        found |= {f"{tag_name(view.usage.resource)}/{name}": value for name, value in _outlook(view)}
    return found


def _outlook(view: ResourceView) -> Iterator[tuple[str, float | int]]:
    """Limit, growth and forecast of a resource; what is unknown is left out."""
    limit, trend, forecast = view.usage.limit, view.trend, view.forecast
    if limit is not None:
        yield from (("limit_mb", _mb(limit.bytes)), ("headroom_mb", _mb(limit.headroom_bytes)))
    if trend is not None and trend.growth_per_generation is not None:
        yield "growth_mb_per_generation", _mb(trend.growth_per_generation)
    if forecast is not None and forecast.eta_seconds is not None:
        yield "eta_seconds", forecast.eta_seconds
    if forecast is not None and forecast.generation is not None:
        yield "eta_generation", forecast.generation


def _mb(count: float) -> float:
    return count / 1e6
