from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.sharing import Measured, Member, measured_aside, tree_bytes

MB = 10**6


def fork_of(root: Member, count: int) -> list[Member]:
    return [Member(root.anon_bytes, root.shared_bytes, inherited_bytes=root.anon_bytes) for _ in range(count)]


def test_a_single_process_is_its_rss():
    assert tree_bytes(Member(200 * MB, 10 * MB), [], None) == 210 * MB


def test_forks_add_nothing_until_they_grow():
    root = Member(200 * MB, 10 * MB)
    workers = fork_of(root, 16)
    assert tree_bytes(root, workers, None) == 210 * MB
    workers[3].anon_bytes += 5 * MB
    assert tree_bytes(root, workers, None) == 215 * MB


def test_a_program_of_its_own_counts_whole():
    assert tree_bytes(Member(200 * MB), [Member(30 * MB), Member(40 * MB)], None) == 270 * MB


def test_what_the_root_gave_back_is_still_held_by_its_forks():
    root = Member(200 * MB)
    workers = fork_of(root, 4)
    root.anon_bytes = 50 * MB
    assert tree_bytes(root, workers, None) == 200 * MB


def test_shared_memory_that_only_workers_map_counts_once():
    assert tree_bytes(Member(100 * MB, 10 * MB), [Member(0, 60 * MB), Member(0, 50 * MB)], None) == 160 * MB


sizes = st.integers(0, 2**44)


@st.composite
def measured(draw):
    uss = draw(sizes)
    pss = uss + draw(sizes)
    return Measured(pss + draw(sizes), pss, uss, draw(sizes))


def member_at(m: Measured) -> Member:
    return Member(m.anon_bytes, max(0, m.rss_bytes - m.anon_bytes), 0, m)


@given(measured(), st.lists(measured(), min_size=1, max_size=5), st.lists(measured(), max_size=3))
def test_when_all_are_measured_the_tree_is_the_sum_of_pss(root, forks, strangers):
    trainer = Member(root.rss_bytes)
    aside = measured_aside(root, forks, strangers)
    total = tree_bytes(trainer, [member_at(m) for m in (*forks, *strangers)], aside)
    assert total == sum(m.pss_bytes for m in (root, *forks, *strangers))


@given(sizes, st.lists(st.tuples(sizes, sizes, sizes), max_size=6))
def test_the_tree_is_never_less_than_its_root_nor_more_than_the_sum(anon, workers):
    root, others = Member(anon), [Member(*worker) for worker in workers]
    total = tree_bytes(root, others, None)
    assert root.rss_bytes <= total <= root.rss_bytes + sum(m.rss_bytes for m in others)
