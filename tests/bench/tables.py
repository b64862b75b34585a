"""The tables of docs/performance/results.md, from the results beside it: `make tables`.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is between is replaced. Of a program without results
its tables say so. The one called `bars` says of each bar whether it is met.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.bars import BARS, Bar, Results, cost_percent, errors_percent, judged, mean_error_percent
from bench.looks import PARTS
from support.markdown import placed
from support.measure import median

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "performance"
PAGE = RESULTS / "results.md"
NONE = "not measured"


# --- tables ---------------------------------------------------------------------------------------------------------

Rows = Iterable[Sequence[str]]


def cost_table(told: Results) -> str:
    """Who, by scene."""
    scenes = {name: one["monitors"] for name, one in told.items() if name != "absent"}
    head = ["% of a core", *scenes, "CPU s an hour, 17 processes", "RSS, MiB"]
    rows = []
    for name, steady in scenes["17 processes"].items():
        shares = [number(found[name]["core_percent"]) for found in scenes.values()]
        rss = max(found[name]["rss_mib"] for found in scenes.values())
        rows.append([name, *shares, number(steady["cpu_seconds_an_hour"]), number(rss)])
    return table(head, rows)


def looks_table(told: Results) -> str:
    """The parts of a look."""
    rows = []
    for tree, hours in told.items():
        for hour, found in hours.items() if "first hour" in hours else [("first minute", hours)]:
            for part in PARTS:
                title = f"{tree}, {hour}" if part == PARTS[0] else ""
                quantiles = [number(found[part][q]) for q in ("mean_us", "median_us", "p99_us")]
                rows.append([title, part, *quantiles])
    return table(["", "part", "mean, µs of CPU", "median", "p99"], rows, left=2)


WATCHERS = {"Steady": "engine without forecaster", "Forecaster": "engine", "Daemon": "daemon, on a real tree"}


def memory_table(told: Results) -> str:
    """RSS on the way."""
    rows = []
    for name, run in told.items():
        events, watcher = name.split(", ")
        points = " ".join(f"{mib:.1f}" for mib in run["rss_mib"])
        counts = f"{number(run['events'])} ({events})"
        rows.append([WATCHERS[watcher], counts, number(run["us_an_event"]), points, number(run["rise_mib"])])
    return table(["", "events", "µs each", "MiB at ten points", "rise, MiB"], rows)


def harm_table(told: Results) -> str:
    """Latency by who looks."""
    head = ["target", "while", "p50, µs", "p99, µs", "p99.9, µs", "longest, µs", "p99.9, ratio"]
    rows = [
        [
            target if row == 0 else "",
            way,
            *(number(quantiles[q]) for q in ("p50_us", "p99_us", "p999_us", "max_us")),
            number(found["p999_ratio"][way]),
        ]
        for target, found in told.items()
        for row, (way, quantiles) in enumerate(found["medians"].items())
    ]
    return table(head, rows, left=2)


def pace_table(told: Results) -> str:
    """A trainer with and without."""
    head = ["", "iterations a second, median", "with memwatch / without", "quartiles", "memwatch, % of a core"]
    rows = [[name, number(median(rates)), "", "", ""] for name, rates in told["blocks"].items()]
    low, high = told["quartiles"]
    rows[-1][2:] = [f"{told['median_ratio']:.4f}", f"{low:.4f}-{high:.4f}", number(told["memwatch_core_percent"])]
    return table(head, rows)


def reaction_table(told: Results) -> str:
    """Who, on which ramp."""
    head = ["ramp", "", "sent", "no later", "median, ms", "p99, ms", "worst, ms", "median, MiB", "worst, MiB"]
    rows = []
    for ramp, found in told.items():
        for name in ("memwatch", "earlyoom"):
            one = found[name]
            figures = [number(one.get(key)) for key in ("ms_median", "ms_p99", "ms_worst", "mib_median", "mib_worst")]
            title = ramp.replace("real 1000 GiB/s", "real, as fast as it goes") if name == "memwatch" else ""
            first = f"{found['first']} of {one['of']}" if name == "memwatch" else ""
            rows.append([title, name, f"{one['sent']} of {one['of']}", first, *figures])
    return table(head, rows, left=2)


def scrape_table(told: Results) -> str:
    """Of each way to be scraped."""
    head = ["", "p50, ms", "p99, ms", "longest, ms"]
    ways = {"the loop turns": "latency", "the loop is stuck": "latency_while_stuck"}
    rows = [[way, *(number(told[key][q]) for q in ("p50_ms", "p99_ms", "max_ms"))] for way, key in ways.items()]
    first, stuck = told["first"], told["stuck"]
    rss = f"{number(first['rss_before_mib'])} to {number(first['rss_after_mib'])} MiB"
    age = f"{number(stuck['age_before_s'])} to {number(stuck['age_after_s'])} s"
    return (
        f"{table(head, rows)}\n\nThe first scrape imports the server: {number(first['cpu_ms'])} ms of CPU; RSS goes "
        f"from {rss}. While the loop was stuck, the age of the sample in the answers went from {age}."
    )


LOG_WORKS = {
    "catch_up": "catching up, a marker every 10,000 lines",
    "catch_up_without_markers": "... no marker",
    "catch_up_with_a_marker_in_each_line": "... a marker in each line",
    "attach": "the same by the daemon",
    "scan": "`memwatch markers`",
    "scan_without_markers": "... no marker",
}


def log_table(told: Results) -> str:
    """The works, with all runs."""
    rows = [
        [
            title,
            ", ".join(number(run["cpu_seconds"]) for run in told[name]),
            number(max(run["peak_rss_mib"] for run in told[name])),
        ]
        for name, title in LOG_WORKS.items()
    ]
    followed = max(run["cpu_share"] for run in told["follow"])
    return (
        table([f"{told['bytes'] / 1e9:.3g} GB", "CPU s of each run", "peak RSS, MiB"], rows)
        + f"\n\nFollowing {number(told['rate'])} lines a second takes {number(100 * followed)} % of a core."
    )


def replay_table(told: Results) -> str:
    """The parts of a reading."""
    parts = list(next(iter(told["traces"].values()))["us_a_reading"])
    head = ["µs of CPU a sample", *parts, "samples/s"]
    rows = [
        [name, *(number(found["us_a_reading"][part]) for part in parts), number(found["replay_per_s"])]
        for name, found in told["traces"].items()
    ]
    return table(head, rows) + f"\n\n`program` has its start in it, {number(told['start_seconds'])} s."


def report_table(told: Results) -> str:
    """What is made of a history, and the pages."""
    rows = [
        [
            name,
            ", ".join(number(run["seconds"]) for run in runs),
            number(median([run["cpu_seconds"] for run in runs])),
            number(max(run["peak_rss_mib"] for run in runs)),
            number(max(run["bytes"] for run in runs) / 1e6),
        ]
        for name, runs in told["reports"].items()
    ]
    head = [f"{told['samples']:,} samples", "seconds of each run", "CPU s", "peak RSS, MiB", "MB written"]
    answers = [
        [name, *(number(one[key]) for key in ("first_ms", "median_ms", "rise_mib")), number(one["bytes"] / 1e3)]
        for name, one in told["pages"].items()
    ]
    return f"{table(head, rows)}\n\n{table(['page', 'first, ms', 'others, ms', 'MiB more', 'kB'], answers)}"


def tree_table(told: Results) -> str:
    """Each tree beside its PSS."""
    head = ["tree", "processes", "mean error, %", "largest, %", "µs of CPU a look, median", "of smaps_rollup's, %"]
    rows = []
    for one in told["trees"]:
        rows.append(
            [
                one["tree"].replace("_", " "),
                number(one["processes"]),
                number(mean_error_percent(one)),
                number(max(errors_percent(one))),
                number(1e6 * median(one["look_cpu_seconds"])),
                number(cost_percent(one)),
            ]
        )
    return table(head, rows)


def census_table(told: Results) -> str:
    """Each way to look."""
    head = [
        "a Python with a million objects is",
        "CPU, s",
        "CPU of its process, s",
        "peak RSS, MiB",
        "longest stall, ms",
        "ratio",
    ]
    rows = []
    for way, longest in told["mean_ms"].items():
        runs = told["cost"].get(way, [])
        spent = [
            median([run[figure] for run in runs]) if runs else None for figure in ("cpu_seconds", "process_cpu_seconds")
        ]
        rss = max((run["peak_rss_mib"] for run in runs), default=None)
        rows.append([way, *(number(value) for value in (*spent, rss, longest, told["ratio"][way]))])
    return table(head, rows)


def lines_table(told: Results) -> str:
    """Each leak."""
    head = ["leak", "runs", "leaking line first", "its share of recorded growth", "recorded share of all", "CPU, %"]
    rows = []
    for leak, runs in told.items():
        middle = [number(median([run[figure] for run in runs])) for figure in ("share", "seen", "cpu_percent")]
        rows.append([leak, str(len(runs)), str(sum(run["right"] for run in runs)), *middle])
    return table(head, rows)


def bars_table(results: Mapping[str, Results]) -> str:
    """All verdicts."""
    return table(["what", "bar", "measured", ""], [bar_row(bar) for bar in judged(results)])


def bar_row(bar: Bar) -> list[str]:
    """What is wanted, what is."""
    sign, wanted = ("≤", bar.most) if bar.most is not None else ("≥", bar.least)
    verdict = "met" if bar.met else "**missed**"
    return [bar.of, f"{sign} {_with_unit(wanted, bar)}", _with_unit(bar.value, bar), verdict]


def _with_unit(value: float | None, bar: Bar) -> str:
    return number(value) if value == math.inf else f"{number(value)} {bar.unit}"


def runs_table(results: Mapping[str, Results]) -> str:
    """How each was taken."""
    rows = [
        [
            f"[{name}]({name}.json)",
            f"`{one['command']}`",
            one["date"],
            number(one["seconds"]),
            number(median(one["loop_ms"]) if "loop_ms" in one else None),
        ]
        for name, one in results.items()
    ]
    return table(["results", "command", "date", "s", "loop, ms"], rows, left=2) + "\n\n" + " ".join(_machines(results))


def _machines(results: Mapping[str, Results]) -> Iterator[str]:
    """One sentence of each machine."""
    for told in dict.fromkeys(json.dumps([one["machine"], one["versions"]]) for one in results.values()):
        machine, versions = json.loads(told)
        others = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        yield f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, {machine['python']}; {others}."


TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "cost": ("cost", cost_table),
    "looks": ("looks", looks_table),
    "memory": ("memory", memory_table),
    "harm": ("harm", harm_table),
    "pace": ("pace", pace_table),
    "reaction": ("reaction", reaction_table),
    "scrape": ("scrape", scrape_table),
    "log": ("log", log_table),
    "replay": ("replay", replay_table),
    "report": ("report", report_table),
    "tree": ("tree", tree_table),
    "census": ("census", census_table),
    "lines": ("lines", lines_table),
}


# --- text -----------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Three digits, whole above 100; - where there is none."""
    if value is None:
        return "-"
    if value == math.inf:
        return "never"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else "0"


def table(head: Sequence[str], rows: Rows, left: int = 1) -> str:
    """In Markdown; figures stand to the right, after so many columns of text."""
    lines = [head, ["---"] * left + ["--:"] * (len(head) - left), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read_results(folder: Path = RESULTS) -> dict[str, Results]:
    """By program, in the order of the page."""
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return {name: found[name] for name in BARS if name in found}


def filled(page: str, results: Mapping[str, Results]) -> str:
    """The page with what the results say."""
    told = {"bars": bars_table(results), "runs": runs_table(results)}
    for name, (program, make) in TABLES.items():
        told[name] = make(results[program]["results"]) if program in results else NONE
    for name, text in told.items():
        page = placed(page, name, text)
    return page


def main() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(), read_results()))


if __name__ == "__main__":
    main()
