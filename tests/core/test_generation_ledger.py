"""The ledger: rows, partial rows, repeats, jumps, phases, habits and bounded memory."""

from __future__ import annotations

import pytest

from memwatch.core.events import GenerationSeen, PhaseSeen
from memwatch.core.generation_ledger import KEEP_FIRST, KEEP_LAST, MAX_PHASES, GenerationLedger

MB = 10**6


def mark(ledger: GenerationLedger, t: float, index: float, at: str = "start", total: int | None = None):
    return ledger.add_marker(t, GenerationSeen(t, index, total, at=at))


def test_start_markers_begin_rows_and_what_came_before_is_no_generation():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (5 * MB,))
    first = mark(ledger, 1, 1)
    assert first is not None and first.closed == {}
    ledger.add_samples((2,), "host", (9 * MB,))
    ledger.add_samples((3,), "host", (7 * MB,))
    second = mark(ledger, 4, 2)
    assert second is not None
    row = second.closed["host"]
    assert (row.index, row.start_t, row.end_t) == (1, 1, 4)
    assert (row.start_bytes, row.peak_bytes, row.end_bytes, row.delta_bytes) == (5 * MB, 9 * MB, 7 * MB, 2 * MB)
    assert not row.partial
    assert [r.index for r in ledger.rows("host")] == [1, 2]
    assert ledger.rows("host")[-1].end_t is None


def test_the_first_end_marker_closes_a_partial_row_and_begins_the_next():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (5 * MB,))
    boundary = mark(ledger, 10, 7, at="end")
    assert boundary is not None and boundary.index == 8
    assert boundary.closed["host"].index == 7
    assert boundary.closed["host"].partial
    assert ledger.complete_generations == 0
    ledger.add_samples((11,), "host", (6 * MB,))
    boundary = mark(ledger, 20, 8, at="end")
    assert boundary is not None and not boundary.closed["host"].partial
    assert ledger.complete_generations == 1


def test_a_sparse_end_marker_names_the_row_that_it_closes():
    ledger = GenerationLedger()
    for t, index in ((10, 100), (20, 200), (30, 300)):
        ledger.add_samples((t - 1,), "host", (t * MB,))
        mark(ledger, t, index, at="end")
    assert [row.index for row in ledger.rows("host")] == [100, 200, 300, 301]


@pytest.mark.parametrize("at", ["start", "progress"])
def test_a_repeated_index_makes_no_boundary(at):
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (MB,))
    assert mark(ledger, 1, 3, at=at) is not None
    assert mark(ledger, 2, 3, at=at) is None


def test_end_and_start_markers_of_one_program_make_one_boundary_each():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (MB,))
    assert mark(ledger, 1, 1) is not None
    assert mark(ledger, 2, 1, at="end") is not None
    assert mark(ledger, 2.1, 2) is None


def test_a_count_that_goes_back_begins_anew_and_leaves_a_partial_row():
    ledger = GenerationLedger()
    for t, index in ((1, 1), (2, 2), (3, 3)):
        mark(ledger, t, index)
        ledger.add_samples((t + 0.5,), "host", (MB,))
    boundary = mark(ledger, 4, 2)
    assert boundary is not None and boundary.index == 2
    assert boundary.closed["host"].index == 3 and boundary.closed["host"].partial
    assert ledger.generation_seconds(4) is None


@pytest.mark.parametrize(
    ("marks", "at", "last"),
    [([0, 1], "start", 24), ([1, 2], "start", 25), ([1], "end", 25), ([5], "start", 25), ([3], "progress", 24)],
)
def test_the_last_generation_follows_how_the_program_counts(marks, at, last):
    ledger = GenerationLedger()
    for t, index in enumerate(marks):
        mark(ledger, t, index, at=at, total=25)
    assert ledger.last_generation == last


def test_no_total_no_last_generation():
    ledger = GenerationLedger()
    mark(ledger, 0, 1)
    assert ledger.last_generation is None


@pytest.mark.parametrize(
    ("left", "last"),
    [
        ((400.0, 399.0, 398.0, 397.0), 4100),  # 10 iterations a second
        ((400.0, 398.5, 398.0, 397.5), 4200),  # the highest counts
        ((400.0, 399.0), None),
        ((7.3, 6.3, 5.3), 180),
        ((60.0, 60.0, 60.0, 60.0), None),  # of an epoch, at its start
        ((400.0, 320.0, 280.0, 260.0), None),  # the first rounds of a program are slow
    ],
)
def test_the_time_left_tells_the_last_generation_where_the_log_has_no_total(left, last):
    ledger = GenerationLedger()
    for second, seconds in enumerate(left):
        for step in range(10):  # read at once
            index = 91 + 10 * second + step
            ledger.add_marker(float(second), GenerationSeen(second, index, remaining_seconds=seconds))
    assert ledger.last_generation == last
    ledger.add_marker(9.0, GenerationSeen(9.0, 140, 700))
    assert ledger.last_generation == 700


def test_the_time_left_of_an_epoch_is_not_that_of_the_run():
    ledger = GenerationLedger()
    ends = []
    for second in range(300):
        ledger.add_marker(float(second), GenerationSeen(second, second, remaining_seconds=60.0 - second % 60))
        ends.append(ledger.last_generation)
    assert ends[100:] == [None] * 200


def test_generations_between_two_readings_leave_no_rows():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (MB,))
    for index in range(1, 1001):
        mark(ledger, index / 1000, index)
    ledger.add_samples((1,), "host", (2 * MB,))
    assert [row.index for row in ledger.rows("host")] == [1000]


def test_memory_is_bounded_and_keeps_both_ends():
    ledger = GenerationLedger()
    count = KEEP_FIRST + KEEP_LAST + 500
    for index in range(1, count + 1):
        mark(ledger, index, index)
        ledger.add_samples((index + 0.5,), "host", (index,))
    rows = ledger.rows("host")
    assert len(rows) == KEEP_FIRST + KEEP_LAST + 1
    assert [row.index for row in rows[:3]] == [1, 2, 3]
    assert rows[-1].index == count


def test_closed_rows_are_shared_not_copied():
    ledger = GenerationLedger()
    for index in range(1, 5):
        mark(ledger, index, index)
        ledger.add_samples((index + 0.5,), "host", (index,))
    assert ledger.rows("host")[0] is ledger.rows("host")[0]


def test_phases_split_a_generation_and_add_up():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (10,))
    mark(ledger, 0, 1)
    for t, phase, used in ((0, "evaluate", 40), (10, "train", 50), (20, "evaluate", 60)):
        ledger.add_phase_marker(t, PhaseSeen(t, phase))
        ledger.add_samples((t + 5,), "host", (used,))
    boundary = mark(ledger, 30, 2)
    assert boundary is not None
    deltas = {p.phase: p.delta_bytes for p in boundary.closed["host"].phases}
    assert deltas == {"evaluate": 40, "train": 10}
    assert sum(deltas.values()) == boundary.closed["host"].delta_bytes


def test_a_phase_that_ended_is_no_longer_known():
    ledger = GenerationLedger()
    ledger.add_phase_marker(0, PhaseSeen(0, "evaluate"))
    ledger.add_phase_marker(1, PhaseSeen(1, "evaluate", "end"))
    assert ledger.phase is None


def test_invented_phase_names_are_bounded():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (1,))
    mark(ledger, 0, 1)
    for t in range(1, 200):
        ledger.add_phase_marker(t, PhaseSeen(t, f"phase {t}"))
        ledger.add_samples((t + 0.5,), "host", (t,))
    assert len(ledger.rows("host")[-1].phases) == MAX_PHASES


@pytest.mark.parametrize(("share", "leading"), [(60, "evaluate"), (59, None)])
def test_the_leading_phase_holds_sixty_percent_of_the_growth(share, leading):
    ledger = GenerationLedger()
    used = 1000
    ledger.add_samples((0,), "host", (used,))
    for index in range(1, 5):
        t = index * 10
        mark(ledger, t, index)
        rest = (100 - share) // 2
        for phase, grown in (("evaluate", share), ("train", rest), ("evolve", 100 - share - rest)):
            ledger.add_phase_marker(t, PhaseSeen(t, phase))
            ledger.add_samples((t,), "host", (used,))
            used += grown
            t += 1
            ledger.add_samples((t,), "host", (used,))
    assert ledger.leading_phase("host") == leading


def test_a_phase_leads_on_while_it_has_the_most_of_the_growth():
    ledger, used, told = GenerationLedger(), 1000, []
    ledger.add_samples((0,), "host", (used,))
    for index, share in enumerate((50, 70, 70, 55, 45, 45, 45, 30, 30, 30, 30, 30), 1):
        t = index * 10
        mark(ledger, t, index)
        told.append(ledger.leading_phase("host"))
        for phase, grown in (("evaluate", share), ("train", 100 - share)):
            ledger.add_phase_marker(t, PhaseSeen(t, phase))
            ledger.add_samples((t,), "host", (used,))
            used += grown
            t += 1
            ledger.add_samples((t,), "host", (used,))
    assert told == [None, None, *["evaluate"] * 6, None, "train", "train", "train"]


def test_growth_before_the_first_reading_of_a_phase_may_be_that_of_the_phase_before():
    ledger, used = GenerationLedger(), 1000
    ledger.add_samples((0,), "host", (used,))
    for index in range(1, 5):
        mark(ledger, index * 10, index)
        for t, phase, seen_at_once in ((0, "evaluate", 60), (5, "train", 0)):
            ledger.add_phase_marker(index * 10 + t, PhaseSeen(index * 10 + t, phase))
            used += seen_at_once  # it grew at the end of "train", in less than the time from one reading to the next
            ledger.add_samples((index * 10 + t, index * 10 + t + 1), "host", (used, used))
    assert [part.delta_bytes for part in ledger.closed("host")[-1].phases] == [60, 0]
    assert ledger.leading_phase("host") is None


def test_step_seconds_is_the_usual_one_and_goes_stale():
    ledger = GenerationLedger()
    for index in range(1, 6):
        mark(ledger, index * 100, index)
    assert ledger.generation_seconds(510) == 100
    assert not ledger.has_no_markers(510)
    assert ledger.generation_seconds(900) is None
    assert ledger.has_no_markers(900)


@pytest.mark.parametrize("step", [1, 20])
def test_the_end_of_the_run_is_told_by_its_units_however_rarely_the_log_tells_them(step):
    ledger = GenerationLedger()
    for index in range(step, 6 * step, step):
        ledger.add_marker(10.0 * index, GenerationSeen(10.0 * index, index, 100 * step))
    assert ledger.index_step == step
    assert ledger.run_end_t(55.0 * step) == pytest.approx(10.0 * (100 * step + 1))


def test_the_usual_seconds_are_a_mean_of_what_samples_round_and_leave_out_what_is_not_usual():
    ledger = GenerationLedger()
    for index, t in enumerate((0, 1, 3, 4, 6, 16), 1):
        mark(ledger, t, index)
    assert ledger.generation_seconds(17) == pytest.approx(1.5)


def test_after_the_end_of_the_last_generation_there_is_no_other_one():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (5,))
    for index in range(1, 4):
        mark(ledger, index * 10, index, at="end", total=3)
        ledger.add_samples((index * 10 + 1,), "host", (5 + index,))
    assert (ledger.index, ledger.shown_index) == (4, 3)
    assert [row.index for row in ledger.rows("host")] == [1, 2, 3]


def test_a_new_process_keeps_old_rows_with_their_attempt():
    ledger = GenerationLedger()
    ledger.add_samples((0,), "host", (5,))
    for index in (1, 2):
        mark(ledger, index, index)
        ledger.add_samples((index + 0.5,), "host", (5,))
    ledger.begin_attempt(10)
    assert ledger.index is None
    ledger.add_samples((11,), "host", (1,))
    mark(ledger, 12, 2)
    ledger.add_samples((13,), "host", (3,))
    rows = ledger.rows("host")
    assert [(r.index, r.attempt, r.partial) for r in rows] == [(1, 0, False), (2, 0, True), (2, 1, False)]


@pytest.mark.parametrize("change", ["process", "epoch", "generation"])
def test_habits_are_those_of_this_process_and_counter(change):
    ledger = GenerationLedger()
    for index, used in enumerate([0, 100, 200, 300, 400, 500, 502], 1):
        ledger.add_samples((index * 10 - 1,), "host", (used,))
        mark(ledger, index * 10, index)
        ledger.add_phase_marker(index * 10, PhaseSeen(index * 10, "train"))
        ledger.add_samples((index * 10,), "host", (used,))
    assert (ledger.leading_phase("host"), ledger.generation_seconds(71)) == ("train", 10)
    if change == "process":
        ledger.begin_attempt(80)
    else:
        ledger.add_marker(80, GenerationSeen(80, 1, unit=change, recount=change == "generation"))
    assert (ledger.leading_phase("host"), ledger.generation_seconds(81)) == (None, None)
