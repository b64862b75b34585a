"""Run programs of the gallery under memwatch: `PYTHONPATH=tests python -m gallery.run`; --help has options.

Each program runs unwatched, healthy and failing, on as busy cores, to know its peak and its pace (kept in the folder of
results): once, or more often where its memory differs from run to run. Then it runs watched: healthy with a limit 15 %
above its highest peak, failing with a limit that its memory passes at about 65 % of its life. One JSON line of facts
for each run, appended to `runs.jsonl`; `gallery.table` makes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from gallery.catalogue import CATALOGUE, PROGRAMS, Program
from memwatch.cli.demo import Confinement, confine

ROOT = Path(__file__).resolve().parents[2]
HEALTHY_MARGIN = 1.15  # of the peak: "fits, but not by much"
FAILING_LIFE = 0.65  # the share of its life at which the failing variant passes its limit
WATCH_BYTES = 80_000_000  # of memwatch and its examiner, which are in the cgroup of `memwatch run` (measured)
STARTED_LIFE = 0.1  # before this share of a life a program loads and imports
SAMPLE_SECONDS = 0.25
LONGEST_SECONDS = 900.0
BUSY = "while True: pass"


@dataclass(frozen=True)
class Setting:
    """How one run is made."""

    failing: bool
    attach: str  # pid: --pid --log; run: memwatch run
    limit: str  # flag: --limit; cgroup: a memory cgroup
    busy: bool  # both cores are kept busy by something else
    log: bool  # False: what it prints goes into a pipe, as in a notebook; memwatch gets no --log


@dataclass(frozen=True)
class Unwatched:
    """A run without memwatch."""

    seconds: float
    memory: list[int]  # RSS of all its processes, bytes, one a SAMPLE_SECONDS
    anonymous: list[int]  # as above, without pages of files: a memory cgroup may have been charged for none of these
    highest: int = 0  # of one process, by the kernel's own account: what lasts less than a SAMPLE_SECONDS counts too

    def limit(self, failing: bool, of: str) -> int:
        """Bytes; where memory has stopped to grow by FAILING_LIFE, the half of its growth. `of`: as Setting.limit."""
        memory = self.counted(of)
        if not failing:
            of_files = max(self.memory) - max(memory)
            return int(max(*memory, self.highest - of_files) * HEALTHY_MARGIN)
        started = max(memory[: max(1, int(len(memory) * STARTED_LIFE))])
        then = max(memory[: int(len(memory) * FAILING_LIFE)])
        return min(then, started + int(0.65 * (max(memory) - started)))

    def counted(self, of: str) -> list[int]:
        return self.anonymous if of == "cgroup" else self.memory

    def seconds_to(self, limit: int, of: str) -> float | None:
        """When its memory first passed the limit; None: it never did."""
        memory = self.counted(of)
        passed = next((i for i, used in enumerate(memory) if used > limit), None)
        return None if passed is None else passed * self.seconds / len(memory)


def command(program: Program, failing: bool, checkouts: Path, environments: Path) -> list[str]:
    """The words that start it."""
    python = str(environments / program.python / "bin" / "python")
    source = [str(checkouts / program.checkout)] if program.checkout else []
    return [python, str(PROGRAMS / program.script), *source, *program.words, *((program.leak or ()) if failing else ())]


def environ(folder: Path) -> dict[str, str]:
    """A user's, with one thread a program, so that two cores are enough for it and for memwatch."""
    quiet = {"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled", "XDG_STATE_HOME": str(folder / "state")}
    return {**os.environ, **quiet, "MPLBACKEND": "Agg", "YOLO_OFFLINE": "true"}


def resident(process: psutil.Process) -> tuple[int, int]:
    """RSS of it and its children, and that without files, bytes; 0 when it has ended.

    A child that begins may have no memory of its own yet.
    """
    total = anonymous = 0
    try:
        for one in (process, *process.children(recursive=True)):
            if one is process or time.time() - one.create_time() > SAMPLE_SECONDS:
                used = one.memory_info()
                total, anonymous = total + used.rss, anonymous + used.rss - used.shared
    except psutil.NoSuchProcess:
        pass
    return total, anonymous


@contextmanager
def cores(*, busy: bool) -> Iterator[None]:
    """All of them are kept busy meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)] if busy else []
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def unwatched(words: Sequence[str], folder: Path) -> Unwatched:
    """Run it to its end; RuntimeError when it fails by itself."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    memory: list[tuple[int, int]] = []
    begun = time.monotonic()
    with (folder / "main.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, env=environ(folder))
        looked = psutil.Process(process.pid)
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            memory.append(resident(looked))
            time.sleep(SAMPLE_SECONDS)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: see {folder}/main.log")
    seconds, highest = time.monotonic() - begun, ended[2].ru_maxrss << 10
    return Unwatched(seconds, [used for used, _ in memory], [own for _, own in memory], highest)


def watched(program: Program, words: Sequence[str], setting: Setting, alone: Unwatched, folder: Path) -> dict[str, Any]:
    """Run it under memwatch, and return the facts of the run."""
    limit = alone.limit(setting.failing, setting.limit)
    if (setting.attach, setting.limit) == ("run", "cgroup"):
        limit += WATCH_BYTES
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    confinement = confine(limit) if setting.limit == "cgroup" else Confinement("none")
    options = ["--json", "-v", "--listen", "none", *(("--limit", str(limit) + "B") if setting.limit == "flag" else ())]
    memwatch = [sys.executable, "-m", "memwatch"]
    env = environ(folder)
    begun, begun_t = time.monotonic(), time.time()
    with ExitStack() as held:
        held.enter_context(cores(busy=setting.busy))
        log = held.enter_context((folder / "main.log").open("wb"))
        out = held.enter_context((folder / "events.jsonl").open("wb"))
        err = held.enter_context((folder / "memwatch.err").open("wb"))
        started: dict[str, Any] = {"cwd": folder, "env": env}
        confined: dict[str, Any] = {**started, "preexec_fn": confinement.before_exec}
        trainer = None
        if setting.attach == "pid":
            printed: Any = log
            if not setting.log:
                reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                held.callback(reader.wait)
                printed = reader.stdin
            trainer = subprocess.Popen([*confinement.prefix, *words], stdout=printed, stderr=printed, **confined)
            if printed is not log:
                printed.close()
            time.sleep(1.0)  # as a user does: the trainer first
            target = ["--pid", str(trainer.pid), *(["--log", "main.log"] if setting.log else [])]
            watch = subprocess.Popen([*memwatch, *target, *options], stdout=out, stderr=err, **started)
        else:
            run = [*memwatch, "run", *options, "--", *words]
            watch = subprocess.Popen([*confinement.prefix, *run], stdout=out, stderr=err, **confined)
        try:
            _, status, usage = wait(watch, LONGEST_SECONDS)
            if trainer is not None:
                trainer.wait(LONGEST_SECONDS)
        finally:
            for one in (watch, trainer):
                if one is not None and one.poll() is None:
                    one.kill()
                    one.wait()
            confinement.close()
    own = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if setting.attach == "run":
        own = None  # the trainer is its child: its CPU is in the figure
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    facts = {"program": program.name, **asdict(setting), "limit_bytes": limit, "memwatch_exit": code}
    facts |= {"seconds": time.monotonic() - begun, "memwatch_cpu_seconds": own, **seen(events, program)}
    peak = own_peak(folder) if facts["end"] == "completed" else max(alone.counted(setting.limit))
    facts |= plan_errors(events, begun_t, peak)
    return facts | (forecast_errors(events, begun_t, alone, setting.limit, limit) if setting.failing else {})


def own_peak(folder: Path) -> int:
    """The most that this run had: some programs need far more in one run than in another."""
    report = [sys.executable, "-m", "memwatch", "report", "--json"]
    found = json.loads(subprocess.run(report, env=environ(folder), capture_output=True, check=True).stdout)
    return int(found["resources"][0]["peak"])


def plan_errors(events: list[dict[str, Any]], begun_t: float, peak: int) -> dict[str, Any]:
    """Compare the need and the interrupt's moment, as reported at half of the life, with what happened.

    `peak`: bytes that a whole run needs: this one, or where it was interrupted an unwatched one. The moment's error is
    in units of the log, and a share of those until then.
    """
    ends = [one for one in events if one["event"] in ("interrupt", "exited")]
    if not ends:
        return {}
    life_s = ends[0]["t"] - begun_t
    told = [one for one in events if "needed" in one and one["t"] <= begun_t + 0.5 * life_s]
    found: dict[str, Any] = {}
    if told and told[-1]["needed"] is not None:
        found["needed_error"] = told[-1]["needed"] / peak - 1.0
    if ends[0]["event"] == "interrupt" and ends[0]["gen"] and told and told[-1]["interrupt_gen"] is not None:
        found["moment_error_units"] = told[-1]["interrupt_gen"] - ends[0]["gen"]
        found["moment_error_share"] = found["moment_error_units"] / ends[0]["gen"]
    return found


def forecast_errors(
    events: list[dict[str, Any]], begun_t: float, alone: Unwatched, of: str, limit: int
) -> dict[str, Any]:
    """Compare what was forecast from a third of the life on with the unit in which the limit would have been passed.

    That is the unit of the interrupt, and as many more as the unwatched run took from as much memory to the limit.
    """
    ends = [one for one in events if one["event"] == "interrupt" and one["gen"] is not None and one["used"]]
    markers = [one for one in events if one["event"] == "marker"]
    marked = [(one["t"], float(one["gen"])) for one in markers if one["unit"] == markers[-1]["unit"]]
    passes_s = alone.seconds_to(limit, of)
    if not ends or passes_s is None or len(marked) < 4:
        return {}
    at, there_s = ends[0], alone.seconds_to(min(limit, ends[0]["used"]), of) or 0.0
    (t, first), (latest_t, latest) = marked[len(marked) // 2], marked[-1]
    pace = (latest - first) / max(1e-3, latest_t - t)
    true = at["gen"] + pace * max(0.0, passes_s - there_s)
    third_t = begun_t + (at["t"] - begun_t) / 3.0
    told = [one["oom_gen"] for one in events if one["event"] in ("forecast", "warn") and third_t <= one["t"] < at["t"]]
    errors = [gen - true for gen in told if gen is not None]
    return {"true_oom_gen": true, "forecasts": len(told), "forecast_errors": errors}


def wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, int, Any]:
    """As os.wait4, but not for ever."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = os.wait4(process.pid, os.WNOHANG)
        if found[0]:
            process.returncode = os.waitstatus_to_exitcode(found[1])
            return found
        time.sleep(0.1)
    raise TimeoutError(f"PID {process.pid} runs for more than {seconds} s")


def seen(events: list[dict[str, Any]], program: Program) -> dict[str, Any]:
    """What memwatch said of a run."""

    def named(*names: str) -> list[dict[str, Any]]:
        return [one for one in events if one["event"] in names]

    markers = named("marker")
    findings = [f"{one['cause']}: {one['holder'] or one['type'] or ''}" for one in named("finding")]
    interrupts = named("interrupt")
    last = named("forecast", "warn", "generation")[-1:]
    ends = named("exited")
    return {
        "unit": markers[-1]["unit"] if markers else None,
        "index": markers[-1]["gen"] if markers else None,
        "total": markers[-1]["total"] if markers else None,
        "from": markers[-1]["from"] if markers else None,
        "checkpoints": len([one for one in named("checkpoint") if one["text"].startswith("checkpoint complete")]),
        "gauges": sorted({driver["name"] for one in named("forecast") for driver in one["drivers"]}),
        "warnings": len(named("warn")),
        "interrupts": [
            {"gen": one["gen"], "used": one.get("used"), "eta_s": one["eta_s"], "text": one.get("reason", "")}
            for one in interrupts
        ],
        "saved_after_signal": len(named("saved")),
        "findings": findings,
        "right_cause": any(re.search(program.cause, one) for one in findings) if program.cause else None,
        "verdict": last[-1].get("verdict") if last else None,
        "end": ends[-1]["cause"] if ends else None,
        "end_text": ends[-1].get("text", "") if ends else "",
        "checkpoint_at_end": ends[-1].get("checkpoint") if ends else None,
        "not_examined": len(named("not_examined")),
        "examined": len(named("examined")),
    }


def measured(program: Program, setting: Setting, words: Sequence[str], results: Path) -> Unwatched:
    """The unwatched run that needs the most memory, of a failing run the least; runs of an earlier time, where known.

    A program without a leak of its own has one curve.
    """
    variant = "failing" if setting.failing and program.leak else "healthy"
    path = results / "unwatched" / f"{program.name} {variant} {'busy' if setting.busy else 'calm'}.json"
    if not path.exists():
        folder = results / "runs" / f"{program.name} unwatched"
        with cores(busy=setting.busy):
            runs = [unwatched(words, folder) for _ in range(program.unwatched_runs)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(run) for run in runs]))
    known = [Unwatched(**run) for run in json.loads(path.read_text())]
    return (min if setting.failing else max)(known, key=lambda run: run.limit(failing=False, of=setting.limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="programs of this name")
    parser.add_argument("--variants", default="healthy,failing")
    parser.add_argument("--attach", default="pid", help="pid, run, or both: pid,run")
    parser.add_argument("--limits", default="flag", help="flag, cgroup, or both: flag,cgroup")
    parser.add_argument("--busy", default="no", help="no, yes, or both: no,yes")
    parser.add_argument("--logs", default="yes", help="yes, no, or both: with --log, or without")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv", help="where `gallery/bin/python` is")
    parser.add_argument("--checkouts", type=Path, default=ROOT / "build" / "checkouts", help="public repositories")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "gallery")
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so do its children
    results = options.results.resolve()
    for program in CATALOGUE:
        if not re.search(options.only, program.name):
            continue
        if program.checkout and not (options.checkouts / program.checkout).exists():
            print(f"{program.name}: not there: {options.checkouts / program.checkout}", file=sys.stderr)
            continue
        given = (options.variants, options.attach, options.limits, options.busy, options.logs)
        for variant, attach, limit, busy, log in product(*(one.split(",") for one in given)):
            setting = Setting(variant == "failing", attach, limit, busy == "yes", log == "yes")
            words = command(program, setting.failing, options.checkouts.resolve(), options.environments.resolve())
            alone = measured(program, setting, words, results)
            folder = (
                results
                / "runs"
                / f"{program.name} {variant} {attach} {limit} {'busy' if setting.busy else 'calm'} log {log}"
            )
            facts = watched(program, words, setting, alone, folder)
            facts |= {"peak_bytes": max(alone.memory), "unwatched_seconds": alone.seconds}
            with (results / "runs.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
