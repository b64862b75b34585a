"""Records for trackers: figures of each generation and of tracked objects, by tag. MB is 1e6 bytes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from memwatch.core.events import Notice
from memwatch.core.leaks.examination_history import COMPARABLE_REASONS
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import printable

MINUTE_SECONDS = 60.0
TAG_LENGTH = 120  # characters (chosen)
_NOT_IN_TAGS = re.compile(r"[^-\w.]+")
Figures = dict[str, float | int]


class TrackerRecords:
    """Selects what is worth a record in a tracker (a RecordSelector).

    A record has its `axis` ("generation" or "minute"), the position `at` on it, `t`, `attempt`, and `figures` by tag.
    Generations are numbered as in the log. While the log has none there is a record each minute since the run began,
    with tags of its own: `memory_by_minute/...` instead of `memory/...`.
    """

    def __init__(self, tracked: Sequence[str] = (), monotonic: Callable[[], float] = time.monotonic) -> None:
        """`tracked` are paths of attributes, as the user wrote them."""
        self._tracked, self._monotonic = tracked, monotonic
        self._next_t = monotonic() + MINUTE_SECONDS
        self._by_minute = True

    def is_due(self) -> bool:
        return self._by_minute and self._monotonic() >= self._next_t

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterator[Mapping[str, object]]:
        """Yields a record for each generation that ended, for the minute, and for objects that were examined."""
        self._by_minute = snapshot.generation is None
        ended = _ended(notices)
        for index, (t, figures) in ended.items():
            is_latest = index == [*ended][-1]
            yield _record(snapshot, t, figures | _forecasts(snapshot) if is_latest else figures, index)
        if self.is_due():
            self._next_t = self._monotonic() + MINUTE_SECONDS
            yield _record(snapshot, snapshot.t, _forecasts(snapshot) | _memory(snapshot), None)
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
    """A record of the generation `index`, or of a minute if that is None."""
    axis, at, prefix = "generation", index, "memory"
    if index is None:
        since = snapshot.t if snapshot.started_t is None else snapshot.started_t
        axis, at, prefix = "minute", round((t - since) / MINUTE_SECONDS), "memory_by_minute"
    tags = {f"{prefix}/{tag}": value for tag, value in figures.items() if math.isfinite(value)}
    return {"axis": axis, "at": at, "t": t, "attempt": snapshot.attempt, "figures": tags}


def _ended(notices: Sequence[Notice]) -> dict[float, tuple[float, Figures]]:
    """Returns when each generation was seen to end, and its figures for all resources."""
    found: dict[float, tuple[float, Figures]] = {}
    for notice in notices:
        if notice.event == "generation":
            row, name = notice.fields, tag_name(notice.fields["resource"])
            figures = found.setdefault(row["gen"], (notice.t, {}))[1]
            figures |= {f"{name}/used_mb": _mb(row["end"]), f"{name}/peak_mb": _mb(row["peak"])}
            if not row["partial"]:  # otherwise its beginning was not seen
                figures |= {"generation_seconds": row["seconds"], f"{name}/delta_mb": _mb(row["delta"])}
                for phase, delta in row["phases"].items():  # no tag is the folder of another: MLflow refuses that
                    figures[f"{name}/phase_delta_mb/{tag_name(phase)}"] = _mb(delta)
    return found


def _memory(snapshot: Snapshot) -> Figures:
    """The figures of a minute that stand in for those of a generation."""
    found: Figures = {}
    for view in snapshot.resources:
        name = tag_name(view.usage.resource)
        found[f"{name}/used_mb"] = _mb(view.usage.used_bytes)
        if view.trend is not None:
            found[f"{name}/growth_mb_per_hour"] = _mb(3600 * view.trend.growth_per_second)
    return found


def _forecasts(snapshot: Snapshot) -> Figures:
    """Limit, growth and forecast of each resource; unknown ones are left out."""
    found: Figures = {"attempt": snapshot.attempt}
    for view in snapshot.resources:
        name = tag_name(view.usage.resource)
        limit, trend, forecast = view.usage.limit, view.trend, view.forecast
        if limit is not None:
            found |= {f"{name}/limit_mb": _mb(limit.bytes), f"{name}/headroom_mb": _mb(limit.headroom_bytes)}
        if trend is not None and trend.growth_per_generation is not None:
            found[f"{name}/growth_mb_per_generation"] = _mb(trend.growth_per_generation)
        if forecast is not None and forecast.eta_seconds is not None:
            found[f"{name}/eta_seconds"] = forecast.eta_seconds
        if forecast is not None and forecast.generation is not None:
            found[f"{name}/eta_generation"] = forecast.generation
        if view.needed is not None:
            found[f"{name}/needed_mb"] = _mb(view.needed.bytes)
    return found


def _mb(count: float) -> float:
    return count / 1e6
