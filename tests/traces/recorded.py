"""Recordings of real programs, with the limit laid where it hurts: a little above what a run needs, or amid its growth.

cd tests && python -m traces.recorded FOLDER && python -m traces.score --data FOLDER

`recordings/` has a trace of each run that memwatch watched once and a second: of programs by others (docs/gallery.md),
and of those written after public reports of leaks (tests/leak_reports). NAME-healthy ended by itself; NAME-growing
keeps what it should not. A run of a minute is over before an interrupt would save anything, so by default each is
replayed as by a program that takes twenty times as long for the same.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

RECORDINGS = Path(__file__).resolve().parent / "recordings"
SLOWER = 20.0
CHECKPOINT_SECONDS = 5.0
SAMPLE_SECONDS = 2.0  # between two rows of a recording that was slowed down, by a straight line
LONGEST_GAP_SECONDS = 30.0  # between two samples of a recording: over a longer one nothing is filled in
FITS = (1.1, 1.25)  # limits of healthy runs, in peaks
DIES = (0.5, 0.8)  # limits within the growth, as shares of it
LOADED_SHARE = 0.25  # of a run: what it has by then is no growth
GROWTH_SHARE = 0.15  # of the peak: a run that grows by less is not used for limits within its growth
SAVABLE_SHARE = 0.3  # of the growth up to the limit is there two checkpoints before the end; else it is one jump

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A recording with a limit: the label of the shared scorer, and the rows until the end."""

    label: dict[str, object]
    rows: list[Row]

    def write(self, folder: Path) -> None:
        path = folder / f"{self.label['id']}.json"
        path.write_text(json.dumps(self.label, indent=1))
        with path.with_suffix(".csv").open("w") as file:
            table = csv.DictWriter(file, [*self.rows[0], "limit"], lineterminator="\n")
            table.writeheader()
            table.writerows({**row, "limit": self.label["limit"]} for row in self.rows)


def recordings() -> list[Path]:
    return sorted(RECORDINGS.glob("*.csv.gz"))


def cases(path: Path, slower: float = SLOWER) -> Iterator[Case]:
    """Yield what can be asked of one recording."""
    name = path.name.removesuffix(".csv.gz")
    with gzip.open(path, "rt") as file:
        rows = slowed(list(csv.DictReader(file)), slower)
    used = [(float(row["t"]), int(row["rss"])) for row in rows if row["rss"]]
    end_t, peak = used[-1][0], max(level for _, level in used)
    loaded = max(level for t, level in used if t <= LOADED_SHARE * end_t)
    generations = len({(row["unit"], row["gen"]) for row in rows if row["gen"]})

    def case(family: str, limit: int, oom_t: float | None, savable: bool = True) -> Case:
        looks = [] if oom_t is None else [share * oom_t for share in (0.25, 0.5, 0.75, 0.9)]
        label = {"id": f"{name}-{family}", "family": family, "resource": "host", "limit": limit, "oom_t": oom_t}
        label |= {"ckpt_s": CHECKPOINT_SECONDS, "t_start": 0.0, "gen_s": end_t / max(1, generations)}
        label |= {"eta": looks, "verdicts": [], "slopes": [], "savable": savable}
        return Case(label, rows if oom_t is None else [row for row in rows if float(row["t"]) <= oom_t])

    if name.endswith("-healthy"):
        yield from (case(f"fits {share}", int(share * peak), None) for share in FITS)
    if peak - loaded < GROWTH_SHARE * peak:
        return
    for share in DIES:
        limit = int(loaded + share * (peak - loaded))
        oom_t = next(t for t, level in used if level >= limit)
        before = max((level for t, level in used if t <= oom_t - 2 * CHECKPOINT_SECONDS), default=0)
        yield case(f"dies {share}", limit, oom_t, before >= loaded + SAVABLE_SHARE * (limit - loaded))


def slowed(rows: list[Row], slower: float) -> list[Row]:
    """Return the run as if all took so many times as long, but for its checkpoints; what is between, by lines."""
    found = list[Row]()
    for row, following in pairwise([*rows, rows[-1]]):
        t, next_t = slower * float(row["t"]), slower * float(following["t"])
        saved = re.findall(r"saved@([\d.]+)(/[\d.]+)?", row["checkpoint"])  # Of a save under way only the end is known.
        checkpoint = " ".join(f"saved@{slower * float(at):.3f}{took}" for at, took in saved)
        found.append({**row, "t": f"{t:.3f}", "checkpoint": checkpoint})
        if not row["rss"] or not following["rss"] or next_t - t > slower * LONGEST_GAP_SECONDS:
            continue
        low, rise, steps = int(row["rss"]), int(following["rss"]) - int(row["rss"]), int((next_t - t) / SAMPLE_SECONDS)
        for step in range(1, steps):
            share = step / steps
            level = round(low + share * rise)
            found.append({**row, "t": f"{t + share * (next_t - t):.3f}", "rss": str(level), "checkpoint": ""})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where traces and labels are written")
    parser.add_argument("--slower", type=float, default=SLOWER, help="times as long as it was; 1: as recorded")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for path in recordings():
        for case in cases(path, asked.slower):
            case.write(asked.folder)


if __name__ == "__main__":
    main()
