"""The measuring programs work; what they measure is for people."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench import census, cost, harm, lines, log, looks, memory, pace, reaction, replay, report, scrape, tree
from support import trees
from support.driven import missing
from support.endless import time_passes
from support.steady import Steady


def test_a_replay_is_measured_by_part(tmp_path, capsys):
    told = replay.all_traces([replay.write(tmp_path / "both.csv", 200, markers=True, gpu=True)], runs=2)
    both = told["both"]
    assert (both["readings"], len(both["runs"])) == (400, 2)
    assert list(both["us_a_reading"]) == ["read", "replay", "program", "watch"]
    assert both["us_a_reading"]["program"] > both["us_a_reading"]["read"] > 0
    assert both["replay_per_s"] > 100
    replay.show(told)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "both: 400 readings" and len(lines) == 6


def test_reports_and_pages_are_measured(tmp_path):
    told = report.reports(tmp_path, samples=20, runs=1)
    assert list(told) == ["export", "replay", "report", "page", "comparison"]
    assert all(runs[0]["bytes"] > 100 and runs[0]["peak_rss_mib"] > 10 for runs in told.values())
    pages = report.pages(3)
    assert pages["status page"]["bytes"] > 10_000 and pages["status page"]["median_ms"] > 0


def test_memory_is_measured_on_the_way():
    told = memory.run(time_passes(), 200, Steady)
    assert len(told["rss_mib"]) == memory.POINTS
    assert told["rise_mib"] == round(max(told["rss_mib"]) - told["rss_mib"][0], 2) < 10


def test_a_long_run_has_a_process_of_its_own():
    for events, watcher in (("generations", "Forecaster"), ("looks", memory.DAEMON)):
        told = memory.apart(events, watcher, 100)
        assert told["events"] == 100 and 5 < told["rss_mib"][0] < 100


@pytest.mark.thorough
def test_monitors_are_measured_side_by_side():
    told = cost.side_by_side(start=1.5, warm=0.1, windows=2, seconds=1.1)
    absent = told.pop("absent")
    assert set(told) == {"1 process", "17 processes", "17 beside 300", "17 at first"}
    for scene in told.values():
        assert scene["monitors"].keys() | {*absent} == cost.COMMANDS
        ours = scene["monitors"]["memwatch"]
        assert len(ours["windows"]) == 2
        assert 0 < ours["core_percent"] < 30
        assert 10 < ours["rss_mib"] < 50
    assert told["17 beside 300"]["processes_on_machine"] >= 300


def test_a_look_is_measured_by_part():
    told = looks.looks(2, runs=2, count=20)
    assert list(told) == ["first hour", "second hour"]
    for hour in (*told.values(), looks.cold(2, count=2)):
        for part in looks.PARTS:
            assert 0 < hour[part]["median_us"] <= hour[part]["worst_us"] < 100_000
        assert hour["look"]["mean_us"] > hour["sample"]["mean_us"]
    assert len(told["first hour"]["runs"]) == 2


def test_harm_is_measured_in_blocks_by_turns():
    told = harm.of_target(megabytes=20, forks=2, fork=True, rounds=2, seconds=0.3)
    for blocks in told["blocks"].values():
        assert len(blocks) == 2
        assert all(block["count"] > 1000 and block["p50_us"] <= block["p999_us"] <= block["max_us"] for block in blocks)
    for block in told["blocks"][harm.MEMWATCH]:
        assert block["memwatch_cpu_ms"] > 0.2, "it looked"
    for block in told["blocks"][harm.NOBODY]:
        assert block["memwatch_cpu_ms"] < 0.2, "it was stopped"
    assert told["p999_ratio"][harm.NOBODY] == 1.0
    assert told["p999_ratio"][harm.MEMWATCH] < 20


def test_the_pace_of_a_trainer_is_that_of_its_log(tmp_path):
    log = tmp_path / "main.log"
    log.touch()
    code = "import time\nfor i in range(10**6): print(f'iter {i}: loss 1', flush=True); time.sleep(0.02)"
    with log.open("wb") as file, subprocess.Popen([sys.executable, "-c", code], stdout=file) as trainer:
        try:
            rate = pace.iterations_per_second(log, 2.0)
        finally:
            trainer.kill()
    assert 25 < rate < 50


@pytest.mark.thorough
def test_a_scrape_is_measured_and_does_not_wait_for_a_sample():
    gpus = 0 if missing() else 1
    told = scrape.measure(rounds=1, count=15, gpus=gpus)
    assert told["series"] > 60 + 10 * gpus
    assert 0 < told["cpu_ms_a_scrape"] < 100
    assert len(told["rounds"][0]["ms"]) == 15
    stuck = told["stuck"]
    assert stuck["ticks"] == 0
    assert stuck["age_after_s"] - stuck["age_before_s"] > 1.0, "no sample was taken meanwhile"
    assert told["latency_while_stuck"]["max_ms"] < 500


@pytest.mark.thorough
@pytest.mark.cgroup
@pytest.mark.skipif(reaction.impossible() is not None, reason=str(reaction.impossible()))
def test_reactions_to_ramps_are_measured():
    runs = {"real": reaction.apart("real", 1.0, 1, realtime=True), "synthetic": reaction.apart("synthetic", 16.0, 1)}
    for kind, made in runs.items():
        told = reaction.summary(made)
        ours = told["memwatch"]
        assert (ours["sent"], ours["of"]) == (1, 1), kind
        assert -1500 < made[0]["memwatch"]["ms"] == ours["ms_median"] < 1500


def test_a_signal_that_did_not_come_is_later_than_all():
    one, late = {"ms": 1.0, "mib": 2.0}, {"ms": 3.0, "mib": 4.0}
    told = reaction.summary([{"memwatch": one, "earlyoom": late}, {"memwatch": late}, {"killed": True}])
    assert told["first"] == 2
    assert (told["memwatch"]["sent"], told["memwatch"]["ms_median"], told["memwatch"]["ms_worst"]) == (2, 3.0, None)
    assert (told["earlyoom"]["sent"], told["earlyoom"]["ms_median"]) == (1, None)


@pytest.mark.thorough
def test_what_a_log_costs_is_measured_in_processes_of_their_own(tmp_path):
    told = log.measure(tmp_path, megabytes=3, runs=1, rate=200, seconds=6)
    assert told["bytes"] > 3e6
    assert [run["generation"] for run in told["catch_up"]] == [told["generations"]]
    assert [run["generation"] for run in told["catch_up_without_markers"]] == [0]
    assert [run["markers"] for run in told["scan"]] == [told["generations"]]
    assert [run["markers"] for run in told["scan_without_markers"]] == [0]
    for name in told.keys() - {"bytes", "generations", "rate"}:
        assert 0 < told[name][0]["cpu_seconds"] < 20
        assert 5 < told[name][0]["peak_rss_mib"] < 200
    assert told["catch_up"][0]["longest_poll"] < 1.0  # about 0.05
    assert told["follow"][0]["cpu_share"] < 0.1  # about 0.001


def test_a_tree_is_measured_look_by_look():
    found = tree.of_tree(trees.spawned, looks=2, size=2)
    assert (found["tree"], found["processes"]) == ("spawned", 7)
    assert found["used_bytes"][0] > 7 * 2 * (100 << 20), "twice as large as it is written"
    assert (
        len(found["used_bytes"])
        == len(found["pss_bytes"])
        == len(found["look_cpu_seconds"])
        == len(found["rollup_cpu_seconds"])
        == 2
    )


def test_latencies_are_measured_by_way_of_looking():
    found = tree.latencies(seconds=0.2, megabytes=50)
    assert [one["while"] for one in found] == [
        *("nobody looks", "a visit each second", "pages are sampled", "smaps_rollup is read")
    ]
    assert all(0 < one["p50_us"] <= one["p999_us"] <= one["max_us"] and one["looks"] > 0 for one in found)


def test_a_census_is_measured_beside_nobody():
    told = census.measure(objects=20_000, runs=1, rounds=1, seconds=0.5)
    (counted,), (sized,) = told["cost"][census.COUNTED], told["cost"][census.SIZED]
    assert 20_000 < counted["objects"] < sized["objects"]
    assert 0 < counted["cpu_seconds"] < counted["process_cpu_seconds"] < 20 and counted["peak_rss_mib"] > 5
    assert all(len(found) == 1 and found[0] > 0 for found in told["longest_ms"].values())


@pytest.mark.thorough
def test_the_lines_that_leak_are_looked_for(tmp_path):
    told = lines.profile("losses", tmp_path)
    assert told["first"] and told["grown_mb"] > 10 and 0 < told["share"] <= 1 and 0 < told["cpu_percent"] < 60
