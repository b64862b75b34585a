"""The clock in the memory of real programs, and which of log and memory is the run's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from memwatch.core.events import Event, GenerationSeen, SourceChanged, TotalSeen
from memwatch.sources.progress.clocks import CHECK_SECONDS, LOG_SECONDS, MIN_DIFFERENT, Clocks
from memwatch.sources.progress.heap_clock import FIRST_SEARCH_SECONDS, MIN_SEEN_SECONDS, HeapClock
from support.processes import running
from support.pythons import needed_python

HERE = f"3.{sys.version_info[1]}"
TICK_SECONDS = 0.1  # in which a second of the watch passes


def counting(way: str) -> list[str]:
    return [*needed_python(HERE).program("counting.py"), way]


@contextmanager
def clock_of(way: str) -> Iterator[HeapClock]:
    with running(counting(way)) as process, closing(HeapClock(process.pid)) as heap:
        yield heap


def watched(source: HeapClock | Clocks, until: Callable[[list[Event]], bool], seconds: int = 300) -> list[Event]:
    """The events of a watch whose seconds pass faster than those of the program."""
    events: list[Event] = []
    for now in range(seconds):
        events += source.poll(float(now))
        if until(events):
            return events
        time.sleep(TICK_SECONDS)
    raise AssertionError(f"{events[-5:]} and no more")


def generations(events: Iterable[Event]) -> list[GenerationSeen]:
    return [event for event in events if isinstance(event, GenerationSeen)]


def counted(number: int) -> Callable[[list[Event]], bool]:
    return lambda events: len(generations(events)) >= number


def test_a_loop_named_by_a_unit_is_the_clock_before_it_moves() -> None:
    with clock_of("trainer") as heap:
        first = generations(watched(heap, counted(1)))[0]
        assert (first.unit, first.index, first.total, first.at) == ("epoch", 0.0, 25, "start")
        assert first.origin.startswith("epoch of ") and not first.recount


def test_a_counter_beside_its_end_is_the_clock_before_it_moves() -> None:
    with clock_of("study") as heap:
        first = generations(watched(heap, counted(1)))[0]
        assert (first.unit, first.index, first.total) == ("trial", 1.0, 25)


def test_a_counter_is_the_clock_when_it_has_gone_up() -> None:
    with clock_of("module") as heap:
        seen = generations(watched(heap, counted(3)))
        assert [one.index for one in seen] == sorted(one.index for one in seen)
        assert {(one.unit, one.total, one.origin) for one in seen} == {("iteration", 700, "iter_num of <string>")}


def test_a_fast_clock_is_told_once_a_second_however_often_it_is_read() -> None:
    with clock_of("module") as heap:
        first = generations(watched(heap, counted(1)))[0]
        more = [event for tenth in range(1, 31) for event in polled_at(heap, first.t + tenth / 10)]
        assert 2 <= len(generations(more)) <= 4


def polled_at(heap: HeapClock, now: float) -> list[Event]:
    time.sleep(0.02)
    return list(heap.poll(now))


def test_a_loop_that_starts_again_and_again_is_no_clock() -> None:
    with clock_of("inner_loops") as heap:
        events = watched(heap, lambda _: bool(heap.watched) and heap.watched[0].falls >= 3)
        assert generations(events) == []


def test_the_end_of_a_loop_within_another_that_goes_on_is_not_the_end_of_the_run() -> None:
    with clock_of("within") as heap:
        first = generations(watched(heap, counted(1)))[0]
        assert (first.origin, first.total) == ("n_iter of within()", None)


def test_a_function_that_is_called_again_is_the_same_clock() -> None:
    with clock_of("twice") as heap:

        def went_on(events: list[Event]) -> bool:
            seen = [one.index for one in generations(events)]
            return any(later < earlier for earlier, later in pairwise(seen))

        assert not any(one.recount for one in generations(watched(heap, went_on)))


def test_a_program_without_a_count_is_searched_less_and_less_often() -> None:
    taken: list[float] = []

    def take(seconds: float) -> bool:
        taken.append(seconds)
        return False

    with running(counting("nothing")) as process, closing(HeapClock(process.pid, take)) as heap:
        for now in range(3600):
            assert list(heap.poll(float(now))) == []
    assert 10 <= len(taken) <= 20


def test_what_cannot_be_read_is_told_once() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        time.sleep(0.2)
        with closing(HeapClock(process.pid)) as heap:
            (told,) = watched(heap, bool)
            assert isinstance(told, SourceChanged) and not told.ok and "no CPython" in told.reason
            heap.poll(1000.0)
    finally:
        process.kill()
        process.wait()


def test_what_cannot_be_read_is_no_news_while_a_log_tells() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        time.sleep(0.2)
        for line, is_told in ((lambda now: GenerationSeen(now, now), False), (lambda now: None, True)):
            heap = HeapClock(process.pid)
            with closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
                events = [event for now in range(60) for event in slowly(clocks, float(now))]
            assert any(isinstance(event, SourceChanged) for event in events) == is_told
    finally:
        process.kill()
        process.wait()


def slowly(clocks: Clocks, now: float) -> list[Event]:
    time.sleep(0.05)
    return list(clocks.poll(now))


def test_nothing_is_left_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with clock_of("module") as heap:
        watched(heap, counted(1))
    assert set(Path("/proc/self/fd").iterdir()) == before


# --- beside a log -----------------------------------------------------------------------------------------------------


class Log:
    """A log that tells what `line` makes of the time."""

    name = "log"

    def __init__(self, line: Callable[[float], Event | None]) -> None:
        self._line = line

    def poll(self, now: float) -> Iterable[Event]:
        event = self._line(now)
        return [] if event is None else [event]

    def close(self) -> None: ...


def test_a_log_may_take_its_time_to_tell() -> None:
    with clock_of("module") as heap, closing(Clocks(Log(lambda _: None), None, heap, has_log=True)) as clocks:
        first = generations(watched(clocks, counted(1)))[0]
        assert LOG_SECONDS <= first.t < LOG_SECONDS + 20 and not first.recount


def test_a_count_that_stands_is_told_when_memory_becomes_the_clock() -> None:
    with clock_of("trainer") as heap, closing(Clocks(Log(lambda _: None), None, heap, has_log=True)) as clocks:
        first = generations(watched(clocks, counted(1)))[0]
        assert LOG_SECONDS <= first.t < LOG_SECONDS + 2 and (first.index, first.total) == (0.0, 25)


def test_the_log_is_preferred_and_begins_a_new_count() -> None:
    def line(now: float) -> Event | None:
        return GenerationSeen(now, now // 10, unit="epoch") if now >= 60 and now % 10 == 0 else None

    with clock_of("module") as heap, closing(Clocks(Log(line), None, heap, has_log=False)) as clocks:
        seen = generations(watched(clocks, lambda events: any(one.unit == "epoch" for one in generations(events))))
        assert seen[0].unit == "iteration" and [one.recount for one in seen[-2:]] == [False, True]
        rest = generations(watched(clocks, counted(3)))
        assert {one.unit for one in rest} == {"epoch"} and not any(one.recount for one in rest)


def test_what_a_log_told_before_the_watch_does_not_hold_the_count_in_memory() -> None:
    def line(now: float) -> Event | None:
        return GenerationSeen(now, 1185.0, before_watch=True) if now == 0.0 else None

    with clock_of("module") as heap, closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
        seen = generations(watched(clocks, counted(3)))
        assert [(one.unit, one.recount) for one in seen] == [
            ("generation", False),
            ("iteration", True),
            ("iteration", False),
        ]


def test_memory_is_preferred_to_a_log_that_tells_less() -> None:
    def line(now: float) -> Event | None:
        return GenerationSeen(now, 100 * now, unit="step") if now % 3 == 0 else None

    with (
        clock_of("module") as heap,
        closing(Clocks(Log(line), None, heap, has_log=True, is_coarse=lambda: True)) as clocks,
    ):
        seen = generations(watched(clocks, lambda events: len(events) > 9 and heap.clock is not None))
        rest = generations(watched(clocks, counted(3)))
    assert seen[0].unit == "step", "as long as memory tells nothing"
    assert "step" not in {one.unit for one in rest}


def test_memory_tells_the_end_that_the_log_does_not() -> None:
    with clock_of("module") as heap:

        def line(now: float) -> Event | None:  # as one that is printed after each iteration
            return GenerationSeen(now, heap.watched[0].value - 1, unit="iteration") if heap.watched else None

        with closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
            events = watched(clocks, lambda events: any(isinstance(one, TotalSeen) for one in events))
        assert [one.total for one in events if isinstance(one, TotalSeen)] == [700]
        (told,) = (one for one in events if isinstance(one, SourceChanged))
        assert told.reason == "the log's iteration is iter_num of <string> in memory"


def test_of_several_counts_that_keep_step_it_is_the_one_with_an_end() -> None:
    with clock_of("loaders") as heap:

        def line(now: float) -> Event | None:
            return GenerationSeen(now, heap.watched[0].value, unit="epoch") if heap.watched else None

        with closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
            events = watched(clocks, lambda events: any(isinstance(one, SourceChanged) for one in events))
        assert [one.total for one in events if isinstance(one, TotalSeen)] == [200]


def test_what_the_log_counted_before_another_unit_says_nothing_of_that() -> None:
    with clock_of("loaders") as heap:

        def line(now: float) -> Event | None:
            is_early = now < FIRST_SEARCH_SECONDS + 2 * MIN_DIFFERENT
            return GenerationSeen(now, 640.0 * now, unit="step") if is_early else epoch(now)

        def epoch(now: float) -> Event:
            return GenerationSeen(now, heap.watched[0].value, unit="epoch")

        with closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
            events = watched(clocks, lambda events: any(isinstance(one, SourceChanged) for one in events))
        assert [one.total for one in events if isinstance(one, TotalSeen)] == [200]


def test_a_log_that_counts_otherwise_is_used_and_it_is_told() -> None:
    def line(now: float) -> Event | None:
        return GenerationSeen(now, 1000.0 + 7.0 * now, total=9000, unit="iteration")

    with clock_of("module") as heap, closing(Clocks(Log(line), None, heap, has_log=True)) as clocks:
        events = watched(clocks, lambda events: any(isinstance(one, SourceChanged) for one in events))
        told = next(one for one in events if isinstance(one, SourceChanged))
        assert "the log says iteration" in told.reason and "the log's is used" in told.reason
        assert not any(one.origin for one in generations(events))


def test_beside_many_others_memory_is_not_searched_while_a_log_tells() -> None:
    with clock_of("module") as heap:
        log = Log(lambda now: GenerationSeen(now, now // 10))
        with closing(Clocks(log, None, heap, has_log=True, compares=False)) as clocks:
            for now in range(0, 400, 4):
                list(clocks.poll(float(now)))
        assert heap._began_t is None


def test_memory_is_not_read_for_ever_beside_a_log() -> None:
    with clock_of("nothing") as heap:
        clocks = Clocks(Log(lambda now: GenerationSeen(now, now)), None, heap, has_log=True)
        with closing(clocks):
            for now in (0.0, CHECK_SECONDS + 1.0):
                list(clocks.poll(now))
            assert heap._began_t == 0.0 and heap._task is None


@pytest.mark.parametrize("seconds", [MIN_SEEN_SECONDS])
def test_the_clock_waits_a_moment(seconds: float) -> None:
    with clock_of("trainer") as heap:
        first = generations(watched(heap, counted(1)))[0]
        assert first.t >= seconds
