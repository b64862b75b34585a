"""memwatch killed with -9 at random moments: its history is whole, a second is lost at most, the forecast stays."""

from __future__ import annotations

import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memwatch.app.load_and_replay_run import rejudge
from memwatch.core.events import Sampled
from memwatch.errors import ExitCode
from memwatch.history import stored_runs
from support.mainjob import Folder, Memwatch, memwatch, trainer, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

# A megabyte each quarter of a second; so many of them, its argument, are a generation.
LEAK = """
import sys, time
parts, kept, begun = int(sys.argv[1]), [], time.monotonic()
for i in range(100_000):
    if i % parts == 0:
        print(f'Generation {i // parts + 1} / 100000', flush=True)
    kept.append(bytearray(b'x' * 1_000_000))
    time.sleep(max(0.0, begun + 0.25 * (i + 1) - time.monotonic()))
"""
LOSS_SECONDS = 1.0
LATE_SECONDS = 0.5  # that a look may come late on a busy machine
LONGEST_SECONDS = 3.0  # of a watch, its start included; on a busy machine ...
LONGEST_STARTS = 3.0  # ... so many times as long as it takes to begin
MOST_ROUNDS = 4  # of kills


def is_about_its_limit(fields: Mapping[str, Any]) -> bool:
    """Of a forecast: others, who may fill the machine's memory meanwhile, have no part in it."""
    return bool(fields["eta_s"]) and fields["limit_origin"] == "--limit"


def leak(parts: int = 1) -> list[str]:
    return [sys.executable, "-S", "-c", LEAK, str(parts)]


def kill_in(folder: Folder, pid: int, seconds: float, name: str) -> tuple[float, float, bool]:
    """A watch that lives so long; when it began, when it was killed, and whether it told when the limit is met."""
    began_t = time.time()
    options = ("--log", str(folder.log), "--limit", "8GB", "--interval", "0.2", "--listen", "none", "--json")
    watch = Memwatch(folder, "--pid", str(pid), *options, "--dry-run", name=name)
    time.sleep(seconds)
    killed_t = time.time()
    watch.process.kill()
    watch.process.wait()
    return began_t, killed_t, any(is_about_its_limit(one) for one in watch.named("forecast"))


def start_seconds(folder: Folder, pid: int) -> float:
    """How long a watch takes to begin; it leaves no history."""
    began_t = time.monotonic()
    with memwatch(folder, "--pid", str(pid), "--listen", "none", "--json", "--history", "none", "--dry-run") as watch:
        until(lambda: watch.named("forecast"))
    return time.monotonic() - began_t


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA quick_check").fetchone() == ("ok",)


def lost(path: Path, began_t: float, killed_t: float) -> float | None:
    """Seconds before the kill of which nothing is kept; None: that watch had not begun to look."""
    [run] = stored_runs.stored_runs(path)
    looks = [
        event.t
        for event in stored_runs.events_to_replay(path, run.run_id)
        if isinstance(event, Sampled) and event.t > began_t
    ]
    return killed_t - looks[-1] if looks else None


# With 200 kills a generation lasts as long as a watch: of shorter ones most pass while none looks.
@pytest.mark.parametrize(("kills", "parts"), [(12, 1), pytest.param(200, 12, marks=pytest.mark.thorough)])
def test_killed_at_random_moments_it_goes_on_as_if_it_had_not_been(tmp_path: Path, kills: int, parts: int) -> None:
    folder, chance = Folder(tmp_path), random.Random(kills)
    losses: list[float] = []
    with trainer(folder, program=leak(parts)) as run:
        longest = max(LONGEST_SECONDS, LONGEST_STARTS * start_seconds(folder, run.pid))
        forecasting = 0  # watches that told their forecast
        for i in range(MOST_ROUNDS * kills):
            if i >= kills and forecasting > 2:
                break  # on a busy machine it takes more watches until one knows enough
            moment = longest if (i + 1) % kills == 0 else chance.uniform(0.0, longest)
            began_t, killed_t, has_told = kill_in(folder, run.pid, moment, f"watch-{i}")
            forecasting += has_told
            if not folder.history.exists():
                continue  # it had not come so far
            assert is_sound(folder.history)
            if (seconds := lost(folder.history, began_t, killed_t)) is not None:
                losses.append(seconds)
        assert run.poll() is None, "the trainer runs on"
    assert len(losses) > kills // 5
    assert max(losses) <= LOSS_SECONDS + LATE_SECONDS, losses
    [kept] = stored_runs.stored_runs(folder.history)
    watches = list(rejudge(folder.history, kept, lambda share: None))
    assert len(watches) > kills // 5
    assert [one.difference for one in watches] == [None] * len(watches)
    forecasts = [[told for told in one.recorded if told.event == "forecast"] for one in watches]
    told = [ones for each in forecasts if (ones := [one for one in each if is_about_its_limit(one.fields)])]
    assert len(told) > 2, "after the first it knows at once what it knew"
    ends = [(before[-1], after[0]) for before, after in itertools.pairwise(told)]
    changes = [b.fields["eta_s"] / (a.fields["eta_s"] - (b.t - a.t)) for a, b in ends]
    print(f"{len(losses)} watches looked, {max(losses):.2f} s lost at most; {len(changes)} forecasts go on")
    print(f"their times to the limit, against the last before: {min(changes):.3f} to {max(changes):.3f}")
    assert changes == [pytest.approx(1.0, rel=0.3)] * len(changes)


DYING = Path(__file__).parents[1] / "programs" / "dying.py"
LEAK_AND_SAVE = Path(__file__).parents[1] / "programs" / "leak.py"


# One that was not asked is asked once the deadline has passed; one that was saves for six seconds meanwhile.
@pytest.mark.parametrize(("when", "saves", "timeout"), [("before", "saves", 1.0), ("after", "at_length", 20.0)])
def test_killed_as_it_sends_its_signal_it_sends_one_and_tells_the_cause(
    tmp_path: Path, when: str, saves: str, timeout: float
) -> None:
    folder = Folder(tmp_path)
    settings = tmp_path / "memwatch.yaml"
    settings.write_text(
        "policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.5, cooldown_seconds: 600, "
        f"save_timeout_seconds: {timeout}}}\n"
    )
    program = (sys.executable, str(LEAK_AND_SAVE), saves, "400", "3", "0.3")
    with trainer(folder, program=program) as run:
        options = ("--log", str(folder.log), "--limit", "200MB", "--interval", "0.1", "--listen", "none", "--json")
        arguments = ("--pid", str(run.pid), *options, "--config", str(settings))
        with memwatch(folder, *arguments, name="killed", before=(sys.executable, str(DYING), when)) as killed:
            assert killed.wait() == -signal.SIGKILL, killed.said()
        assert run.poll() is None
        with memwatch(folder, *arguments) as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
    assert (tmp_path / "heard").read_text().split() == ["SIGINT"], "one signal, whichever of them sent it"
    assert any("whether it did is not known" in one["text"] for one in watch.named("note"))
    assert len(watch.named("signalled")) == (1 if when == "before" else 0)
    [exited] = watch.named("exited")
    assert exited["cause"] == "interrupted_saved"
    assert ("which may have been sent" in exited["evidence"][0]) == (when == "after"), exited
    [kept] = stored_runs.stored_runs(folder.history)
    assert [one.difference for one in rejudge(folder.history, kept, lambda share: None)] == [None, None]


def test_a_history_of_a_killed_watch_is_read_by_others(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, program=leak()) as run:
        kill_in(folder, run.pid, max(LONGEST_SECONDS, LONGEST_STARTS * start_seconds(folder, run.pid)), "watch")
    command = [sys.executable, "-m", "memwatch", "replay", str(folder.history)]
    done = subprocess.run(command, env=folder.environ(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as it was reported, bit for bit" in done.stdout
