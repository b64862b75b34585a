"""`memwatch.testing` on real memory: it reports what a step keeps, and nothing that is freed or levels off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memwatch.testing import assert_no_growth

ROOT = Path(__file__).parents[1]
KEEPS = "kept = []\ndef step(): kept.append(b'x' * 300_000)"
FREES = "import random\ndef step(): [b'x' * random.randrange(1, 3_000_000) for _ in range(5)]"
FILLS = "from collections import deque\nkept = deque(maxlen=12)\ndef step(): kept.append(b'x' * 2_000_000)"
CYCLES = "def step():\n    one = [b'x' * 2_000_000]\n    one.append(one)"
ARRAYS = "import numpy\nkept = []\ndef step(): kept.append(numpy.ones(60_000))"


def ended(code: str, *, most: str = "100 kB") -> str:
    """What is said of a step, in a process of its own; empty where all is well."""
    text = f"{code}\nfrom memwatch.testing import assert_no_growth\nassert_no_growth(step, most={most!r})"
    env = {"PYTHONPATH": str(ROOT / "watchdog")}
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env, check=False).stderr


@pytest.mark.parametrize("code", [KEEPS, ARRAYS])
def test_what_a_step_keeps_is_told(code: str) -> None:
    said = ended(code)
    assert "AssertionError: memory grows by " in said and "more than 100 kB" in said
    growth = float(said.split("grows by ")[1].split(" kB")[0])
    assert growth == pytest.approx(300.0 if code is KEEPS else 480.0, rel=0.15)


@pytest.mark.parametrize("code", [FREES, FILLS, CYCLES])
def test_what_is_freed_and_what_levels_off_is_no_growth(code: str) -> None:
    assert ended(code) == ""


def test_growth_within_the_bound_is_allowed() -> None:
    assert ended(KEEPS, most="1 MB") == ""


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 10"):
        assert_no_growth(lambda: None, times=9)
    with pytest.raises(ValueError, match="is not a size"):
        assert_no_growth(lambda: None, most="many")
