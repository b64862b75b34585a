"""Runs the soaks, keeps what they print, and says whether it is as it should be: `make soak-watch`; see --help.

Writes docs/trust/soak_hour.json and soak_month.json, as tests/bench/run.py does, and the table of
docs/trust/results.md. Ends with status 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import tables
from bench.run import ROOT, run
from soak.bars import BARS, Results, judged
from support.markdown import placed

RESULTS = ROOT / "docs" / "trust"
PAGE = RESULTS / "results.md"


def read_results(folder: Path = RESULTS) -> dict[str, Results]:
    """By name, in the order of the page."""
    paths = {name: folder / f"{name}.json" for name in BARS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def filled(page: str, results: Mapping[str, Results]) -> str:
    """The page with what the results say."""
    rows = map(tables.bar_row, judged(results))
    text = tables.table(["what", "bar", "measured", ""], rows)
    how = tables.table(["results", "command", "date", "s"], (_run_row(name, one) for name, one in results.items()), 2)
    return placed(page, "soak", f"{text}\n\n{how}")


def _run_row(name: str, told: Results) -> list[str]:
    return [f"[{name}]({name}.json)", f"`{told['command']}`", told["date"], tables.number(told["seconds"])]


def main() -> int:
    """Run both at once, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=BARS, help="these")
    parser.add_argument("--judge", action="store_true", help="run nothing: judge the results that are there")
    given = parser.parse_args()
    names = () if given.judge else given.only or tuple(BARS)
    with ThreadPoolExecutor(len(BARS)) as pool:
        written = list(pool.map(lambda name: run(name.replace("soak_", "soak/"), "", RESULTS, name), names))
    results = read_results()
    PAGE.write_text(filled(PAGE.read_text(), results))
    for bar in judged(results):
        print(" | ".join(tables.bar_row(bar)))
    return 0 if all(written) and all(bar.met for bar in judged(results)) else 1


if __name__ == "__main__":
    sys.exit(main())
