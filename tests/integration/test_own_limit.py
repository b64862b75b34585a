"""A limit that the user has typed: mistyped, it must not end a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, memwatch, trainer, until

pytestmark = pytest.mark.integration

WAITS = (sys.executable, "-c", "import time\nprint('begun', flush=True)\nkept = bytearray(50_000_000)\ntime.sleep(60)")
GROWS = (
    sys.executable,
    "-c",
    "import time\nkept = []\nfor _ in range(600):\n    kept.append(b'x' * 2_000_000)\n    time.sleep(0.1)",
)
QUIET = ("--listen", "none", "--interval", "0.2", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [("12", "--limit 12: has no unit"), ("12B", "--limit 12B is below the "), ("30MB", "--limit 30MB is below the ")],
)
def test_one_that_is_mistyped_is_refused_and_the_run_goes_on(folder: Folder, limit: str, problem: str) -> None:
    with trainer(folder, program=WAITS) as run:
        until(lambda: "begun" in folder.log.read_text())
        time.sleep(0.5)
        with memwatch(folder, "--pid", str(run.pid), "--limit", limit, *QUIET) as watch:
            assert watch.wait() == ExitCode.USAGE
            assert problem in watch.said()
        with memwatch(folder, "--pid", str(run.pid), "--limit", limit, *QUIET) as watch:
            assert watch.wait() == ExitCode.USAGE, "it is refused as often as it is given"
        assert run.poll() is None


def test_where_no_signal_follows_it_is_not_refused(folder: Folder) -> None:
    with trainer(folder, program=WAITS) as run:
        until(lambda: "begun" in folder.log.read_text())
        time.sleep(0.5)
        words = ("--pid", str(run.pid), "--limit", "30MB")
        with memwatch(folder, *words, "-1", *QUIET) as watch:
            assert watch.wait() == ExitCode.ENDED, watch.said()
        with memwatch(folder, *words, "--dry-run", *QUIET) as watch:
            until(lambda: watch.named("interrupt"))
        assert run.poll() is None


def test_one_that_was_passed_during_the_watch_is_not_refused_to_the_next(folder: Folder) -> None:
    with trainer(folder, program=GROWS) as run:
        with memwatch(folder, "--pid", str(run.pid), "--limit", "90MB", "--dry-run", *QUIET) as watch:
            until(lambda: [one for one in watch.named("forecast") if one["headroom"] < 0])
        with memwatch(folder, "--pid", str(run.pid), "--limit", "90MB", *QUIET) as watch:
            until(lambda: watch.named("forecast") or watch.process.poll() is not None)
            assert watch.process.poll() is None, watch.said()


def test_forced_it_counts_at_once(folder: Folder) -> None:
    with trainer(folder, program=WAITS) as run:
        until(lambda: "begun" in folder.log.read_text())
        time.sleep(0.5)
        with memwatch(folder, "--pid", str(run.pid), "--limit", "30MB", "--force-limit", *QUIET) as watch:
            watch.wait()
            assert watch.named("interrupt"), watch.said()
        assert run.wait(10) is not None


def test_in_the_first_seconds_of_a_watch_nothing_is_signalled_because_of_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = 6.0
    monkeypatch.setenv("MEMWATCH_POLICY__OWN_LIMIT_GRACE_SECONDS", str(grace))
    with trainer(folder, program=GROWS) as run:
        time.sleep(0.5)
        with memwatch(folder, "--pid", str(run.pid), "--limit", "90MB", *QUIET) as watch:
            watch.wait()
            [attached], [interrupt] = watch.named("attached"), watch.named("interrupt")[:1]
            assert interrupt["t"] - attached["t"] >= grace, watch.said()
            assert interrupt["headroom"] < 0, "it had been passed before"
