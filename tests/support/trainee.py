"""A trainer that is simulated: what its memory does, what it prints and saves, how it answers a signal, how it ends.

Times are seconds of the machine's clock, or of the process's life where that is said; memory is bytes.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import itemgetter
from pathlib import Path

from memwatch.actions.signal_sender import ExitStatus

LEAVING_SECONDS = 0.5  # from a complete checkpoint to the end of the process
SAVE_PARTS = 64  # in which a save is looked through for the moment at which its memory does not fit
RAMP_SHARE = 0.25  # of a save: by then its copy of the weights is in memory
OLD_NS = 10**10  # a simulated second takes a millisecond: what is past is dated back, or it would be of the same tick
KEPT_CHECKPOINTS = 3
BEGIN, END = "save begins", "save ends"  # among the lines of a log


# --- what memory does -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Course:
    """Levels every `step` seconds, from 0 on, straight between them; after the last it stays."""

    step: float
    levels: Sequence[float]

    def at(self, t: float) -> float:
        """Bytes at t."""
        i, part = divmod(max(0.0, t) / self.step, 1.0)
        if i + 1 >= len(self.levels):
            return self.levels[-1]
        low = self.levels[int(i)]
        return low + (self.levels[int(i) + 1] - low) * part

    def crossing(self, limit: float, others: Course, since: float) -> float | None:
        """When this and what the others have (whose time is `since` at our 0) first exceed the limit."""
        before = -math.inf
        for i, level in enumerate(self.levels):
            taken = level + others.at(since + i * self.step)
            if taken > limit:
                share = (limit - before) / (taken - before) if i else 1.0
                return (i - 1 + share) * self.step
            before = taken
        return None


NOBODY = Course(1.0, (0.0,))


@dataclass(frozen=True, slots=True)
class Life:
    """One process: its memory while it works, when its generations begin (the last entry: when it is done)."""

    course: Course
    begins: tuple[float, ...]  # seconds of its life
    first: int = 0  # the generation of the run with which it begins
    killed_t: float | None = None  # of its life: somebody sends it a SIGTERM, which it does not handle

    def resumed(self, first: int, total: int | None) -> Life:
        """The same process, gone on from that generation to the last of the run."""
        left = len(self.begins) - 1 if total is None else min(len(self.begins) - 1, max(1, total - first))
        return replace(self, first=first, begins=self.begins[: left + 1])


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the trainer lives in."""

    limit: int
    by_cgroup: bool = True  # False: the host is all that bounds it
    others: Course = NOBODY  # what everybody else has of the same limit; its time is the machine's from the begin on
    kernel_log: bool = False  # may be read


# --- what it prints -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Style:
    """How a log looks. Fields: index, total, done (generations), score, percent (of the generation)."""

    header: str = ""
    start: str = ""
    within: tuple[tuple[float, str], ...] = ()  # part of the generation at which it is printed
    end: str = ""
    told_total: bool = False

    def lines(self, life: Life, index: int, total: int | None) -> Iterator[tuple[float, str]]:
        """All that a process prints as it works: when, what. `index`: what the run's first generation is called."""
        yield 0.0, self.header
        for g in range(len(life.begins) - 1):
            begin, end = life.begins[g], life.begins[g + 1]
            done = life.first + g
            facts = {"index": done + index, "total": total or 0, "done": done, "score": 1.0 / (1.0 + done)}
            yield begin, self.start.format(percent=0, **facts)
            for part, text in self.within:
                yield begin + part * (end - begin), text.format(percent=int(100 * part), **facts)
            yield end, self.end.format(percent=100, **{**facts, "done": done + 1})


STYLES = {
    "evolutionary": Style(
        header="Population of 32 agents, device cpu\n",
        start="Generation {index} / {total}\n" + 60 * "=" + "\n\n--- Generation {done}: Evaluating Population ---\n",
        within=(
            (0.3, "   agent 11: fitness {score:.4f}\n"),
            (0.55, "--- Training Population ---\n   loss {score:.4f}\n"),
            (0.9, "--- Evolving Population ---\n"),
        ),
        told_total=True,
    ),
    "keras": Style(
        start="Epoch {index}/{total}\n",
        within=tuple((part / 5, "\r{percent}/100 ━━━━━━━━━━ 3s 20ms/step - loss: {score:.4f}") for part in range(1, 5)),
        end="\r100/100 ━━━━━━━━━━ 4s 20ms/step - loss: {score:.4f} - val_loss: {score:.4f}\n",
        told_total=True,
    ),
    "sklearn": Style(end="Iteration {done}, loss = {score:.8f}\nValidation score: {score:.6f}\n"),
    "deap": Style(
        header="gen\tnevals\tavg    \tstd    \tmin\tmax\n",
        end="{done:<3d}\t365   \t{score:.3f}\t7.59968\t186\t234\n",
    ),
    "skorch": Style(
        header="  epoch    train_loss    valid_acc     dur\n-------  ------------  -----------  ------\n",
        end="{done:7d}        {score:.4f}       0.7900  0.1609\n",
    ),
}


class Log:
    """A file that a trainer prints to, rotated as it grows: renamed and begun anew, or copied and truncated."""

    def __init__(self, path: Path, rotate_bytes: int | None = None, copies: bool = False) -> None:
        self.path, self._rotate_bytes, self._copies = path, rotate_bytes, copies
        self.rotations = 0
        self._file = path.open("ab", buffering=0)

    def write(self, text: str) -> None:
        """Append it."""
        if not text:
            return
        if self._rotate_bytes is not None and self._file.tell() > self._rotate_bytes:
            self._rotate()
        self._file.write(text.encode())

    def _rotate(self) -> None:
        self.rotations += 1
        old = self.path.with_suffix(self.path.suffix + ".1")
        if self._copies:
            shutil.copyfile(self.path, old)
            self._file.truncate(0)
            self._file.seek(0)
        else:
            self._file.close()
            self.path.rename(old)
            self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Give it back."""
        self._file.close()


# --- how it saves, and answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manners:
    """How a trainer behaves, in whatever process."""

    style: str | None = "evolutionary"  # None: it prints nothing
    total: int | None = None  # generations of the run, where its log tells them
    first_index: int = 1  # what the log calls its first generation
    save_seconds: float = 10.0
    save_bytes: float = 0.0  # of memory that a save takes meanwhile
    saves_every: int = 0  # generations, of its own will; 0: it saves when it is asked to, no sooner
    witness: str = "log"  # "log": a line is all that shows; "file": a file is; "both"
    safe_seconds: float = 1.0  # between two moments at which it looks for signals
    deaf_to: int = 0  # so many signals are lost on it

    @property
    def prints(self) -> Style:
        """Its log."""
        return STYLES[self.style] if self.style is not None else Style()

    def own_saves(self, life: Life) -> Iterator[tuple[float, float]]:
        """When a process saves of its own will, from and to: as every k-th generation ends."""
        for g in range(len(life.begins) - 1):
            if self.saves_every and (life.first + g + 1) % self.saves_every == 0:
                yield life.begins[g + 1] - self.save_seconds, life.begins[g + 1]

    def with_saves(self, life: Life) -> Life:
        """The memory of its own saves on top of what the process does."""
        course = life.course
        levels = list(course.levels)
        for begin, end in self.own_saves(life):
            for i in range(int(begin / course.step) + 1, min(int(end / course.step) + 1, len(levels))):
                levels[i] += self.save_level(i * course.step - begin)
        return replace(life, course=Course(course.step, levels))

    def save_level(self, seconds: float) -> float:
        """Bytes that a save takes so long after its begin."""
        return self.save_bytes * min(1.0, seconds / (RAMP_SHARE * self.save_seconds))


class Files:
    """A trainer's folder, and what /proc shows of its open files: a checkpoint while it is written."""

    def __init__(self, folder: Path, process: Path) -> None:
        self._folder, self._process = folder, process
        for part in ("fd", "fdinfo"):
            (process / part).mkdir(parents=True)
        (process / "statm").write_text("1 1 1\n")
        self._path: Path | None = None
        self._written: list[Path] = []

    def begin(self, name: str) -> Path:
        """Open a checkpoint."""
        self._path = self._folder / name
        self._path.write_bytes(b"\x80\x04weights")  # as a pickle begins
        (self._process / "fd" / "7").symlink_to(self._path)
        self._tell_position()
        return self._path

    def go_on(self) -> None:
        """Write some of it."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(b"weights")
            self._tell_position()

    def _tell_position(self) -> None:
        assert self._path is not None
        (self._process / "fdinfo" / "7").write_text(f"pos:\t{self._path.stat().st_size}\nflags:\t0100001\n")

    def end(self, is_past: bool) -> None:
        """Close it, complete. `is_past`: it is older than any signal."""
        if self._path is None:
            return
        self.go_on()
        if is_past:
            stamp = time.time_ns() - OLD_NS
            os.utime(self._path, ns=(stamp, stamp))
        self.drop()
        self._written.append(self._path)
        while len(self._written) > KEPT_CHECKPOINTS:
            self._written.pop(0).unlink()
        self._path = None

    def drop(self) -> None:
        """Nothing is open."""
        for part in ("fd", "fdinfo"):
            (self._process / part / "7").unlink(missing_ok=True)

    def leave(self) -> None:
        """The process is gone."""
        (self._process / "statm").write_text("0 0 0\n")
        self.drop()


# --- a process ------------------------------------------------------------------------------------------------------


class Process:
    """One trainer process from its begin to its end, as the clock of the machine moves it."""

    def __init__(
        self, pid: int, t: float, life: Life, manners: Manners, bounds: Bounds, log: Log, files: Files, origin: float
    ) -> None:
        """It begins at t. `origin`: when the machine began, of which the others' memory counts its time."""
        self.pid, self.began_t, self.life, self.manners, self.bounds = pid, t, life, manners, bounds
        self._log, self._files, self._origin = log, files, origin
        done_t = t + life.begins[-1] + LEAVING_SECONDS
        crossing = life.course.crossing(bounds.limit, bounds.others, t - origin)
        self.dies_t = (
            None if crossing is None or t + crossing >= done_t else t + crossing
        )  # of its memory, if it lives so long
        self.end_t, self._status = done_t, ExitStatus(0, None)
        if life.killed_t is not None and t + life.killed_t < done_t:
            self.end_t, self._status = t + life.killed_t, ExitStatus(None, "SIGTERM")
        if self.dies_t is not None and self.dies_t < self.end_t:
            self._be_killed(self.dies_t)
        self.doomed_t = self.end_t if self.is_killed_by_kernel else None  # as it goes on if nobody interferes
        self.signals: list[tuple[float, str]] = []
        self.save_t: float | None = None  # when it begins to save because it was asked to
        self.saved_t: float | None = None  # when that is complete
        self._due = deque(self._plan())
        self._name = ""  # of the checkpoint that is being written

    def _be_killed(self, t: float) -> None:
        self.end_t, self._status = t, ExitStatus(None, "SIGKILL")

    @property
    def is_killed_by_kernel(self) -> bool:
        """It ends, or has ended, by the OOM killer."""
        return self._status.signal == "SIGKILL"

    def status(self, t: float) -> ExitStatus | None:
        """How it has ended; None while it lives."""
        return self._status if t >= self.end_t else None

    @property
    def is_saved(self) -> bool:
        """A checkpoint that it was asked for was complete before it ended."""
        return self.saved_t is not None and self.saved_t <= self.end_t

    @property
    def saves_after_signal(self) -> bool:
        """A save of its own will was complete between the first signal and its end."""
        if not self.signals:
            return False
        ends = (self.began_t + end for _, end in self.manners.own_saves(self.life))
        until = self.end_t if self.save_t is None else min(self.end_t, self.save_t)
        return any(self.signals[0][0] <= end <= until for end in ends)

    @property
    def generations(self) -> float:
        """Of the run, that are done at its end, with the part of the open one."""
        return self.generations_at(min(self.end_t, self.save_t) if self.save_t is not None else self.end_t)

    def generations_at(self, t: float) -> float:
        """The same at t."""
        return self.life.first + self.generation(t - self.began_t)

    def generation(self, lived: float) -> float:
        """Generations of its own, so many seconds into its life."""
        begins = self.life.begins
        g = max(0, sum(1 for t in begins if t <= lived) - 1)
        if g + 1 >= len(begins):
            return float(len(begins) - 1)
        return g + max(0.0, lived - begins[g]) / (begins[g + 1] - begins[g])

    # --- memory ---

    def used(self, t: float) -> float:
        """Bytes at t; the kernel gives no more than there is."""
        worked_t = t if self.save_t is None else min(t, self.save_t)
        level = self.life.course.at(worked_t - self.began_t)
        if self.save_t is not None and t > self.save_t:
            level += self.manners.save_level(t - self.save_t)
        return max(0.0, min(level, self.bounds.limit - self.others(t)))

    def others(self, t: float) -> float:
        """What everybody else has of its limit."""
        return self.bounds.others.at(t - self._origin)

    # --- signals ---

    def hear(self, t: float, name: str) -> None:
        """A signal: it saves from its next safe point on, and ends."""
        self.signals.append((t, name))
        if len(self.signals) <= self.manners.deaf_to or self.save_t is not None:
            return
        self.save_t = self._safe_point(t)
        self.saved_t = self.save_t + self.manners.save_seconds
        self._plan_last_save(self.save_t, self.saved_t)
        if self.save_t >= self.end_t:
            return  # it does not live to see it
        self.end_t, self._status = self.saved_t + LEAVING_SECONDS, ExitStatus(0, None)
        full_t = self._full_t()
        if full_t is not None:
            self._be_killed(full_t)

    def _safe_point(self, t: float) -> float:
        """Between two batches, and not within a save of its own."""
        safe, lived = self.manners.safe_seconds, t - self.began_t
        point = math.ceil(lived / safe) * safe
        return self.began_t + next((b for a, b in self.manners.own_saves(self.life) if a < point < b), point)

    def _full_t(self) -> float | None:
        """When the memory of the save does not fit any more."""
        assert self.save_t is not None
        level = self.life.course.at(self.save_t - self.began_t)
        for part in range(SAVE_PARTS + 1):
            after = part / SAVE_PARTS * self.manners.save_seconds
            t = self.save_t + after
            if level + self.manners.save_level(after) + self.others(t) > self.bounds.limit:
                return t
        return None

    # --- what it does as time passes ---

    def advance(self, t: float) -> None:
        """Print and write all that is due."""
        while self._due and self._due[0][0] <= min(t, self.end_t):
            self._do(*self._due.popleft())
        self._files.go_on()
        if t >= self.end_t:
            self._files.leave()

    def _plan(self) -> list[tuple[float, str]]:
        """What it prints, and the begins and ends of its saves, in order: if nobody asks it to save."""
        events = list(self.manners.prints.lines(self.life, self.manners.first_index, self.manners.total))
        for begin, end in self.manners.own_saves(self.life):
            events += [(begin, BEGIN), (end, END)]
        return sorted(((self.began_t + lived, text) for lived, text in events), key=itemgetter(0))

    def _plan_last_save(self, begin_t: float, end_t: float) -> None:
        before = takewhile(lambda event: event[0] <= begin_t, self._due)
        self._due = deque([*before, (begin_t, BEGIN), (end_t, END)])

    def _do(self, t: float, text: str) -> None:
        if text not in (BEGIN, END):
            self._log.write(text)
            return
        if text == BEGIN:
            self._name = f"{'asked' if t == self.save_t else 'ckpt'}_{int(self.generations_at(t)):04d}.pt"
        name = self._name
        by_log, by_file = self.manners.witness != "file", self.manners.witness != "log"
        if by_log:
            self._log.write(f"Saving checkpoint to {name} ...\n" if text == BEGIN else f"Checkpoint saved: {name}\n")
        if by_file and text == BEGIN:
            self._files.begin(name)
        elif by_file:
            self._files.end(is_past=not self.signals)
