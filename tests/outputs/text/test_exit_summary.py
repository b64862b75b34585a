"""The summary at the end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.events import Cause, Exited, LastCheckpoint
from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import Expectation, GenerationRow, PhaseRow, Trend, Verdict
from memwatch.outputs.text.exit_summary import MAX_SUMMARY_ROWS, render_summary
from support.snapshots import SENTENCE, make_dead, make_diagnosis, make_row, make_snapshot, make_view

EXPECTED = """\
The trainer runs on. {}

memwatch: python main.py --population 32 --buffer 50000 (pid 4242), watched 1 h 2 m, generation 3 of 25

host  generation   end memory      change        peak    duration     evaluate        train       evolve
               1      14.1 GB    +12.9 GB     14.5 GB        25 m     +11.6 GB      +1.3 GB     -50.0 MB
               2      27.0 GB    +12.9 GB     27.4 GB        25 m     +11.6 GB      +1.3 GB     -50.0 MB
               3      39.9 GB    +12.9 GB     40.3 GB  unfinished     +11.6 GB      +1.3 GB     -50.0 MB

host: leak, +12.9 GB/generation; from 1.2 GB to 39.9 GB (+38.7 GB), peak 40.3 GB; limit 175.0 GB (cgroup /kubepods/pod7)
      by phase: evaluate +34.8 GB, train +3.9 GB, evolve -150.0 MB
"""


def test_it_reads_like_this():
    assert render_summary(make_snapshot(3)) == EXPECTED.format(SENTENCE)


def test_how_it_ended_why_and_what_to_do_come_first():
    last = LastCheckpoint("file: ckpt.pt", "/runs/my ckpt.pt", 60.0, 60.0, 12.0, 1.0)
    dead = make_dead(diagnosis=make_diagnosis())
    assert dead.exited is not None
    dead = replace(dead, exited=replace(dead.exited, checkpoint=last))
    lines = render_summary(dead, history="my history.db").splitlines()
    assert lines[: lines.index("")] == [
        "ended: killed by the kernel's OOM killer at the cgroup's limit",
        "  evidence: memory.events oom_kill 0 -> 1",
        "  evidence: ended by SIGKILL",
        "LEAK FOUND in evaluate: +56.4 GB/generation since generation 1",
        "  numpy.ndarray 6,960 -> 20,880, held by ReplayBuffer.buffer[i]",
        "  a buffer fills that can never fit (confidence 0.71)",
        "  Buffer: 6,960 of 50,000, 24.3 MB each",
        "  what to do: give ReplayBuffer.buffer a capacity below 7,100",
        "  recently memory rose most in ReplayBuffer.add (buffer.py:41): 100% of the growth that was observed",
        "needs 330.0 GB to finish (300.0 GB-360.0 GB) of host memory",
        "next: resume it from /runs/my ckpt.pt",
        "next: memwatch report 'my history.db' --run run-1 -o report.html, for the whole run as a page",
    ]
    assert "watched 5 h 16 m" in lines[lines.index("") + 1]


def test_without_a_history_no_command_reads_it_and_a_completed_run_needs_nothing():
    done = Exited(1.0, Cause.COMPLETED, ("exit status 0",), 0)
    text = render_summary(make_snapshot(3, exited=done, sentence="ended: completed"))
    assert text.startswith("ended: completed\n  evidence: exit status 0\n\nmemwatch: python")


def test_the_tables_of_examinations_can_be_left_out():
    snapshot = make_snapshot(3, diagnosis=make_diagnosis())
    brief, whole = (render_summary(snapshot, with_examinations=wanted) for wanted in (False, True))
    assert "examined in" in whole
    assert "examined in" not in brief
    assert "LEAK FOUND" in brief


def test_a_long_table_is_shortened_in_the_middle():
    lines = render_summary(make_snapshot(200)).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("host  generation"))
    table = lines[head + 1 : lines.index("", head)]
    assert len(table) == MAX_SUMMARY_ROWS
    assert [line.split()[0] for line in table[8:13]] == ["9", "10", "...", "182", "183"]
    assert table[-1].split()[0] == "200"


def test_a_gpu_has_a_table_only_when_it_grows():
    snapshot = make_snapshot(3, 1)
    assert "gpu0  generation" not in render_summary(snapshot)
    assert "gpu0: stable; from 29.0 GB to 30.0 GB" in render_summary(snapshot)
    leaking = replace(snapshot.resources[1], verdict=Verdict.LEAK)
    assert "gpu0  generation" in render_summary(replace(snapshot, resources=(snapshot.resources[0], leaking)))


def test_a_restart_shows_its_attempt():
    rows = (make_row(1), replace(make_row(1), attempt=1), replace(make_row(2), index=2.5, attempt=1))
    text = render_summary(make_snapshot(resources=(replace(make_view(), generations=rows),), attempt=1))
    assert [line[:16].split() for line in text.splitlines()[5:8]] == [["1"], ["1", "try", "2"], ["2.5", "try", "2"]]
    assert "attempt 2" in text


def test_without_markers_or_readings():
    nothing = make_snapshot(
        resources=(), sample=None, target=None, command="", generation=None, total=None, started_t=None
    )
    assert render_summary(nothing) == f"The trainer runs on. {SENTENCE}\n\nmemwatch: no trainer\n"
    by_time = make_view(0, trend=Trend("linear", 1e6, None, 0.9))
    assert "leak, +3.6 GB/h" in render_summary(make_snapshot(resources=(by_time,), generation=None))


hostile = st.text(st.characters(), max_size=100)


@settings(deadline=None)
@given(hostile, hostile, hostile)
def test_nothing_foreign_reaches_the_terminal_raw(command, evidence, phase):
    rows = (GenerationRow(1, 0, 0.0, 1.0, 0, 1, 1, (PhaseRow(phase, 0.0, 1.0, 1, 1),)),)
    end = Exited(1.0, Cause.UNKNOWN, (evidence,))
    view = replace(make_view(), generations=rows, usage=Usage("host", 1, Limit(2, evidence, 1)))
    text = render_summary(make_snapshot(command=command, resources=(view,), exited=end, sentence=evidence))
    assert all(line.isprintable() or not line for line in text.split("\n"))


def test_what_was_found_comes_before_the_tables_and_what_was_expected_after_them():
    broken = Expectation(
        "growth < 5GB", met=False, breaches=2, first="generation 1: +12.9 GB", latest="generation 2: +7.0 GB"
    )
    unseen = Expectation("Agent == 16")
    text = render_summary(make_snapshot(3, diagnosis=make_diagnosis(), expectations=(broken, unseen)))
    lines = text.splitlines()
    assert lines[1:4] == [
        "LEAK FOUND in evaluate: +56.4 GB/generation since generation 1",
        "  numpy.ndarray 6,960 -> 20,880, held by ReplayBuffer.buffer[i]",
        "  a buffer fills that can never fit (confidence 0.71)",
    ]
    assert any(line.startswith("  what to do: give ReplayBuffer.buffer a capacity below 7,100") for line in lines)
    for line in (
        "               examined in     memory  objects take"
        " ReplayBuffer.buffer       numpy.ndarray          Transition",
        "    generation 3, evaluate   174.0 GB      171.0 GB"
        "            168.0 GB              20,880               6,960",
        "attributes that grow each generation",
        "    +56.4 GB  56.0 GB -> 169.0 GB       ReplayBuffer.buffer, since generation 1",
        "  24.3 MB for each of Buffer (6,960 of 50,000, held by ReplayBuffer.buffer); full at 50,000 it takes 1.2 TB; "
        "the limit falls at about 7,100 of 50,000",
        "      3.0 GB  numpy.ndarray __main__.Trainer.market, 2.0 GB of it in memory",
        "expected growth < 5GB: BROKEN 2 times, first at generation 1: +12.9 GB; latest generation 2: +7.0 GB",
        "expected Agent == 16: not evaluated",
    ):
        assert line in lines
