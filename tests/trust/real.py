"""Small real trainers under real limits and a real memwatch: leaks end with a checkpoint, others are left alone.

`PYTHONPATH=watchdog:tests python -m trust.real`. Whether a run meets its limit is known from its schedule
(trust.schedules); of every fifth it is tried without memwatch. Needs root and a memory cgroup of version 1.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from trust.kinds import WAITING, shell
from trust.pool import Row, play_all, tell
from trust.schedules import NAMES, RESUME, Schedule, draw
from trust.stage import PROGRAMS, Stage, stage
from trust.truth import Facts, judge

SEED, RUNS, LEAKING_SHARE, TRIED_EVERY = 2718, 100, 0.6, 5
LONGEST_SECONDS = 240.0
TOLD = ("number", "family", "leaks", "limited_by", "said", "bad")  # of what was bad
HOST_FREE_MB, TIMES = (
    2000,
    3,
)  # with less a run is not judged: others have filled the host; it is played again, so often
POLICY = "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, save_timeout_seconds: 5}\n"
RESUMED_MB, RESUMED_LIMIT = ("24", "8", "0.5", "10"), 150  # generations, MB and seconds of each, MB to begin with


def schedule_of(number: int, seed: int) -> Schedule:
    """Families in turn, three of five runs leaking."""
    chance = random.Random(seed + number)
    leaks = (number // len(NAMES)) % 5 < 5 * LEAKING_SHARE
    family = NAMES[number % len(NAMES)]
    if family != RESUME:
        return draw(family, leaks, chance)
    return replace(draw("linear", leaks, chance), family=RESUME)


def play(number: int, seed: int) -> Row:
    """One run, on a host that has room: what memwatch did to it, and what it said."""
    for disturbed in range(TIMES):
        row = play_once(number, seed) | {"disturbed": disturbed}
        if row.get("least_host_free_mb", HOST_FREE_MB) >= HOST_FREE_MB:
            break
    return row


def play_once(number: int, seed: int) -> Row:
    """One run."""
    drawn = schedule_of(number, seed)
    row: Row = {"number": number, "family": drawn.family, "leaks": drawn.leaks, "limit_mb": drawn.limit_mb}
    try:
        if number % TRIED_EVERY == 0 and drawn.family != RESUME:
            with a_stage(number, seed) as place:
                row["tried"] = try_alone(place, drawn)
        with a_stage(number, seed) as place:
            watched = resumed if drawn.family == RESUME else once
            row |= watched(place, drawn)
            row["least_host_free_mb"] = place.least_free_mb
            row["replays"] = replays(place)
            row["bad"] = row["bad"] or ("" if row["replays"] else "replayed otherwise")
            row["bad"] = row["bad"] or ("" if row.get("tried", True) else "it came otherwise where nobody watched")
            if row["bad"]:
                row["told"] = [watch.said()[-6000:] for watch in place.watches]
    except Exception:
        row |= {"bad": "broken", "error": traceback.format_exc()[-2000:]}
    return row


@contextmanager
def a_stage(number: int, seed: int) -> Iterator[Stage]:
    """In a folder of its own."""
    with tempfile.TemporaryDirectory(prefix=f"real-{number}-") as folder, stage(Path(folder), seed + number) as place:
        yield place


def command(place: Stage, drawn: Schedule, *more: str) -> tuple[str, ...]:
    """The trainer of a schedule, which waits for the file `go`."""
    file = place.folder.path / "levels"
    file.write_text("\n".join(f"{level:.3f}" for level in drawn.levels))
    words = ("-S", "-u", str(PROGRAMS / "resuming.py"), str(drawn.generations), "0", f"{drawn.seconds:.3f}", "1")
    options = ("--levels", str(file), "--save-seconds", f"{drawn.save_seconds:.2f}", *more)
    return shell(WAITING + 'exec "$@"', sys.executable, *words, *options)


def try_alone(place: Stage, drawn: Schedule) -> bool:
    """Whether it comes to what its schedule says where nobody watches it."""
    place.confine(drawn.limit_mb)
    place.let_go()
    place.start(command(place, drawn))
    facts = place.facts()
    return facts.killed_by_kernel == drawn.leaks and (drawn.leaks or facts.code == 0)


def once(place: Stage, drawn: Schedule) -> Row:
    """Watched from its start to its end."""
    limited = place.chance.choice(("cgroup", "--limit"))
    arguments = [*place.configured(), "--limit", f"{drawn.limit_mb}MB"]
    if limited == "cgroup":
        place.confine(drawn.limit_mb)
        arguments = arguments[:2]
    Path(arguments[1]).write_text(POLICY)
    place.start(command(place, drawn))
    watch = place.attach(*arguments)
    place.let_go()
    place.await_end(watch, LONGEST_SECONDS)
    facts = replace(place.facts(), whole=is_whole(place))
    verdict, said = judge(place.said(), facts), place.said()
    return {
        "limited_by": limited,
        "interrupted": bool(facts.heard),
        "saved": facts.whole,
        "killed": facts.killed_by_kernel,
        "said": said["cause"] if said else "nothing",
        "verdict": verdict,
        "share_at_interrupt": _share(watch.named("interrupt")),
        "bad": _wrong(drawn, facts, verdict),
    }


def _wrong(drawn: Schedule, facts: Facts, verdict: str) -> str:
    if drawn.leaks and not facts.whole:
        return "a leak that ended without a checkpoint"
    if not drawn.leaks and facts.heard:
        return "a healthy run that was interrupted"
    return "a wrong statement" if verdict == "wrong" else ""


def _share(told: Sequence[Row]) -> float | None:
    """Of the limit that was in use as the interrupt was decided."""
    if not told or not told[0].get("limit"):
        return None
    return round(told[0]["used"] / told[0]["limit"], 3)


def resumed(place: Stage, drawn: Schedule) -> Row:
    """A run that is started again after each interrupt that saved, to its end; healthy: none is needed."""
    words = [sys.executable, "-S", "-u", str(PROGRAMS / "resuming.py"), *RESUMED_MB]
    words += ["--save-seconds", f"{drawn.save_seconds:.2f}"]
    limit = RESUMED_LIMIT if drawn.leaks else 2 * int(RESUMED_MB[0]) * int(RESUMED_MB[1])
    place.confine(limit)
    config = place.configured()[1]
    Path(config).write_text(POLICY)
    again = shlex.join([*place.words(words), "--resume"])
    watch = place.watch("run", "--config", config, "--resume-with", again, "--", *place.words(words))
    watch.wait(LONGEST_SECONDS)
    causes = [one["cause"] for one in watch.named("exited")]
    heard = place.folder.path / "heard"
    interrupts = len(heard.read_text().split()) if heard.exists() else 0
    done = (place.folder.path / "done").read_text().split()
    complete = bool(done) and done[-1] == RESUMED_MB[0] and place.kills() == 0
    true = causes == ["interrupted_saved"] * interrupts + ["completed"]
    bad = "" if true else "a wrong statement"
    if not complete or (drawn.leaks and (not interrupts or not is_whole(place))):
        bad = "a leak that ended without a checkpoint"
    if not drawn.leaks and interrupts:
        bad = "a healthy run that was interrupted"
    return {
        "limited_by": "cgroup",
        "interrupted": bool(interrupts),
        "attempts": len(causes),
        "saved": complete and is_whole(place),
        "killed": place.kills() > 0,
        "said": "+".join(causes),
        "verdict": "true" if true else "wrong",
        "share_at_interrupt": _share(watch.named("interrupt")),
        "bad": bad,
    }


def is_whole(place: Stage) -> bool:
    """Its checkpoint can be read, and has its end."""
    file = place.folder.path / "state.ckpt"
    return file.exists() and file.read_text().endswith("whole\n")


def replays(place: Stage) -> bool:
    """`memwatch replay` of its history tells the same again."""
    words = [place.folder.python, "-m", "memwatch", "replay", str(place.folder.history)]
    done = subprocess.run(words, env=place.folder.environ(), capture_output=True, timeout=LONGEST_SECONDS, check=False)
    return done.returncode == 0 and b"as it was reported, bit for bit" in done.stdout


def summary(rows: Sequence[Row]) -> Row:
    """Counts by family, and all that was not as it should be."""
    leaking, healthy = [r for r in rows if r["leaks"]], [r for r in rows if not r["leaks"]]
    shares = [r["share_at_interrupt"] for r in leaking if r.get("share_at_interrupt") is not None]
    tried = [r["tried"] for r in rows if "tried" in r]
    return {
        "runs": len(rows),
        "leaking": len(leaking),
        "leaking_saved": sum(bool(r.get("saved")) for r in leaking),
        "healthy": len(healthy),
        "healthy_interrupted": sum(bool(r.get("interrupted")) for r in healthy),
        "verdicts": dict(Counter(r.get("verdict", "broken") for r in rows)),
        "replayed_otherwise": sum(r.get("replays") is False for r in rows),
        "played_again_as_the_host_was_full": sum(r.get("disturbed", 0) for r in rows),
        "schedules_tried_alone": {"as_known": sum(tried), "of": len(tried)},
        "share_of_limit_at_interrupt": {"median": median(shares), "least": min(shares), "most": max(shares)}
        if shares
        else None,
        "families": {name: dict(Counter(_outcome(r) for r in rows if r["family"] == name)) for name in NAMES},
        "bad": [{key: r.get(key) for key in TOLD} for r in rows if r["bad"]],
    }


def _outcome(row: Row) -> str:
    if row["leaks"]:
        return "leak, saved" if row.get("saved") else "leak, not saved"
    return "healthy, interrupted" if row.get("interrupted") else "healthy, left alone"


def main() -> int:
    """Play them, write the results, say what was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of runs to play again")
    parser.add_argument("--rows", type=Path, help="a file for each run as a line of JSON, which is gone on with")
    parser.add_argument("-o", "--output", type=Path, help="the summary as JSON, such as docs/trust/real.json")
    chosen = parser.parse_args()

    rows = play_all(partial(play, seed=chosen.seed), chosen.only or range(chosen.runs), chosen.jobs, chosen.rows)
    command = f"PYTHONPATH=watchdog:tests python -m trust.real --runs {len(rows)} --seed {chosen.seed}"
    tell(command, summary(rows), chosen.output)
    return 1 if any(row["bad"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
