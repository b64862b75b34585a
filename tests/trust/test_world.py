"""The simulated machine does to its trainer what a real one does, and the real loop runs in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.app.load_and_replay_run import find_run, rejudge
from memwatch.core.decision.policy import Policy
from memwatch.core.events import Attached, Cause, GenerationSeen
from support.trainee import Bounds, Course, Life, Manners
from support.world import T0, Scene, Watched, World

GB = 10**9
SECONDS, GENERATIONS = 120.0, 12


def life(growth: float, base: float = 5 * GB) -> Life:
    """So much a generation, in a straight line."""
    lasts = SECONDS * GENERATIONS
    levels = (base, base + growth * GENERATIONS)
    return Life(Course(lasts, levels), tuple(i * SECONDS for i in range(GENERATIONS + 1)))


LEAK = life(10 * GB)  # has 100 GB at 9.5 generations
MANNERS = Manners(total=GENERATIONS, save_seconds=10.0, save_bytes=GB)
SCENE = Scene((LEAK,), MANNERS, Bounds(100 * GB), policy=Policy(checkpoint_seconds=10.0))


def watch(folder: Path, scene: Scene) -> list[Watched]:
    with (folder / "lines").open("w") as lines:
        return list(World(folder, scene, lines).run())


def test_a_leak_is_interrupted_saves_and_ends_before_the_kernel_would_have_killed_it(tmp_path):
    (one,) = watch(tmp_path, SCENE)
    assert one.process.dies_t == pytest.approx(T0 + 9.5 * SECONDS)
    assert one.process.is_saved and one.exited.cause is Cause.SAVED
    assert T0 + 8.5 * SECONDS < one.told("interrupt")[0].t < one.process.saved_t < one.process.dies_t
    assert "interrupt" in (tmp_path / "lines").read_text()


@pytest.mark.parametrize("by_cgroup", [True, False])
@pytest.mark.parametrize("kernel_log", [True, False])
def test_left_alone_it_is_killed_at_its_limit(tmp_path, by_cgroup, kernel_log):
    bounds = Bounds(100 * GB, by_cgroup, kernel_log=kernel_log)
    (one,) = watch(tmp_path, replace(SCENE, bounds=bounds, dry_run=True))
    assert one.process.end_t == one.process.dies_t and one.process.is_killed_by_kernel
    if kernel_log or by_cgroup:
        assert one.exited.cause is (Cause.OOM_CGROUP if by_cgroup else Cause.OOM_HOST)
    else:
        assert one.exited.cause is not Cause.COMPLETED


def test_what_others_take_of_the_host_brings_the_end_nearer(tmp_path):
    others = Course(SECONDS * GENERATIONS, (0.0, 60 * GB))
    (one,) = watch(tmp_path, replace(SCENE, bounds=Bounds(100 * GB, by_cgroup=False, others=others)))
    assert one.process.dies_t == pytest.approx(T0 + 95 / 15 * SECONDS)
    assert one.process.is_saved


def test_a_save_whose_memory_does_not_fit_is_killed(tmp_path):
    manners = replace(MANNERS, save_bytes=40 * GB)
    (one,) = watch(tmp_path, replace(SCENE, manners=manners))
    assert not one.process.is_saved and one.exited.cause is Cause.OOM_CGROUP
    assert one.process.save_t < one.process.end_t < one.process.saved_t


def test_room_is_left_for_what_its_saves_were_seen_to_take(tmp_path):
    manners = replace(MANNERS, save_bytes=12 * GB, saves_every=3)
    lasts = SECONDS * GENERATIONS
    levels = [5 * GB + 10 * GB * t / SECONDS for t in range(int(lasts) + 1)]
    saving = manners.with_saves(replace(LEAK, course=Course(1.0, levels)))
    (one,) = watch(tmp_path, replace(SCENE, lives=(saving,), manners=manners))
    assert one.process.is_saved and one.exited.cause is Cause.SAVED


def test_a_signal_that_is_lost_is_followed_by_a_stronger_one(tmp_path):
    slow = replace(SCENE, lives=(life(2 * GB),), bounds=Bounds(23 * GB), manners=replace(MANNERS, deaf_to=1))
    (one,) = watch(tmp_path, replace(slow, policy=Policy(checkpoint_seconds=10.0, save_timeout_seconds=1.0)))
    assert [name for _, name in one.process.signals] == ["SIGINT", "SIGTERM"]


def test_while_it_is_interrupted_its_log_is_read_at_each_look_however_rare_samples_are(tmp_path):
    (one,) = watch(tmp_path, replace(SCENE, interval=30.0))
    begun = [told.t for told in one.told("checkpoint") if told.t > one.process.signals[0][0]]
    assert begun and begun[0] - one.process.save_t < 1.5


def test_a_resumed_run_counts_on_in_a_fresh_process(tmp_path):
    for one_engine in (True, False):
        folder = tmp_path / str(one_engine)
        folder.mkdir()
        first, second = watch(folder, replace(SCENE, lives=(LEAK, LEAK), one_engine=one_engine))
        assert first.exited.cause is Cause.SAVED and second.exited.cause is Cause.COMPLETED
        assert second.process.life.first == int(first.process.generations) > 5
        runs = {event.run_id for one in (first, second) for event in one.events if isinstance(event, Attached)}
        assert len(runs) == 1


@pytest.mark.parametrize("by_copy", [True, False])
def test_through_rotations_each_generation_is_told_once(tmp_path, by_copy):
    scene = replace(SCENE, lives=(life(0.0),), rotate_bytes=700, rotate_by_copy=by_copy)
    (one,) = watch(tmp_path, scene)
    assert one.exited.cause is Cause.COMPLETED
    assert (tmp_path / "run" / "main.log.1").exists()
    starts = [event.index for event in one.events if isinstance(event, GenerationSeen)]
    assert starts == list(range(1, GENERATIONS + 1))


@pytest.mark.parametrize("by_copy", [True, False])
def test_the_last_words_of_a_log_that_is_rotated_for_them_are_read(tmp_path, by_copy):
    scene = replace(SCENE, manners=replace(MANNERS, witness="log"), rotate_bytes=1, rotate_by_copy=by_copy)
    (one,) = watch(tmp_path, scene)
    assert one.process.is_saved and one.exited.cause is Cause.SAVED


@pytest.mark.parametrize("witness", ["log", "file", "both"])
def test_a_checkpoint_shows_in_the_log_or_as_a_file(tmp_path, witness):
    scene = replace(SCENE, lives=(life(0.0),), manners=replace(MANNERS, witness=witness, saves_every=4))
    (one,) = watch(tmp_path, scene)
    assert 2 <= len([told for told in one.told("checkpoint") if told.fields.get("state") == "saved"]) <= 3


def test_it_can_be_judged_again_bit_for_bit(tmp_path):
    watch(tmp_path, replace(SCENE, lives=(LEAK, LEAK)))
    history = tmp_path / "history.db"
    retold = list(rejudge(history, find_run(history), lambda _: None))
    assert retold and all(one.difference is None for one in retold)
    assert any(notice.event == "interrupt" and notice.fields["samples"] for notice in retold[0].recomputed)
