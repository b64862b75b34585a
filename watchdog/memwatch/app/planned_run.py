"""What a run of another length, or with buffers of another capacity, would need: a recorded run, judged as if it were.

The recorded events are replayed with the total and the capacities that are asked for, up to the first of these: the
record's end, the end of the last generation that is asked for, a buffer that was full and would not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memwatch.app.engine_settings import EngineSettings
from memwatch.app.load_and_replay_run import REPLAY_INTERVAL_SECONDS
from memwatch.config.settings import Config
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.core.events import Cause, Event, Exited, GaugeSeen, GenerationSeen, SampleBatch, TotalSeen
from memwatch.core.snapshot import MemoryNeeded, ResourceView
from memwatch.errors import ConfigError
from memwatch.history import stored_runs
from memwatch.history.stored_runs import StoredRun
from memwatch.outputs.terminal.command_progress import ProgressBar


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """What one recorded run says of the run that is planned."""

    run: StoredRun
    unit: str
    seen: float | None  # the last generation of the record that was used, None: it has none
    total: int | None  # generations of the plan; None: not known
    needs: tuple[tuple[str, MemoryNeeded | None, int], ...]  # resource, what it needs, and its peak in the record
    is_measured: bool  # the record has the whole of what is planned: its peak is the need


def plan_run(
    path: Path, run: StoredRun, config: Config, generations: int | None, capacities: Mapping[str, float]
) -> PlannedRun:
    """Plan after one run; ConfigError when it shows no gauge of a name in `capacities`."""
    settings = EngineSettings.from_config(config)
    engine = replace(settings, diagnosis=NO_DIAGNOSIS).make_engine()
    changed = _ChangedRun(generations, capacities)
    with ProgressBar("reading the history") as progress:
        stored = progress.track(stored_runs.event_batches(path, run), run.elapsed_share)
        for item in changed.events(stored):
            for event in engine.events_to_feed(item, REPLAY_INTERVAL_SECONDS):
                engine.feed(event)
    changed.require_found()
    return _planned(run, engine, changed)


def _planned(run: StoredRun, engine: Engine, changed: _ChangedRun) -> PlannedRun:
    end = engine.snapshot()
    needs = tuple((view.usage.resource, _need(view, changed.is_measured), view.peak_bytes) for view in end.resources)
    return PlannedRun(run, end.unit, end.generation, end.total, needs, changed.is_measured)


def _need(view: ResourceView, is_measured: bool) -> MemoryNeeded | None:
    """The forecast's, or the peak where the record covers the whole of the plan."""
    peak, told = view.peak_bytes, view.needed
    if is_measured or told is None:
        return MemoryNeeded(peak, peak, peak) if is_measured else None
    high = None if told.high_bytes is None else max(peak, told.high_bytes)
    return MemoryNeeded(max(peak, told.bytes), max(peak, told.low_bytes), high)


class _ChangedRun:
    """The events of a run as they would be with another total and other capacities."""

    def __init__(self, generations: int | None, capacities: Mapping[str, float]) -> None:
        self._generations, self._capacities = generations, capacities
        self._gauges: dict[str, str] = {}  # names of the log's -> the name in `capacities`, empty: none
        self._told_total: int | None = None  # by the log
        self.is_measured = False  # the record has the whole of what is planned

    def events(self, stored: Iterator[Event | SampleBatch]) -> Iterator[Event | SampleBatch]:
        for item in stored:
            if isinstance(item, Exited):
                self._ended(item)
                continue
            if isinstance(item, TotalSeen | GenerationSeen) and item.total is not None:
                self._told_total = item.total
            if isinstance(item, TotalSeen) and self._generations is not None:
                yield replace(item, total=self._generations)
            elif isinstance(item, GenerationSeen) and self._generations is not None:
                first_after = self._generations + (item.at != "end")
                if item.index >= first_after:
                    self.is_measured = not self._capacities
                    return
                yield replace(item, total=self._generations)
            elif isinstance(item, GaugeSeen) and (capacity := self._capacity(item.name)) is not None:
                was_full = item.capacity is not None and item.value >= item.capacity
                if was_full or item.value >= capacity:
                    yield replace(item, value=min(item.value, capacity), capacity=capacity)
                    return
                yield replace(item, capacity=capacity)
            else:
                yield item

    def _ended(self, end: Exited) -> None:
        """A run that completed with what is planned has shown what that needs."""
        as_recorded = not self._capacities and (self._generations is None or self._generations == self._told_total)
        self.is_measured = end.cause is Cause.COMPLETED and as_recorded

    def _capacity(self, gauge: str) -> float | None:
        """The one that is asked for it: of its name, or of a part of that."""
        if gauge not in self._gauges:
            plain = gauge.lower().replace(" ", "_")
            named = (name for name in self._capacities if name.lower().replace(" ", "_") in plain)
            self._gauges[gauge] = next(named, "")
        return self._capacities.get(self._gauges[gauge])

    def require_found(self) -> None:
        missing = [name for name in self._capacities if name not in self._gauges.values()]
        if missing:
            shown = ", ".join(self._gauges) or "none"
            raise ConfigError(f"--set {missing[0]}: the log shows no level of that name", f"it shows: {shown}")
