"""Evidence to named causes: each rule by what it needs, and nothing where the evidence is not there."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import starmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.engine.status_sentence import finding_headline
from memwatch.core.events import Diagnosed
from memwatch.core.examination import (
    LOCAL_VARIABLE_PREFIX,
    UNNAMED_HOLDER_PREFIX,
    Finding,
    GraphDepth,
    GrowthDriver,
)
from memwatch.core.leaks.examination_history import ExaminationHistory
from memwatch.core.leaks.growth_attribution import DiagnosisContext
from memwatch.core.leaks.leak_cause_rules import RULES, find_causes
from memwatch.core.measurements import Neighbour
from memwatch.core.snapshot import Gauge, NeighbourGrowth
from support.examinations import examined

MB = 10**6
GB = 10**9
SITUATION = DiagnosisContext("generation", 100 * GB, 5e6, "evaluate")


def after(
    shown: list[dict[str, Any]], situation: DiagnosisContext = SITUATION
) -> tuple[list[Finding], list[GrowthDriver]]:
    """What is concluded from examinations at the beginnings of generations 1, 2, ..."""
    evidence = ExaminationHistory(0.0)
    for generation, one in enumerate(shown, 1):
        evidence.add(examined(generation, **one))
    causes = find_causes(evidence, ExaminationHistory(0.0), situation)
    return causes.findings, causes.drivers


def kept(
    type_: str,
    path: str = "__main__.Trainer.kept",
    *,
    per: int = 16,
    size: int = 2 * MB,
    generations: int = 3,
    **more: Any,
):
    """Ever more objects of a type, in a list of the trainer's."""
    return [
        {
            "used": 10 * MB + per * size * n,
            "containers": {path: per * size * n},
            "counts": {type_: per * n},
            "ways": {(type_, f"{path}[i]"): per * n},
            **{name: value(n) for name, value in more.items()},
        }
        for n in range(1, generations + 1)
    ]


@pytest.mark.parametrize(("forecast", "causes"), [(0.0, ["unbounded_container"]), (5000 * MB, [])])
def test_what_is_little_of_the_growth_that_is_forecast_is_no_cause(forecast: float, causes: list[str]):
    """Memory stood for some examinations, all that grew then is a list of figures, and memory grows in steps."""
    found, _ = after(kept("float"), replace(SITUATION, forecast_growth=forecast))
    assert [one.cause for one in found] == causes


@pytest.mark.parametrize(("times", "confidence"), [(1.0, 0.6), (2.5, 0.48), (5.0, None)])
def test_what_is_only_part_of_the_growth_is_named_with_less_confidence(times: float, confidence: float | None):
    """Only the program's names are known, and memory grows so many times faster than what they lead to."""
    names = ExaminationHistory(0.0)
    for generation, one in enumerate(kept("torch.Tensor"), 1):
        names.add(examined(generation, **one | {"used": int(times * one["used"])}))
    causes = find_causes(ExaminationHistory(0.0), names, SITUATION)
    found = [(one.holder, one.confidence) for one in causes.findings]
    assert found == ([] if confidence is None else [("__main__.Trainer.kept[i]", confidence)])
    assert causes.explained == (times == 1.0), "else the whole heap is still wanted"


def test_a_name_that_leads_to_what_was_there_before_has_not_grown():
    reached = "local variable of crossover: parent"
    shown = [
        {"used": (100 + 10 * n) * MB, "containers": {reached: size * MB}, "ways": {("numpy.ndarray", reached): n}}
        for n, size in enumerate((1, 90, 180), 1)
    ]
    assert after(shown) == ([], [])


def test_what_a_default_argument_keeps_is_told_as_that():
    (found,) = after(kept("__main__.Patch", "__main__.adapt.__defaults__"))[0]
    assert found.cause == "default_argument_kept" and "make the default None" in found.remedy


@pytest.mark.parametrize(("slots", "causes"), [(100, []), (48, ["unbounded_container"])])
def test_a_list_that_was_made_with_all_its_items_fills(slots: int, causes: list[str]):
    """`[None] * 100` fits when it is full; with the last of 48 it is full now, and grows no further."""
    table = "__main__.Images.decoded"
    shown = kept("numpy.ndarray", table, items=lambda _: {table: (slots, None)})
    assert [one.cause for one in after(shown)[0]] == causes
    little = replace(SITUATION, headroom_bytes=10 * MB)
    assert [one.cause for one in after(shown, little)[0]] == (causes or ["buffer_cannot_fit"])


def test_objects_that_become_more_far_inside_of_a_container_of_few_items_make_it_grow():
    recent = "__main__.Handler.recent"
    shown = [
        {
            "used": 60 * n * MB,
            "containers": {recent: 50 * n * MB},
            "items": {recent: (10, None)},
            "counts": {"logging.LogRecord": 100 * n},
            "ways": {("logging.LogRecord", f"{recent}[i]"): 10},
        }
        for n in (1, 2, 3)
    ]
    assert [one.cause for one in after(shown)[0]] == ["unbounded_container"]
    same = [{**one, "counts": {"logging.LogRecord": 10}} for one in shown]
    assert after(same)[0] == [], "the same objects that became larger may be done soon"


def test_growth_that_is_noise_is_none_after_a_warning_either():
    warned = replace(SITUATION, threshold_bytes=0.0)
    shown = kept("float", per=400, size=33, generations=4)
    assert [one.cause for one in after(shown, warned)[0]] == ["unbounded_container"]
    assert after([{**one, "used": 400 * MB + one["used"] - 10 * MB} for one in shown], warned)[0] == []


@pytest.mark.parametrize(
    ("generations", "first", "causes"),
    [
        (5, 1, [("unbounded_container", 0.4)]),
        (5, 4, [("unbounded_container", 0.4)]),
        (4, 1, []),  # memory has not grown for long enough
    ],
)
def test_two_heaps_suffice_where_memory_was_seen_to_grow_all_the_time(
    generations: int, first: int, causes: list[tuple[str, float]]
):
    """With less confidence than three: a look at a large heap takes most of what a minute allows."""
    heaps, names = ExaminationHistory(0.0), ExaminationHistory(0.0, of_names=True)
    found = kept("__main__.Record", items=lambda n: {"__main__.Trainer.kept": (16 * n, None)}, generations=generations)
    for generation, one in enumerate(found, 1):
        names.add(examined(generation, used=one["used"]))
        if generation in (first, generations):
            heaps.add(examined(generation, **one))
    assert [(one.cause, one.confidence) for one in find_causes(heaps, names, SITUATION).findings] == causes


@pytest.mark.parametrize(("generations", "causes"), [(3, []), (4, []), (5, ["unbounded_container"])])
def test_the_same_objects_that_become_larger_may_be_done_soon(generations: int, causes: list[str]):
    members = {
        "items": {"__main__.Trainer.population": (16, None)},
        "ways": {("set", "__main__.Trainer.population[i]"): 16},
    }
    found, _ = after(
        [
            {"used": (500 + 40 * n) * MB, "containers": {"__main__.Trainer.population": (100 + 40 * n) * MB}, **members}
            for n in range(generations)
        ]
    )
    assert [one.cause for one in found] == causes


@pytest.mark.parametrize(
    ("type_", "cause", "remedy"),
    [
        ("__main__.TradingEnvironment", "environments_recreated", "reset()"),
        ("gymnasium.envs.classic.CartPoleEnv", "environments_recreated", "reset()"),
        ("matplotlib.figure.Figure", "figures_not_closed", "plt.close(figure)"),
        ("torch.Tensor", "unbounded_container", "maxlen"),
        ("__main__.Loss", "unbounded_container", "maxlen"),
        ("__main__.Record", "unbounded_container", "maxlen"),
        ("dict", "unbounded_container", "maxlen"),
    ],
)
def test_what_is_kept_tells_the_cause(type_: str, cause: str, remedy: str):
    findings, _ = after(kept(type_))
    (found,) = findings
    assert (found.cause, found.holder, found.phase) == (cause, "__main__.Trainer.kept[i]", "evaluate")
    assert remedy in found.remedy and "Trainer.kept" in found.remedy
    assert (found.type, found.count_before, found.count_after) == (type_, 16, 48)
    assert (found.growth.per_unit, found.growth.since) == (32 * MB, 1)
    assert found.share == pytest.approx(1.0) and found.confidence == round(0.75 * _sure(cause), 2)


def _sure(cause: str) -> float:
    return next(one.max_confidence for one, _ in RULES if one.name == cause)


@pytest.mark.parametrize(("share", "told"), [(1.0, 1), (0.5, 2)])
def test_what_two_attributes_hold_is_told_once(share: float, told: int):
    """Each grows as memory does: they hold the same objects. Each grows by half of it: both are causes."""
    paths = ("__main__.Axes.children", "lib.Registry.seen")

    def held(n: int) -> dict[str, int]:
        return {path: int(share * 32 * MB * n) for path in paths}

    def items(n: int) -> dict[str, tuple[int, None]]:
        return dict.fromkeys(paths, (16 * n, None))

    def ways(n: int) -> dict[tuple[str, str], int]:
        return {("__main__.Image", f"{path}[i]"): 16 * n for path in paths}

    found, _ = after(kept("__main__.Image", containers=held, items=items, ways=ways))
    assert len(found) == told
    assert found[0].holder == "__main__.Axes.children[i]"
    assert ("the same is held by lib.Registry.seen" in found[0].evidence) == (told == 1)


def test_members_of_a_population_that_lives_elsewhere_too_are_old_ones():
    def ways(n: int) -> dict[tuple[str, str], int]:
        return {("__main__.Agent", "__main__.T.kept[i]"): 16 * n, ("__main__.Agent", "__main__.T.population[i]"): 16}

    findings, _ = after(kept("__main__.Agent", "__main__.T.kept", ways=ways))
    assert findings[0].cause == "old_population_kept"
    alone, _ = after(kept("__main__.Agent", "__main__.T.kept"))
    assert alone[0].cause == "unbounded_container"


def buffer(capacity: int | None, generations: int = 3) -> list[dict[str, Any]]:
    path = "__main__.ReplayBuffer.items"
    return kept("__main__.Transition", path, items=lambda n: {path: (16 * n, capacity)}, generations=generations)


def test_a_buffer_that_fits_is_no_finding_but_a_driver():
    findings, drivers = after(buffer(100))
    assert findings == []
    (driver,) = drivers
    assert (driver.value, driver.capacity, driver.bytes_per_unit, driver.path) == (
        48,
        100,
        2 * MB,
        "__main__.ReplayBuffer.items",
    )
    assert driver.full_bytes == 200 * MB


def test_a_buffer_that_can_never_fit_is_told_with_the_level_at_which_it_ends():
    findings, drivers = after(buffer(100), replace(SITUATION, headroom_bytes=20 * MB))
    assert findings[0].cause == "buffer_cannot_fit"
    assert drivers[0].limit_value == 58 and "below 58" in findings[0].remedy
    assert any("200.0 MB" in line for line in findings[0].evidence)


def test_without_a_known_limit_nobody_says_that_it_cannot_fit():
    assert after(buffer(10**9), replace(SITUATION, headroom_bytes=None))[0] == []


def test_a_buffer_without_a_capacity_has_no_bound():
    assert after(buffer(None))[0][0].cause == "unbounded_container"


def test_a_gauge_of_the_log_counts_the_items_of_the_attribute_that_it_is_named_after():
    buffered, listed = "__main__.ReplayBuffer.items", "__main__.Trainer.kept"
    shown = [
        {
            "used": 100 * MB * n,
            "containers": {buffered: 40 * MB * n, listed: 41 * MB * n},
            "items": {buffered: (232 * n, None), listed: (232 * n, None)},
            "ways": {("__main__.T", f"{buffered}[i]"): 232 * n, ("dict", f"{listed}[i]"): 232 * n},
        }
        for n in (1, 2, 3)
    ]
    gauges = {"replay buffer": Gauge("replay buffer", 696.0, 1160.0, 0.0)}
    findings, drivers = after(shown, replace(SITUATION, gauges=gauges))
    assert [one.growth.name for one in findings] == [listed]
    assert [(one.name, one.path) for one in drivers] == [("replay buffer", buffered)]


def test_an_attribute_of_what_another_holds_is_not_told_twice():
    shown = kept("__main__.Loss")
    for one in shown:
        one["containers"]["__main__.Loss.inputs"] = one["containers"]["__main__.Trainer.kept"] - 1
        one["containers"]["Trainer.kept[*]"] = one["containers"]["__main__.Trainer.kept"] - 1
    findings, _ = after(shown)
    assert [one.growth.name for one in findings] == ["__main__.Trainer.kept"]


def test_of_a_buffer_in_an_attribute_its_own_is_told():
    shown = buffer(100)
    for one in shown:
        one["containers"]["__main__.Trainer.buffer"] = one["containers"]["__main__.ReplayBuffer.items"] + 9
        one["ways"]["__main__.ReplayBuffer", "__main__.Trainer.buffer"] = 1
    findings, drivers = after(shown, replace(SITUATION, headroom_bytes=20 * MB))
    assert [one.growth.name for one in findings] == ["__main__.ReplayBuffer.items"] == [one.path for one in drivers]


def test_what_grows_by_less_than_the_threshold_is_no_leak():
    assert after(kept("__main__.Record", size=1000)) == ([], [])


def test_two_examinations_are_not_enough():
    assert after(kept("__main__.Record", generations=2)) == ([], [])


def test_each_further_examination_makes_it_surer():
    values = [after(kept("__main__.Record", generations=n))[0][0].confidence for n in range(3, 9)]
    assert values == sorted(values) and values[0] < 0.61 and 0.75 < values[-1] <= 0.8


# --- what no attribute holds ---


def rest(times: int = 4, **more: Any) -> list[dict[str, Any]]:
    return [
        {"used": (100 + 50 * n) * MB, **{name: value(n) for name, value in more.items()}} for n in range(1, 1 + times)
    ]


@pytest.mark.parametrize(
    ("shown", "cause"),
    [
        (rest(sizes=lambda _: {"dict": 40 * MB}), "native_leak"),
        (rest(sizes=lambda n: {"dict": (240 - 50 * n) * MB}), "fragmentation"),
        (
            rest(5, sizes=lambda n: {"dict": 45 * n * MB}, counts=lambda n: {"dict": 1000 * n}),
            "held_by_local_or_native",
        ),
        (rest(sizes=lambda _: {"dict": MB}, kinds=lambda n: {"shared memory": 45 * n * MB}), "shared_memory"),
    ],
)
def test_growth_that_no_attribute_holds_has_a_cause_too(shown, cause):
    (found,) = after(shown)[0]
    assert (found.cause, found.growth.per_unit) == (cause, pytest.approx(50 * MB, rel=0.11))
    assert found.confidence < 0.6


@pytest.mark.parametrize(
    "booster",
    ["xgboost.core.Booster", "lightgbm.basic.Booster", "catboost.core.CatBoost", "catboost.core.CatBoostRegressor"],
)
def test_a_model_that_gains_trees_is_no_leak(booster: str):
    (found,) = after(rest(counts=lambda _: {booster: 1}))[0]
    assert (found.cause, found.type, found.is_leak) == ("model_grows", booster, False)
    assert finding_headline(found, "round").startswith("MODEL GROWS in evaluate: +50.0 MB/round since round ")


# --- what is not the trainer's ---

SERVER, WORKER = Neighbour(20, "python3 serve.py", 90 * MB), Neighbour(21, "ray::Worker", 50 * MB, "environment")


def beside(others: float = 0.0, members: float = 0.0) -> DiagnosisContext:
    """So many bytes a generation, which lasts 100 s, are taken by others and by workers that are no children."""
    growth = NeighbourGrowth(others / 100, members / 100, SERVER if others else None, WORKER if members else None)
    return replace(SITUATION, neighbours=growth)


@pytest.mark.parametrize(
    ("situation", "cause", "who"),
    [
        (beside(others=50 * MB), "others_grow", "python3 serve.py (pid 20)"),
        (beside(members=50 * MB), "workers_grow", "ray::Worker (pid 21)"),
        (beside(others=44 * MB), "others_grow", "python3 serve.py (pid 20)"),  # measured as nearly all of it
        (beside(others=80 * MB), "others_grow", "python3 serve.py (pid 20)"),  # measured as more than all of it
    ],
)
def test_growth_of_others_is_not_the_trainers(situation, cause, who):
    (found,) = after(rest(sizes=lambda _: {"dict": 40 * MB}), situation)[0]
    assert (found.cause, found.holder, found.phase) == (cause, "", None)
    assert found.title.endswith(f": {who}") and "not the trainer" in found.title
    assert 44 * MB <= found.growth.per_unit <= 50 * MB and 0.87 <= found.share <= 1.0


def test_what_is_the_trainers_own_is_told_beside_what_others_take():
    shown = [{**one, "used": 2 * one["used"]} for one in kept("__main__.Record")]  # 64 MB, half of them its own
    own, others = sorted(after(shown, beside(others=30 * MB))[0], key=lambda one: one.cause, reverse=True)
    assert (own.cause, others.cause) == ("unbounded_container", "others_grow")
    assert own.share == pytest.approx(32 / 34) and others.share == pytest.approx(30 / 64)


def test_of_growth_that_is_half_others_the_rest_has_its_cause():
    found = after(rest(sizes=lambda _: {"dict": 40 * MB}), beside(others=25 * MB))[0]
    assert {one.cause: round(one.growth.per_unit / MB) for one in found} == {"others_grow": 25, "native_leak": 25}


def test_others_that_stand_still_are_no_cause():
    (found,) = after(rest(sizes=lambda _: {"dict": 40 * MB}), beside(others=1 * MB))[0]
    assert found.cause == "native_leak"


@pytest.mark.parametrize(
    ("copied", "cause"),
    [
        (lambda n: 45 * n * MB, "workers_copy_pages"),
        (lambda n: 5 * n * MB, "native_leak"),
        (lambda _: 900 * MB, "native_leak"),  # before it began
    ],
)
def test_pages_that_workers_copied_are_the_cause_where_they_are_most_of_the_growth(copied, cause):
    assert after(rest(sizes=lambda _: {"dict": MB}, cow=copied))[0][0].cause == cause


@pytest.mark.parametrize(
    ("objects", "above", "cause"),
    [
        (20, 20, "fragmentation"),  # what they left is of no use for the next
        (200, 20, "fragmentation"),  # most of it is
        (200, 120, "fragmentation"),  # and half of the rest is given back
        (200, 200, "native_leak"),  # all is given back; what stays was never theirs
        (5, 5, "native_leak"),  # they are too few
    ],
)
def test_memory_that_objects_left_is_kept_by_the_allocator_when_it_does_not_fall_with_them(objects, above, cause):
    """Each generation adds 20 MB; within it objects of so many MB come and go, and memory is so far above its level."""
    evidence = ExaminationHistory(0.0)
    for n in (1, 2, 3, 4):
        used, t = (100 + 20 * n) * MB, 100.0 * n
        evidence.add(examined(n, t=t, used=used, sizes={"bytes": 5 * MB}))
        sizes = {"bytes": (5 + objects) * MB}
        evidence.add(examined(n, t=t + 50, reason="phase", used=used + above * MB, sizes=sizes))
    assert find_causes(evidence, ExaminationHistory(0.0), SITUATION).findings[0].cause == cause


def test_what_memory_kept_over_several_generations_is_no_fragmentation():
    """Batches of 60 MB come and go, 20 MB a generation are lost in C; what follows a phase is seen late."""
    evidence = ExaminationHistory(0.0)
    for n, reason, batches in ((1, "generation", 0), (2, "generation", 0), (3, "phase", 60), (6, "generation", 0)):
        used = (100 + 20 * n + batches) * MB
        evidence.add(examined(n, reason=reason, used=used, sizes={"bytes": (5 + batches) * MB}))
    assert find_causes(evidence, ExaminationHistory(0.0), SITUATION).findings == []
    evidence.add(examined(7, used=240 * MB, sizes={"bytes": 5 * MB}))
    assert find_causes(evidence, ExaminationHistory(0.0), SITUATION).findings[0].cause == "native_leak"


def test_a_class_in_a_local_variable_is_named_before_what_it_holds():
    ways = {
        ("numpy.ndarray", f"{UNNAMED_HOLDER_PREFIX}list[i].obs"): 100,
        ("__main__.Record", f"{UNNAMED_HOLDER_PREFIX}list[i]"): 100,
        ("tuple", f"{UNNAMED_HOLDER_PREFIX}list[i]"): 100,
        ("__main__.Agent", "__main__.Trainer.population[i]"): 100,
    }
    shown = rest(
        sizes=lambda n: {"numpy.ndarray": 40 * n * MB, "bytes": 5 * n * MB},
        counts=lambda n: {"bytes": 900 * n, **{type_: 100 * n for type_, _ in ways}},
        ways=lambda n: {way: n * count for way, count in ways.items()},
    )
    (found,) = after(shown)[0]
    assert (found.cause, found.type, found.holder) == (
        "held_by_local_or_native",
        "__main__.Record",
        f"{UNNAMED_HOLDER_PREFIX}list[i]",
    )
    assert (found.count_before, found.count_after) == (100, 400) and "+135.0 MB" in found.evidence[0]


def test_what_attributes_are_known_to_hold_is_not_told_again_of_a_local_variable():
    shown = kept("__main__.Record", per=10, sizes=lambda n: {"dict": 22 * n * MB})
    for n, one in enumerate(shown, 1):
        one["used"] = 50 * n * MB
    assert [one.cause for one in after(shown)[0]] == ["unbounded_container"]


def test_what_an_attribute_took_until_it_was_full_is_held_by_nothing_else():
    # short generations: the buffer was full before its size was read, and its items were counted earlier
    path, local = "__main__.Trainer.buffer", f"{UNNAMED_HOLDER_PREFIX}: list[i]"
    shown = [
        {
            "used": used * MB,
            "containers": {path: held * MB},
            "sizes": {"numpy.ndarray": size * MB},
            "counts": {"numpy.ndarray": size, "float": size},
            "ways": {("numpy.ndarray", f"{path}.items[i]"): size, ("float", local): 2},
        }
        for used, held, size in ((110, 97, 49), (181, 172, 136), (212, 172, 185))
    ]
    assert after(shown) == ([], [])
    (found,) = after([{**one, "containers": {path: 97 * MB}} for one in shown])[0]
    assert found.holder == f"{path}.items[i]", "the arrays that grow, not a few floats"


def test_an_array_that_is_filled_beside_it_does_not_hide_what_a_local_variable_holds():
    filled = lambda n: {"__main__.Buffer.obs": (20 * n * MB, 900 * MB)}  # noqa: E731
    (found,) = after(rest(5, sizes=lambda n: {"bytes": (900 + 30 * n) * MB}, filled=filled))[0]
    assert found.cause == "held_by_local_or_native"
    assert after(rest(4, sizes=lambda n: {"bytes": (900 + 30 * n) * MB}))[0] == [], "its holder may be found"


@pytest.mark.parametrize("manager", ["matplotlib.backend_bases.FigureManagerBase", ""])
def test_open_figures_are_the_cause_of_memory_that_they_are_drawn_on(manager):
    counts = lambda n: {"matplotlib.figure.Figure": 8 * n, "matplotlib.axes._axes.Axes": 9 * n, manager or "dict": n}  # noqa: E731
    (found,) = after(rest(sizes=lambda n: {"dict": 9 * n * MB}, counts=counts))[0]
    assert (found.cause, found.type) == ("figures_not_closed", "matplotlib.figure.Figure")
    assert found.holder == ("matplotlib.pyplot" if manager else "") and "plt.close(figure)" in found.remedy
    assert (found.count_before, found.count_after) == (8, 32)


def test_what_each_figure_has_is_not_what_keeps_the_figures():
    ticks = "matplotlib.axis.XAxis.majorTicks"
    counts = lambda n: {"matplotlib.figure.Figure": 8 * n, "matplotlib.axis.XAxis": 9 * n}  # noqa: E731
    each = lambda n: {ticks: 9 * n}  # noqa: E731
    (found,) = after(kept("str", ticks, per=9, size=MB, generations=4, counts=counts, container_counts=each))[0]
    assert (found.cause, found.type) == ("figures_not_closed", "matplotlib.figure.Figure")


def test_one_list_in_a_class_keeps_its_objects():
    counts = lambda n: {"__main__.Figure": 24 * n}  # noqa: E731
    shown = kept("__main__.Figure", "__main__.Figure.opened", per=24, size=MB, counts=counts)
    assert [one.holder for one in after(shown)[0]] == ["__main__.Figure.opened[i]"]


def test_what_each_object_of_a_class_has_is_named_where_nothing_says_what_keeps_these():
    counts = lambda n: {"__main__.Agent": 9 * n, "numpy.ndarray": 90 * n}  # noqa: E731
    each = lambda n: {"__main__.Agent.seen": 9 * n}  # noqa: E731
    seen = kept("numpy.ndarray", "__main__.Agent.seen", generations=4, counts=counts, container_counts=each)
    (found,) = after(seen)[0]
    assert (found.cause, found.holder) == ("unbounded_container", "__main__.Agent.seen[i]")


@pytest.mark.parametrize(
    "type_",
    [
        "jaxlib._jax.LoadedExecutable",
        "tensorflow.python.eager.polymorphic_function.concrete_function.ConcreteFunction",
        "llvmlite.binding.ffi.LP_LLVMModule",
        "torch._C._dynamo.guards.RootGuardManager",
    ],
)
def test_functions_that_are_compiled_again_are_told_before_what_they_were_compiled_from(type_: str):
    counts = lambda n: {type_: 4 * n, "dict": 900 * n}  # noqa: E731
    (found,) = after(rest(sizes=lambda n: {"dict": 9 * n * MB}, counts=counts))[0]
    assert (found.cause, found.type, found.count_before, found.count_after) == ("compiled_again", type_, 4, 16)


def test_an_array_that_is_filled_is_told_when_it_is_larger_than_the_room():
    shown = rest(
        sizes=lambda _: {"numpy.ndarray": 9 * GB}, filled=lambda n: {"__main__.Buffer.obs": (50 * n * MB, 9 * GB)}
    )
    assert after(shown)[0] == []
    (found,) = after(shown, replace(SITUATION, headroom_bytes=GB))[0]
    assert (found.cause, found.holder) == ("buffer_cannot_fit", "__main__.Buffer.obs")


def test_arrays_that_would_fit_alone_are_told_when_they_do_not_together():
    two = {"__main__.Buffer.obs": (25, 600), "__main__.Buffer.next_obs": (25, 600)}
    filled = lambda n: {path: (one * n * MB, all_ * MB) for path, (one, all_) in two.items()}  # noqa: E731
    shown = rest(filled=filled)
    assert after(shown, replace(SITUATION, headroom_bytes=1100 * MB))[0] == []
    (found,) = after(shown, replace(SITUATION, headroom_bytes=900 * MB))[0]
    assert found.growth.per_unit == pytest.approx(50 * MB) and "1.2 GB" in found.evidence[0]


def test_unknown_is_an_answer():
    shown = rest(sizes=lambda n: {"dict": 15 * n * MB})  # more than flat, less than it would take
    assert after(shown) == ([], [])


def test_no_leak_is_native_while_there_are_more_objects_than_before():
    shown = rest(sizes=lambda n: {"dict": (5 + 60 * (n == 4)) * MB})  # the latest examination met what comes and goes
    assert after(shown) == ([], [])


def test_a_leak_is_native_when_what_comes_and_goes_within_generations_was_looked_for():
    shown = rest(sizes=lambda _: {"dict": 5 * MB})
    assert after(shown[:3]) == ([], [])
    assert after(shown)[0][0].cause == "native_leak"
    within = {"reason": "middle", **shown[2]}
    assert after([*shown[:2], within, shown[2]])[0][0].cause == "native_leak"


@pytest.mark.parametrize(
    ("looks", "kept", "causes"),
    [(7, {}, ["native_leak"]), (3, {}, []), (7, {"pyarrow.lib.Table": 4}, [])],
    ids=["names saw it all the time", "names have not", "objects that keep it may end"],
)
def test_three_heaps_show_native_memory_where_names_saw_it_grow_all_the_time(looks, kept, causes):
    heaps, names = ExaminationHistory(0.0), ExaminationHistory(0.0, of_names=True)
    for n in range(1, 1 + looks):
        names.add(examined(n, used=(100 + 50 * n) * MB))
        if n in (1, (1 + looks) // 2, looks):
            counts = {name: count * n for name, count in kept.items()}
            ways = {(name, "__main__.Fit.shards[i]"): count for name, count in counts.items()}
            heaps.add(examined(n, used=(100 + 50 * n) * MB, sizes={"dict": 5 * MB}, counts=counts, ways=ways))
        found = find_causes(heaps, names, SITUATION).findings
    assert [one.cause for one in found] == causes


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**40), min_size=3, max_size=8), st.integers(0, 2**30))
def test_memory_that_does_not_rise_has_no_cause(sizes, used):
    shown = [{"used": used, "containers": {"__main__.T.kept": size}, "counts": {"dict": size}} for size in sizes]
    assert after(shown) == ([], [])


@pytest.mark.parametrize(("graphs", "cause"), [(16, "graph_retained"), (4, "unbounded_container")])
def test_kept_tensors_are_blamed_for_a_graph_only_where_they_have_one(graphs: int, cause: str):
    evidence = ExaminationHistory(0.0)
    for n, shown in enumerate(kept("torch.Tensor"), 1):
        one = examined(n, **shown)
        census = replace(one.found.census, tensors_with_graph=graphs * n)
        evidence.add(replace(one, found=replace(one.found, census=census)))
    (found,) = find_causes(evidence, ExaminationHistory(0.0), SITUATION).findings
    assert (found.cause, found.holder) == (cause, "__main__.Trainer.kept[i]")


def test_state_of_a_metric_and_kept_exceptions_have_causes_of_their_own():
    state = "torchmetrics.classification.curve.BinaryCurve.preds"
    (found,) = after(kept("torch.Tensor", state))[0]
    assert (found.cause, found.holder) == ("state_not_reset", f"{state}[i]") and "reset()" in found.remedy
    shown = kept("numpy.ndarray")
    for n, one in enumerate(shown, 1):
        one["ways"] = {("numpy.ndarray", "__main__.Trainer.kept[i].tb_frame"): 16 * n}
    (found,) = after(shown)[0]
    assert found.cause == "exceptions_kept" and "Trainer.kept" in found.remedy


def test_garbage_in_cycles_and_objects_with_memory_elsewhere_are_named():
    cycles = [
        {
            "used": 50 * n * MB,
            "sizes": {"torch.Tensor": 45 * n * MB},
            "counts": {"__main__.Probe": n},
            "ways": {("__main__.Probe", "nothing but each other: __main__.Probe"): n},
        }
        for n in (1, 2, 3)
    ]
    (found,) = after(cycles)[0]
    assert (found.cause, found.type) == ("garbage_in_cycles", "__main__.Probe") and "each generation" in found.remedy
    assert found.confidence < 0.5, "the collector may free them at its next run"
    evidence = ExaminationHistory(0.0)
    for generation, shown in enumerate(cycles, 1):
        one = examined(generation, **shown)
        census = replace(one.found.census, collector_enabled=False)
        evidence.add(replace(one, found=replace(one.found, census=census)))
    (found,) = find_causes(evidence, ExaminationHistory(0.0), SITUATION).findings
    assert (found.cause, "enable it" in found.remedy) == ("garbage_in_cycles", True) and found.confidence > 0.7
    tables = [
        {
            "used": 50 * n * MB,
            "sizes": {"dict": 5 * MB},
            "counts": {"pyarrow.lib.Table": 4 * n, "dict": 90 * n},
            "ways": {("pyarrow.lib.Table", "__main__.Fit.shards[i]"): 4 * n},
        }
        for n in (1, 2, 3, 4)
    ]
    (found,) = after(tables)[0]
    assert (found.cause, found.type, found.holder) == (
        "native_objects_kept",
        "pyarrow.lib.Table",
        "__main__.Fit.shards[i]",
    )
    assert (found.count_before, found.count_after) == (4, 16) and "Fit.shards keeps them" in found.remedy


@pytest.mark.parametrize(("found_by_names", "held"), [(0, 20), (20, 19)])
def test_tensors_that_keep_their_graph_are_the_cause_where_no_attribute_holds_what_grows(found_by_names, held):
    """Most are held by the graph of others. So the whole heap may not tell where these are, but names do."""
    path = "__main__.Trainer.losses[i]"
    evidence, names = ExaminationHistory(0.0), ExaminationHistory(0.0, of_names=True)
    for n in (1, 2, 3):
        ways = {("torch.Tensor", f"{UNNAMED_HOLDER_PREFIX}"): 40 * n, ("torch.Tensor", path): held * n}
        one = examined(
            n, used=50 * n * MB, sizes={"torch.Tensor": 30 * n * MB}, counts={"torch.Tensor": 60 * n}, ways=ways
        )
        census = replace(one.found.census, tensors_with_graph=40 * n)
        evidence.add(replace(one, found=replace(one.found, census=census)))
        if found_by_names:
            named = examined(n, used=50 * n * MB, ways={("torch.Tensor", path): found_by_names * n})
            census = replace(named.found.census, tensors_with_graph=found_by_names * n)
            names.add(replace(named, found=replace(named.found, census=None, names=census)), of_names=True)
    (found,) = find_causes(evidence, names, SITUATION).findings
    assert (found.cause, found.type, found.holder) == ("graph_retained", "torch.Tensor", path)
    assert (found.count_before, found.count_after) == (40, 120) and "loss.item()" in found.remedy


@pytest.mark.parametrize(
    ("held", "named"),
    [("__main__.Trainer.losses[i]", True), ("local variable of main: losses[i]", True), ("__main__.Net.out", False)],
)
def test_what_the_programs_names_show_of_tensors_with_their_graph(held: str, named: bool):
    names = ExaminationHistory(0.0, of_names=True)
    for n in (1, 2, 3):
        ways = {("torch.Tensor", held): 60 * n, ("torch.Tensor", "local variable of step: y"): 4}
        one = examined(n, used=50 * n * MB, sizes={"torch.Tensor": n * MB}, counts={"torch.Tensor": 60 * n}, ways=ways)
        census = replace(one.found.census, tensors_with_graph=60 * n)
        names.add(replace(one, found=replace(one.found, census=None, names=census)), of_names=True)
    causes = find_causes(ExaminationHistory(0.0), names, SITUATION)
    assert causes.explained is named
    assert [(one.cause, one.holder) for one in causes.findings] == ([("graph_retained", held)] if named else [])


@pytest.mark.parametrize(
    ("per", "cause"),
    [(0, "gpu_cache"), (300, None), (900, "gpu_tensors_kept")],  # MB of tensors, of 1000 that are used
)
def test_what_grows_on_a_gpu_is_the_cache_or_tensors(per: int, cause: str | None):
    ways = lambda n: {("torch.Tensor", "__main__.T.metrics[i]"): 100 * n}  # noqa: E731
    shown = [
        {"used": GB, "gpu": n * GB, "cuda": (500 + per * n) * MB, "ways": ways(n), "counts": {"torch.Tensor": 9}}
        for n in (1, 2, 3, 4)
    ]
    findings = after(shown)[0]
    assert [one.cause for one in findings] == ([cause] if cause else [])
    if cause == "gpu_tensors_kept":
        assert (findings[0].resource, findings[0].holder) == ("gpu", "__main__.T.metrics[i]")


def test_without_torch_nothing_is_said_of_a_gpu():
    assert after([{"used": GB, "gpu": n * GB} for n in (1, 2, 3, 4)]) == ([], [])


def test_a_local_variable_that_was_gone_in_between_is_what_a_function_works_with():
    """As a batch with its graph: there are more tensors at one moment than at another, and none in between."""
    path = "local variable of SAC.train: batch"

    def found(sizes: list[int | None]) -> list[str]:
        shown = [
            {
                "used": (400 + 40 * n) * MB,
                "containers": {} if size is None else {path: size * MB},
                "ways": {} if size is None else {("torch.Tensor", f"{path}[i]"): size},
            }
            for n, size in enumerate(sizes)
        ]
        names = ExaminationHistory(0.0, of_names=True)
        for generation, one in enumerate(shown, 1):
            names.add(examined(generation, **one))
        return [one.holder for one in find_causes(ExaminationHistory(0.0), names, SITUATION).findings]

    assert found([4, None, 44, 84]) == []
    assert found([4, 44, 84]) == [f"{path}[i]"]


@pytest.mark.parametrize(("headroom", "cause"), [(GB, "allocated_buffer_fills"), (500 * MB, "buffer_cannot_fit")])
def test_an_array_that_a_look_has_missed_still_fills(headroom: int, cause: str):
    """Each of the two arrays alone would fit into what is left."""
    both = ("Buffer.observations", "Buffer.next_observations")
    names = ExaminationHistory(0.0, of_names=True)
    for n in (1, 2, 3, 4):
        seen = both if n < 4 else ("local variable of step: done", both[1])
        names.add(examined(n, used=(300 + 40 * n) * MB, filled=dict.fromkeys(seen, (20 * n * MB, 400 * MB))))
    causes = find_causes(ExaminationHistory(0.0), names, replace(SITUATION, headroom_bytes=headroom))
    found = next(one for one in causes.findings if one.cause in ("allocated_buffer_fills", "buffer_cannot_fit"))
    assert found.cause == cause
    assert all(path in " ".join(found.evidence) for path in both)


def test_what_stays_in_a_local_variable_is_not_blamed_for_what_grows_elsewhere():
    still, grows = f"{LOCAL_VARIABLE_PREFIX}main: canvas", f"{UNNAMED_HOLDER_PREFIX}itertools._tee_dataobject[i]"
    shown = rest(
        sizes=lambda n: {"numpy.ndarray": 40 * n * MB, "float": 1000 * n},
        counts=lambda n: {"numpy.ndarray": 100 * n, "float": 10 * n},
        ways=lambda n: {("numpy.ndarray", still): 40, ("numpy.ndarray", grows): 100 * n, ("float", still): 10 * n},
    )
    (found,) = after(shown)[0]
    assert (found.type, found.holder) == ("numpy.ndarray", grows)


def test_growth_of_a_builtin_type_at_a_name_is_that_of_a_container():
    path = "__main__.LMM.cached[k][i]"
    shown = rest(
        sizes=lambda n: {"bytes": 45 * n * MB},
        counts=lambda n: {"bytes": 1000 * n},
        ways=lambda n: {("bytes", path): 1000 * n, ("bytes", "json.encoder.ESCAPE[k]"): 5000},
    )
    (found,) = after(shown)[0]
    assert (found.cause, found.holder) == ("unbounded_container", path)


def test_a_table_of_types_is_not_blamed_for_objects_of_a_library_elsewhere():
    shown = rest(
        sizes=lambda _: {"dict": MB},
        counts=lambda n: {"numpy.dtypes.Float32DType": 10 * n},
        ways=lambda _: {("numpy.dtypes.Float32DType", "pandas.Index._engine_types[k]"): 3},
    )
    (found,) = after(shown)[0]
    assert found.cause == "native_leak"


def holding_a_graph(n: int, *paths: str, used: int = 50) -> Diagnosed:
    """A look at names at generation `n`, where these lead to a tensor with its graph."""
    one = examined(n, used=used * n * MB)
    census = replace(one.found.census, graph_paths=paths)
    return replace(one, found=replace(one.found, names=census))


@pytest.mark.parametrize(
    ("paths", "used", "expected"),
    [
        (("__main__.EarlyStopping.smoothed",), 50, ["__main__.EarlyStopping.smoothed"]),
        (("__main__.Trainer.outputs[i]",), 50, []),
        (("ModuleList._modules[k]._buffers['mean']",), 50, ["ModuleList._modules[k]._buffers['mean']"]),
        ((), 50, []),
        (("__main__.EarlyStopping.smoothed",), 0, []),
    ],
    ids=["a sum", "items of a list", "buffers of modules", "none", "memory does not grow"],
)
def test_a_sum_of_losses_is_a_tensor_that_has_its_graph_for_a_while(paths, used, expected):
    names = ExaminationHistory(0.0, of_names=True)
    for n in range(1, 7):
        names.add(holding_a_graph(n, *paths, used=used), of_names=True)
        found = find_causes(ExaminationHistory(0.0), names, SITUATION).findings
        assert [one.holder for one in found] == (expected if n > 4 else [])
    assert all(one.cause == "graph_retained" and one.confidence <= 0.5 for one in found)


@pytest.mark.parametrize(
    ("depths", "holders"),
    [
        (lambda n: {"__main__.y": 22, "local variable of train: total_loss": 400 * n}, ["total_loss"]),
        (lambda n: {"__main__.y": 22, "__main__.Fit.sum": 400 * n, "local variable of train: total": 400 * n}, ["sum"]),
        (lambda n: {"__main__.y": 22, "local variable of train: h": 100 if n % 3 else 2}, []),
        (lambda n: {"__main__.y": 22}, []),
    ],
    ids=["a sum", "an attribute before a local variable", "as deep as the loop has come", "none"],
)
def test_of_tensors_with_a_graph_it_is_the_one_whose_graph_becomes_deeper(depths, holders):
    names = ExaminationHistory(0.0, of_names=True)
    for n in range(1, 8):
        one = holding_a_graph(n, "__main__.y")
        census = replace(one.found.names, graph_depths=tuple(starmap(GraphDepth, depths(n).items())))
        names.add(replace(one, found=replace(one.found, names=census)), of_names=True)
        found = find_causes(ExaminationHistory(0.0), names, SITUATION).findings
        assert [re.split(r"[.: ]", one.holder)[-1] for one in found] == (holders if n > 4 else [])
    assert all(one.cause == "graph_retained" and one.confidence > 0.7 for one in found)


@pytest.mark.parametrize(
    ("per_second", "looks", "told"),
    [(3.0, 3, True), (3.0, 2, False), (0.1, 4, False), (0.1, 60, True), (0.05, 120, False)],
    ids=["fast", "two looks", "6 MB a minute, little seen", "6 MB a minute", "3 MB a minute"],
)
def test_in_short_generations_growth_counts_by_the_minute_once_enough_of_it_was_seen(per_second, looks, told):
    heaps, path = ExaminationHistory(0.0), "__main__.Trainer.kept"
    for n in range(1, looks + 1):
        held = round(per_second * n * MB)
        heaps.add(
            examined(n, t=float(n), used=50 * MB + held, containers={path: held}, ways={("list", f"{path}[i]"): n})
        )
    found = find_causes(heaps, ExaminationHistory(0.0), SITUATION).findings
    assert [one.growth.name for one in found] == ([path] if told else [])


def test_full_arrays_that_become_more_do_not_fill():
    path = "__main__.preds[i]"
    shown = [
        {
            "used": (100 + 60 * n) * MB,
            "containers": {"__main__.preds": 60 * n * MB},
            "filled": {path: ((60 * n - 10) * MB, 60 * n * MB)},
            "counts": {"numpy.ndarray": n},
            "ways": {("numpy.ndarray", path): n},
        }
        for n in range(1, 6)
    ]
    tight = replace(SITUATION, headroom_bytes=5 * MB)
    assert [one.cause for one in after(shown, tight)[0]] == ["unbounded_container"]


@pytest.mark.parametrize(
    ("type_", "items", "cause"),
    [
        ("lightgbm.basic.Booster", (3, 4, 5, 6, 7), "unbounded_container"),
        ("lightgbm.basic.Booster", (3, 4, None, 5, 6, 7), "unbounded_container"),
        ("lightgbm.basic.Booster", (3, 4, 4, 6, 7), ""),
        ("lightgbm.basic.Booster", (3, 4, 5, 6, None), ""),
        ("float", (3, 4, 5, 6, 7), ""),
        ("tensorflow.ConcreteFunction", (3, 4, 5, 6, 7), "compiled_again"),
    ],
    ids=["gains one each time", "missed once", "not each time", "gone now", "numbers", "compiled functions"],
)
def test_a_list_that_gains_objects_while_nothing_explains_the_growth_is_suspected(type_, items, cause):
    names, path = ExaminationHistory(0.0, of_names=True), "__main__.MultiTarget.estimators"
    for n, number in enumerate(items, 1):
        shown = {"containers": {path: 60 * number}, "items": {path: (number, None)}} if number is not None else {}
        one = examined(n, used=50 * n * MB, ways={(type_, f"{path}[i]"): n}, **shown)
        names.add(replace(one, found=replace(one.found, names=one.found.census)), of_names=True)
    found = find_causes(ExaminationHistory(0.0), names, SITUATION).findings
    assert [(one.cause, one.holder, one.type) for one in found] == ([(cause, f"{path}[i]", type_)] if cause else [])
    assert all(one.confidence < 0.5 for one in found if cause == "unbounded_container")


SPANS = "sdk.Exporter._finished"
LOOSE = f"{UNNAMED_HOLDER_PREFIX}builtin_function_or_method"


@pytest.mark.parametrize(
    ("ways", "cause", "holder"),
    [
        ({("sdk.Span", f"{SPANS}[i]"): 1}, "unbounded_container", f"{SPANS}[i]"),
        ({("sdk.Span", "collections.deque[i]._dq[i]"): 1}, "held_by_local_or_native", "collections.deque[i]._dq[i]"),
        ({("sdk.Span", LOOSE): 1}, "held_by_local_or_native", LOOSE),
        ({("sdk.Span", LOOSE): 1, ("sdk.Span", f"{SPANS}[i]"): 1}, "unbounded_container", f"{SPANS}[i]"),
        ({("sdk.Span", "sdk.Span.parent"): 1, ("sdk.Span", f"{SPANS}[i]"): 1}, "unbounded_container", f"{SPANS}[i]"),
    ],
    ids=["a name", "one of many containers", "no name", "a name, too", "each other"],
)
def test_paths_that_one_examination_has_found_tell_what_holds_a_growing_type(ways, cause, holder):
    """The latest had no time for paths; floats take the most, and nothing is known of what holds these."""
    shown = rest(
        6,
        sizes=lambda n: {"sdk.Span": 2 * n * MB, "float": 46 * n * MB},
        counts=lambda n: {"sdk.Span": 1000 * n, "float": 10**6 * n},
        ways=lambda n: dict.fromkeys(ways, 1000 * n) if n == 5 else {},
    )
    (found,) = after(shown)[0]
    assert (found.cause, found.holder, found.type) == (cause, holder, "sdk.Span")


@pytest.mark.parametrize(("capacity", "told"), [(3, []), (None, ["__main__.Hours.hours[i]"])])
def test_a_full_container_is_told_only_where_it_explains_most_of_the_growth(capacity, told):
    """Of a deque with a maxlen the items become larger."""
    path = "__main__.Hours.hours"
    shown = kept("__main__.Text", path, per=4, generations=5, items=lambda _: {path: (3, capacity)})
    for n, one in enumerate(shown, 1):
        one["used"] = 25 * n * MB
    assert [one.holder for one in after(shown)[0] if one.growth.name == path] == told
    for n, one in enumerate(shown, 1):
        one["used"] = 10 * n * MB
    assert [one.growth.name for one in after(shown)[0]] == [path]
