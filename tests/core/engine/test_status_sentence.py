"""The sentence in all its variants, the fields, and the lines."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.engine import status_sentence as words
from memwatch.core.events import Cause, Exited, Notice
from memwatch.core.examination import GrowthDriver
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.measurements import Limit, Neighbour, Usage
from memwatch.core.snapshot import Forecast, NeighbourGrowth, ResourceView, Trend, Verdict, WatchState

GB = 10**9
LIMIT = Limit(175 * GB, "cgroup /kubepods/pod1", 100 * GB)
TREND = Trend("linear", 8.6e6, 12.9 * GB, 0.9)
BY_TIME = Trend("linear", 1e6, None, 0.9)
LEAK = Forecast(18600, 15000, 21000, 13.4, 12.0, 14.9, False)


def text(
    verdict, trend=TREND, forecast=LEAK, limit=LIMIT, last=25.0, phase="evaluate", resource="host", unit="generation"
):
    return words.outlook_text(Usage(resource, 75 * GB, limit), Outlook(verdict, trend, forecast), unit, last, phase)


def test_the_sentence_of_a_leak():
    assert text(Verdict.LEAK) == (
        "OOM at generation 13 of 25 (12-14), in 5 h 10 m; limit: cgroup 175.0 GB; grows 12.9 GB/generation, in evaluate"
    )


@pytest.mark.parametrize(
    ("others", "members", "said"),
    [
        (8.6e6, 0.0, ", of it 12.9 GB by others: ray::Worker (pid 123)"),
        (99e6, 0.0, ", of it 12.9 GB by others: ray::Worker (pid 123)"),  # no more than all of it
        (0.0, 4.3e6, ", of it 6.5 GB by workers that are no children: serve (pid 7)"),
        (1e6, -5e6, ""),
    ],
)
def test_growth_that_is_not_the_trainers_is_told_as_others(others, members, said):
    beside = NeighbourGrowth(others, members, Neighbour(123, "ray::Worker", GB), Neighbour(7, "serve", GB, "fork"))
    known = Outlook(Verdict.LEAK, TREND, LEAK)
    shown = words.outlook_text(Usage("host", 75 * GB, LIMIT), known, "generation", 25.0, None, beside=beside)
    assert shown.endswith(f"grows 12.9 GB/generation{said}")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (text(Verdict.STABLE), "stable at 75.0 GB; limit: cgroup 175.0 GB"),
        (text(Verdict.PLATEAU), "levelled off at 75.0 GB; limit: cgroup 175.0 GB"),
        (text(Verdict.WARMING_UP, None, None), "warming up, 75.0 GB used; limit: cgroup 175.0 GB"),
        (
            text(Verdict.GROWING, forecast=Forecast(9e5, 8e5, None, finishes=True), phase=None),
            "fits: ends with generation 25 before the limit, 75.0 GB used; limit: cgroup 175.0 GB; "
            "grows 12.9 GB/generation",
        ),
        (
            text(Verdict.GROWING, limit=None, phase=None),
            "75.0 GB used; limit: unknown; grows 12.9 GB/generation",
        ),
        (
            text(Verdict.GROWING, forecast=Forecast(None, None, None), phase=None),
            "no OOM in sight, 75.0 GB used; limit: cgroup 175.0 GB; grows 12.9 GB/generation",
        ),
        (
            text(Verdict.LEAK, BY_TIME, Forecast(18600, 15000, None), last=None, phase=None),
            "OOM in 5 h 10 m (4 h 10 m or later); limit: cgroup 175.0 GB; grows 3.6 GB/h",
        ),
        (
            text(
                Verdict.LEAK,
                forecast=Forecast(60, None, None, 3.0),
                last=None,
                resource="gpu0",
                unit="epoch",
                limit=Limit(24 * GB, "gpu0", GB),
                phase=None,
            ),
            "gpu0: OOM at epoch 3, in 1 m; limit: gpu0 24.0 GB; grows 12.9 GB/epoch",
        ),
        (
            text(
                Verdict.LEAK, forecast=Forecast(60, 50, 70, 3.1, 3.0, 3.9), limit=Limit(GB, "rlimit_as", GB), phase=None
            ),
            "OOM at generation 3 of 25, in 1 m; limit: RLIMIT_AS 1.0 GB; grows 12.9 GB/generation",
        ),
    ],
)
def test_its_variants(made, expected):
    assert made == expected


def view(resource: str, eta: float | None) -> ResourceView:
    forecast = Forecast(eta, None, None)
    return ResourceView(Usage(resource, GB, LIMIT), 0, 0, Verdict.LEAK, TREND, forecast, ())


def test_it_speaks_of_the_resource_that_ends_first():
    assert words.first_to_end([view("host", 50), view("gpu0", 20)]).usage.resource == "gpu0"
    assert words.first_to_end([view("host", None), view("gpu0", None)]).usage.resource == "host"
    made = words.status_sentence([view("host", 50), view("gpu0", 20)], "epoch", None, {"gpu0": "train"})
    assert made.startswith("gpu0: OOM in 20 s") and made.endswith(", in train")


def test_states_and_the_end():
    made = words.status_sentence([view("host", 50)], "epoch", None, {}, state=WatchState.INTERRUPTING)
    assert made.startswith("interrupted, waiting for the checkpoint; OOM in 50 s")
    assert words.status_sentence([], "epoch", None, {}) == "no reading yet"
    for cause in Cause:
        assert words.exit_text(Exited(0, cause)).startswith("ended: ")
    assert words.exit_text(Exited(0, Cause.FAILED, (), 3)) == "ended: failed (exit status 3)"
    assert words.exit_text(Exited(0, Cause.SIGNALLED, (), None, "SIGHUP")).endswith("(SIGHUP)")


ANY = st.one_of(st.none(), st.floats())


@given(values=st.lists(ANY, min_size=6, max_size=6), slope=st.floats(), per=ANY, gen=ANY)
def test_fields_are_finite_numbers_or_none_and_lines_are_json(values, slope, per, gen):
    outlook = Outlook(Verdict.LEAK, Trend("linear", slope, per, 0.5), Forecast(*values))
    fields = words.forecast_fields(Usage("host", GB, LIMIT), gen, outlook, "warn")
    assert all(not isinstance(v, float) or math.isfinite(v) for v in fields.values())
    row = json.loads(words.to_json_line(Notice(1.5, "warn", "a\nb", fields)))
    assert row["event"] == "warn" and row["t"] == 1.5 and row["action"] == "warn" and row["text"] == "a\nb"


def test_the_fields_have_the_names_of_the_contract():
    fields = words.forecast_fields(Usage("host", GB, None), 3.0, Outlook(Verdict.WARMING_UP, None, None))
    growth = "growth_per_gen growth_per_s model model_weight model_points model_since_gen"
    names = f"resource gen verdict {growth} eta_s eta_lo_s eta_hi_s oom_gen oom_gen_lo oom_gen_hi"
    assert list(fields) == [
        *names.split(),
        "finishes",
        "others_per_s",
        "needed",
        "needed_lo",
        "needed_hi",
        "interrupt_in_s",
        "interrupt_gen",
        "limit",
        "limit_origin",
        "used",
        "headroom",
        "drivers",
        "action",
    ]
    assert fields["gen"] == 3 and fields["limit"] is None


@pytest.mark.parametrize(
    ("capacity", "full", "limit", "fits", "end"),
    [
        (
            5000.0,
            (2.8e9, 2.6e9, 3.1e9),
            (6600.0, 5900.0, 7500.0),
            True,
            "full at 5,000 it takes 2.8 GB (2.6 GB-3.1 GB): fits",
        ),
        (
            5000.0,
            (2.8e9, 2.6e9, 3.1e9),
            (3912.0, 3720.0, 4210.0),
            False,
            "full at 5,000 it takes 2.8 GB (2.6 GB-3.1 GB); the limit falls at about 3,900 of 5,000 (3,700-4,200)",
        ),
        (
            5000.0,
            (2.8e9, 0.8e9, 4.2e9),
            (3912.0, 2000.0, None),
            None,
            "full at 5,000 it takes 2.8 GB (800.0 MB-4.2 GB)",
        ),
        (None, None, (3912.0, 2000.0, None), None, "the limit falls at about 3,900 (2,000 or more)"),
        (None, None, None, None, ""),
    ],
)
def test_a_gauge_says_what_a_unit_takes_and_where_that_ends(capacity, full, limit, fits, end):
    driver = GrowthDriver(
        "replay buffer",
        448.0,
        capacity,
        435e3,
        0.99,
        "",
        full and int(full[0]),
        limit and limit[0],
        (210e3, 724e3),
        full and (int(full[1]), int(full[2])),
        limit and limit[1:],
        fits,
    )
    counted = "448" if capacity is None else "448 of 5,000"
    first = f"435.0 kB (210.0 kB-724.0 kB) for each of replay buffer ({counted})"
    assert words.driver_text(driver) == "; ".join(filter(None, (first, end)))
    growing = Outlook(Verdict.GROWING, None, None, drivers=(driver,))
    assert words.outlook_text(Usage("host", GB, None), growing, "epoch", None, None).endswith(words.driver_text(driver))
    stable = Outlook(Verdict.STABLE, None, None, drivers=(driver,))
    assert "replay buffer" not in words.outlook_text(Usage("host", GB, None), stable, "epoch", None, None)
    json.loads(
        words.to_json_line(Notice(1.0, "forecast", "", words.forecast_fields(Usage("host", GB, None), 1, growing)))
    )


def test_a_gauge_that_memory_may_not_grow_with_is_not_told():
    driver = GrowthDriver("loss", 448.0, None, 435e3, 0.2, "", None, None, (0.0, 724e3))
    growing = Outlook(Verdict.GROWING, None, None, drivers=(driver,))
    assert "loss" not in words.outlook_text(Usage("host", GB, None), growing, "epoch", None, None)
    buffer = replace(driver, name="buffer", capacity=5000.0)
    assert list(words.driver_texts([driver, buffer])) == [words.driver_text(buffer)]


def test_a_gauge_of_bytes_says_its_bytes_as_such():
    driver = GrowthDriver("memory of frames", 448e6, 5e9, 1.1, 0.99, "", int(5.3e9), 3e9, fits=False, in_bytes=True)
    assert words.driver_text(driver) == (
        "1.1 B for each byte of memory of frames (448.0 MB of 5.0 GB); full at 5.0 GB it takes 5.3 GB; "
        "the limit falls at about 3.0 GB of 5.0 GB"
    )


def test_a_rendered_notice_is_one_printable_line():
    line = words.to_text_line(Notice(0, "out_of_memory", "x\x1b[31m\nred\x07"))
    assert line == "out_of_memory x red?"
