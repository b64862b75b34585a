"""The runner of the measuring programs, and how results are told."""

from __future__ import annotations

import json
import math
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import run
from bench.bars import Bar
from bench.tables import number, table

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_results_are_kept_with_how_they_came_about(tmp_path, monkeypatch):
    assert run.run("bench/replay", "--rows 200 --json", tmp_path, "replay")
    text = (tmp_path / "replay.json").read_text()
    kept = json.loads(text)
    assert kept["command"] == "PYTHONPATH=tests python tests/bench/replay.py --rows 200 --json"
    assert kept["results"]["traces"]["200 rows with a GPU"]["readings"] == 400
    assert kept["machine"]["cores"] >= 1 and kept["machine"]["cpu"]
    assert kept["versions"]["memwatch"]
    assert len(kept["loop_ms"]) == 10 and min(kept["loop_ms"]) > 0
    assert socket.gethostname() not in text and str(run.ROOT) not in text


def test_results_stay_when_a_program_fails(tmp_path, capsys):
    (tmp_path / "replay.json").write_text("earlier")
    assert not run.run("bench/replay", "--no-such-option", tmp_path, "replay")
    assert (tmp_path / "replay.json").read_text() == "earlier"
    assert "replay: failed" in capsys.readouterr().out


def test_every_program_is_there():
    assert all((run.HERE / f"{name}.py").exists() for name in run.PROGRAMS)


@given(TREES)
def test_results_are_read_back_as_they_were(told):
    text = run.dumped(told)
    assert json.loads(text) == told


def test_what_fits_is_on_one_line():
    assert run.dumped({"runs": [{"a": 1}, {"a": 2}]}) == '{"runs": [{"a": 1}, {"a": 2}]}'
    lines = run.dumped({"runs": [{"figure": n} for n in range(20)]}).splitlines()
    assert lines[:3] == ["{", ' "runs": [', '  {"figure": 0},']


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (math.inf, "never"),
        (0.0, "0"),
        (2.0, "2"),
        (0.15678, "0.157"),
        (1234.5, "1,234"),
        (-3.14159, "-3.14"),
    ],
)
def test_a_number_has_three_digits(value, text):
    assert number(value) == text


def test_a_bar_is_met_or_missed():
    assert Bar("a", 4.0, "s", most=4).met and not Bar("a", 4.01, "s", most=4).met
    assert Bar("a", 100, "runs", least=100).met and not Bar("a", 99, "runs", least=100).met
    assert not Bar("a", math.inf, "ms", most=15).met


def test_figures_stand_to_the_right():
    assert table(["what", "s"], [["a", "1"]]).splitlines() == ["| what | s |", "| --- | --: |", "| a | 1 |"]
