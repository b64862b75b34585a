from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.memory_accounting import (
    CopiedPages,
    PageSample,
    ProcessMemory,
    copied,
    is_copy_on_write_material,
    sampled_share,
    tree_totals,
    update_copy_rates,
)

MB = 10**6


def fork_of(root: ProcessMemory, count: int) -> list[ProcessMemory]:
    return [ProcessMemory(root.anon_bytes, root.shared_bytes, inherited_bytes=root.anon_bytes) for _ in range(count)]


def visit(
    t: float = 0.0, *, anon: int = 0, own: int = 0, error: int = 0, shared: int = 0, share: float = 0.0
) -> PageSample:
    return PageSample(t, anon, shared, own, error, share)


def used(root: ProcessMemory, others: list[ProcessMemory]) -> int:
    return tree_totals(root, others, 0.0).used_bytes


# --- the tree


def test_a_single_process_is_its_rss():
    assert used(ProcessMemory(200 * MB, 10 * MB), []) == 210 * MB


def test_forks_add_nothing_until_they_grow():
    root = ProcessMemory(200 * MB, 10 * MB)
    workers = fork_of(root, 16)
    assert used(root, workers) == 210 * MB
    workers[3].anon_bytes += 5 * MB
    assert used(root, workers) == 215 * MB


def test_a_program_of_its_own_counts_whole():
    assert used(ProcessMemory(200 * MB), [ProcessMemory(30 * MB, eldest=True), ProcessMemory(40 * MB)]) == 270 * MB


def test_what_the_root_gave_back_is_still_held_by_its_forks():
    root = ProcessMemory(200 * MB)
    workers = fork_of(root, 4)
    root.anon_bytes = 50 * MB
    assert used(root, workers) == 200 * MB


def test_shared_memory_that_only_workers_map_counts_once():
    assert used(ProcessMemory(100 * MB, 10 * MB), [ProcessMemory(0, 60 * MB), ProcessMemory(0, 50 * MB)]) == 160 * MB


def test_copied_pages_are_what_is_own_beyond_the_growth_since_the_fork():
    root = ProcessMemory(200 * MB)
    worker = ProcessMemory(
        210 * MB, 0, inherited_bytes=200 * MB, page_sample=visit(anon=210 * MB, own=90 * MB, error=3 * MB)
    )
    whole = tree_totals(root, [worker, worker], 0.0)
    assert (whole.used_bytes, whole.cow_bytes) == (380 * MB, 160 * MB)
    assert whole.error_bytes == pytest.approx(2**0.5 * 3 * MB, abs=1)
    assert whole.rss_bytes == 620 * MB


def test_between_visits_own_pages_follow_statm_and_copying_goes_on_for_a_while():
    worker = ProcessMemory(220 * MB, 0, 200 * MB, page_sample=visit(10.0, anon=210 * MB, own=90 * MB))
    assert worker.own_bytes(20.0) == 100 * MB
    worker.copy_bytes_per_second, worker.copying_until = 2.0 * MB, 25.0
    assert worker.own_bytes(20.0) == 120 * MB
    assert worker.own_bytes(99.0) == 130 * MB
    worker.anon_bytes, worker.copy_bytes_per_second = 20 * MB, 0.0
    assert worker.own_bytes(20.0) == 0


def test_forks_not_yet_visited_are_like_the_others_or_have_copied_what_each_does_at_once():
    root = ProcessMemory(200 * MB)
    seen = ProcessMemory(200 * MB, 0, 200 * MB, page_sample=visit(anon=200 * MB, own=40 * MB))
    early, late = (ProcessMemory(200 * MB, 0, 200 * MB, predates_watch=is_old) for is_old in (False, True))
    assert used(root, [seen, early]) == 240 * MB + (4 << 20)
    assert used(root, [seen, late]) == 280 * MB


sizes = st.integers(0, 2**44)
shares = st.floats(0, 1)


@st.composite
def members(draw):
    anon = draw(sizes)
    seen = None
    if draw(st.booleans()):
        at_visit = draw(sizes)
        seen = visit(anon=at_visit, own=draw(st.integers(0, at_visit)), share=draw(shares))
    flags = draw(st.booleans()), draw(st.booleans())
    return ProcessMemory(
        anon, draw(sizes), draw(sizes), *flags, seen, None, draw(st.floats(0, 1e9)), draw(st.floats(0, 1e6))
    )


@given(sizes, st.lists(members(), max_size=6), st.floats(0, 1e6))
def test_the_tree_is_never_less_than_its_root_nor_more_than_the_sum(anon, others, t):
    root = ProcessMemory(anon, eldest=True)
    whole = tree_totals(root, others, t)
    assert whole.rss_bytes == root.rss_bytes + sum(m.rss_bytes for m in others)
    assert root.rss_bytes <= whole.used_bytes <= whole.rss_bytes


# --- copying


def test_growth_that_statm_showed_was_not_copied():
    before, after = visit(0.0, anon=100, own=10, error=3), visit(5.0, anon=130, own=60, error=4)
    assert copied(before, after) == CopiedPages(20, 5.0, 5)


def forks(*changes: int, error: int = 10) -> list[ProcessMemory]:
    return [ProcessMemory(page_sample=visit(5.0), change=CopiedPages(change, 5.0, error)) for change in changes]


def test_a_rate_is_believed_the_less_the_more_it_may_be_chance():
    assert update_copy_rates([]) == update_copy_rates(forks(10)) == 0.0
    assert update_copy_rates(forks(20)) == pytest.approx(4 * 0.75)
    assert update_copy_rates(forks(1000)) == pytest.approx(200, rel=0.001)


def test_what_no_fork_shows_alone_is_seen_in_many_and_drawn_on_for_those_not_seen_twice():
    some = [*forks(*(8, 12, 9, 11) * 25), ProcessMemory(page_sample=visit(7.0)), ProcessMemory()]
    assert update_copy_rates(some) == pytest.approx(101 * 2, rel=0.02)
    assert [member.copying_until for member in some[-2:]] == [17.0, 0.0]


def test_a_fork_that_copies_alone_is_drawn_on_alone():
    some = forks(400, 0, 3, -3, 0)
    assert update_copy_rates(some) == pytest.approx(80, rel=0.01)
    assert [member.copy_bytes_per_second > 0 for member in some] == [True, False, False, False, False]


def test_copies_matter_when_they_are_much_of_the_memory_and_of_its_growth():
    assert is_copy_on_write_material(300 * MB, 2000 * MB, 1000 * MB)
    assert not is_copy_on_write_material(60 * MB, 200 * MB, 70 * MB), "little"
    assert not is_copy_on_write_material(90 * MB, 2000 * MB, 100 * MB), "a small part of the memory"
    assert not is_copy_on_write_material(300 * MB, 2000 * MB, 1500 * MB), "a small part of the growth"


# --- samples


def sample(pages: list[int], runs: int, start: float) -> tuple[list[int], list[int], int]:
    """Own and resident pages (1: own, 0: shared, -1: away) of runs of 32, as a visit takes them."""
    blocks = [pages[i : i + 32] for i in range(0, len(pages), 32)]
    step = len(blocks) / runs
    taken = [blocks[int((start + i) * step)] for i in range(runs)]
    return [b.count(1) for b in taken], [32 - b.count(-1) for b in taken], len(blocks)


def patterns() -> dict[str, list[int]]:
    rng = random.Random(7)
    return {
        "scattered": [int(rng.random() < 0.25) for _ in range(32_000)],
        "one stretch": [int(i < 9_000) for i in range(32_000)],
        "stretches": [int(i // 500 % 3 == 0) for i in range(32_000)],
        "mostly away": [-1 if i // 320 % 4 else int(rng.random() < 0.5) for i in range(32_000)],
    }


@pytest.mark.parametrize("pattern", ["scattered", "one stretch", "stretches", "mostly away"])
@pytest.mark.parametrize("runs", [32, 128])
def test_a_sample_is_without_bias_and_its_error_is_what_it_says(pattern, runs):
    pages = patterns()[pattern]
    truth = pages.count(1) / (len(pages) - pages.count(-1))
    rng = random.Random(runs)
    shares = [sampled_share(*sample(pages, runs, rng.random())) for _ in range(300)]
    mean = sum(share.value for share in shares) / len(shares)
    spread = (sum((share.value - truth) ** 2 for share in shares) / len(shares)) ** 0.5
    told = sum(share.error for share in shares) / len(shares)
    assert mean == pytest.approx(truth, abs=0.2 * spread + 1e-3)
    assert spread <= 1.3 * told, "never much too sure"
    assert sum(abs(share.value - truth) <= 2 * share.error for share in shares) >= 0.9 * len(shares)


def test_all_pages_give_the_exact_share():
    pages = patterns()["stretches"]
    share = sampled_share(*sample(pages, 1000, 0.5))
    assert (share.value, share.error) == (pages.count(1) / len(pages), 0.0)


def test_no_resident_page_tells_nothing():
    assert sampled_share([0], [0], 5).error == 1.0


def test_a_sample_without_an_exception_does_not_prove_that_there_is_none():
    assert sampled_share([0] * 50, [32] * 50, 1000).error == pytest.approx(0.0095)
