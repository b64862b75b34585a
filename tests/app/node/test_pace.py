"""How often a watch samples where it is one of many."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable

import pytest

from memwatch.app.node import pace
from memwatch.app.node.pace import NodeBoard, SharedPace
from memwatch.sources.memory.memory_peek import MemoryPeek


class Cpu:
    """A process whose CPU time is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1.0
        monkeypatch.setattr("memwatch.app.node.pace.time.process_time", lambda: self.seconds)


def settled(one: SharedPace, cpu: Cpu, cost: float) -> float:
    for _ in range(40):
        cpu.seconds += cost
        one.next_interval()
    return one.interval


def test_all_watches_keep_within_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, board = Cpu(monkeypatch), NodeBoard(300, cpu_share=0.04)
    one = SharedPace(board, board.free.pop(), 1.0, 30.0)
    board.watches = 4
    assert one.next_interval() == pytest.approx(1.0, rel=0.1), "what the start has cost does not count"
    assert settled(one, cpu, 0.003) == pytest.approx(1.0, rel=0.1)
    board.watches = 100
    assert settled(one, cpu, 0.003) == pytest.approx(0.003 * 100 / 0.03, rel=0.1)
    board.watches = 300
    assert settled(one, cpu, 0.005) == pytest.approx(30.0, rel=0.1)


def test_watches_that_begin_together_drift_apart() -> None:
    board = NodeBoard(50, cpu_share=0.04)
    intervals = [SharedPace(board, slot, 10.0, 30.0).next_interval() for slot in board.free]
    assert len({round(one, 2) for one in intervals}) > 40
    assert sum(intervals) / len(intervals) == pytest.approx(10.0, rel=0.02)


def test_signs_of_life_are_shared_with_forks() -> None:
    board = NodeBoard(4, 0.04)
    slot = board.free.pop()
    pid = os.fork()
    if pid == 0:
        board.beat(slot)
        os._exit(0)
    os.waitpid(pid, 0)
    assert 0.0 <= time.monotonic() - board.last_beat(slot) < 5.0


def test_examinations_have_a_budget_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("memwatch.app.node.pace.time.monotonic", lambda: now[0])
    board = NodeBoard(4, cpu_share=0.04)
    assert board.take(0.5) and board.take(0.75) and not board.take(0.1)
    board.correct(0.25)
    now[0] += 49.0  # 1 % of a core: the half second that was taken too much takes 50
    assert not board.take(0.1)
    now[0] += 2.0
    assert board.take(0.1)


@pytest.mark.parametrize(("moved", "early"), [(4_000_000, False), (6_000_000, True), (-6_000_000, True)])
def test_memory_that_moves_is_sampled_at_once(monkeypatch: pytest.MonkeyPatch, moved: int, early: bool) -> None:
    now = [0.0]
    monkeypatch.setattr("memwatch.app.node.pace.time.monotonic", lambda: now[0])
    one = SharedPace(NodeBoard(4, 0.04), 5, 1.0, 30.0)
    peek = MemoryPeek(os.getpid())
    monkeypatch.setattr(MemoryPeek, "read", lambda self: (50_000_000 + (moved if now[0] >= 3 else 0), 0))
    slept: list[float] = []

    def sleep(seconds: float) -> bool:
        slept.append(seconds)
        now[0] += seconds
        return False

    asleep: Callable[[float], bool] = one.with_peeks(sleep, peek, lambda _: 100_000_000.0)
    assert asleep(10.0) is early
    assert sum(slept) == pytest.approx(3.0 if early else 10.0)
    assert max(slept) == pace.MIN_PEEK_SECONDS


def test_a_peek_reads_this_process() -> None:
    peek = MemoryPeek(os.getpid())
    before = peek.read()
    held = mmap.mmap(-1, 60_000_000)  # of the system: what the allocator has freed may be resident already
    held.write(b"x" * len(held))
    after = peek.read()
    assert after[0] - before[0] >= 0.9 * len(held)
    held.close()
    peek.close()
    assert MemoryPeek(2**22).read() == (0, 0)
