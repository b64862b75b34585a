"""What is wanted of memwatch's cost and speed, and whether the results say that it is so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from bench.census import COUNTED, FOLLOWED, OTHER, SIZED
from bench.harm import MEMWATCH
from support.measure import median

Results = Mapping[str, Any]  # what a program printed


@dataclass(frozen=True, slots=True)
class Bar:
    """What was measured beside what is wanted: at most `most`, or at least `least`."""

    of: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def met(self) -> bool:
        """Whether it is."""
        if self.most is not None:
            return self.value <= self.most
        return self.least is not None and self.value >= self.least


def cost_bars(told: Results) -> Iterator[Bar]:
    """What an hour costs, beside others."""
    for scene in ("1 process", "17 processes", "17 beside 300"):
        found = told[scene]["monitors"]
        ours = found["memwatch"]
        yield Bar(f"at 1 Hz, {scene}", ours["core_percent"], "% of a core", most=0.15)
        for rival in ("psrecord", "mprof"):
            if rival in found:
                share = ours["core_percent"] / found[rival]["core_percent"]
                yield Bar(f"beside {rival}, {scene}", share, "of its CPU", most=0.25)
    rss = max(found["monitors"]["memwatch"]["rss_mib"] for name, found in told.items() if name != "absent")
    yield Bar("RSS without a terminal view", rss, "MiB", most=32)


def looks_bars(told: Results) -> Iterator[Bar]:
    """All is read and judged."""
    for hour, found in told["17 processes"].items():
        yield Bar(f"a look at 17 processes, {hour}", found["look"]["mean_us"], "µs of CPU", most=200)


def memory_bars(told: Results) -> Iterator[Bar]:
    """Flat over 30 days."""
    for name, of in (("time, Forecaster", "samples"), ("looks, Daemon", "looks of the daemon")):
        title = f"rise of RSS over {told[name]['events'] / 1e6:.2g} million {of}"
        yield Bar(title, told[name]["rise_mib"], "MiB", most=1)


def harm_bars(told: Results) -> Iterator[Bar]:
    """The target's latency."""
    for target, found in told.items():
        yield Bar(f"p99.9 of mmap and munmap at 10 Hz: {target}", found["p999_ratio"][MEMWATCH], "times", most=1.1)


def pace_bars(told: Results) -> Iterator[Bar]:
    """A trainer with memwatch beside one without."""
    yield Bar("iterations per second of a trainer on all cores", told["median_ratio"], "of those without", least=0.98)


def reaction_bars(told: Results) -> Iterator[Bar]:
    """Kernel events on real ramps, polling on synthetic ones."""
    real = [found["memwatch"] for ramp, found in told.items() if ramp.startswith("real") and "realtime" not in ramp]
    if real:
        yield Bar("event path: crossing to signal, median", max(_never(one["ms_median"]) for one in real), "ms", most=1)
        yield Bar("event path: crossing to signal, p99", max(_never(one["ms_p99"]) for one in real), "ms", most=15)
        yield Bar("event path: growth past it, median", max(_never(one["mib_median"]) for one in real), "MiB", most=2)
    for ramp, found in told.items():
        ours, rival = found["memwatch"], found["earlyoom"]
        if not ramp.startswith("synthetic"):
            continue
        if rival["sent"]:
            title = f"polling path, {ramp.removeprefix('synthetic ')}: median, beside earlyoom's"
            yield Bar(title, _never(ours["ms_median"]), "ms", most=_never(rival["ms_median"]))
        if ramp in ("synthetic 16 GiB/s", "synthetic 40 GiB/s"):
            yield Bar(f"signal sent, {ramp.removeprefix('synthetic ')}", ours["sent"], "runs", least=ours["of"])


def _never(value: float | None) -> float:
    """A signal that did not come."""
    return math.inf if value is None else value


def scrape_bars(told: Results) -> Iterator[Bar]:
    """Of /metrics."""
    yield Bar(f"a scrape of {told['series']} series", told["cpu_ms_a_scrape"], "ms of CPU", most=4)
    longest = told["latency_while_stuck"]["max_ms"]
    yield Bar("the longest scrape while no sample comes", longest, "ms", most=100)


def log_bars(told: Results) -> Iterator[Bar]:
    """Catching up on a long log."""
    size = f"{told['bytes'] / 1e9:.3g} GB"
    for name, title in (("catch_up", f"catching up on {size}"), ("attach", f"the same by the daemon, {size}")):
        yield Bar(f"{title}: CPU", max(run["cpu_seconds"] for run in told[name]), "s", most=4)
        yield Bar(f"{title}: memory", max(run["peak_rss_mib"] for run in told[name]), "MiB", most=40)


def replay_bars(told: Results) -> Iterator[Bar]:
    """Samples a second."""
    for trace, found in told["traces"].items():
        yield Bar(f"replay of {trace}", found["replay_per_s"], "samples/s", least=150_000)


def report_bars(told: Results) -> Iterator[Bar]:
    """A page of a long run."""
    runs = told["reports"]["page"]
    yield Bar(f"a report of {told['samples']:,} samples: page", median([run["seconds"] for run in runs]), "s", most=5)
    yield Bar("its size: page", max(run["bytes"] for run in runs) / 1e6, "MB", most=8)


def tree_bars(told: Results) -> Iterator[Bar]:
    """Of each tree, beside the sum of PSS and what reading that costs."""
    for found in told["trees"]:
        name = found["tree"].replace("_", " ")
        yield Bar(f"error of {name}, mean", mean_error_percent(found), "% of PSS", most=3)
        yield Bar(f"cost of {name}", cost_percent(found), "% of smaps_rollup's", most=1)


def census_bars(told: Results) -> Iterator[Bar]:
    """A million objects; and what that does to who holds them."""
    runs = told["cost"][COUNTED]
    yield Bar(
        "a count of a million objects: CPU", median([_of_a_million(run, "cpu_seconds") for run in runs]), "s", most=1.0
    )
    yield Bar(
        "a count of a million objects: memory", max(_of_a_million(run, "peak_rss_mib") for run in runs), "MiB", most=150
    )
    control = told["longest_ms"][OTHER]
    for way in (COUNTED, SIZED, FOLLOWED):
        apart = standard_errors(told["longest_ms"][way], control)
        yield Bar(f"the longest stall, {way}, above that beside another", apart, "standard errors", most=2)


def lines_bars(told: Results) -> Iterator[Bar]:
    """The example's leaks."""
    for leak, runs in told.items():
        right = 10 * sum(run["right"] for run in runs) / len(runs)
        yield Bar(f"the line that leaks is first: {leak}", right, "of 10 runs", least=9)


def standard_errors(values: Sequence[float], control: Sequence[float]) -> float:
    """By how many standard errors of the difference the mean is above that of the control."""
    apart = mean(values) - mean(control)
    spread = math.sqrt(sum(stdev(some) ** 2 / len(some) for some in (values, control) if len(some) > 1))
    return apart / spread if spread else 0.0


def _of_a_million(run: Results, figure: str) -> float:
    return float(run[figure] / run["objects"] * 1e6)


def mean_error_percent(tree: Results) -> float:
    """Of used_bytes beside PSS, over all looks."""
    errors = errors_percent(tree)
    return sum(errors) / len(errors)


def errors_percent(tree: Results) -> list[float]:
    """Of used_bytes beside PSS, look by look."""
    return [100 * abs(used / true - 1) for used, true in zip(tree["used_bytes"], tree["pss_bytes"], strict=True)]


def cost_percent(tree: Results) -> float:
    """CPU of a look beside that of reading smaps_rollup of all processes."""
    return float(100 * sum(tree["look_cpu_seconds"]) / sum(tree["rollup_cpu_seconds"]))


BARS: dict[str, Callable[[Results], Iterator[Bar]]] = {
    "cost": cost_bars,
    "looks": looks_bars,
    "memory": memory_bars,
    "harm": harm_bars,
    "pace": pace_bars,
    "reaction": reaction_bars,
    "scrape": scrape_bars,
    "log": log_bars,
    "replay": replay_bars,
    "report": report_bars,
    "tree": tree_bars,
    "census": census_bars,
    "lines": lines_bars,
}


def judged(results: Results) -> list[Bar]:
    """All that has results, by program as run.py keeps them."""
    return [bar for name, of in BARS.items() if name in results for bar in of(results[name]["results"])]
