"""What counts in real programs of each CPython, found and read from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.errors import SourceError
from memwatch.sources.progress.counter_places import CounterPlace, FoundPlaces, PlaceReader, number
from memwatch.sources.progress.counter_search import find_in_program, find_places, unit_of_counter, unit_of_total
from support.processes import running
from support.pythons import NAMES, OWN, needed_python

HERE = f"3.{sys.version_info[1]}"


def counting(name: str, way: str) -> list[str]:
    return [*needed_python(name).program("counting.py"), way]


def found_in(
    pid: int, is_enough: Callable[[dict[str, CounterPlace]], bool]
) -> tuple[FoundPlaces, dict[str, CounterPlace]]:
    """The places of a program by their names, once it has come so far."""
    end = time.monotonic() + 20
    while True:
        found = find_places(pid)
        places = {place.name: place for place in found.places}
        if is_enough(places):
            return found, places
        assert time.monotonic() < end, sorted(places)
        time.sleep(0.05)


def moves(found: FoundPlaces, place: CounterPlace) -> bool:
    """Whether its number goes up as the program runs on."""
    with closing(PlaceReader(found)) as reader:
        first, end = reader.value(place), time.monotonic() + 20
        while (value := reader.value(place)) == first and time.monotonic() < end:
            time.sleep(0.02)
    return value is not None and first is not None and value > first >= place.value


def named(places: dict[str, CounterPlace], name: str) -> CounterPlace:
    """The place of this name; a class's methods have it before their own name from CPython 3.11 on."""
    return next(place for key, place in places.items() if key == name or key == name.replace("Trainer.train", "train"))


@pytest.mark.parametrize("name", NAMES)
def test_loops_and_attributes_of_each_python(name: str) -> None:
    with running(counting(name, "trainer")) as process:
        found, places = found_in(process.pid, lambda known: "Trainer.global_step" in known and len(known) > 2)
        epoch = named(places, "epoch of Trainer.train()")
        assert (epoch.unit, epoch.value, epoch.total, epoch.first, epoch.known) == ("epoch", 0.0, 25, 0, True)
        inner = named(places, "i of Trainer.train()")
        assert (inner.unit, inner.total, inner.known) == ("iteration", 1000, False)
        assert inner.level > epoch.level
        step = places["Trainer.global_step"]
        assert (step.unit, step.total, step.known) == ("step", 5000, False), "its end is in the settings beside it"
        assert moves(found, step) and moves(found, inner)


@pytest.mark.parametrize("name", NAMES)
def test_variables_of_modules_slots_and_closures(name: str) -> None:
    for way, place, total in (
        ("module", "iter_num of <string>", 700),
        ("slots", "Slotted.iteration", 900),
        ("closed_over", "step of closed_over()", None),
    ):
        with running(counting(name, way)) as process:
            found, places = found_in(process.pid, lambda known, place=place: place in known)
            assert places[place].total == total
            assert moves(found, places[place])


@pytest.mark.parametrize("name", OWN)
def test_a_loop_from_one_ends_with_its_total(name: str) -> None:
    with running(counting(name, "evolve")) as process:
        found, places = found_in(process.pid, lambda known: "gen of evolve()" in known)
        assert (places["gen of evolve()"].total, places["gen of evolve()"].first) == (25, 1)
        assert moves(found, places["gen of evolve()"])


def test_large_numbers_are_read() -> None:
    with running(counting(HERE, "large")) as process:
        found, places = found_in(process.pid, lambda known: "step of <string>" in known)
        assert 2**40 <= places["step of <string>"].value < 2**40 + 3000
        assert moves(found, places["step of <string>"])


def test_a_bar_of_tqdm_tells_its_end_and_its_words() -> None:
    pytest.importorskip("tqdm", reason="needs tqdm: make tools")
    with running(counting(HERE, "bar")) as process:
        found, places = found_in(process.pid, lambda known: "the bar 'steps'" in known)
        bar = places["the bar 'steps'"]
        assert (bar.unit, bar.total, bar.at) == ("step", 3000, "end")
        assert moves(found, bar)


def test_a_place_is_gone_with_its_process() -> None:
    """What a function that has returned leaves on the stack may still be read: a count that stands."""
    with running(counting(HERE, "twice")) as process:
        found, places = found_in(process.pid, lambda known: "gen of evolve_shortly()" in known)
        place = places["gen of evolve_shortly()"]
        with closing(PlaceReader(found)) as reader:
            assert reader.value(place) is not None
            process.kill()
            process.wait()
            assert reader.value(place) is None


def test_a_program_that_counts_nothing_has_no_places() -> None:
    with running(counting(HERE, "nothing")) as process:
        time.sleep(0.5)
        assert find_places(process.pid).places == ()


def test_a_launcher_is_looked_through() -> None:
    code = f"import subprocess, sys; print('ready', flush=True); subprocess.run({counting(HERE, 'trainer')!r})"
    with running([sys.executable, "-c", code]) as launcher:
        end = time.monotonic() + 20
        while not (found := find_in_program(launcher.pid)).places and time.monotonic() < end:
            time.sleep(0.1)
        assert found.pid != launcher.pid
        assert "Trainer.global_step" in {place.name for place in found.places}
        subprocess.run(["pkill", "-P", str(launcher.pid)], check=False)


def test_workers_that_are_no_descendants_are_looked_into() -> None:
    with running(counting(HERE, "nothing")) as driver, running(counting(HERE, "trainer")) as worker:
        end = time.monotonic() + 20
        while not (found := find_in_program(driver.pid, [worker.pid])).places and time.monotonic() < end:
            time.sleep(0.1)
        assert found.pid == worker.pid
        assert "Trainer.global_step" in {place.name for place in found.places}


def test_what_is_no_python_says_so() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        time.sleep(0.2)
        with pytest.raises(SourceError, match="no CPython"):
            find_in_program(process.pid)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("epoch", "epoch"),
        ("current_epoch", "epoch"),
        ("currentEpoch", "epoch"),
        ("global_step", "step"),
        ("iter_num", "iteration"),
        ("n_iter", "iteration"),
        ("_n_updates", "update"),
        ("step_count", "step"),
        ("optimizer_steps", "step"),
        ("gen", "generation"),
        ("last_epoch", None),
        ("best_epoch", None),
        ("steps_in_epoch", None),
        ("eval_interval", None),
        ("job_tally_epoch", None),
        ("warmup_steps", None),
        ("logging_steps", None),
        ("learning_rate", None),
        ("i", None),
        ("", None),
    ],
)
def test_a_name_tells_whether_it_counts(name: str, unit: str | None) -> None:
    assert unit_of_counter(name) == unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("epochs", "epoch"),
        ("num_epochs", "epoch"),
        ("n_epochs", "epoch"),
        ("max_steps", "step"),
        ("MAX_ITERS", "iteration"),
        ("NUM_GENERATIONS", "generation"),
        ("ngen", "generation"),
        ("total_timesteps", "timestep"),
        ("epoch", None),
        ("iter_num", None),
        ("warmup_epochs", None),
        ("eval_steps", None),
        ("steps_per_epoch", None),
    ],
)
def test_a_name_tells_whether_it_is_a_total(name: str, unit: str | None) -> None:
    assert unit_of_total(name) == unit


@given(st.binary(min_size=32, max_size=32), st.integers(8, 15))
def test_any_bytes_are_a_number_or_none(raw: bytes, minor: int) -> None:
    kind = int.from_bytes(raw[8:16], "little")
    for found in (FoundPlaces(minor=minor, int_type=kind), FoundPlaces(minor=minor, float_type=kind, int_type=1)):
        value = number(raw, found)
        assert value is None or value >= 0.0


@given(st.text())
def test_any_name_has_a_unit_or_none(name: str) -> None:
    assert unit_of_counter(name) is None or isinstance(unit_of_counter(name), str)
    assert unit_of_total(name) is None or isinstance(unit_of_total(name), str)
