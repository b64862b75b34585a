"""Traces: what is read, what is refused, and what the engine makes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Attached, CheckpointSeen, GaugeSeen, GenerationSeen, PhaseSeen, Sampled
from memwatch.core.measurements import Limit, Sample, Target, Usage
from memwatch.errors import ConfigError, MemwatchError
from memwatch.history.trace_files import read_trace, replay_notices, write_trace
from traces.score import Task, score

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
    "doc_gen7_crash_175",
    "doc_scenario2_train_96",
    "doc_scenario3_evolve_175",
    "doc_scenario4_healthy_24",
    "doc_scenario4_healthy_175",
    "rec_catboost_healthy",
    "rec_catboost_leak",
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


def test_gauges_units_and_checkpoints_of_a_trace(tmp_path):
    header = "t,rss,limit,gen,unit,gauges,checkpoint\n"
    rows = '0,5,10,3,epoch,"{""replay buffer"": [448, 5000], ""loss"": 0.5}",\n'
    rows += '4,5,10,3,epoch,"{""replay buffer"": [512, 5000], ""loss"": 0.5}",writing@1.5 saved@3/1.5\n'
    events = list(read_trace(trace(tmp_path, rows, header)))
    (generation,) = (e for e in events if isinstance(e, GenerationSeen))
    assert (generation.index, generation.unit) == (3, "epoch")
    gauges = [(e.t, e.name, e.value, e.capacity) for e in events if isinstance(e, GaugeSeen)]
    assert gauges == [(0, "replay buffer", 448, 5000), (0, "loss", 0.5, None), (4, "replay buffer", 512, 5000)]
    writing, saved = (e for e in events if isinstance(e, CheckpointSeen))
    assert (writing.t - writing.still_seconds, writing.state, writing.seconds) == (1.5, "writing", None)
    assert (saved.t - saved.still_seconds, saved.state, saved.seconds) == (3.0, "saved", 1.5)


def test_what_was_written_is_read_again(tmp_path):
    target = Target("boot", 1, 1)
    usages = (Usage("host", 5, Limit(10, "host", 5)),)
    told = [
        Attached(100.0, target, "a", age_seconds=17.5),
        GenerationSeen(100.0, 3.0, 25, "epoch"),
        GaugeSeen(100.0, "buffer", 448.0, 5000.0),
        GaugeSeen(100.0, "loss", 0.5),
        CheckpointSeen(100.5, "writing", "log: saving"),
        CheckpointSeen(101.0, "saved", "log: saved", 0.5, still_seconds=0.25),
        Sampled(101.0, Sample(usages)),
        Sampled(102.0, Sample(usages)),
    ]
    with (tmp_path / "t.csv").open("w") as file:
        write_trace(told, file)
    events = list(read_trace(tmp_path / "t.csv"))
    assert [(e.index, e.total, e.unit) for e in events if isinstance(e, GenerationSeen)] == [(3.0, 25, "epoch")]
    assert [(e.name, e.value, e.capacity) for e in events if isinstance(e, GaugeSeen)] == [
        ("buffer", 448.0, 5000.0),
        ("loss", 0.5, None),
    ]
    checkpoints = [(e.state, e.t - e.still_seconds, e.seconds) for e in events if isinstance(e, CheckpointSeen)]
    assert checkpoints == [("writing", 0.5, None), ("saved", 0.75, 0.5)]
    assert [e.age_seconds for e in events if isinstance(e, Attached)] == [17.5]


@pytest.mark.parametrize(
    ("column", "cell"), [("gauges", "[1]"), ("gauges", "{"), ("gauges", '"{""a"": [1, 2, 3]}"'), ("checkpoint", "done")]
)
def test_cells_that_are_none_are_named(tmp_path, column, cell):
    with pytest.raises(ConfigError, match=f":2: {column}"):
        list(read_trace(trace(tmp_path, f"0,5,10,{cell}\n", f"t,rss,limit,{column}\n")))


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


def samples(path: Path) -> list[tuple[float, dict[str, tuple[int, int | None]]]]:
    """(time, {resource: (bytes in use, limit)}) of each."""
    return [
        (e.t, {u.resource: (u.used_bytes, None if u.limit is None else u.limit.bytes) for u in e.sample.usages})
        for e in read_trace(path)
        if isinstance(e, Sampled)
    ]


def attached(path: Path) -> list[float]:
    return [e.t for e in read_trace(path) if isinstance(e, Attached)]


def test_a_clock_that_jitters_stands_still(tmp_path):
    path = trace(tmp_path, "0,1,9,,,,,\n5,2,9,,,,,\n4.5,3,9,,,,,\n4.8,4,9,,,,,\n6,5,9,,,,,\n")
    assert [(t, use["host"][0]) for t, use in samples(path)] == [(0, 1), (5, 2), (5, 3), (5, 4), (6, 5)]
    path = trace(tmp_path, "0,1,9,,,,,\n60000,2,9,,,,,\n59401,3,9,,,,,\n")
    assert [t for t, _ in samples(path)] == [0, 60000, 60000]


def test_a_limit_that_is_not_read_still_holds_and_0_is_none(tmp_path):
    path = trace(tmp_path, "0,1,,,,,2,\n1,1,9,,,,2,7\n2,1,,,,,2,\n3,1,0,,,,2,8\n4,1,,,,,2,\n5,1,6,,,,,\n")
    assert [use["host"][1] for _, use in samples(path)] == [None, 9, 9, None, None, 6]
    assert [use["gpu0"][1] for _, use in samples(path)[:5]] == [None, 7, 7, 8, 8]


def test_a_limit_of_ones_own_binds_where_it_is_tighter(tmp_path):
    path = trace(tmp_path, "0,1,,,,,,\n1,1,9,,,,,\n2,1,3,,,,,\n3,1,5,,,,,\n")
    limits = [e.sample.usages[0].limit for e in read_trace(path, limit_bytes=5) if isinstance(e, Sampled)]
    assert [(one.bytes, one.origin, one.headroom_bytes) for one in limits if one is not None] == [
        *[(5, "--limit", 4)] * 2,
        *[(3, "trace", 2), (5, "trace", 4)],
    ]


def test_a_row_without_memory_tells_what_else_it_says(tmp_path):
    header = "t,rss,limit,gen,phase,driver\n"
    path = trace(tmp_path, "0,50,99,1,a,5\n1,,99,2,b,6\n2,,,,,\n3,50,99,2,b,6\n", header)
    events = [e for e in read_trace(path) if e.t >= 1]
    assert [(e.t, type(e)) for e in events] == [
        *[(1, GenerationSeen), (1, PhaseSeen), (1, GaugeSeen), (1, Sampled)],
        (2, Sampled),
        (3, Sampled),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param("5@90 5@ 5@90 6@ 6@91", [0], id="memory is not read now and then"),
        pytest.param("5@90 5@ 4@20 5@30", [0, 2], id="... and the count goes back after it"),
        pytest.param("5@90 4@ 4@20 5@30", [0, 2], id="... or while it is not"),
        pytest.param("5@90 4@85 5@90", [0], id="the count goes back, memory does not"),
        pytest.param("5@90 5@90 5@0 5@88 6@90", [0], id="one reading of nothing"),
        pytest.param("5@90 5@0 5@20 4@60", [0, 2], id="nothing in use, then little, under the old count"),
        pytest.param("5@90 5@0 4@88 5@90", [0, 2], id="... then the same, and the count goes back"),
        pytest.param("@90 @0 @20", [0, 2], id="... without any count"),
        pytest.param("5@90 @60 @70 4@88", [0, 3], id="a count that was gone comes back lower"),
        pytest.param("5@90 @80 @30 @80 @30 5@90", [0], id="a count that is lost, over garbage"),
        pytest.param("5@90 5@40 @ 5@38 6@50", [0], id="... and garbage that was collected before"),
        pytest.param("5@90 @20 @30 7@40 8@50", [0, 1], id="the first generations are not told"),
        pytest.param("5@90 5@20 5@60 4@70 5@90", [0, 3], id="the old count is told on"),
        pytest.param("5@90 @ @ 6@20 7@30", [0, 3], id="nobody recorded the restart"),
        pytest.param("1@90 2@20 3@80 4@20", [0], id="garbage is collected"),
    ],
)
def test_which_rows_are_of_a_new_process(tmp_path, rows, expected):
    cells = [row.split("@") for row in rows.split()]
    assert attached(trace(tmp_path, "".join(f"{t},{used},99,{gen},,,,\n" for t, (gen, used) in enumerate(cells)))) == (
        expected
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("t,rss,limit\r\n0,1,9\r\n1,2,9\r\n", id="CRLF"),
        pytest.param("\ufefft,rss,limit\n0,1,9\n1,2,9\n", id="byte order mark"),
        pytest.param('\ufeff"t","rss","limit"\n"0","1","9"\n"1","2","9"\n', id="quotes"),
        pytest.param("t, rss, limit\n0, 1, 9\n1, 2, 9 \n", id="spaces"),
        pytest.param("host,limit,t,note,rss\na,9,0,,1\na,9,1,b,2\n", id="other columns and order"),
        pytest.param("t,rss,limit\n0,1,9,7,7\n1,2,9,,,\n", id="more cells than columns"),
        pytest.param("t,rss,limit,gen\n0,1,9\n1,2\n", id="fewer"),
        pytest.param("t,rss,limit\n0,1,9\n\n1,2,9\n\n \n,,\n", id="blank lines"),
        pytest.param("t,rss,limit\n0.0,1e0,9.9\n1,2.7,9", id="floats, no last newline"),
    ],
)
def test_csv_as_people_and_programs_write_it(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert samples(path) == [(0, {"host": (1, 9)}), (1, {"host": (2, 9)})]


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        ("0,x,2,,,,,\n", HEADER, ":2: rss 'x'"),
        ("0,1,2,,,,,\n1,-1,2,,,,,\n", HEADER, ":3: rss '-1'"),
        ("0,nan,2,,,,,\n", HEADER, ":2: rss"),
        (",1,2,,,,,\n", HEADER, ":2: no time"),
        ("0,inf,2,,,,,\n", HEADER, ":2: rss 'inf'"),
        ("0,1,2,,,,,\n1,1,2,,,,x,\n", HEADER, ":3: gpu_used 'x'"),
        ("0,1,2,,,,,\n1,1,-2,,,,,\n", HEADER, ":3: limit '-2'"),
        ("0,1,2,,,,,\n1,1,2,one,,,,\n", HEADER, ":3: gen 'one'"),
        ("100,1,2,,,,,\n400,1,2,,,,,\n50,1,2,,,,,\n", HEADER, ":4: time goes back from 400 to 50"),
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
        list(replay_notices(path, Policy()))
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
    notices = list(replay_notices(leak(tmp_path, 80_000_000), Policy(checkpoint_seconds=10)))
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


def two_leaks(tmp_path: Path) -> Path:
    """A host and a GPU that grow by the same; the limit of the host is raised at 450 s, that of the GPU at 600 s."""
    rows = []
    for t in range(900):
        used, limits = (
            10_000_000 + t * 100_000,
            (110_000_000 + 90_000_000 * (t >= 450), 110_000_000 + 90_000_000 * (t >= 600)),
        )
        rows.append(f"{t},{used},{limits[0]},{t // 60},,,{used},{limits[1]}\n")
    return trace(tmp_path, "".join(rows))


def test_each_end_of_a_generation_is_told_for_each_resource(tmp_path):
    notices = list(replay_notices(two_leaks(tmp_path), Policy(act=False)))
    for resource in ("host", "gpu0"):
        mine = [n for n in notices if n.fields["resource"] == resource]
        ends = [(n.t, n.fields["gen"]) for n in mine if n.event == "generation"]
        assert ends == [(60 * g + 60, g) for g in range(14)]
        assert {(60 * g, g) for g in range(1, 15)} <= {(n.t, n.fields["gen"]) for n in mine if n.event == "forecast"}
    assert len(notices) < 100, "not a line for each sample"


@pytest.mark.parametrize(("resource", "raised_t"), [("host", 450), ("gpu0", 600)])
def test_another_limit_that_changes_the_forecast_is_told_at_once(tmp_path, resource, raised_t):
    mine = [n for n in replay_notices(two_leaks(tmp_path), Policy(act=False)) if n.fields["resource"] == resource]
    told = next(n for n in mine if n.event == "forecast" and n.fields["limit"] == 200_000_000)
    assert told.t <= raised_t + 5
    last = [n for n in mine if n.event == "forecast" and n.t < raised_t][-1]
    assert last.fields["limit"] == 110_000_000 and told.fields["eta_s"] > 1.5 * last.fields["eta_s"]


def test_a_run_that_ends_first_is_not(tmp_path):
    notices = list(replay_notices(leak(tmp_path, 500_000_000), Policy(checkpoint_seconds=10)))
    assert not any(n.event in ("warn", "interrupt") for n in notices)


def test_replay_is_deterministic(tmp_path):
    path = leak(tmp_path, 80_000_000)
    assert [to_json_line(n) for n in replay_notices(path, Policy())] == [
        to_json_line(n) for n in replay_notices(path, Policy())
    ]


@pytest.mark.parametrize("until", [200, 400, 640])
def test_replay_is_causal(tmp_path, until):
    path = leak(tmp_path, 80_000_000)
    whole = [to_json_line(n) for n in replay_notices(path, Policy()) if n.t < until]
    rows = path.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut"
    cut.mkdir()
    path = trace(cut, "".join(rows[1 : until + 2]))
    assert whole == [to_json_line(n) for n in replay_notices(path, Policy()) if n.t < until]


CELL = st.one_of(st.just(""), st.integers(0, 100).map(str))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(CELL, st.sampled_from(["", "99", "0"]), st.sampled_from(["", "1", "2", "3"])), max_size=30),
    st.integers(0, 30),
)
def test_what_a_row_says_depends_on_no_later_one(tmp_path_factory, cells, cut):
    rows = [f"{t},{','.join(row)},,,,\n" for t, row in enumerate(cells)]
    folder = tmp_path_factory.getbasetemp()
    whole = list(read_trace(trace(folder, "".join(rows))))
    part = list(read_trace(trace(folder, "".join(rows[:cut]))))
    assert part == whole[: len(part)]
    assert all(event.t >= cut for event in whole[len(part) :])


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/traces")
@pytest.mark.parametrize("name", PLAIN)
def test_each_of_the_plain_recorded_traces_is_understood(name):
    """All of them together: tests/traces/test_figures.py."""
    judged = score(Task("", label_path=DATA / f"{name}.json"))
    assert judged.outcome in {"saved", "quiet"}
    assert judged.waste is None or judged.waste < 0.25, "not much is thrown away"
    assert fmean(credit for _, _, credit in judged.verdicts) >= 0.75
    assert not judged.eta_errors or median(judged.eta_errors) <= 0.15
