"""Which processes are which rank, and what each uses: in fake trees, and below a real agent."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from memwatch.core.measurements import RankMemory, TreeMemory
from memwatch.sources.memory.process_tree import Rank, TreeReader, parse_rank
from memwatch.sources.memory.shared_page_sampling import PageSamplingBudget
from support.fakeproc import FakeProc
from support.forest import read_pss
from support.mainjob import until
from support.trainers import running

MB = 1 << 20
NEVER = PageSamplingBudget(max_cpu_share=0.0)
PROGRAMS = Path(__file__).parents[2] / "programs"
AGENT = (sys.executable, str(PROGRAMS / "torchrun"), "--rdzv-id=job-7", "--nproc-per-node=4", "--node-rank=1")


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def used(memory: TreeMemory) -> dict[int, int]:
    return {one.rank: one.used_bytes for one in memory.ranks}


def rank(number: int) -> dict[str, str]:
    return {"RANK": str(number), "LOCAL_RANK": str(number % 4)}


def test_each_rank_has_what_it_started_and_the_agent_is_none(fake: FakeProc) -> None:
    fake.process(10, anon=20 * MB, children=(11, 12, 15), environ={})
    fake.process(12, anon=100 * MB, parent=10, layout=5, environ=rank(4))
    fake.process(11, anon=200 * MB, parent=10, layout=6, children=(13, 14), environ=rank(5))
    fake.process(13, anon=210 * MB, parent=11, layout=6)  # a fork of it: its variables are not read
    fake.process(14, anon=30 * MB, parent=11, layout=8, environ=rank(5))
    fake.process(15, anon=5 * MB, parent=10, layout=9, environ={})
    memory = TreeReader(10, root=str(fake), sampling_budget=NEVER).read_memory(0.0)
    assert memory.ranks == (
        RankMemory(4, 0, 12, 100 * MB, (12,)),
        RankMemory(5, 1, 11, (200 + 10 + 30) * MB, (11, 13, 14)),
    )
    assert memory.used_bytes == (20 + 100 + 200 + 10 + 30 + 5) * MB


def test_a_fork_of_what_its_agent_has_become_meanwhile_is_a_rank_once_it_starts_its_program(fake: FakeProc) -> None:
    fake.process(10, anon=20 * MB, children=(11,), environ={})
    fake.process(11, anon=21 * MB, parent=10, layout=5, environ={})
    tree = TreeReader(10, root=str(fake), sampling_budget=NEVER)
    assert tree.read_memory(0.0).ranks == ()
    fake.process(11, anon=22 * MB, parent=10, layout=6, environ=rank(4))
    assert used(tree.read_memory(0.1)) == {4: 22 * MB}


def test_what_is_below_a_rank_is_none(fake: FakeProc) -> None:
    fake.process(10, anon=MB, children=(11,), environ=rank(0))
    fake.process(11, anon=MB, parent=10, layout=5, environ=rank(0))
    assert TreeReader(10, root=str(fake), sampling_budget=NEVER).read_memory(0.0).ranks == ()


def test_one_that_was_met_before_it_started_its_program(fake: FakeProc) -> None:
    fake.process(10, anon=200 * MB, children=(11,), environ={})
    fake.process(11, anon=200 * MB, parent=10, environ={})
    tree = TreeReader(10, root=str(fake), sampling_budget=NEVER)
    assert tree.read_memory(0.0).ranks == ()
    fake.process(11, anon=50 * MB, parent=10, layout=99, environ=rank(2))
    assert used(tree.read_memory(1.0)) == {2: 50 * MB}


def test_one_that_was_met_while_it_started_its_program(fake: FakeProc) -> None:
    fake.process(10, anon=200 * MB, children=(11,), environ={})
    fake.process(11, anon=MB, parent=10, layout=0, environ={})  # a new memory, and nothing in it yet
    tree = TreeReader(10, root=str(fake), sampling_budget=NEVER)
    assert tree.read_memory(0.0).ranks == ()
    fake.process(11, anon=50 * MB, parent=10, layout=99, environ=rank(2))
    assert used(tree.read_memory(1.0)) == {2: 50 * MB}


def test_one_whose_environment_may_not_be_read_is_none(fake: FakeProc) -> None:
    fake.process(10, anon=MB, children=(11,), environ={})
    fake.process(11, anon=MB, parent=10, layout=5)
    assert TreeReader(10, root=str(fake), sampling_budget=NEVER).read_memory(0.0).ranks == ()


@pytest.mark.parametrize("environ", [{}, {"LOCAL_RANK": "0"}, {"RANK": "x", "LOCAL_RANK": "0"}, {"RANK": "-1"}])
def test_variables_that_make_no_rank(environ: dict[str, str]) -> None:
    assert parse_rank(7, environ) is None
    assert parse_rank(7, rank(5)) == Rank(5, 1, 7)


def test_below_a_real_agent_with_workers_of_their_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\n"
        "held = bytearray(b'x' * (20 << 20) * (1 + int(os.environ['RANK'])))\n"
        "if os.fork() == 0: held = bytearray(b'x' * (10 << 20))\n"
        "time.sleep(60)\n"
    )
    code = f"say('ready'); os.execv({sys.executable!r}, {[*AGENT, str(script)]!r})"
    with running(code) as agent:
        tree = TreeReader(agent.pid)
        memory = tree.read_memory(time.monotonic())

        def whole() -> bool:
            nonlocal memory
            memory = tree.read_memory(time.monotonic())
            told = [one.used_bytes for one in memory.ranks if len(one.pids) == 2]
            return len(told) == 4 and all(size > (20 * (5 + i) + 10) * MB for i, size in enumerate(told))

        def is_near() -> bool:
            return all(
                one.used_bytes == pytest.approx(read_pss(one.pids)[0], rel=0.1, abs=8 * MB) for one in memory.ranks
            )

        until(lambda: whole() and is_near())  # every process has been visited
        assert [one.rank for one in memory.ranks] == [4, 5, 6, 7]
        assert sum(used(memory).values()) <= memory.used_bytes
        tree.close()
        for pid in [pid for one in memory.ranks for pid in one.pids]:
            os.kill(pid, signal.SIGKILL)
