"""What rises from one examination to the next, since when, and in which phase."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.leaks.examination_history import (
    FIRST_RECORDS_KEPT,
    LATEST_RECORDS_KEPT,
    ExaminationHistory,
    trailing_growth,
)
from support.examinations import examined

MB = 10**6


def test_a_rise_is_told_with_its_rate_and_its_beginning():
    found = trailing_growth("kept", [(1, 50), (2, 50), (3, 60), (4, 70), (5, 80)])
    assert (found.before, found.after, found.per_unit, found.since, found.steps) == (50, 80, 10.0, 2, 3)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, 5)],
        [(1, 5), (2, 9)],
        [(1, 5), (2, 9), (3, 9)],
        [(1, 9), (2, 5), (3, 9)],
        [(1, 0), (2, 1000), (3, 1001)],  # the first is the program's start, not growth
        [(1, 5), (1, 6), (1, 7)],
    ],
)
def test_one_step_or_one_that_is_unlike_the_others_is_no_rise(points):
    assert trailing_growth("x", points) is None


def test_the_latest_of_one_place_counts():
    assert trailing_growth("x", [(1, 0), (2, 9), (2, 10), (3, 20)]).per_unit == 10.0


@pytest.mark.parametrize(
    ("slack", "since"),
    [(0.0, None), (1.0, 2)],  # of 0.5 s each, and of a minute
)
def test_where_generations_are_as_short_as_a_look_two_of_them_may_show_the_same(slack, since):
    found = trailing_growth("x", [(2, 20), (4, 40), (6, 60), (7, 60), (18, 170)], slack)
    assert (found and found.since) == since
    assert trailing_growth("x", [(2, 20), (4, 40), (6, 60), (7, 60)], slack) is None  # it may have ended
    assert trailing_growth("x", [(2, 20), (4, 40), (6, 60), (7, 50), (18, 170)], slack) is None


@given(st.lists(st.integers(0, 10**12), min_size=3, max_size=12), st.integers(1, 100), st.floats(0.001, 1000))
def test_a_rise_never_begins_before_the_series_and_never_falls(values, first, step):
    points = [(first + i * step, value) for i, value in enumerate(values)]
    found = trailing_growth("x", points)
    if found is not None:
        assert points[0][0] <= found.since < points[-1][0]
        assert found.after > found.before and found.per_unit > 0 and found.steps >= 2


def test_attributes_types_and_kinds_that_grow_are_told_the_fastest_first():
    evidence = ExaminationHistory(0.0)
    for generation in (1, 2, 3):
        evidence.add(
            examined(
                generation,
                used=generation * 100 * MB,
                containers={
                    "__main__.A.a": generation * 10 * MB,
                    "__main__.B.b": generation * 50 * MB,
                    "__main__.C.c": MB,
                },
                counts={"__main__.Loss": 16 * generation, "__main__.Agent": 16},
            )
        )
    assert [one.name for one in evidence.growing_attributes()] == ["__main__.B.b", "__main__.A.a"]
    assert [(one.name, one.before, one.after) for one in evidence.types_growing_in_count()] == [
        ("__main__.Loss", 16, 48)
    ]
    assert evidence.memory_growth().per_unit == 100 * MB


def test_an_attribute_that_was_not_told_of_before_held_nothing_worth_telling():
    evidence = ExaminationHistory(0.0)
    for generation, size in ((1, None), (2, 33 * MB), (3, 66 * MB)):
        evidence.add(examined(generation, containers={} if size is None else {"__main__.T.kept": size}))
    (found,) = evidence.growing_attributes()
    assert (found.before, found.since, found.per_unit) == (0, 1, 33 * MB)


def test_an_attribute_that_one_examination_did_not_find_is_not_empty_there():
    evidence = ExaminationHistory(0.0)
    for generation, size in ((1, 40 * MB), (2, 41 * MB), (3, None), (4, 40 * MB), (5, 41 * MB)):
        evidence.add(examined(generation, containers={} if size is None else {"__main__.T.buffer": size}))
    assert evidence.growing_attributes() == []
    evidence.add(examined(6, containers={"__main__.T.buffer": 43 * MB}))
    assert [(one.since, one.before) for one in evidence.growing_attributes()] == [(4, 40 * MB)]


def test_a_local_variable_that_was_missing_has_not_grown_since():
    evidence = ExaminationHistory(0.0)
    for generation, size in ((1, None), (2, 20 * MB), (3, 30 * MB)):
        held = {} if size is None else {"local variable of forward: y": size, "__main__.T.kept": size}
        evidence.add(examined(generation, containers=held))
    assert [one.name for one in evidence.growing_attributes()] == ["__main__.T.kept"]
    evidence.add(examined(4, containers={"local variable of forward: y": 40 * MB}))
    assert [one.since for one in evidence.growing_attributes()] == [2], "in each look since then"


def test_only_examinations_at_like_moments_are_compared():
    evidence = ExaminationHistory(0.0)
    for generation in (1, 2):
        evidence.add(examined(generation, containers={"__main__.T.kept": generation * MB}))
        evidence.add(examined(generation, reason="phase", containers={"__main__.T.kept": generation * 7 * MB}))
    assert evidence.growing_attributes() == []


def test_an_examination_that_takes_long_belongs_to_the_generation_in_which_it_read_the_heap():
    """Memory is that of the moment at which the heap was read, however late an examination was asked for."""
    evidence = ExaminationHistory(0.0)
    for asked, read, used in ((1, 1, 100), (1, 2, 140), (3, 3, 170)):
        evidence.begin_generation(100.0 * read, read)
        evidence.add_phase_reading(100.0 * read, (read * 100 - 10) * MB, "train")
        evidence.add_phase_reading(100.0 * read + 20.0, (read * 100 + 10) * MB, "train")
        late = examined(asked, used=used * MB, containers={"__main__.T.kept": read * 40 * MB})
        evidence.add(replace(late, found=replace(late.found, after_seconds=100.0 * (read - asked) + 10.0)))
    assert [one.position for one in evidence.records] == [1, 2, 3]
    assert [one.used_bytes for one in evidence.records][1:] == [200 * MB, 240 * MB]
    assert evidence.growing_attributes()[0].per_unit == 40 * MB


def test_objects_stand_where_they_were_counted_though_sizes_were_read_later():
    evidence = ExaminationHistory(0.0)
    for index in range(1, 9):
        evidence.begin_generation(100.0 * index, float(index))
    for asked, took in ((1, 0.0), (2, 300.0), (6, 0.0)):
        event = examined(asked, used=asked * MB, counts={"a.Kept": 10 * asked}, sizes={"a.Kept": asked * MB})
        census = replace(event.found.census, sizing_seconds=took)
        evidence.add(replace(event, found=replace(event.found, census=census, after_seconds=took)))
    assert [record.position for record in evidence.records] == [1.0, 5.0, 6.0]
    (counted,) = evidence.types_growing_in_count()
    assert (counted.per_unit, counted.since) == (10.0, 1.0)
    assert evidence.heap_growth().per_unit == MB


def test_attributes_stand_where_their_sizes_began_to_be_read_with_the_memory_of_then():
    """A throttled examination pauses while it follows a long chain, whose older parts stay as they are."""
    evidence = ExaminationHistory(0.0)
    for index in range(1, 6):
        evidence.begin_generation(100.0 * index, float(index))
        evidence.add_phase_reading(100.0 * index, index * MB)
    event = examined(1, containers={"__main__.T.kept": MB})
    census = replace(event.found.census, sizing_seconds=250.0, measuring_seconds=200.0)
    evidence.add(replace(event, found=replace(event.found, census=census, after_seconds=400.0)))
    (record,) = evidence.records
    assert (record.position, record.used_bytes, record.counted_position) == (3.0, 3 * MB, 2.5)


def test_within_a_generation_that_had_begun_before_the_watch_an_examination_stands_where_it_was_made():
    evidence = ExaminationHistory(0.0)
    evidence.add(examined(1, t=160.0, containers={"__main__.T.kept": 40 * MB}))  # 40 s before the second generation
    for generation in (2, 3, 4):
        evidence.begin_generation(100.0 * generation, generation)
        evidence.add(examined(generation, containers={"__main__.T.kept": (16 + 40 * (generation - 1)) * MB}))
    assert [one.position for one in evidence.records] == [1.6, 2, 3, 4]
    [growth] = evidence.growing_attributes()
    assert (growth.per_unit, growth.steps) == (40 * MB, 3)
    assert evidence.stride == 1.0


def test_without_generations_the_unit_is_an_hour():
    evidence = ExaminationHistory(1000.0)
    for hour in (0, 1, 2):
        evidence.add(examined(None, t=1000.0 + 3600 * hour, reason="time", used=hour * 5 * MB + MB))
    assert evidence.memory_growth().per_unit == pytest.approx(5 * MB)


def test_few_are_kept_and_the_first_stays():
    evidence = ExaminationHistory(0.0)
    for generation in range(1, 100):
        evidence.add(examined(generation, used=generation))
    assert len(evidence.records) == FIRST_RECORDS_KEPT + LATEST_RECORDS_KEPT and evidence.records[0].position == 1
    assert evidence.memory_growth().since == 1


def run_of(phase: str, evidence: ExaminationHistory, generations: int = 3) -> None:
    """Examinations at the beginning of each phase; an attribute grows by 30 MB at the end of one of them."""
    t, size, used = 0.0, 0, 500 * MB
    for generation in range(1, generations + 1):
        for name, grows in (("evaluate", 34), ("train", 3), ("evolve", 0)):
            evidence.add_phase_reading(t, used, name)
            reason = "generation" if name == "evaluate" else "phase"
            evidence.add(examined(generation, t=t, reason=reason, containers={"__main__.T.kept": size}))
            t += 30.0
            size += 30 * MB if name == phase else 0
            used += (30 if name == phase else 0) * MB + grows * MB
    evidence.add_phase_reading(t, used, "evaluate")
    evidence.add(examined(generations + 1, t=t, containers={"__main__.T.kept": size}))


@pytest.mark.parametrize("phase", ["evaluate", "train", "evolve"])
def test_the_phase_in_which_memory_grows_as_it_does_is_told(phase):
    evidence = ExaminationHistory(0.0)
    run_of(phase, evidence)
    assert evidence.phase_of("__main__.T.kept") == phase


def test_where_an_attribute_is_not_told_of_its_size_is_not_known():
    evidence, used = ExaminationHistory(0.0), 500 * MB
    for generation in (1, 2, 3):
        t, size = generation * 100.0, (generation - 1) * 30 * MB
        sizes = {"__main__.T.kept": size} if size else {}
        evidence.add_phase_reading(t, used, "evaluate")
        evidence.add(examined(generation, t=t + 5, containers=sizes))
        evidence.add_phase_reading(t + 50, used + 30 * MB, "evolve")
        evidence.add(examined(generation, t=t + 55, reason="phase", containers=sizes))
        evidence.add_phase_reading(t + 100, used + 60 * MB, "evaluate")
        # its objects were looked for in the phase before: an attribute that had none yet is left out
        sizes = {"__main__.T.kept": size + 30 * MB} if size else {}
        evidence.add(examined(generation, t=t + 102, reason="phase", containers=sizes))
        used += 60 * MB
    assert evidence.phase_of("__main__.T.kept") == "evolve"


@pytest.mark.parametrize(("after_change", "phase"), [(0, "evolve or evaluate"), (15, "evaluate"), (30, "evaluate")])
def test_two_phases_are_named_where_memory_grows_only_as_one_becomes_the_other(after_change, phase):
    evidence, size, used = ExaminationHistory(0.0), 0, 0
    for t in (0.0, 100.0, 200.0, 300.0):
        evidence.add_phase_reading(t, used, "evaluate")
        used += after_change * MB
        evidence.add_phase_reading(t + 8, used, "evaluate")
        evidence.add(examined(t // 100, t=t + 9, containers={"__main__.T.kept": size}))
        evidence.add_phase_reading(t + 50, used, "evolve")
        evidence.add(examined(t // 100, t=t + 55, reason="phase", containers={"__main__.T.kept": size}))
        evidence.add_phase_reading(t + 99, used, "evolve", "evaluate")
        size, used = size + 30 * MB, used + (30 - after_change) * MB
    assert evidence.phase_of("__main__.T.kept") == phase


def test_phases_that_examinations_do_not_tell_apart_are_not_named():
    evidence, t, used = ExaminationHistory(0.0), 0.0, 0
    for generation in range(1, 5):
        evidence.add_phase_reading(t, used, "evaluate")
        evidence.add(examined(generation, t=t, containers={"__main__.T.kept": generation * 30 * MB}))
        evidence.add_phase_reading(t + 50, used + 15 * MB, "train")
        t, used = t + 100, used + 30 * MB
    assert evidence.phase_of("__main__.T.kept") is None
    assert evidence.phase_of("__main__.T.other") is None


def test_an_examination_without_sizes_or_of_a_part_is_not_compared():
    evidence = ExaminationHistory(0.0)
    for generation in (1, 2, 3):
        evidence.add(examined(generation, used=generation * 100 * MB, sizes={"dict": 50 * MB}, counts={"dict": 9}))
    whole = examined(4, used=400 * MB, counts={"dict": 9})
    census = whole.found.census
    counts = replace(census, types=(replace(census.types[0], bytes=None),))
    for one in (counts, replace(census, complete=False), None):
        evidence.add(replace(whole, found=replace(whole.found, census=one)))
    assert len(evidence.records) == 3 and evidence.records[-1].heap_bytes == 50 * MB


def test_what_memory_keeps_of_what_objects_left_is_told_at_the_least():
    """Memory was read low before the objects came, and high before they went: neither says that it was kept."""
    evidence = ExaminationHistory(0.0)
    evidence.add_phase_reading(101.0, 300 * MB, "train")
    evidence.add(examined(1, t=100.0, reason="phase", used=100 * MB, sizes={"bytes": 200 * MB}))
    evidence.add_phase_reading(201.0, 110 * MB, "evaluate")
    evidence.add(examined(2, t=200.0, used=300 * MB, sizes={"bytes": 5 * MB}))
    (left,) = evidence.freed_within_generation
    assert (left.bytes, left.kept_bytes, left.since, left.units) == (195 * MB, 5 * MB, 1, 1)


def test_of_memory_that_is_not_known_nothing_was_kept():
    evidence = ExaminationHistory(0.0)
    for n, used in ((1, None), (2, 300 * MB)):
        evidence.add(examined(n, used=used, sizes={"bytes": (20 - 5 * n) * MB}))
    assert not evidence.freed_within_generation


@pytest.mark.parametrize(
    ("used", "grows"), [((239, 452, 511), False), ((239, 452, 665), True), ((239, 298, 511), True)]
)
def test_growth_that_was_just_seen_and_slows_by_half_may_be_a_start(used: tuple[int, ...], grows: bool):
    history = ExaminationHistory(0.0)
    for n, one in enumerate(used, 1):
        history.add(examined(n, used=one * MB))
    assert (history.memory_growth() is not None) == grows


@pytest.mark.parametrize(
    ("used", "grows"),
    [
        ((100, 150, 200, 250, 250), True),
        ((100, 150, 200, 250, 250, 250), False),
        ((100, 150, 200, 250, 240), True),
        ((100, 150, 200, 250, 190), False),
        ((100, 150, 200, 200), False),
    ],
    ids=["a rest", "an end", "less than before", "as before it rose", "a start"],
)
def test_one_look_without_a_rise_does_not_end_growth_that_was_seen_several_times(used: tuple[int, ...], grows: bool):
    history = ExaminationHistory(0.0)
    for n, one in enumerate(used, 1):
        history.add(examined(n, used=one * MB))
    assert (history.memory_growth() is not None) == grows
