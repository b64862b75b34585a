"""What the runs of the suite come to, family by family, and whether the bars are met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from trust.judge import LEAKING, Outcome

SAVED_BAR = 0.99
Figures = dict[str, Any]  # as JSON has it
APART = ("beyond", "deaf")


def is_wrong(told: Outcome) -> bool:
    """It is none of what is asked for."""
    return told.outcome in ("FALSE", "late", "MISSED") or is_untrue(told)


def is_untrue(told: Outcome) -> bool:
    """What was said, kept or told again of it is not so."""
    return not told.is_true or told.retold is False or told.unjournalled > 0


def figures(outcomes: Sequence[Outcome]) -> Figures:
    """Of one family, or of all."""
    counts = Counter(told.outcome for told in outcomes)
    dying = sum(counts[name] for name in LEAKING)
    given_up = [told.given_up for told in outcomes if told.outcome == "saved" and told.given_up is not None]
    spare = [told.spare_seconds for told in outcomes if told.outcome == "saved" and told.spare_seconds is not None]
    shares = [told.given_up_share for told in outcomes if told.outcome == "saved" and told.given_up_share is not None]
    return {
        "runs": len({told.case for told in outcomes}),
        "processes": len(outcomes),
        "leaking": dying,
        **{name: counts[name] for name in (*LEAKING, *APART, "quiet", "FALSE")},
        "saved_share": counts["saved"] / dying if dying else None,
        "interrupts": sum(told.interrupts > 0 for told in outcomes),
        "untrue_causes": sum(not told.is_true for told in outcomes),
        "unjournalled": sum(told.unjournalled for told in outcomes),
        "retold": len({told.case for told in outcomes if told.retold is not None}),
        "retold_otherwise": len({told.case for told in outcomes if told.retold is False}),
        "given_up_generations": {"median": median(given_up), "worst": max(given_up)} if given_up else None,
        "given_up_share": {"median": median(shares), "worst": max(shares)} if shares else None,
        "spare_seconds": {"median": median(spare), "least": min(spare)} if spare else None,
        "looks": sum(told.looks for told in outcomes),
    }


def results(outcomes: Sequence[Outcome]) -> Figures:
    """All that is kept of a suite: sums, and each process of which something is wrong or that counts apart."""
    families = dict.fromkeys(told.family for told in outcomes)
    return {
        "families": {name: figures([told for told in outcomes if told.family == name]) for name in families},
        "all": figures(outcomes),
        "wrong": [asdict(told) for told in outcomes if is_wrong(told)],
        "apart": [asdict(told) for told in outcomes if told.outcome in APART],
    }


def bars(total: Figures) -> list[tuple[str, str, str, bool]]:
    """What is asked, the bar, what was measured, whether it is met."""
    healthy, share = total["quiet"] + total["FALSE"], total["saved_share"]
    said, otherwise = total["processes"], total["retold_otherwise"]
    return [
        ("leaking processes that end with a finished checkpoint", "≥ 99 %", f"{100 * share:.1f} %", share >= SAVED_BAR),
        ("interrupts of healthy ones", "0", f"{total['FALSE']} of {healthy}", total["FALSE"] == 0),
        ("false statements of how one ended", "0", f"{total['untrue_causes']} of {said}", not total["untrue_causes"]),
        ("decisions without what they stood on", "0", str(total["unjournalled"]), not total["unjournalled"]),
        ("runs that come out otherwise again", "0", f"{otherwise} of {total['retold']}", not otherwise),
    ]
