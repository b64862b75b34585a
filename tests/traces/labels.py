"""The label of a run: the keys and the meaning of the traces that are shared beside the repository."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from traces.runs import Chapter, Nature, Run

CREDIT: dict[str, dict[str, float]] = {  # state: what each verdict is worth
    "leak": {"leak": 1, "growing": 0.5},
    "slowleak": {"leak": 1, "growing": 1},
    "fill_oom": {"growing": 1, "leak": 1},
    "aging": {"leak": 1, "growing": 1, "plateau": 0.5, "stable": 0.5},
    "fill": {"growing": 1, "plateau": 1, "warming_up": 0.5, "stable": 0.5},
    "creep": {"growing": 1, "plateau": 1, "stable": 1, "leak": 0.25},
    "plateau": {"plateau": 1, "stable": 1, "growing": 0.25},
    "stable": {"stable": 1, "plateau": 1},
    "noisy": {"stable": 1, "plateau": 1, "growing": 0.5},
}
STILL = ("plateau", "stable", "noisy")  # states in which nothing grows
ETA_AT = (0.25, 0.5, 0.75, 0.9)
LOOKS_AT = {True: (0.5, 0.667, 0.834, 1.0), False: (0.25, 0.5, 0.75, 0.97)}  # share of a chapter; True: it kills
SEEN_GENERATIONS = 4.0  # before a chapter can be told from the one before it
SLOW = 0.02  # of the limit, per generation: below it a leak is a slow one
LAST_PART = 0.95  # of the limit: beyond it a burst is told from what healthy programs do
REACTION_SECONDS = 2.5  # looks, and the way to the trainer
FILLING, FLAT = 0.005, 0.001  # of the limit, per generation: a fill above the one, full below the other


def label(run: Run, name: str, family: str) -> dict[str, Any]:
    """What is true of a run and its trace."""
    end = run.looks[-1 if run.death is None else run.death][0]
    end_x = run.last.x(end - run.starts[-1])
    chapters = _chapters(run, end_x)
    looks = sorted({t: chapter for chapter, until in chapters for t in _looks(run, chapter, until, end)}.items())
    dead = run.death is not None
    last_index = run.marker(end, len(run.programs) - 1)[0]
    gens = sum(len(p.lengths) for p in run.programs[:-1]) + max(0, int(end_x))
    told: dict[str, Any] = {
        "id": name,
        "family": family,
        "kind": run.story[-1].nature.value,
        "source": "made",
        "params": {},
        "resource": run.resource,
        "oom_t": round(end, 3) if dead else None,
        "oom_gen": last_index if dead else None,
        "end_t": round(end, 3),
        "t_start": run.starts[-1],
        "gens": gens,
        "gen_ends": [round(start + t, 3) for start, p in zip(run.starts, run.programs, strict=True) for t in p.begins],
        "gen_s": sum(run.last.lengths) / len(run.last.lengths),
        "total_gens": run.total,
        "first_gen": run.first_index,
        "limit": run.limit(end),
        "peak": max(run.used[: None if run.death is None else run.death + 1]),
        "ckpt_mem": run.checkpoint_bytes,
        "ckpt_s": round(run.checkpoint_seconds, 3),
        "verdicts": [_verdict(run, t, chapter) for t, chapter in looks],
        "slopes": [_slope(run, t) for t, _ in looks if _counts_on(run, t)],
        "eta": _etas(run, end) if dead and run.story[-1].nature is not Nature.BURST else [],
        "savable": dead and run.savable and _can_be_saved(run, end),
    }
    if dead:
        told["t_visible"] = run.t(run.visible)
    return told


def _can_be_saved(run: Run, end: float) -> bool:
    """A burst that nobody can foresee: from its way into the last twentieth of the limit on a checkpoint fits."""
    if run.story[-1].nature is not Nature.BURST:
        return True
    begin = run.t(run.story[-1].since)
    looks = ((t, used) for (t, _), used in zip(run.looks, run.used, strict=True) if t >= begin)
    inside = next((t for t, used in looks if used >= LAST_PART * run.limit(t)), end)
    return end - inside >= run.checkpoint_seconds + REACTION_SECONDS


def _chapters(run: Run, end_x: float) -> list[tuple[Chapter, float]]:
    """Each with the generation in which the next one begins."""
    ends = [chapter.since for chapter in run.story[1:]] + [end_x]
    return list(zip(run.story, ends, strict=True))


def _looks(run: Run, chapter: Chapter, until: float, end_t: float) -> list[float]:
    """Shortly after generations have ended, and known about."""
    last = chapter is run.story[-1]
    shares = LOOKS_AT[chapter.nature.kills] if last else (0.85,)
    if chapter.nature is Nature.BURST:
        return []
    looks = []
    for share in shares:
        g = int(chapter.since + share * (until - chapter.since))
        t = run.t(g) + max(0.05 * run.last.lengths[min(g, len(run.last.lengths) - 1)], 1.6 * run.interval)
        enough = g - chapter.since >= SEEN_GENERATIONS and t >= run.t(run.settled)
        if enough and t < min(end_t, run.t(until) if not last else end_t):
            looks.append(round(t, 3))
    return looks


def _verdict(run: Run, t: float, chapter: Chapter) -> dict[str, Any]:
    x = run.last.x(t - run.starts[-1])
    state = _state(run, chapter.nature, run.last.slope(int(x)) / run.limit(t))
    return {"t": t, "gen": int(x) + run.first_index, "state": state, "credit": CREDIT[state]}


def _state(run: Run, nature: Nature, pace: float) -> str:
    """`pace`: growth per generation, share of the limit."""
    if nature is Nature.LEAK:
        return "leak" if run.dies_at is not None and pace >= SLOW else "slowleak"
    if nature is Nature.FILL:
        return "fill" if pace >= FILLING else "creep" if pace > FLAT else "plateau"
    return nature.value


def _slope(run: Run, t: float) -> dict[str, float]:
    return {"t": t, "bytes_per_gen": run.last.slope(int(run.last.x(t - run.starts[-1])))}


def _counts_on(run: Run, t: float) -> bool:
    """The log tells of generations, and has for some."""
    x = run.last.x(t - run.starts[-1])
    markers = run.markers
    if not markers.told or run.resumes[-1] < 0:
        return False
    return x >= markers.since + SEEN_GENERATIONS and (markers.until is None or x < markers.until)


def _etas(run: Run, oom_t: float) -> list[float]:
    """On the way from the moment when the end is foreseeable."""
    seen, settled = run.t(run.visible), run.t(run.settled)
    looks = [seen + share * (oom_t - seen) for share in ETA_AT]
    return [round(t, 3) for t in looks if t >= settled]


def check(told: dict[str, Any]) -> list[str]:
    """What is inconsistent in a label; nothing, if all is well."""
    wrong = []
    end = told["end_t"]
    if (told["oom_t"] is None) != (told["peak"] < told["limit"]):
        wrong.append("peak and limit")
    if any(not 0 < t < end for t in [*told["eta"], *(v["t"] for v in told["verdicts"])]):
        wrong.append("times")
    if any(a >= b for a, b in pairwise(told["eta"])):
        wrong.append("order")
    return wrong
