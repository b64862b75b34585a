"""The tables of real processes, of docs/trust/endings.json and real.json."""

from __future__ import annotations

from typing import Any

from bench.tables import table
from trust.truth import VERDICTS

OUTCOMES = ("leak, saved", "leak, not saved", "healthy, left alone", "healthy, interrupted")
Found = dict[str, Any]


def endings_table(found: Found) -> str:
    """What is so, by what was said of it."""
    rows = [[name, str(found["verdicts"][name])] for name in VERDICTS]
    return table([f"of {found['runs']} endings", "statements"], rows)


def confusion_table(found: Found) -> str:
    """What was said, by what is so."""
    told = found["said_by_truth"]
    said = sorted({cause for counts in told.values() for cause in counts})
    rows = [[f"`{cause}`", *(str(counts.get(one, "")) for one in said)] for cause, counts in told.items()]
    return table(["so; said:", *(f"`{one}`" if one != "nothing" else one for one in said)], rows)


def real_table(found: Found) -> str:
    """How the runs of each family ended."""
    rows = [[name, *(str(counts.get(one, 0)) for one in OUTCOMES)] for name, counts in found["families"].items()]
    sums = [sum(counts.get(one, 0) for counts in found["families"].values()) for one in OUTCOMES]
    return table(["family", *OUTCOMES], [*rows, ["all", *map(str, sums)]])


def real_sums(found: Found) -> str:
    """All in a few lines."""
    share, tried = found["share_of_limit_at_interrupt"], found["schedules_tried_alone"]
    return (
        f"{found['leaking_saved']} of {found['leaking']} leaking runs ended with a whole checkpoint, "
        f"{found['healthy_interrupted']} of {found['healthy']} healthy ones were interrupted; "
        f"{found['verdicts'].get('wrong', 0)} statements were wrong; {found['replayed_otherwise']} histories told "
        f"otherwise when judged again.\nAt the interrupt {share['median']:.0%} of the limit were in use in the median "
        f"({share['least']:.0%} to {share['most']:.0%}). "
        f"{tried['as_known']} of {tried['of']} schedules that were tried alone came to what is known of them."
    )
