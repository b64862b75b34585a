"""Never while a checkpoint is being written: trainers that spend most of their time at it, with and without words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, memwatch, trainer

pytestmark = pytest.mark.integration

SLOW_SAVER = """
import os, signal, sys, time
talks = sys.argv[1] == "talks"
writing = False
def interrupt(*_):
    print("CUT" if writing else "CLEAN", flush=True)
    if writing:
        os._exit(9)
    with open("emergency.ckpt", "wb") as file:
        file.write(b"x" * 1_000_000)
    print("Checkpoint saved: emergency.ckpt", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, interrupt)
kept = []
for generation in range(1, 100):
    print(f"Generation {generation} / 99", flush=True)
    kept.append(bytearray(b"x" * 15_000_000))
    time.sleep(0.35)
    writing = True
    if talks:
        print(f"Saving checkpoint to {generation}.ckpt ...", flush=True)
    with open(f"{generation}.ckpt", "wb") as file:
        for _ in range(14):
            file.write(b"x" * 100_000)
            file.flush()
            time.sleep(0.05)
    writing = False
    if talks:
        print(f"Checkpoint saved: {generation}.ckpt", flush=True)
    time.sleep(0.15)
"""


@pytest.mark.parametrize("way", ["talks", "silent"])
def test_the_interrupt_waits_for_the_end_of_the_file(tmp_path: Path, way: str) -> None:
    folder = Folder(tmp_path)
    program = (sys.executable, "-c", SLOW_SAVER, way)
    with trainer(folder, program=program) as run:
        arguments = ("--pid", str(run.pid), "--listen", "none", "--interval", "0.05", "--json")
        with memwatch(folder, *arguments, "--limit", "300MB", "--checkpoint-time", "1") as watch:
            assert watch.wait() == ExitCode.SAVED, watch.said()
        assert run.wait() == 0, watch.said()
    log = folder.log.read_text()
    assert "CLEAN" in log and "CUT" not in log
