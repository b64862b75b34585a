"""What trackers are told of a snapshot: a record for each generation that ended, tracked objects, or the minute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memwatch.core.engine import notices as news
from memwatch.core.events import Notice
from memwatch.core.examination import Growth
from memwatch.core.snapshot import Forecast, Snapshot
from memwatch.outputs.trackers.tracker_records import TrackerRecords, tag_name
from support.snapshots import GB, GENERATION_SECONDS, START_T, make_diagnosis, make_row, make_snapshot

T = START_T + 7 * GENERATION_SECONDS


class HandTime:
    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t


def ended(*indices: int, resource: str = "host", **changes: Any) -> list[Notice]:
    """The notices of generations that ended."""
    return [news.generation(T, "generation", resource, replace(make_row(index), **changes)) for index in indices]


def told(snapshot: Snapshot, notices: Sequence[Notice], *tracked: str) -> list[Mapping[str, Any]]:
    return list(TrackerRecords(tracked, HandTime()).records(snapshot, notices))  # type: ignore[arg-type]


def test_a_generation_is_one_record_with_its_figures_and_what_is_known_now() -> None:
    [record] = told(make_snapshot(7), ended(6))
    assert (record["axis"], record["at"], record["t"], record["attempt"]) == ("generation", 6, T, 0)
    assert record["figures"] == pytest.approx(
        {
            "memory/host/used_mb": 78_600.0,
            "memory/host/peak_mb": 79_000.0,
            "memory/host/delta_mb": 12_900.0,
            "memory/host/phase_delta_mb/evaluate": 11_610.0,
            "memory/host/phase_delta_mb/train": 1_290.0,
            "memory/host/phase_delta_mb/evolve": -50.0,
            "memory/generation_seconds": 1500.0,
            "memory/attempt": 0,
            "memory/host/limit_mb": 175_000.0,
            "memory/host/headroom_mb": 83_500.0,
            "memory/host/growth_mb_per_generation": 12_900.0,
            "memory/host/eta_seconds": 18_600.0,
            "memory/host/eta_generation": 13.0,
            "memory/host/needed_mb": 330_000.0,
        }
    )


def test_all_resources_are_in_one_record() -> None:
    [record] = told(make_snapshot(7, gpus=2), ended(6) + ended(6, resource="gpu0") + ended(6, resource="gpu1"))
    names = {tag.split("/")[1] for tag in record["figures"]}
    assert names == {"host", "gpu0", "gpu1", "generation_seconds", "attempt"}
    assert "memory/gpu0/eta_seconds" not in record["figures"], "what is not known is left out"


def test_of_several_generations_at_once_the_latest_has_what_is_known_now() -> None:
    first, second = told(make_snapshot(7), ended(5, 6))
    assert (first["at"], second["at"]) == (5, 6)
    assert "memory/host/limit_mb" in second["figures"] and "memory/host/limit_mb" not in first["figures"]


def test_a_generation_that_was_seen_in_part_has_no_growth_of_its_own() -> None:
    [record] = told(make_snapshot(7), ended(6, partial=True))
    assert "memory/host/used_mb" in record["figures"]
    assert not [tag for tag in record["figures"] if "delta" in tag or ("seconds" in tag and "eta" not in tag)]


def test_what_no_tracker_can_draw_is_left_out() -> None:
    snapshot = make_snapshot(7)
    view = replace(snapshot.resources[0], forecast=Forecast(math.inf, None, None, math.nan), trend=None)
    [record] = told(replace(snapshot, resources=(view,)), ended(6))
    assert not [tag for tag in record["figures"] if "eta" in tag or "growth" in tag]


def test_nothing_else_is_a_record() -> None:
    assert told(make_snapshot(7), [Notice(T, "warn", "near"), Notice(T, "forecast", "far")]) == []


# --- tracked objects ------------------------------------------------------------------------------------------------


def looked_at(snapshot: Snapshot, reason: str = "generation", gen: float | None = 7, *tracked: str) -> Any:
    return told(snapshot, [Notice(T, "examined", "examined", {"reason": reason, "gen": gen})], *tracked)


def test_a_tracked_object_has_its_size_and_its_growth_under_the_name_that_the_user_gave_it() -> None:
    snapshot = make_snapshot(7, diagnosis=make_diagnosis())
    [record] = looked_at(snapshot, "generation", 7, "ReplayBuffer.buffer", "Trainer.population[*]")
    assert (record["axis"], record["at"]) == ("generation", 7)
    assert record["figures"] == {
        "memory/ReplayBuffer.buffer/size_mb": 169_000.0,
        "memory/ReplayBuffer.buffer/growth_mb_per_epoch": 56_400.0,
        "memory/Trainer.population_/size_mb": 40.0,
        "memory/Trainer.population_/growth_mb_per_epoch": 0.0,
    }


def test_a_name_that_only_ends_alike_is_not_taken_for_it() -> None:
    growth = Growth("__main__.OtherReplayBuffer.buffer", 0, GB, 0.0, 1.0, 2)
    [record] = looked_at(
        make_snapshot(7, diagnosis=make_diagnosis(tracked=(growth,))), "generation", 7, "ReplayBuffer.buffer"
    )
    assert "memory/__main__.OtherReplayBuffer.buffer/size_mb" in record["figures"]


def test_looks_that_are_compared_with_none_are_left_out_and_so_are_those_that_found_nothing() -> None:
    snapshot = make_snapshot(7, diagnosis=make_diagnosis())
    assert looked_at(snapshot, "middle") == looked_at(snapshot, "request") == []
    assert looked_at(make_snapshot(7)) == looked_at(make_snapshot(7, diagnosis=make_diagnosis(tracked=()))) == []


def test_without_generations_objects_stand_at_the_minute_and_grow_by_the_hour() -> None:
    snapshot = make_snapshot(7, generation=None, diagnosis=make_diagnosis(unit="hour"))
    [record] = looked_at(snapshot, "time", None, "ReplayBuffer.buffer")
    assert (record["axis"], record["at"]) == ("minute", 175)
    assert record["figures"]["memory_by_minute/ReplayBuffer.buffer/growth_mb_per_hour"] == 56_400.0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Trainer.buffer", "Trainer.buffer"),
        ("Trainer.state['a b'][3]", "Trainer.state_a_b_3_"),
        ("phase/é\x1b[31m one", "phase_é_one"),
    ],
)
def test_names_are_such_that_any_tracker_takes_them(text: str, name: str) -> None:
    assert tag_name(text) == name
    assert len(tag_name(text * 100)) <= 120


# --- without generations --------------------------------------------------------------------------------------------


def test_until_there_are_generations_there_is_a_record_each_minute() -> None:
    now = HandTime()
    tracking, snapshot = TrackerRecords((), now), make_snapshot(7, generation=None)
    assert not tracking.is_due() and list(tracking.records(snapshot, [])) == []
    now.t = 60.0
    assert tracking.is_due()
    [record] = tracking.records(snapshot, [])
    assert (record["axis"], record["at"]) == ("minute", 162)
    assert record["figures"] == pytest.approx(
        {
            "memory_by_minute/host/used_mb": 91_500.0,
            "memory_by_minute/host/growth_mb_per_hour": 30_960.0,
            "memory_by_minute/host/limit_mb": 175_000.0,
            "memory_by_minute/host/headroom_mb": 83_500.0,
            "memory_by_minute/host/growth_mb_per_generation": 12_900.0,
            "memory_by_minute/host/eta_seconds": 18_600.0,
            "memory_by_minute/host/eta_generation": 13.0,
            "memory_by_minute/host/needed_mb": 330_000.0,
            "memory_by_minute/attempt": 0,
        }
    )
    assert not tracking.is_due() and list(tracking.records(snapshot, [])) == []
    now.t = 120.0
    assert list(tracking.records(make_snapshot(1), [])) == []
    assert not tracking.is_due(), "there are generations now"
