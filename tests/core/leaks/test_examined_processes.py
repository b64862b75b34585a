"""Which process is examined next."""

from __future__ import annotations

from dataclasses import replace

from memwatch.core.events import Diagnosed
from memwatch.core.examination import Census, Diagnose, Examination, ProcessSize
from memwatch.core.leaks.examined_processes import ProcessChoice

MB = 10**6
CENSUS = Census("3.11", 0.1, True, False, ())


def sizes(*megabytes: int) -> tuple[ProcessSize, ...]:
    """The trainer's own process, then workers."""
    return tuple(ProcessSize(10 + i, 1, "python3", size * MB) for i, size in enumerate(megabytes))


def examined(choice: ProcessChoice, *megabytes: int, fails: bool = False) -> int | None:
    """One examination of the process that was chosen; the PID of the worker that is chosen next."""
    asked = Diagnose(0.0, "generation", 1.0, None, None, 1 << 28, worker=choice.worker)
    names = None if fails and choice.worker is not None else CENSUS
    choice.add(Diagnosed(1.0, asked, Examination(names=names, processes=sizes(*megabytes))))
    return None if choice.worker is None else choice.worker.pid


def test_workers_that_grow_are_examined_and_one_stands_for_those_alike():
    choice = ProcessChoice(5 * MB)
    assert examined(choice, 100, 50, 50, 50) is None
    assert examined(choice, 100, 60, 61, 50) == 12
    assert (choice.alike, choice.workers_explain) == (2, True)
    assert examined(choice, 100, 75, 70, 50) == 12, "it stays, though another grows a little more"
    assert examined(choice, 100, 120, 72, 50) == 11, "it does not grow like the others any more"


def test_the_trainers_own_process_and_its_workers_take_turns_by_their_growth():
    choice = ProcessChoice(5 * MB)
    turns = [examined(choice, 100 + 20 * i, 50 + 40 * i) is not None for i in range(30)]
    assert 0.55 < sum(turns) / len(turns) < 0.75
    choice = ProcessChoice(5 * MB)
    assert not any(examined(choice, 100 + 20 * i, 50 + i // 5) for i in range(20))
    assert not choice.workers_explain


def test_a_worker_that_cannot_be_read_is_left_alone():
    choice = ProcessChoice(5 * MB)
    examined(choice, 100, 50, 50)
    assert examined(choice, 100, 90, 70) == 11
    assert examined(choice, 100, 130, 90, fails=True) == 12


def test_another_process_of_the_same_pid_begins_anew():
    choice = ProcessChoice(5 * MB)
    examined(choice, 100, 50)
    own, worker = sizes(100, 90)
    asked = Diagnose(0.0, "generation", 1.0, None, None, 1 << 28)
    choice.add(Diagnosed(1.0, asked, Examination(names=CENSUS, processes=(own, replace(worker, start_ticks=2)))))
    assert choice.worker is None
