"""All trainers of a node by rules, among real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from memwatch.core.trainer_rules import TrainerRule
from memwatch.sources.target.find_trainers import FoundTrainer, TrainerFinder
from support.stopwatch import CpuStopwatch

SLEEP = "import sys, time; print('up', flush=True); time.sleep(100)"
# starts a child with the same command line, says so, and leaves it behind when a line comes
PARENT = """
import os, sys, time
child = os.fork()
if child == 0:
    time.sleep(100)
print('up', child, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"node-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with ExitStack() as stack:

        def starts(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield starts


def python(start: Callable[..., subprocess.Popen[str]], *words: str, code: str = SLEEP) -> subprocess.Popen[str]:
    process = start(sys.executable, "-c", code, *words)
    assert process.stdout is not None and process.stdout.readline().startswith("up")
    return process


def pids(found: Sequence[FoundTrainer]) -> dict[int, str]:
    return {one.target.pid: one.rule.policy for one in found}


def test_the_first_rule_that_fits_decides(mark: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    watched, observed, ignored = (python(start, mark, kind) for kind in ("a", "b", "c"))
    rules = (
        TrainerRule(match=f"{mark} c", policy="ignore"),
        TrainerRule(match=f"{mark} b", policy="observe"),
        TrainerRule(match=mark),
    )
    found = TrainerFinder(rules).find()
    assert pids(found) == {watched.pid: "watch", observed.pid: "observe"}
    assert ignored.pid not in pids(found)
    assert all(mark in one.command for one in found)


def test_a_family_is_one_trainer_and_what_outlives_it_is_none(
    mark: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    finder = TrainerFinder([TrainerRule(match=mark)])
    parent = start(sys.executable, "-c", PARENT, mark)
    assert parent.stdout is not None and parent.stdin is not None
    child = int(parent.stdout.readline().split()[1])
    try:
        assert pids(finder.find()) == {parent.pid: "watch"}
        parent.stdin.close()
        parent.wait()
        for _ in range(2):
            assert not finder.find()
        assert pids(TrainerFinder([TrainerRule(match=mark)]).find()) == {child: "watch"}  # to one who has seen nothing
    finally:
        os.kill(child, 9)


def test_what_a_trainer_stands_below_is_not_watched_besides(
    mark: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}, '{mark}-inner'])"
    python(start, mark, code=launcher)
    found = TrainerFinder([TrainerRule(match=f"{SLEEP[:20]}.*{mark}-inner$"), TrainerRule(match=mark)]).find()
    assert len(found) == 1 and found[0].command.endswith(f"{mark}-inner")


def test_without_match_only_python_and_gpu_programs_fit(mark: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    one, other = python(start, mark), start("sleep", "98.7")
    assert other.pid not in pids(TrainerFinder([TrainerRule()]).find())
    assert one.pid in pids(TrainerFinder([TrainerRule()]).find())
    assert other.pid in pids(TrainerFinder([TrainerRule(match="sleep 98.7")]).find())


def test_by_cgroup_and_by_gpu(mark: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    one = python(start, mark)
    everywhere, nowhere = TrainerRule(match=mark, cgroup="/"), TrainerRule(match=mark, cgroup="/no-such")
    assert pids(TrainerFinder([everywhere]).find()) == {one.pid: "watch"}
    assert not TrainerFinder([nowhere]).find()
    assert pids(TrainerFinder([TrainerRule(match=mark, gpu=False)]).find()) == {one.pid: "watch"}
    assert not TrainerFinder([TrainerRule(match=mark, gpu=True)]).find()


def test_a_program_that_has_a_gpu_open_is_found_by_it(
    mark: str, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the device's name is open, as far as /proc tells."""
    monkeypatch.setattr("memwatch.sources.target.find_trainers.there_are_gpus", lambda: True)
    (tmp_path / "dev").mkdir()
    device = tmp_path / "dev" / "nvidia3"
    device.touch()
    opens = f"import time; kept = open({str(device)!r}); print('up', flush=True); time.sleep(99)"
    held = python(start, mark, code=opens)
    one, shell = python(start, mark), start("sh", "-c", f"exec 9<{device}; echo up; read line; : {mark}-shell")
    assert shell.stdout is not None and shell.stdout.readline()
    assert pids(TrainerFinder([TrainerRule(match=mark, gpu=False)]).find()) == {one.pid: "watch"}
    by_gpu = pids(TrainerFinder([TrainerRule(gpu=True, policy="observe")]).find())
    assert {held.pid: "observe", shell.pid: "observe"}.items() <= by_gpu.items() and one.pid not in by_gpu


def test_one_search_is_cheap(mark: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    """The supervisor searches as rarely as its share of a core asks for, so this bounds nothing but the surprise."""
    python(start, mark)
    finder = TrainerFinder([TrainerRule(match=mark)])
    finder.find()
    stopwatch = CpuStopwatch()
    finder.find()
    took = stopwatch.seconds
    count = sum(name.isdecimal() for name in os.listdir("/proc"))  # noqa: PTH208
    assert took < 0.02 + 0.001 * count
