"""The status sentence, which is the same in every output, and the JSON fields and lines of notices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memwatch.core.cause_of_death import lost_work_text
from memwatch.core.decision.warning import run_ends_first
from memwatch.core.events import Cause, Exited, Notice
from memwatch.core.examination import ALLOCATED_BUFFER_FILLS, BESIDE_CAUSES, MODEL_GROWS, Finding, GrowthDriver
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.measurements import HOST, Limit, SignalHandling, Usage
from memwatch.core.snapshot import (
    Forecast,
    MemoryNeeded,
    NeighbourGrowth,
    PlannedInterrupt,
    ResourceView,
    Verdict,
    WatchState,
)
from memwatch.core.text_and_units import (
    format_bytes,
    format_duration,
    index_text,
    printable,
    shown_json,
    since_text,
    without_main_module,
)

_ORIGINS = {"rlimit_as": "RLIMIT_AS", "rlimit_data": "RLIMIT_DATA"}
_CAUSES: dict[str, str] = {
    Cause.COMPLETED: "completed",
    Cause.FAILED: "failed",
    Cause.SAVED: "interrupted by memwatch, checkpoint saved",
    Cause.UNSAVED: "interrupted by memwatch, no checkpoint seen",
    Cause.OOM_CGROUP: "killed by the kernel's OOM killer at the cgroup's limit",
    Cause.OOM_HOST: "killed by the kernel's OOM killer, host out of memory",
    Cause.OOM_SCHEDULER: "killed by the batch scheduler at its memory limit",
    Cause.TMPFS_FULL: "a full tmpfs (shared memory)",
    Cause.MEMORY_ERROR: "a failed allocation",
    Cause.CUDA_OOM: "CUDA out of memory",
    Cause.ACCELERATOR_OOM: "the accelerator was out of memory",
    Cause.OOM_MONITOR: "killed by a memory monitor",
    Cause.WORKER_KILLED: "one of its workers was killed",
    Cause.ENDED_BY_SCHEDULER: "the batch scheduler ended it, not for memory",
    Cause.SIGNALLED: "a signal that was not memwatch's",
    Cause.UNKNOWN: "cause unknown",
}
TOLD_SHARE = 0.2  # Growth beside the trainer's is told from this share of the growth of the whole on (chosen).
TELLING_FACTOR = 3.0  # between the bounds of what a run needs: a wider interval is left out of sentences (chosen)
_GROWTH = (Verdict.GROWING, Verdict.LEAK)
_STATES = {
    WatchState.INTERRUPTING: "interrupted, waiting for the checkpoint; ",
    WatchState.SAVED: "interrupted, checkpoint saved; ",
    WatchState.ESCALATED: "interrupted, had to be escalated; ",
}


# --- the sentence ---------------------------------------------------------------------------------------------------


def status_sentence(
    resources: Sequence[ResourceView],
    unit: str,
    last: float | None,
    phases: Mapping[str, str],
    *,
    state: WatchState = WatchState.WATCHING,
    exited: Exited | None = None,
    missing: str = "",
    holders: Mapping[str, str] | None = None,
    armed: bool = True,
) -> str:
    """Describe the resource that reaches its limit first, in one line.

    `last` is the index of the last generation as the program counts, `phases` has by resource the phase with most of
    the growth, `holders` by resource the attribute that holds it, `missing` says why there is no reading. `armed`: an
    interrupt would reach the trainer.
    """
    if exited is not None:
        return exit_text(exited)
    if state is WatchState.WAITING:
        return f"waiting for a trainer: {missing}"
    if not resources:
        return f"{_STATES.get(state, '')}no reading" + (f": {missing}" if missing else " yet")
    view = first_to_end(resources)
    known = Outlook(
        view.verdict,
        view.trend,
        view.forecast,
        drivers=view.drivers,
        others_per_second=view.others_per_second,
        needed=view.needed,
    )
    phase, planned = phases.get(view.usage.resource), view.planned if armed else None
    outlook = outlook_text(view.usage, known, unit, last, phase, beside=view.neighbour_growth, planned=planned)
    if (holder := (holders or {}).get(view.usage.resource, "")) and view.verdict in _GROWTH:
        outlook += f"; holder: {without_main_module(holder)}"
    return f"{_STATES.get(state, '')}{outlook}"


def first_to_end(resources: Sequence[ResourceView]) -> ResourceView:
    """The resource that reaches its limit first; the first one where none is in sight."""

    def key(view: ResourceView) -> float:
        eta = view.forecast.eta_seconds if view.forecast is not None else None
        return math.inf if eta is None else eta

    return min(resources, key=key)


def cause_text(cause: str) -> str:
    """How a trainer ended, by the value of its `Cause`; where that is empty, nobody saw it."""
    return _CAUSES.get(cause, "no end recorded")


def exit_text(exited: Exited) -> str:
    text = f"ended: {cause_text(exited.cause)}"
    if exited.cause is Cause.UNSAVED and exited.checkpoint is not None:
        text = f"ended: interrupted by memwatch, {lost_work_text(exited.checkpoint)}"
    if exited.signal is not None and exited.cause in (Cause.SIGNALLED, Cause.UNKNOWN, Cause.UNSAVED):
        text += f" ({exited.signal})"
    elif exited.exit_code:
        text += f" (exit status {exited.exit_code})"
    return text


def signal_handling_text(found: SignalHandling) -> str:
    if found.handled:
        return f"handles {found.signal} in {found.where}"
    if found.handled is None:
        return f"whether it handles {found.signal} is not known: {found.reason}"
    return f"does not handle {found.signal} ({found.reason}): an interrupt ends it without a save; its own saves count"


def outlook_text(
    usage: Usage,
    outlook: Outlook,
    unit: str,
    last: float | None,
    phase: str | None,
    *,
    beside: NeighbourGrowth | None = None,
    planned: PlannedInterrupt | None = None,
) -> str:
    """Describe one resource: its outlook, its limit and its growth, and how much of that is `beside` the trainer's.

    `planned`: when the trainer will be interrupted because of it.
    """
    limit = f"limit: {limit_name(usage.limit)} {format_bytes(usage.limit.bytes)}" if usage.limit else "limit: unknown"
    parts = [_prefix(usage.resource) + _forecast_text(usage, outlook, unit, last)]
    if planned is not None and planned.seconds is not None:
        parts.append(planned_text(planned, unit))
    if outlook.needed is not None and outlook.verdict in _GROWTH and is_telling(outlook.needed):
        parts.append(needed_text(outlook.needed))
    parts.append(limit)
    growth = _growth_text(outlook, unit, phase, beside)
    if outlook.others_per_second > 0.0:
        growth = (*growth, f"others take {format_bytes(outlook.others_per_second * 3600)}/h of the limit")
    still = outlook.verdict.stands_still
    return "; ".join((*parts, *growth, *(() if still else driver_texts(outlook.drivers))))


def planned_text(planned: PlannedInterrupt, unit: str) -> str:
    """`interrupt at about generation 23, in 40 s`, or why there will be none."""
    if planned.seconds is None:
        return f"no interrupt: {planned.reason}"
    is_due, wait = planned.seconds < 1.0, format_duration(planned.seconds)
    if planned.generation is None:
        return "interrupt now" if is_due else f"interrupt in about {wait}"
    return f"interrupt at about {unit} {index_text(planned.generation)}, {'now' if is_due else f'in {wait}'}"


def is_telling(needed: MemoryNeeded) -> bool:
    """The interval is narrow enough to act upon."""
    return needed.high_bytes is not None and needed.high_bytes <= TELLING_FACTOR * needed.low_bytes


def needed_text(needed: MemoryNeeded) -> str:
    """`needs 61.0 GB to finish (55.0 GB-72.0 GB)`"""
    bounds = _range_text(format_bytes, (needed.low_bytes, needed.high_bytes))
    return f"needs {format_bytes(needed.bytes)} to finish{bounds}"


def _prefix(resource: str) -> str:
    return "" if resource == HOST else f"{resource}: "


def _forecast_text(usage: Usage, outlook: Outlook, unit: str, last: float | None) -> str:
    verdict, forecast = outlook.verdict, outlook.forecast
    used = format_bytes(usage.used_bytes)
    still = {Verdict.STABLE: f"stable at {used}", Verdict.PLATEAU: f"levelled off at {used}"}.get(verdict)
    if verdict is Verdict.WARMING_UP:
        return f"warming up, {used} used"
    if still is not None:
        return f"{_oom_text(forecast, unit, last)}; {still}" if forecast and outlook.others_per_second > 0.0 else still
    if usage.limit is None:
        return f"{used} used"
    if forecast is None or forecast.eta_seconds is None:
        return f"no OOM in sight, {used} used"
    if forecast.finishes is True:
        end = f"{unit} {index_text(last)}" if last is not None else f"the last {unit}"
        return f"fits: ends with {end} before the limit, {used} used"
    return _oom_text(forecast, unit, last)


def _oom_text(forecast: Forecast, unit: str, last: float | None) -> str:
    eta = forecast.eta_seconds or 0.0
    if forecast.generation is None:
        bounds = _bounds_text(format_duration, forecast.eta_low_seconds, eta, forecast.eta_high_seconds)
        return f"OOM in {format_duration(eta)}{bounds}"
    bounds = _bounds_text(index_text, forecast.generation_low, forecast.generation, forecast.generation_high)
    at = f"{unit} {index_text(forecast.generation)}"
    if last is not None and run_ends_first(forecast, last):
        return f"probably fits: would reach the limit at {at}{bounds}, the run ends with {index_text(last)}"
    of = f" of {index_text(last)}" if last is not None else ""
    return f"OOM at {at}{of}{bounds}, in {format_duration(eta)}"


def _bounds_text(format_value: Callable[[float], str], low: float | None, middle: float, high: float | None) -> str:
    """` (12-14)`, ` (12 or later)`, or nothing where all three read the same."""
    if low is None:
        return ""
    if high is None:
        return f" ({format_value(low)} or later)"
    is_one = format_value(low) == format_value(middle) == format_value(high)
    return "" if is_one else f" ({format_value(low)}-{format_value(high)})"


def limit_name(limit: Limit) -> str:
    """`cgroup`, `host`, `--limit`, `RLIMIT_AS`, `Slurm`, `gpu0`, `/dev/shm`: the owner, a cgroup without its path."""
    return "cgroup" if limit.origin.startswith("cgroup ") else _ORIGINS.get(limit.origin, limit.origin)


def _growth_text(
    outlook: Outlook, unit: str, phase: str | None, beside: NeighbourGrowth | None = None
) -> tuple[str, ...]:
    """`grows 12.0 MB/generation, in evaluate, of it 11.8 MB by others: ray::worker (pid 123)`"""
    trend = outlook.trend
    if trend is None or outlook.verdict not in _GROWTH:
        return ()
    per_unit, per = trend.growth_per_generation, unit
    if per_unit is None:
        per_unit, per = trend.growth_per_second * 3600, "h"
    where = f", in {phase}" if phase else ""
    share = 0.0 if beside is None or trend.growth_per_second <= 0.0 else beside.per_second / trend.growth_per_second
    if beside is not None and share >= TOLD_SHARE:
        where += f", of it {format_bytes(min(share, 1.0) * per_unit)} by {beside.whose}"
    return (f"grows {format_bytes(per_unit)}/{per}{where}",)


def finding_text(one: Finding, unit: str) -> str:
    """`LEAK FOUND ...`: the headline and the content below, the cause, the remedy and the confidence."""
    remedy = f"{one.remedy} (confidence {one.confidence:.2f})"
    return "; ".join(filter(None, (finding_headline(one, unit), finding_content(one), one.title, remedy)))


def finding_headline(one: Finding, unit: str) -> str:
    """`LEAK FOUND in evaluate: +1.0 GB/generation since generation 3`, or `OTHERS GROW: ...`"""
    word = one.cause.replace("_", " ").upper() if one.cause in (*BESIDE_CAUSES, MODEL_GROWS) else "LEAK FOUND"
    where = f" in {one.phase}" if one.phase else ""
    growth, since = format_bytes(one.growth.per_unit, signed=True), since_text(one.growth.since, unit)
    if one.cause == ALLOCATED_BUFFER_FILLS:
        return f"{_prefix(one.resource)}BUFFER FILLS{where}: {growth}/{unit}; {one.evidence[0]}"
    return f"{_prefix(one.resource)}{word}{where}: {growth}/{unit} since {since}"


def finding_content(one: Finding) -> str:
    """`Environment 20 -> 40, held by Trainer.kept[i]`; empty where neither is known."""
    held = f"held by {without_main_module(one.holder)}" if one.holder else ""
    inside = f"in {one.process}" if one.process else ""
    change = "" if one.count_after is None else f" {one.count_before:,} -> {one.count_after:,}"
    kept = f"{without_main_module(one.type)}{change}" if one.type else ""
    return ", ".join(filter(None, (kept, held, inside)))


def driver_texts(drivers: Iterable[GrowthDriver]) -> Iterator[str]:
    """Yield the text of each level, but of one without an end that memory may not grow with at all."""
    for one in drivers:
        low, _ = one.bytes_per_unit_range or (one.bytes_per_unit, None)
        if one.capacity is not None or low > 0.0:
            yield driver_text(one)


def driver_text(one: GrowthDriver) -> str:
    """The level that memory grows in proportion to, and where that growth ends.

    `435 kB for each of replay buffer (448 of 5,000); full at 5,000 it takes 2.9 GB (2.4 GB-3.1 GB): fits`
    """
    count: Callable[[float], str] = format_bytes if one.in_bytes else "{:,.0f}".format
    about: Callable[[float], str] = format_bytes if one.in_bytes else _count_text
    of = "" if one.capacity is None else f" of {count(one.capacity)}"
    held = f", held by {without_main_module(one.path)}" if one.path else ""
    per_unit: Callable[[float], str] = "{:.2g} B".format if one.in_bytes else format_bytes
    size = per_unit(one.bytes_per_unit) + _range_text(per_unit, one.bytes_per_unit_range)
    each = "each byte of" if one.in_bytes else "each of"
    parts = [f"{size} for {each} {printable(one.name, 40)} ({count(one.value)}{of}{held})"]
    if one.full_bytes is not None and one.capacity is not None:
        full = format_bytes(one.full_bytes) + _range_text(format_bytes, one.full_range)
        parts.append(f"full at {count(one.capacity)} it takes {full}" + (": fits" if one.fits else ""))
    is_inside = one.limit_value is not None and (one.capacity is None or one.limit_value < one.capacity)
    if one.limit_value is not None and is_inside and (one.fits is False or one.full_range is None):
        bounds = _range_text(about, one.limit_range)
        parts.append(f"the limit falls at about {about(one.limit_value)}{of}{bounds}")
    return "; ".join(parts)


def _count_text(value: float) -> str:
    """Two digits are significant of a count that is estimated: `3,900`."""
    return f"{float(f'{value:.2g}'):,.0f}"


def _range_text(format_value: Callable[[float], str], bounds: tuple[float, float | None] | None) -> str:
    if bounds is None:
        return ""
    low, high = bounds
    if high is None:
        return f" ({format_value(low)} or more)"
    return "" if format_value(low) == format_value(high) else f" ({format_value(low)}-{format_value(high)})"


# --- fields ---------------------------------------------------------------------------------------------------------


def json_number(value: float | None, digits: int | None = None) -> float | int | None:
    """A JSON number, rounded to `digits`: an int where it is whole; None for a value that is not finite."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(value if digits is None else round(value, digits))
    return int(rounded) if rounded.is_integer() else rounded


def forecast_fields(
    usage: Usage,
    generation: float | None,
    outlook: Outlook,
    action: str | None = None,
    *,
    planned: PlannedInterrupt | None = None,
) -> dict[str, Any]:
    """The fields that every notice about the outlook of a resource carries: bytes, seconds, indexes, or None."""
    limit, trend, forecast = usage.limit, outlook.trend, outlook.forecast
    return {
        "resource": usage.resource,
        "gen": json_number(generation),
        "verdict": outlook.verdict.value,
        "growth_per_gen": json_number(trend.growth_per_generation if trend else None, 0),
        "growth_per_s": json_number(trend.growth_per_second if trend else None, 3),
        "model": trend.model if trend else None,
        "model_weight": json_number(trend.weight if trend else None, 3),
        "model_points": trend.points if trend else None,
        "model_since_gen": json_number(trend.since_generation if trend else None),
        "eta_s": json_number(forecast.eta_seconds if forecast else None, 3),
        "eta_lo_s": json_number(forecast.eta_low_seconds if forecast else None, 3),
        "eta_hi_s": json_number(forecast.eta_high_seconds if forecast else None, 3),
        "oom_gen": json_number(forecast.generation if forecast else None),
        "oom_gen_lo": json_number(forecast.generation_low if forecast else None),
        "oom_gen_hi": json_number(forecast.generation_high if forecast else None),
        "finishes": forecast.finishes if forecast else None,
        "others_per_s": json_number(outlook.others_per_second, 3),
        "needed": outlook.needed.bytes if outlook.needed else None,
        "needed_lo": outlook.needed.low_bytes if outlook.needed else None,
        "needed_hi": outlook.needed.high_bytes if outlook.needed else None,
        "interrupt_in_s": json_number(planned.seconds if planned else None, 3),
        "interrupt_gen": json_number(planned.generation if planned else None),
        "limit": limit.bytes if limit else None,
        "limit_origin": limit.origin if limit else None,
        "used": usage.used_bytes,
        "headroom": limit.headroom_bytes if limit else None,
        "drivers": [_driver_fields(one) for one in outlook.drivers],
        "action": action,
    }


def _driver_fields(one: GrowthDriver) -> dict[str, Any]:
    """Its fields as JSON has them, so that a stored notice is equal to a new one."""

    def as_json(value: object) -> object:
        if isinstance(value, tuple):
            return [as_json(bound) for bound in value]
        return json_number(value) if isinstance(value, float) else value

    return {name: as_json(value) for name, value in asdict(one).items()}


# --- notices as lines -----------------------------------------------------------------------------------------------


def to_json_line(notice: Notice, pid: int | None = None) -> str:
    """One JSON object, without its newline: event, t, the fields, and the text for people.

    A `pid` tells the watches of a node apart.
    """
    own = {} if pid is None else {"pid": pid}
    row = {"event": notice.event, "t": round(notice.t, 3), **own, **notice.fields, "text": notice.text}
    return shown_json(json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def to_text_line(notice: Notice) -> str:
    """`generation  generation 7 ended: ...`: one printable line."""
    return f"{notice.event:<12} {printable(notice.text, 400)}"
