"""The tables of docs/trust/results.md, from the results beside it: `python -m trust.tables` in tests.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is between is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench.tables import number, table
from support.markdown import placed
from trust.figures import Figures, bars
from trust.real_tables import confusion_table, endings_table, real_sums, real_table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "trust"
PAGE = RESULTS / "results.md"


def bars_table(kept: Figures) -> str:
    """Whether each is met."""
    told = kept["results"]["all"]
    rows = [[what, bar, value, "met" if met else "**missed**"] for what, bar, value, met in bars(told)]
    return table(["what", "bar", "measured", ""], rows)


def families_table(kept: Figures) -> str:
    """Family by family."""
    told = kept["results"]
    head = ["family", "runs", "leaking", "saved", "late", "missed", "unsavable", "healthy", "interrupted"]
    head += ["given up, generations: median", "worst", "seconds to spare: median"]
    rows = []
    for name, one in [*told["families"].items(), ("all", told["all"])]:
        apart, given_up = one["beyond"] + one["deaf"], one["given_up_generations"] or {}
        counts = [one["runs"], one["leaking"], one["saved"], one["late"], one["MISSED"], apart]
        counts += [one["quiet"] + one["FALSE"], one["FALSE"]]
        spare = (one["spare_seconds"] or {}).get("median")
        told_of = [number(given_up.get("median")), number(given_up.get("worst")), number(spare)]
        rows.append([name.replace("_", ", "), *map(number, counts), *told_of])
    return table(head, rows)


def wrong_table(kept: Figures) -> str:
    """Each process of which something is wrong."""
    told = kept["results"]
    if not told["wrong"]:
        return "None."
    rows = [
        [
            f"`{one['case']}`",
            one["kind"],
            str(one["life"] + 1),
            one["outcome"],
            one["cause"],
            "yes" if one["is_true"] else "no",
        ]
        for one in told["wrong"]
    ]
    return table(["run", "kind", "process", "outcome", "said of its end", "true"], rows, left=6)


def run_table(kept: Figures) -> str:
    """How it was taken."""
    looks = number(kept["results"]["all"]["looks"])
    return f"`{kept['command']}`, {kept['date']}, {number(kept['seconds'])} s of CPU, {looks} looks."


TABLES = {
    "bars": ("decisions", bars_table),
    "families": ("decisions", families_table),
    "run": ("decisions", run_table),
    "wrong": ("decisions", wrong_table),
    "bars unseen": ("unseen", bars_table),
    "run unseen": ("unseen", run_table),
    "wrong unseen": ("unseen", wrong_table),
    "endings": ("endings", endings_table),
    "endings said": ("endings", confusion_table),
    "real sums": ("real", real_sums),
    "real": ("real", real_table),
}


def kept() -> dict[str, Figures]:
    """The results, by the names of their files."""
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name, _ in TABLES.values()}


def filled(page: str, found: Mapping[str, Figures]) -> str:
    """The page with what the results say."""
    for name, (results, make) in TABLES.items():
        page = placed(page, name, make(found[results]))
    return page


def main() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(), kept()))


if __name__ == "__main__":
    main()
