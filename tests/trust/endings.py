"""Hundreds of endings of real trainers, and how often memwatch says what is so.

`PYTHONPATH=watchdog:tests python -m trust.endings`

Every kind of trust.kinds in turn, each time drawn anew from the seed; what is known of the end (trust.truth) is held
against what memwatch said. `--only 17` plays one of them again. Needs root and a memory cgroup of version 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from memwatch.app.load_and_replay_run import rejudge
from memwatch.history import stored_runs
from trust.kinds import KINDS
from trust.pool import Row, play_all, tell
from trust.stage import stage
from trust.truth import VERDICTS, judge, truth

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "trust"
SEED = 4711


def play(number: int, seed: int, kind: str = "") -> Row:
    """One ending: what was so, what was said, and the judgement. `kind`: another than the one whose turn it is."""
    kind = kind or list(KINDS)[number % len(KINDS)]
    row: Row = {"number": number, "kind": kind}
    with tempfile.TemporaryDirectory(prefix=f"ending-{number}-") as folder, stage(Path(folder), seed + number) as place:
        try:
            facts = KINDS[kind](place)
            said = place.said()
            row |= {"way": place.way, "verdict": judge(said, facts), "right": sorted(truth(facts).right)}
            row |= {"said": said["cause"] if said else "nothing", "facts": asdict(facts)}
            row["replays"] = replays(place.folder.history)
        except Exception:
            row |= {"way": place.way, "verdict": "broken", "error": traceback.format_exc()[-2000:]}
        row["bad"] = row["verdict"] if row["verdict"] in ("wrong", "broken") else ""
        if row.get("replays") is False:
            row["bad"] = "replayed otherwise"
        if row["verdict"] != "true":
            row["told"] = [watch.said()[-3000:] for watch in place.watches]
            row["log"] = place.folder.log.read_text(errors="replace")[-1500:] if place.folder.log.exists() else ""
    return row


def replays(history: Path) -> bool:
    """Each watch that it holds is judged again as it was."""
    runs = stored_runs.stored_runs(history) if history.exists() else []
    return all(watch.difference is None for run in runs for watch in rejudge(history, run, lambda share: None))


def summary(rows: Sequence[Row]) -> Row:
    """Counts by kind and by judgement, what was said of what, and all that was not true."""
    confusion: dict[str, Counter[str]] = {}
    for row in rows:
        if row["verdict"] != "broken":
            confusion.setdefault(row["right"][0], Counter())[row["said"]] += 1
    kinds = {kind: Counter(row["verdict"] for row in rows if row["kind"] == kind) for kind in KINDS}
    verdicts = Counter(row["verdict"] for row in rows)
    return {
        "runs": len(rows),
        "verdicts": {name: verdicts[name] for name in (*VERDICTS, "broken")},
        "replayed_otherwise": sum(row.get("replays") is False for row in rows),
        "ways": dict(sorted(Counter(row["way"] for row in rows).items())),
        "said_by_truth": {cause: dict(sorted(said.items())) for cause, said in sorted(confusion.items())},
        "kinds": {kind: dict(counted) for kind, counted in kinds.items() if counted},
        "not_true": [
            {key: row[key] for key in ("number", "kind", "way", "verdict", "right", "said") if key in row}
            for row in rows
            if row["verdict"] != "true"
        ],
    }


def main() -> int:
    """Play them, write the results, say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of endings to play again")
    parser.add_argument("--kind", default="", help="play this kind alone")
    parser.add_argument("--rows", type=Path, help="a file for each ending as a line of JSON, which is gone on with")
    parser.add_argument("-o", "--output", type=Path, help="the summary as JSON, such as docs/trust/endings.json")
    chosen = parser.parse_args()

    again = partial(play, seed=chosen.seed, kind=chosen.kind)
    rows = play_all(again, chosen.only or range(chosen.runs), chosen.jobs, chosen.rows)
    command = f"PYTHONPATH=watchdog:tests python -m trust.endings --runs {len(rows)} --seed {chosen.seed}"
    tell(command, summary(rows), chosen.output)
    return 1 if any(row["bad"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
