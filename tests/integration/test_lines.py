"""The line that leaks is the first of those that `memwatch profile` tells, for each leak of the example trainer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from memwatch import wire
from memwatch.core.examination import Profile
from memwatch.core.profile import by_line
from support.mainjob import EXAMPLE, Folder, trainer

pytestmark = pytest.mark.integration

SECONDS = 2  # of a generation
LINES = {
    "buffer": "self.buffer.add(Transition(window, after.copy(), action, reward))",
    "environments": "environment = Environment(self.market.copy(), WINDOW)",
    "losses": "inputs = np.stack([self.buffer.items[i].before for i in picks])",
    "population": "self.kept.append([(agent, np.tile(self.market[:WINDOW], (24, 1, 1))) for agent in self.population])",
    "figures": "self.canvas = np.full((480, 640, 4), 255, dtype=np.uint8)",
    "history": 'self.kept.append({"seen": np.concatenate([window, after]), "reward": reward})',
}
COPIES = "return self.market[self.day - WINDOW : self.day].copy()"  # the other half of what the buffer keeps


@pytest.mark.parametrize("leak", LINES)
def test_the_line_that_leaks_is_first(leak: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    room = [] if leak == "buffer" else ["--capacity", "32"]  # else the buffer fills, and grows more than what leaks
    options = ["--leak", leak, "--seconds", str(SECONDS), "--checkpoint-every", "0", *room]
    with trainer(folder, *options) as run:
        end = time.monotonic() + 30
        while b"Generation 2 " not in folder.log.read_bytes():
            assert time.monotonic() < end
            time.sleep(0.05)
        command = [sys.executable, "-m", "memwatch", "profile", "--pid", str(run.pid), "--seconds", "6", "--json"]
        found = wire.from_json(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout, Profile)
    assert found.grown_bytes > 10e6
    lines = by_line(found.credits)
    first = EXAMPLE.read_text().splitlines()[lines[0].frame.line - 1].strip()
    assert first == LINES[leak] or (leak == "buffer" and first == COPIES), lines
