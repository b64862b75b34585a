"""memwatch@.service where a real kernel bounds memory: stories that are told within a guest (tests/vm/stories)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.exposure import ANALYZE, MOST, counted, explained, overall
from support.guest import Guest

# They take minutes, or a guest of their own; test_cgroup_v2 and tests/systemd cover most of what they tell.
pytestmark = [pytest.mark.vm, pytest.mark.thorough, pytest.mark.timeout(900)]

STORIES = sorted((Path(__file__).parent / "stories").glob("*.py"))
CORES = {"crammed": 2}
INSTANCE = "cd /tmp && cp /etc/systemd/system/memwatch@.service memwatch@x.service"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_story(guests: Callable[[int], Guest], story: Path) -> None:
    done = guests(CORES.get(story.stem, 1))(story.read_text())
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_exposure_under_a_newer_systemd(guest: Guest) -> None:
    done = guest(f"{INSTANCE}; {ANALYZE} memwatch@x.service; echo ====; {ANALYZE} --json=short memwatch@x.service")
    assert done.returncode == 0, done.stdout + done.stderr
    text, report = done.stdout.split("====")
    assert overall(text) <= MOST
    assert counted(report) == explained()
