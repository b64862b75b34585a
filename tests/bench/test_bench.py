"""The measuring programs work; what they measure is for people."""

from __future__ import annotations

from bench import memory, replay
from support.endless import time_passes
from support.steady import Steady


def test_a_replay_is_measured_by_part(tmp_path, capsys):
    replay.measure(replay.write(tmp_path / "both.csv", 200, markers=True, gpu=True), start=0.2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "both: 200 rows"
    assert [line.split("  ")[1] for line in lines[2:]] == ["read", "engine", "engine + forecaster", "replay", "program"]


def test_memory_is_measured_on_the_way(capsys):
    memory.run("time", time_passes(), 200, Steady)
    name, _, figures = capsys.readouterr().out.partition("MB ")
    assert name.startswith("time") and len(figures.split()) == memory.POINTS
