"""What a trainer marks by itself: over real sockets, from this process, from workers, from other interpreters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memwatch
from memwatch import marking
from memwatch.core.events import (
    CheckpointSeen,
    Event,
    GaugeSeen,
    GenerationSeen,
    OutOfMemorySeen,
    PhaseSeen,
    SourceChanged,
    TotalSeen,
)
from memwatch.sources.progress.clocks import Clocks
from memwatch.sources.progress.marks import ProgressMarks, parse_mark
from support.pythons import OWN, pythons

MODULE = Path(marking.__file__)


@pytest.fixture(autouse=True)
def unconnected() -> Iterator[None]:
    """As in a program that has just begun."""
    marking._begin(0)
    yield
    marking._begin(0)


@pytest.fixture
def marks() -> Iterator[ProgressMarks]:
    source = ProgressMarks(os.getpid())
    yield source
    source.close()


def polled(marks: ProgressMarks) -> list[Event]:
    return list(marks.poll(time.time()))


def test_each_kind_of_mark_is_an_event(marks: ProgressMarks) -> None:
    before = time.time()
    memwatch.mark(epoch=3, total=25, phase="train", loss=0.5, buffer=(448, 5000))
    memwatch.mark(saving="/runs/a.pt")
    memwatch.mark(saved="/runs/a.pt")
    memwatch.mark(total=30)
    began, generation, phase, loss, buffer, saving, saved, total = polled(marks)
    assert isinstance(began, SourceChanged) and began.ok and "epoch" in began.reason
    assert isinstance(generation, GenerationSeen)
    assert (generation.index, generation.total, generation.unit, generation.at) == (3.0, 25, "epoch", "start")
    assert before <= generation.t <= time.time()
    assert isinstance(phase, PhaseSeen) and (phase.phase, phase.at) == ("train", "start")
    assert isinstance(loss, GaugeSeen) and (loss.name, loss.value, loss.capacity) == ("loss", 0.5, None)
    assert isinstance(buffer, GaugeSeen) and (buffer.value, buffer.capacity) == (448.0, 5000.0)
    assert isinstance(saving, CheckpointSeen) and (saving.state, saving.path) == ("writing", "/runs/a.pt")
    assert isinstance(saved, CheckpointSeen) and saved.state == "saved"
    assert isinstance(total, TotalSeen) and total.total == 30
    assert polled(marks) == []


def test_the_first_number_is_the_clock_and_stays_it(marks: ProgressMarks) -> None:
    marking.mark(step=1, epoch=0)
    marking.mark(epoch=1)
    marking.mark(step=2)
    counted = [event for event in polled(marks) if isinstance(event, GenerationSeen)]
    assert [(one.unit, one.index) for one in counted] == [("step", 1.0), ("step", 2.0)]


def test_a_mark_keeps_its_own_time_within_what_can_be_true(marks: ProgressMarks) -> None:
    now = time.time()
    marks.poll(now - 1.0)
    connection = marking.connect([os.getpid()])
    assert connection is not None
    with connection:
        for t in (now - 0.5, now - 60.0, now + 60.0):
            connection.send(json.dumps({"epoch": t, "t": t}).encode())
    times = [event.t for event in marks.poll(now) if isinstance(event, GenerationSeen)]
    assert times == [now - 0.5, now - 1.0, now]


def test_a_forked_worker_marks_for_the_process_above_it(marks: ProgressMarks) -> None:
    marking.mark(epoch=1)
    worker = os.fork()
    if worker == 0:
        os._exit(0 if marking.mark(epoch=2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
    assert [event.index for event in polled(marks) if isinstance(event, GenerationSeen)] == [1.0, 2.0]


def test_where_nobody_listens_nothing_happens_and_it_costs_a_microsecond() -> None:
    assert not marking.mark(epoch=1)
    began = time.perf_counter()
    for epoch in range(10_000):
        marking.mark(epoch=epoch, total=1000)
    assert (time.perf_counter() - began) / 10_000 < 50e-6, "1 us on a calm machine"


def test_a_watch_that_begins_later_or_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "RETRY_SECONDS", 0.0)
    assert not marking.mark(epoch=1)
    for epoch in (2.0, 3.0):
        marks = ProgressMarks(os.getpid())
        assert any(marking.mark(epoch=epoch) for _ in range(2)), "the first mark after an end may notice that"
        assert [event.index for event in polled(marks) if isinstance(event, GenerationSeen)] == [epoch]
        marks.close()


def test_a_hundred_marks_between_two_polls_are_all_there(marks: ProgressMarks) -> None:
    for step in range(100):
        assert marking.mark(step=step)
    assert [event.index for event in polled(marks) if isinstance(event, GenerationSeen)] == [*map(float, range(100))]


def test_what_there_was_no_room_for_comes_with_the_next_mark(marks: ProgressMarks) -> None:
    marking.mark(epoch=0)
    while marking.mark(loss=1.0):
        pass
    marking.mark(saved="/runs/a.pt")
    polled(marks)
    polled(marks)
    assert marking.mark(epoch=1)
    told = [type(event) for event in polled(marks)]
    assert GenerationSeen in told and CheckpointSeen in told


@pytest.mark.parametrize("value", [object(), "x" * 100_000, float("nan"), {"a": {1, 2}}])
def test_what_cannot_be_sent_raises_nothing(marks: ProgressMarks, value: object) -> None:
    marking.mark(epoch=value)
    assert not any(isinstance(event, GenerationSeen) for event in polled(marks))


def test_a_watcher_that_does_not_read_stops_no_trainer(marks: ProgressMarks) -> None:
    began = time.perf_counter()
    sent = [marking.mark(epoch=epoch) for epoch in range(5000)]
    assert not all(sent) and time.perf_counter() - began < 5.0


def test_a_second_watch_of_the_process_does_not_listen(marks: ProgressMarks) -> None:
    with pytest.raises(OSError, match="in use"):
        ProgressMarks(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a process of another user")
@pytest.mark.parametrize(("uid", "heard"), [(None, 0), (65534, 1)])
def test_only_the_trainers_user_and_root_are_heard(uid: int | None, heard: int) -> None:
    marks = ProgressMarks(os.getpid(), uid=uid)
    try:
        stranger = os.fork()
        if stranger == 0:
            os.setuid(65534)
            os._exit(0 if marking.mark(epoch=1) else 1)
        assert os.waitpid(stranger, 0)[1] == 0
        assert sum(isinstance(event, GenerationSeen) for event in polled(marks)) == heard
    finally:
        marks.close()


@pytest.mark.parametrize("name", OWN)
def test_the_module_alone_is_enough_for_each_python(name: str, marks: ProgressMarks, tmp_path: Path) -> None:
    python = pythons().get(name)
    if python is None:
        pytest.skip(f"no CPython {name} here")
    shutil.copy(MODULE, tmp_path / "memwatch_mark.py")
    program = "from memwatch_mark import mark; import sys; sys.exit(not mark(epoch=7, total=9))"
    assert subprocess.run([*python.command, "-c", program], cwd=tmp_path, check=False).returncode == 0
    assert [event.total for event in polled(marks) if isinstance(event, GenerationSeen)] == [9]


def test_it_imports_nothing_of_memwatch_and_no_package() -> None:
    program = "import sys, memwatch; memwatch.mark; print([m for m in sys.modules if m.startswith('memwatch')])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(MODULE.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['memwatch', 'memwatch.marking']"


# --- beside a log ---------------------------------------------------------------------------------------------------


class Log:
    name = "log"

    def __init__(self, *polls: Sequence[Event]) -> None:
        self._polls = list(polls)

    def poll(self, now: float) -> Iterable[Event]:
        return self._polls.pop(0) if self._polls else ()

    def close(self) -> None: ...


def test_marks_are_the_clock_and_the_log_tells_the_rest(marks: ProgressMarks) -> None:
    of_log = [
        GenerationSeen(1.0, 40, 100, unit="step"),
        TotalSeen(1.0, 100),
        PhaseSeen(1.0, "evaluate"),
        GaugeSeen(1.0, "buffer", 5.0),
        OutOfMemorySeen(1.0, "memory_error", "MemoryError"),
    ]
    both = Clocks(Log(of_log, of_log, of_log), marks, None, has_log=True)
    assert list(both.poll(time.time())) == of_log
    marking.mark(epoch=1, total=3)
    _, counted, *rest = both.poll(time.time())
    assert isinstance(counted, GenerationSeen) and counted.recount, "the log's count was one of something else"
    assert rest == of_log[3:]
    marking.mark(epoch=2)
    counted, *rest = both.poll(time.time())
    assert isinstance(counted, GenerationSeen) and not counted.recount
    assert rest == of_log[3:]


# --- hostile --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_bytes_are_a_mark_or_nothing(raw: bytes) -> None:
    assert isinstance(parse_mark(raw), dict)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"epoch": 1e300}, {}),
        ({"epoch": True}, {}),
        ({"epoch": None, "a": []}, {}),
        ({"a": [1, 2, 3]}, {}),
        ({"a": [1, "x"]}, {}),
        ({"a\x1b[31m": 1}, {"a": 1.0}),
        ([1, 2], {}),
        ({"b": "x\ny"}, {"b": "x y"}),
    ],
)
def test_what_is_no_value_is_left_out(sent: object, read: dict[str, object]) -> None:
    assert parse_mark(json.dumps(sent).encode()) == read
