"""The live view of a real watch in a real terminal: what it shows, what its keys do, and how it leaves the terminal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, memwatch, trainer, until
from support.screens import Screen, screen

pytestmark = pytest.mark.integration

LEAK = ("--leak", "losses", "--seconds", "1", "--generations", "60", "--checkpoint-every", "0")
MEMWATCH = (sys.executable, "-m", "memwatch")


def watch(folder: Folder, pid: int) -> tuple[str, ...]:
    return (*MEMWATCH, "--pid", str(pid), "--log", str(folder.log), "--limit", "4GB", "--listen", "none", "--dry-run")


def is_as_before(shown: Screen) -> bool:
    return shown.has_left and termios.tcgetattr(shown.follower) == shown.before


def test_a_watch_is_followed_and_its_keys_do_what_they_say(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, *LEAK) as run, screen(watch(folder, run.pid), folder.environ(), (100, 40)) as shown:
        shown.until(
            lambda text: re.search(r"generation ([3-9]|\d\d) of 60", text) and "│" in text and "evaluate" in text
        )
        shown.press("d")
        shown.until(lambda text: "evaluate" not in text or "examined in" in text or "not examined" in text)
        shown.press("d")
        shown.press("p")
        still = shown.until(lambda text: "PAUSED" in text)
        shown.press("s")
        until(lambda: list((tmp_path / "state" / "memwatch" / "snapshots").glob("*.json")))
        assert shown.text == still
        shown.press("p")
        shown.until(lambda text: "kept:" in text and "PAUSED" not in text)
        shown.resize(80, 24)
        shown.until(lambda text: "q quit  p pause" in text.splitlines()[-1])
        shown.press("q")
        assert shown.wait() == ExitCode.STOPPED and is_as_before(shown)
        assert run.poll() is None, "the trainer runs on"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_whatever_signal_ends_it_the_terminal_is_left_as_it_was(how: signal.Signals, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, *LEAK) as run, screen(watch(folder, run.pid), folder.environ()) as shown:
        shown.until(lambda text: "q quit" in text)
        shown.process.send_signal(how)
        shown.wait()
        assert is_as_before(shown)


def test_one_screen_tells_what_another_memwatch_has_seen_of_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, *LEAK) as run:
        options = ("--pid", str(run.pid), "--log", str(folder.log), "--limit", "4GB", "--interval", "0.2")
        with memwatch(folder, *options, "--listen", "none", "--dry-run", "--json") as other:
            until(lambda: len(other.named("marker")) > 3)
            first = other.named("marker")[0]["gen"]
            command = [*MEMWATCH, *options, "-1"]
            environ = {**folder.environ(), "LANG": "C.UTF-8"}
            printed = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
            as_json = subprocess.run([*command, "--json"], env=environ, capture_output=True, timeout=60, check=False)
    assert printed.returncode == 0, printed.stderr
    rows = [int(line[:6]) for line in printed.stdout.splitlines() if line[:6].strip().isdigit() and line[7:9] != "B│"]
    assert len(rows) >= 3 and rows == [*range(rows[0], rows[0] + len(rows))], "those that fit, the newest last"
    assert "\x1b" not in printed.stdout and "watching again" in printed.stdout
    generations = json.loads(as_json.stdout)["resources"][0]["generations"]
    assert [row["index"] for row in generations[:3]] == [first, first + 1, first + 2]


def test_one_screen_of_a_trainer_that_nobody_watched(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with trainer(folder, *LEAK) as run:
        until(lambda: "Generation 2 /" in folder.log.read_text())
        with memwatch(folder, "--pid", str(run.pid), "--log", str(folder.log), "-1") as once:
            assert once.wait() == 0, once.said()
        assert "generation" in once.said() and "host " in once.said()
        assert not folder.history.exists() and run.poll() is None
