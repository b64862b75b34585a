"""What became of a run, beside what would have become of it alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memwatch.app.load_and_replay_run import find_run, rejudge
from memwatch.core.events import Cause, Notice
from support.trainee import Process
from support.world import Watched, World
from traces.draw import STEEP_TOP
from trust.cases import Case

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
BASIS = ("samples", "threshold", "limit", "growth_per_gen", "verdict", "eta_s")  # that a decision is journalled with
RETOLD_EVERY = 4  # of the runs without a decision; of those with one, each is judged again
LOOKS = 2  # that an interrupt takes at least
LEAKING = ("saved", "late", "MISSED")  # of these the share that is saved counts


@dataclass(frozen=True, slots=True)
class Outcome:
    """One process of a run. Times in seconds; None where there is nothing to say."""

    case: str
    family: str
    kind: str
    life: int
    outcome: str  # quiet, FALSE; saved, late (a signal, but too late), MISSED (none); beyond, deaf: apart
    cause: str  # as memwatch says
    is_true: bool  # that
    interrupts: int
    decided: str  # the kind of the first: time, boundary, saved, emergency
    given_up: float | None  # generations between the save and the death that it spared
    given_up_share: float | None  # of what the process would have lived
    spare_seconds: float | None  # between the complete checkpoint and that death
    looks: int
    unjournalled: int  # decisions without what they stood on
    retold: bool | None  # bit for bit; None: it was not judged again


def judge(case: Case, folder: Path) -> list[Outcome]:
    """Watch it, in a folder that is empty, and say what came of each process."""
    with (folder / "lines").open("w") as lines:
        watched = list(World(folder, case.scene, lines).run())
    history, same = folder / "history.db", None
    if case.seed % RETOLD_EVERY == 0 or any(one.process.signals for one in watched):
        same = all(one.difference is None for one in rejudge(history, find_run(history), lambda _: None))
    return [_outcome(case, number, one, same) for number, one in enumerate(watched)]


def judged(case: Case) -> list[Outcome]:
    """The same, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="trust-", dir=SCRATCH) as folder:
        return judge(case, Path(folder))


def _outcome(case: Case, number: int, one: Watched, retold: bool | None) -> Outcome:
    process, decisions = one.process, [*one.told("interrupt")]
    spared = process.is_saved and process.dies_t is not None and process.save_t is not None
    return Outcome(
        case=case.name,
        family=case.family,
        kind=case.kind,
        life=number,
        outcome=_what(case, one),
        cause=one.exited.cause.value,
        is_true=one.exited.cause in set(_true_causes(one)),
        interrupts=len(process.signals),
        decided=str(decisions[0].fields.get("kind", "")) if decisions else "",
        given_up=_given_up(one) if spared else None,
        given_up_share=_given_up_share(process) if spared else None,
        spare_seconds=process.dies_t - process.saved_t if spared else None,  # type: ignore[operator]
        looks=one.looks,
        unjournalled=sum(not _is_journalled(notice) for notice in decisions),
        retold=retold,
    )


def _what(case: Case, one: Watched) -> str:
    process = one.process
    if process.doomed_t is None:
        return "FALSE" if process.signals else "quiet"
    if process.manners.deaf_to:
        return "deaf"
    if process.is_saved:
        return "saved"
    if is_beyond_saving(case, one):
        return "beyond"
    return "late" if process.signals else "MISSED"


def is_beyond_saving(case: Case, one: Watched) -> bool:
    """From the first sign to the death there is no time for a checkpoint, or then no memory for it.

    The sign: the growth that kills begins; of a burst, it is where no healthy first climb of this suite comes.
    """
    process, scene = one.process, case.scene
    assert process.doomed_t is not None
    begins, x = process.life.begins, case.sign_x
    g = min(int(x), len(begins) - 2)
    sign_t = process.began_t + begins[g] + (x - g) * (begins[g + 1] - begins[g])
    while case.is_burst and sign_t < process.doomed_t and _share(process, sign_t) < STEEP_TOP:
        sign_t += process.life.course.step / 4
    look = min(scene.interval, scene.policy.confirmation_seconds)
    needed = LOOKS * look + process.manners.safe_seconds + process.manners.save_seconds
    taken = process.used(sign_t) + process.others(sign_t) + process.manners.save_bytes
    return process.doomed_t - sign_t < needed or taken > process.bounds.limit


def _share(process: Process, t: float) -> float:
    return (process.used(t) + process.others(t)) / process.bounds.limit


def _given_up(one: Watched) -> float:
    process = one.process
    assert process.dies_t is not None and process.save_t is not None
    return process.generation(process.dies_t - process.began_t) - process.generation(process.save_t - process.began_t)


def _given_up_share(process: Process) -> float:
    assert process.dies_t is not None and process.save_t is not None
    return (process.dies_t - process.save_t) / (process.dies_t - process.began_t)


def _is_journalled(notice: Notice) -> bool:
    return all(name in notice.fields for name in BASIS)


def _true_causes(one: Watched) -> Iterator[Cause]:
    """What may be said of its end: what happened or, where nothing shows it, that this is not known."""
    process = one.process
    status = process.status(process.end_t)
    assert status is not None
    if process.is_saved or process.saves_after_signal:
        yield Cause.SAVED  # also by itself, not because it was asked: the run resumes from there all the same
    elif process.signals:
        yield Cause.UNSAVED
    if process.is_killed_by_kernel:
        yield Cause.OOM_CGROUP if process.bounds.by_cgroup else Cause.OOM_HOST
        if not (process.bounds.by_cgroup or process.bounds.kernel_log):
            yield Cause.UNKNOWN  # of a cgroup that is not its own the counter of kills shows nothing
    elif not process.signals:
        yield Cause.SIGNALLED if status.signal is not None else Cause.COMPLETED
