"""What is wanted of a watch that goes on and on, and whether the results say that it is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.bars import Bar
from memwatch.core.text_and_units import parse_size
from soak.hour import SIZES, WARM_SECONDS
from soak.month import HISTORY, MONTH_DAYS
from soak.series import Points, after, floor_rise, growth, spread

Results = Mapping[str, Any]  # what a program printed

STEP_SECONDS = 300.0  # of an hour: medians of so long are compared
FLOOR_PARTS = 4  # looked at together for what comes and goes: workers that are watched take descriptors for minutes
WARM_DAYS, STEP_DAYS = 2.0, 1.0  # of a month
REPLACED_DAYS = 18.0  # from then on there are other watches: the trainer is begun again
RSS_MIB, LINES_KB = 1.0, 1.0
MINUTE = 1.01  # of the file's bound: its size is looked at once a minute
WAL_MB = 4.3  # SQLite's log beside the file: a thousand pages, and its index


def hour_bars(told: Results) -> Iterator[Bar]:
    """Of each watch."""
    warm = min(WARM_SECONDS, told["seconds"] / 2)
    step = min(STEP_SECONDS, (told["seconds"] - warm) / 2)
    for name, found in told["watches"].items():
        of = f"{told['seconds'] / 60:.0f} minutes, {name}"
        figures = _figures(told["figures"], found["readings"], warm)
        yield from _held(of, figures, step)
        yield Bar(f"{of}: lines", _rise(figures["lines_kb"]) / _hours(figures["lines_kb"], 3600.0), "kB/h", LINES_KB)
        largest = max(kb for _, kb in _figures(told["figures"], found["readings"], 0.0)["history_kb"]) / 1e3
        yield Bar(f"{of}: history and SQLite's log", largest, "MB", parse_size(SIZES[name]) / 1e6 + WAL_MB)
        yield Bar(f"{of}: interrupts", found["interrupts_total"], "", 0)
        yield Bar(f"{of}: scrapes without an answer", found["failed_scrapes"], "", 0)


def month_bars(told: Results) -> Iterator[Bar]:
    """Of the one watch after the other."""
    warm = min(WARM_DAYS, told["days"] / 3)
    step = min(STEP_DAYS, (told["days"] - warm) / 2)
    of = f"{told['days']:g} days"
    figures = _figures(told["figures"], told["readings"], warm)
    yield from _held(of, figures, step)
    of_one, later = f"{of}, the first watch", _until(figures["rss_mib"], REPLACED_DAYS * told["days"] / MONTH_DAYS)
    yield Bar(f"{of_one}: RSS, between the medians of any two parts", spread(later[0], step), "MiB", RSS_MIB)
    yield Bar(f"{of}, the later watches: RSS, rise of a line through all", growth(later[1]), "MiB", RSS_MIB)
    blocks = figures["blocks"]
    yield Bar(f"{of}: blocks of Python's memory more", 100 * growth(blocks) / blocks[0][1], "%", 1)
    yield Bar(f"{of}: lines", _rise(figures["lines_kb"]) / _hours(figures["lines_kb"], 1 / 24), "kB/h", LINES_KB)
    largest = max(kb for _, kb in figures["history_kb"]) / 1e3
    yield Bar(f"{of}: history", largest, "MB", MINUTE * parse_size(HISTORY) / 1e6)
    interrupts = sum(line.split()[1] == "interrupt" for line in told["lines"])
    yield Bar(f"{of}: interrupts", interrupts, "", 0)


def _held(of: str, figures: Mapping[str, Points], step: float) -> Iterator[Bar]:
    """What is never to be more than before."""
    yield Bar(f"{of}: RSS, between the medians of any two parts", spread(figures["rss_mib"], step), "MiB", RSS_MIB)
    yield Bar(f"{of}: RSS, rise of a line through all", growth(figures["rss_mib"]), "MiB", RSS_MIB)
    yield Bar(f"{of}: file descriptors more at the end", floor_rise(figures["fds"], FLOOR_PARTS * step), "", 0)
    yield Bar(f"{of}: threads more at the end", floor_rise(figures["threads"], FLOOR_PARTS * step), "", 0)


def _figures(names: Sequence[str], readings: Sequence[Sequence[float]], warm: float) -> dict[str, Points]:
    """Each figure by time, after the warm-up."""
    return {name: after([(row[0], row[i]) for row in readings], warm) for i, name in enumerate(names)}


def _until(points: Points, day: float) -> tuple[Points, Points]:
    """What came before, and after."""
    return [one for one in points if one[0] <= day], [one for one in points if one[0] > day]


def _rise(points: Points) -> float:
    return points[-1][1] - points[0][1]


def _hours(points: Points, hour: float) -> float:
    return (points[-1][0] - points[0][0]) / hour


BARS: Mapping[str, Callable[[Results], Iterator[Bar]]] = {"soak_hour": hour_bars, "soak_month": month_bars}


def judged(results: Mapping[str, Results]) -> list[Bar]:
    """All that has results, by name as run.py keeps them."""
    return [bar for name, of in BARS.items() if name in results for bar in of(results[name]["results"])]
