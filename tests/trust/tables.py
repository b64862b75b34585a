"""The tables of docs/trust.md, from docs/trust/decisions.json: `python -m trust.tables` in tests."""

from __future__ import annotations

import json
from pathlib import Path

from bench.tables import number, table
from support.markdown import placed
from trust.figures import Figures, bars

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trust.md"
RESULTS = ROOT / "docs" / "trust" / "decisions.json"


def bars_table(told: Figures) -> str:
    """Whether each is met."""
    rows = [[what, bar, value, "met" if met else "**missed**"] for what, bar, value, met in bars(told["all"])]
    return table(["what", "bar", "measured", ""], rows)


def families_table(told: Figures) -> str:
    """Family by family."""
    head = ["family", "runs", "leaking", "saved", "late", "missed", "apart", "healthy", "interrupted"]
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


def wrong_table(told: Figures) -> str:
    """Each process of which something is wrong."""
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


def filled(page: str, kept: Figures) -> str:
    """The page with what the results say."""
    told = kept["results"]
    for name, text in (
        ("bars", bars_table(told)),
        ("families", families_table(told)),
        ("wrong", wrong_table(told)),
        ("run", run_table(kept)),
    ):
        page = placed(page, name, text)
    return page


def main() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(), json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
