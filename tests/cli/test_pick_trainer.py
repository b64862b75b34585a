"""`memwatch` without a trainer: those that run here, chosen by a key, in a real terminal."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.cli.main import main
from memwatch.cli.pick_trainer import pick_trainer
from memwatch.errors import ConfigError, ExitCode
from support.processes import WAIT, python, running
from support.screens import screen

ROOT = Path(__file__).parents[2]
MEMWATCH = (sys.executable, "-m", "memwatch", "--listen", "none", "--history", "none", "--dry-run")
ENVIRON = {"PYTHONPATH": f"{ROOT / 'watchdog'}"}
BIG = f"kept = bytearray(b'x' * 700_000_000)\n{WAIT}"


@pytest.fixture
def trainer() -> Iterator[subprocess.Popen[str]]:
    """It uses more than any other Python program of the tests."""
    with running(python(BIG, f"train-{uuid.uuid4().hex}")) as child:
        yield child


def test_a_key_watches_the_trainer_and_another_leaves_the_watch(trainer: subprocess.Popen[str]) -> None:
    with screen(MEMWATCH, ENVIRON, (130, 30)) as shown:
        text = shown.until(lambda text: re.search(rf"^\d +{trainer.pid} .*B/s", text, re.MULTILINE))
        row = re.search(rf"^(\d) +{trainer.pid} +(\S+ MB)", text, re.MULTILINE)
        assert row is not None
        assert 700 <= float(row[2].split()[0]) < 800
        shown.press(row[1])
        shown.until(lambda text: f"pid {trainer.pid}" in text and "q quit" in text)
        shown.press("q")
        assert shown.wait() == ExitCode.STOPPED
    assert trainer.poll() is None


@pytest.mark.parametrize("key", ["q", "\x1b", "\x03"])
def test_without_a_choice_nothing_is_watched(key: str) -> None:
    with screen(MEMWATCH, ENVIRON, (80, 24)) as shown:
        shown.until(lambda text: "Which trainer?" in text)
        shown.press(key)
        assert shown.wait() == ExitCode.STOPPED


def test_where_nobody_can_choose_the_list_is_in_the_error(
    trainer: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--listen", "none"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert re.search(rf"as in: memwatch --pid \d+; these run here:\n(.*\n)*? +pid {trainer.pid}  7\d\d.\d MB", said)


def test_the_error_is_one_of_usage() -> None:
    with pytest.raises(ConfigError, match="no trainer is named"):
        pick_trainer()
