"""Traces: what is read, what is refused, and what the engine makes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.backtest.replay import read_trace, replay
from memwatch.core.model import Attached, GaugeSeen, GenerationSeen, PhaseSeen, Sampled
from memwatch.core.policy import Policy
from memwatch.core.sentence import to_json_line
from memwatch.errors import ConfigError, MemwatchError

HEADER = "t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit\n"
DATA = Path(__file__).parents[3] / "shared" / "traces" / "data"
PLAIN = [
    "linear_leak",
    "doc_gen13_crash_linear",
    "doc_scenario1_evaluate_64",
    "gpu_leak",
    "restart",
    "plateau_then_leak",
    "fill_plateau",
    "doc_scenario4_healthy_24",
    "stable_noise",
    "slow_finish",
]


def trace(tmp_path: Path, rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(header + rows)
    return path


def kinds(path: Path) -> list[str]:
    return [type(event).__name__ for event in read_trace(path)]


def test_rows_become_events_in_their_order(tmp_path):
    rows = "0,10,100,,,,,\n1,20,100,1,evaluate,25,5,50\n2,30,100,1,train,25,6,50\n3,30,100,2,,25,6,50\n"
    events = list(read_trace(trace(tmp_path, rows)))
    assert [type(e) for e in events] == [
        *(Attached, Sampled),
        *(GenerationSeen, PhaseSeen, Sampled),
        *(PhaseSeen, Sampled),
        *(GenerationSeen, PhaseSeen, Sampled),
    ]
    mark = events[2]
    assert isinstance(mark, GenerationSeen) and (mark.index, mark.total, mark.at) == (1, 25, "start")
    sample = events[4]
    assert isinstance(sample, Sampled)
    host, gpu = sample.sample.usages
    assert (host.used_bytes, gpu.resource, gpu.used_bytes) == (20, "gpu0", 5)
    assert host.limit is not None and (host.limit.origin, host.limit.headroom_bytes) == ("trace", 80)
    assert isinstance(events[8], PhaseSeen) and events[8].at == "end"


def test_what_is_unknown_is_left_out(tmp_path):
    events = list(read_trace(trace(tmp_path, "0,,,,,,7,\n1,5,,,,,,\n")))
    samples = [e.sample.usages for e in events if isinstance(e, Sampled)]
    assert [[u.resource for u in usages] for usages in samples] == [["gpu0"], ["host"]]
    assert samples[0][0].limit is None


def test_a_driver_column_is_a_gauge(tmp_path):
    path = trace(tmp_path, "0,5,10,7,50\n1,5,10,7,50\n2,5,10,9,50\n", "t,rss,limit,driver,driver_capacity\n")
    gauges = [e for e in read_trace(path) if isinstance(e, GaugeSeen)]
    assert [(g.value, g.capacity) for g in gauges] == [(7, 50), (9, 50)]


def test_a_count_that_goes_back_with_less_memory_is_a_new_process(tmp_path):
    path = trace(
        tmp_path, "0,90,100,5,,,,\n1,90,100,4,,,,\n2,20,100,3,,,,\n3,80,100,4,,,,\n4,3,100,,,,,\n5,4,100,2,,,,\n"
    )
    attached = [e for e in read_trace(path) if isinstance(e, Attached)]
    assert [a.t for a in attached] == [0, 2, 4]
    assert len({a.target for a in attached}) == 3


def test_gzip_is_read(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "0,1,2,,,,,\n").encode()))
    assert kinds(path) == ["Attached", "Sampled"]


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        ("0,x,2,,,,,\n", HEADER, ":2: rss 'x'"),
        ("0,1,2,,,,,\n1,-1,2,,,,,\n", HEADER, ":3: rss '-1'"),
        ("0,nan,2,,,,,\n", HEADER, ":2: rss"),
        (",1,2,,,,,\n", HEADER, ":2: no time"),
        ("5,1,2,,,,,\n4,1,2,,,,,\n", HEADER, ":3: time goes back"),
        ("0,1\n", "t,rss\n", ":1: no column limit"),
        ("", "", ":1: no column t, rss, limit"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(tmp_path, rows, header, says):
    with pytest.raises(ConfigError) as caught:
        list(read_trace(trace(tmp_path, rows, header)))
    assert says in str(caught.value) and caught.value.hint


def test_files_that_are_no_traces_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read_trace(tmp_path / "none.csv"))
    (tmp_path / "bad.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigError):
        list(read_trace(tmp_path / "bad.csv.gz"))


@settings(max_examples=60, deadline=None)
@given(rows=st.binary(max_size=200))
def test_any_bytes_are_events_or_a_named_error(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_bytes(HEADER.encode() + rows)
    try:
        list(replay(path, Policy()))
    except MemwatchError:
        pass


def leak(tmp_path: Path, limit: int) -> Path:
    rows = []
    for t in range(900):
        phase = "evaluate" if t % 60 < 30 else "train"
        rows.append(f"{t},{10_000_000 + t * 100_000},{limit},{t // 60},{phase},25,,\n")
        if 10_000_000 + t * 100_000 >= limit:
            break
    return trace(tmp_path, "".join(rows))


def test_a_leak_is_interrupted_once_before_the_limit_and_every_line_is_complete(tmp_path):
    notices = list(replay(leak(tmp_path, 80_000_000), Policy(checkpoint_seconds=10)))
    acts = [n for n in notices if n.fields["action"] == "interrupt"]
    assert len(acts) == 1
    assert 560 < acts[0].t < 700 - 10
    needed = {
        "event",
        "t",
        "resource",
        "gen",
        "verdict",
        "growth_per_gen",
        "eta_s",
        "eta_lo_s",
        "eta_hi_s",
        "oom_gen",
        "action",
    }
    for notice in notices:
        assert needed <= set(json.loads(to_json_line(notice)))


def test_a_run_that_ends_first_is_not(tmp_path):
    notices = list(replay(leak(tmp_path, 500_000_000), Policy(checkpoint_seconds=10)))
    assert not any(n.event in ("warn", "interrupt") for n in notices)


def test_replay_is_deterministic(tmp_path):
    path = leak(tmp_path, 80_000_000)
    assert [to_json_line(n) for n in replay(path, Policy())] == [to_json_line(n) for n in replay(path, Policy())]


def test_replay_is_causal(tmp_path):
    path = leak(tmp_path, 80_000_000)
    whole = [to_json_line(n) for n in replay(path, Policy()) if n.t < 400]
    rows = path.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut"
    cut.mkdir()
    path = trace(cut, "".join(rows[1:402]))
    assert whole == [to_json_line(n) for n in replay(path, Policy()) if n.t < 400]


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/traces")
@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_recorded_traces_are_saved_in_time_or_left_alone(name):
    label = json.loads((DATA / f"{name}.json").read_text())
    policy = Policy(checkpoint_seconds=label["ckpt_s"])
    acts = [n.t for n in replay(DATA / f"{name}.csv.gz", policy) if n.fields["action"] == "interrupt"]
    if label["oom_t"] is None:
        assert acts == []
    else:
        assert acts and acts[0] + label["ckpt_s"] < label["oom_t"]
        assert label["oom_t"] - acts[0] < 0.25 * (label["oom_t"] - label["t_start"]), "not much is thrown away"
