"""What a frame of the live view says, and that it fits any terminal."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from memwatch.core.events import Notice
from memwatch.core.measurements import CgroupLevel, Limit, Neighbour, Neighbours, Usage
from memwatch.core.snapshot import Gauge, GenerationRow, PhaseRow, Snapshot, SourceHealth, WatchState
from memwatch.outputs.terminal.live_view_layout import (
    Mode,
    Viewport,
    ViewStatus,
    last_first_line,
    render_frame,
)
from support.snapshots import make_dead, make_diagnosis, make_snapshot, make_view

NOTHING = ViewStatus()
KEYS = {"q": "quit: the watch goes on", "h": "help"}


def lines_of(
    snapshot: Snapshot, width: int = 80, height: int = 24, status: ViewStatus = NOTHING, ascii_only: bool = False
) -> list[str]:
    look = Viewport(width, height, local_time=time.gmtime, ascii_only=ascii_only)
    return ["".join(segment.text for segment in line).rstrip() for line in render_frame(snapshot, look, status)]


FRAME = """\
memwatch pid 4242  python main.py --population 32 -…  watched 2 h 42 m  11:35:50
OOM at generation 13 of 25 (12-14), in 5 h 10 m; interrupt at about generation
12, in 4 h 50 m; needs 330.0 GB to finish (300.0 GB-360.0 GB); limit: cgroup
175.0 GB; grows 12.9 GB/generation, in evaluate

host  ██████████████████████░░░░░░░░░░░░░░░░░░░░   91.5 GB of 175.0 GB  52%
      leak, +12.9 GB/generation · 83.5 GB left · limit: cgroup /kubepods/pod7
      tree 91.5 GB in 17 processes · cgroup ███░░░ 52% of 175.0 GB
generation 7 of 25 · evaluate · warned · checkpoint 5 m ago, takes 12 s
Replay Buffer 15,680 / 50,000   Population 32
without nvml: no NVIDIA driver
175.0 GB│⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⡀⢀⠒⢀⣀⣀⣀⣀⡠⠤⠤⠤⠤⠒⠒⠂⠠⠒⠄⠐⠒⠒
        │                                ⢀⣀⣀⣀⣀⡠⠤⠤⠤⠤⠔⠒⠒⠒⠒⠊⠉⠉⠉⠉⠁⠈ ⠁
        │                  ⣀⣀⣀⡤⠄⠒⠒⠒⠒⠒⠉⠉⠉⠉⠁
        │        ⣀⣀⣠⠤⠤⠴⠒⠋⠉⠉⠁
     0 B│⣠⠤⠤⠴⠚⠉⠉⠉⠁
         1  2   3  4   5  6  7 now
   gen      time     start       end    change      peak  evaluate     train
     7       now   78.6 GB   91.5 GB  +12.9 GB   91.9 GB  +11.6 GB   +1.3 GB

08:53:20 attached   watching python main.py (pid 4242)
09:43:20 forecast   grows 12.9 GB/generation
10:33:20 warn       OOM at generation 13 of 25 (12-14), in 5 h 10 m; interrupt …
q quit  h help · http://127.0.0.1:9877
"""


def test_a_frame_reads_like_this():
    status = ViewStatus(keys=KEYS, footer="http://127.0.0.1:9877/")
    assert lines_of(make_snapshot(), status=status) == FRAME.splitlines()


def test_a_wide_frame_has_every_phase_and_where_the_checkpoint_time_is_from():
    text = "\n".join(lines_of(make_snapshot(), 120, 40))
    assert "evolve" in text
    assert "takes 12 s (measured)" in text


def test_a_narrow_frame_keeps_the_phase_in_which_memory_moves():
    head = next(line for line in lines_of(make_snapshot(), 72) if line.lstrip().startswith("gen "))
    assert head.split() == ["gen", "time", "start", "end", "change", "peak", "evaluate"]


def test_the_newest_generations_are_those_that_are_shown():
    lines = lines_of(make_snapshot(300), 120, 60)
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("gen "))
    assert [line.split()[0] for line in lines[at + 1 : at + 13]] == [str(i) for i in range(289, 301)]
    assert lines[at + 13] == ""


def test_gpus_have_bars_and_say_how_they_are_attributed():
    text = "\n".join(lines_of(make_snapshot(gpus=2), 100, 30))
    assert "NVIDIA H200, exact" in text


def test_others_in_the_cgroup_are_named_below_it():
    largest = (Neighbour(123, "ray::Worker", 90 * 10**6), Neighbour(7, "python3 driver.py", 10**6, "fork"))
    text = "\n".join(lines_of(make_snapshot(neighbours=Neighbours("/pod7", 95 * 10**6, 3, 10**6, 1, largest)), 100, 30))
    assert "not the trainer's 95.0 MB: ray::Worker (pid 123) 90.0 MB" in text
    assert "driver.py" not in text
    alone = make_snapshot(neighbours=Neighbours("/pod7", 0, 0, 10**6, 1, largest[1:]))
    assert "not the trainer's" not in "\n".join(lines_of(alone, 100, 30))


def test_where_not_all_gpus_fit_the_fullest_are_shown():
    snapshot = make_snapshot(gpus=16)
    last = snapshot.resources[-1]
    full = replace(last, usage=replace(last.usage, used_bytes=140 * 10**9))
    lines = lines_of(replace(snapshot, resources=(*snapshot.resources[:-1], full)), 80, 24)
    assert [line.split()[0] for line in lines if line.startswith(("gpu", "host"))][:3] == ["host", "gpu15", "gpu0"]


def test_what_was_found_stands_below_the_sentence():
    found = make_snapshot(diagnosis=make_diagnosis())
    lines = lines_of(found, 100, 30)
    at = next(i for i, line in enumerate(lines) if line.startswith("LEAK FOUND in evaluate: +56.4 GB/generation"))
    end = lines.index("", at)
    text = " ".join(lines[at:end])
    assert "numpy.ndarray 6,960 -> 20,880" in text and text.endswith("(confidence 0.71)"), "the remedy is whole"
    dead = lines_of(make_dead(diagnosis=make_diagnosis()), 100, 30)
    assert not any(line.startswith("LEAK FOUND") for line in dead), "then it is in the summary"


def test_a_finding_that_has_no_room_says_where_all_of_it_is():
    found = make_snapshot(diagnosis=make_diagnosis())
    lines = lines_of(found, 50, 14)
    at = next(i for i, line in enumerate(lines) if line.startswith("LEAK FOUND"))
    assert lines[at + 3].endswith(" ... (d: all)") and lines[at + 4] == ""


def test_details_scroll():
    found = make_snapshot(diagnosis=make_diagnosis())
    look = Viewport(60, 12, local_time=time.gmtime)
    details = ViewStatus(Mode.DETAILS)
    last = last_first_line(found, look, details)
    assert last > 0
    first, rest = (lines_of(found, 60, 12, replace(details, first_line=at)) for at in (0, 3))
    assert first[3:10] == rest[:7] and first[-1].startswith("lines 1-11 of ")
    end = lines_of(found, 60, 12, replace(details, first_line=last + 100))
    whole = lines_of(found, 60, 500, details)
    assert end[-2] == [line for line in whole if line][-1], "the last line can be seen"


def test_an_examination_shows():
    assert any(line.startswith("examining · generation 7 of 25") for line in lines_of(make_snapshot(is_examining=True)))


def test_the_run_ends_in_the_chart_before_the_limit():
    snapshot = make_snapshot()
    ahead = lines_of(replace(snapshot, run_end_t=snapshot.t + 3600.0), 100, 40)
    (axis,) = (line for line in ahead if line.startswith("         1  "))
    assert axis.endswith("end") and " now " in axis


def test_the_end_is_told_with_its_evidence():
    text = " ".join(lines_of(make_dead()))
    assert "killed by the kernel's OOM killer at the cgroup's limit: memory.events oom_kill 0 -> 1;" in text


def test_before_anything_is_known():
    nothing = make_snapshot(
        resources=(), sample=None, target=None, generation=None, phase=None, gauges=(), sources=(), notices=(),
        sentence="no reading yet", started_t=None, checkpoint_t=None, state=WatchState.WATCHING,
    )  # fmt: skip
    assert "no markers in the log yet: time alone · no checkpoint seen, takes 12 s" in lines_of(nothing)


def test_what_is_not_known_yet_is_said_where_details_are_asked_for():
    lines = lines_of(make_snapshot(), status=ViewStatus(Mode.DETAILS))
    assert any("not examined" in line for line in lines)


def test_help_tells_every_key_and_ends_with_the_screen():
    lines = lines_of(make_snapshot(), 60, 20, ViewStatus(Mode.HELP, KEYS))
    assert "  q  quit: the watch goes on" in lines and len(lines) == 20


def test_a_small_screen_has_no_chart():
    assert not any("│" in line for line in lines_of(make_snapshot(), 80, 18))
    assert sum("│" in line for line in lines_of(make_snapshot(), 80, 60)) == 15


def test_a_terminal_without_utf8_gets_ascii():
    text = "".join(lines_of(make_snapshot(), 200, 40, ascii_only=True))
    assert text.isascii()
    assert "####" in text


hostile = st.text(st.characters(), max_size=60)


@example(66, 24, "", "0000000⺀⺀", 0, Mode.OVERVIEW)
@settings(max_examples=80, deadline=None)
@given(st.integers(1, 250), st.integers(1, 80), hostile, hostile, st.integers(0, 10), st.sampled_from(Mode))
def test_a_frame_fits_its_terminal_and_has_no_control_character(width, height, foreign, phase, gpus, mode):
    rows = (GenerationRow(1, 0, 0.0, 1.0, 0, 1, 1, (PhaseRow(phase, 0.0, 1.0, 1, 1),)),)
    snapshot = make_snapshot(
        3,
        gpus,
        command=foreign,
        sentence=foreign,
        unit=phase,
        phase=phase,
        gauges=(Gauge(foreign, 1.5, 2.5, 0.0),),
        sources=(SourceHealth("log", False, foreign, 0.0),),
        notices=(Notice(0.0, "warn", foreign),),
        resources=(replace(make_view(), generations=rows, usage=Usage("host", 5, Limit(0, foreign, -5))),),
    )
    status = ViewStatus(mode, KEYS, foreign)
    lines = render_frame(snapshot, Viewport(width, height), status)
    assert len(lines) == height
    for line in lines:
        text = "".join(segment.text for segment in line)
        assert cell_len(text) == width
        assert text.isprintable()


def test_phases_lose_an_ending_that_they_share():
    parts = tuple(PhaseRow(f"{phase}_population", 0.0, 3.0, 3, 3) for phase in ("evaluate", "train"))
    view = dataclasses.replace(make_view(), generations=(GenerationRow(1, 0, 0.0, 9.0, 0, 9, 9, parts),))
    [table] = [line for line in lines_of(make_snapshot(resources=(view,))) if "change" in line]
    assert table.split()[-2:] == ["evaluate", "train"]


def test_main_memory_is_told_by_tree_cgroups_and_host_against_their_limits():
    snapshot = make_snapshot()
    text = "\n".join(lines_of(snapshot, 120, 30))
    assert "tree 91.5 GB in 17 processes · cgroup ███░░░ 52% of 175.0 GB · host █░░░░░ 15% of 2.0 TB" in text
    parent = CgroupLevel("/kubepods", 380 * 10**9, 0, 400 * 10**9)
    inner = replace(snapshot.sample.cgroup, levels=(snapshot.sample.cgroup.levels[0], parent))
    nested = replace(snapshot, sample=replace(snapshot.sample, cgroup=inner))
    text = "\n".join(lines_of(nested, 160, 30, ascii_only=True))
    assert "cgroup /kubepods/pod7 ###--- 52% of 175.0 GB - cgroup /kubepods ###### 95% of 400.0 GB" in text


def test_a_tmpfs_has_its_bar_under_a_longer_name():
    shm = replace(make_view(), usage=Usage("/dev/shm", 20 * 10**6, Limit(64 * 10**6, "/dev/shm", 44 * 10**6)))
    snapshot = make_snapshot()
    lines = lines_of(replace(snapshot, resources=(*snapshot.resources, shm)), height=40)
    (bar,) = [line for line in lines if line.startswith("/dev/shm ")]
    assert bar.endswith("20.0 MB of 64.0 MB  31%") and cell_len(bar) <= 80
    assert "limit: /dev/shm" in lines[lines.index(bar) + 1]
