"""The picture of a replay: what it shows is what was said and measured, in one file that asks for nothing else."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from memwatch.cli.main import main
from memwatch.core.events import Attached, Event, Notice, PhaseSeen, Sampled
from memwatch.core.measurements import Limit, Sample, Target, Usage
from memwatch.errors import ConfigError, ExitCode
from memwatch.outputs.charts import panels
from memwatch.outputs.charts.run_data import RunData, build_run_data
from memwatch.outputs.charts.svg_axes_and_marks import AreaMark, Band, Dots, LineMark, Rules, Spans
from memwatch.outputs.html import replay_page
from memwatch.system import private_files
from support.snapshots import make_snapshot

GB = 10**9
HEADER = "t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit\n"
EVIL = "<script>alert(1)</script>&\"'"
CHROMIUM = shutil.which("chromium")


# --- stories --------------------------------------------------------------------------------------------------------


def attached(t: float, pid: int = 1) -> Attached:
    return Attached(t, Target("trace", pid, 0), "trace x.csv")


def sampled(t: float, used: float, limit: float | None = 100 * GB, **gpus: tuple[float, float]) -> Sampled:
    def usage(resource: str, used: float, limit: float | None) -> Usage:
        bound = None if limit is None else Limit(int(limit), "trace", int(limit - used))
        return Usage(resource, int(used), bound)

    return Sampled(t, Sample((usage("host", used, limit), *(usage(name, *pair) for name, pair in gpus.items()))))


def leak(start: float = 0.0, end: float = 100.0) -> list[Event]:
    """A GB a second from 0 to the limit of 100 GB."""
    return [attached(start), *(sampled(start + t, t * GB) for t in range(int(end) + 1))]


def notice(t: float, event: str = "forecast", text: str = "words", **fields: Any) -> Notice:
    known = {
        "resource": "host",
        "gen": None,
        "verdict": "leak",
        "growth_per_gen": None,
        "eta_s": None,
        "eta_lo_s": None,
        "eta_hi_s": None,
        "headroom": None,
    }
    return Notice(t, event, text, {**known, **fields})


def told(events: list[Event], *notices: Notice) -> RunData:
    return build_run_data(events, notices, make_snapshot())


def marks(panel: Any, kind: type, style: str) -> list[Any]:
    return [mark for mark in panel.marks if isinstance(mark, kind) and mark.style == style]


# --- memory ---------------------------------------------------------------------------------------------------------


def test_memory_its_limit_and_where_it_was_met():
    panel = panels.memory_panel(told(leak(1000.0)), "host")
    [line] = marks(panel, LineMark, "memory")
    assert line.points == [(t, t * GB) for t in range(101)], "times count from the first event"
    [limit] = marks(panel, LineMark, "limit dashed")
    assert limit.points == [(0, 100 * GB), (100, 100 * GB)]
    [met] = marks(panel, Dots, "limit")
    assert [point[:2] for point in met.points] == [(100, 100 * GB)]
    assert {label.lines for label in panel.labels} == {("limit 100.0 GB",), ("limit reached",)}
    assert panel.x.high > 100 and panel.y.high > 100 * GB


def test_a_limit_that_changes_is_a_step_and_one_that_is_unknown_a_gap():
    bounds = [None, None, 80 * GB, 80 * GB, 60 * GB, None, 70 * GB]
    panel = panels.memory_panel(told([sampled(t, 50 * GB, bound) for t, bound in enumerate(bounds)]), "host")
    first, second = marks(panel, LineMark, "limit dashed")
    assert first.points == [(2, 80 * GB), (4, 80 * GB), (4, 60 * GB), (5, 60 * GB)]
    assert second.points == [(6, 70 * GB), (6, 70 * GB)]
    assert not marks(panels.memory_panel(told([sampled(0, 5, None)]), "host"), LineMark, "limit dashed")


def test_a_limit_far_above_is_named_and_does_not_flatten_the_rest():
    panel = panels.memory_panel(told([sampled(t, t * GB, 2000 * GB) for t in range(5)]), "host")
    assert panel.y.high < 5 * GB
    assert [label.lines for label in panel.labels] == [("limit 2.0 TB, far above",)]


def test_another_process_begins_a_line_of_its_own_and_can_meet_the_limit_again():
    events = [*leak(), attached(130, 2), *leak(130)[1:]]
    story = told(events, notice(0, "attached", attempt=0), notice(130, "attached", attempt=1))
    panel = panels.memory_panel(story, "host")
    assert [line.points[0][0] for line in marks(panel, LineMark, "memory")] == [0, 130]
    assert [t for t, _ in story.memory["host"].limit_reached] == [100, 230]
    assert marks(panel, Rules, "dotted muted")[0].xs == [130]
    assert ("restart",) in {label.lines for label in panel.labels}


def test_a_long_silence_is_not_bridged_and_a_single_sample_is_a_dot():
    events = [sampled(t, GB) for t in (*range(50), *range(200, 250), 400)]
    panel = panels.memory_panel(told(events), "host")
    runs = [(line.points[0][0], line.points[-1][0]) for line in marks(panel, LineMark, "memory")]
    assert runs == [(0, 49), (200, 249), (400, 400)]
    [dot] = marks(panel, Dots, "memory")
    assert [point[0] for point in dot.points] == [400]


def test_phases_are_shaded_from_start_to_end_and_end_with_their_process():
    events = [
        *(attached(0), PhaseSeen(0, "a"), PhaseSeen(10, "b"), sampled(12, GB), PhaseSeen(20, "b", "end")),
        *(PhaseSeen(30, "a"), attached(35, 2), sampled(40, GB), PhaseSeen(40, "b"), sampled(50, GB)),
    ]
    story = told(events)
    assert story.phases == ((0, 10, "a"), (10, 20, "b"), (30, 35, "a"), (40, 50, "b"))
    panel = panels.memory_panel(story, "host")
    [phases] = [mark for mark in panel.marks if isinstance(mark, Spans)]
    assert phases.spans == [
        (0, 10, "tint0 tint"),
        (10, 20, "tint1 tint"),
        (30, 35, "tint0 tint"),
        (40, 50, "tint1 tint"),
    ]
    assert phases.keys == [("fill tint0 tint", "a"), ("fill tint1 tint", "b")]
    assert not marks(panel, AreaMark, "memory wash"), "one ground is enough"


def test_verdicts_are_pieces_from_one_to_the_next():
    said = [(0, "warming_up"), (10, "growing"), (20, "growing"), (30, "leak")]
    panel = panels.memory_panel(told(leak(), *(notice(t, verdict=verdict) for t, verdict in said)), "host")
    assert panel.ribbon.pieces == [(0, 10, "warming_up"), (10, 30, "growing"), (30, 100, "leak")]


def test_each_process_has_a_decision_of_its_own():
    events = [*leak(), attached(130, 2), *leak(130)[1:]]
    starts = [notice(0, "attached", attempt=0), notice(130, "attached", attempt=1)]
    story = told(events, *starts, *(notice(t, "interrupt") for t in (70, 90, 200, 220)))
    panel = panels.memory_panel(story, "host")
    assert (marks(panel, Rules, "bold ink")[0].xs, marks(panel, Rules, "thin ink")[0].xs) == ([70, 200], [90, 220])
    assert [label.x for label in panel.labels if label.y is None] == [70, 200, 130]


def test_the_decision_has_its_time_place_reason_and_room():
    said = [
        notice(70, "interrupt", gen=7, kind="boundary", headroom=30 * GB),
        notice(90, "interrupt", gen=9, kind="time", headroom=10 * GB),
    ]
    panel = panels.memory_panel(told(leak(), *said), "host")
    [label] = [label for label in panel.labels if label.y is None]
    assert (label.x, label.lines) == (
        70,
        ("interrupt after 1 m 10 s", "in generation 7, 30.0 GB left", "no room for another generation"),
    )
    assert (marks(panel, Rules, "bold ink")[0].xs, marks(panel, Rules, "thin ink")[0].xs) == ([70], [90])


# --- forecasts ------------------------------------------------------------------------------------------------------


def test_forecasts_are_absolute_times_held_until_the_next():
    said = [
        *(notice(10), notice(20, eta_s=70, eta_lo_s=50, eta_hi_s=None), notice(40, eta_s=60, eta_lo_s=55, eta_hi_s=65)),
        *(notice(50), notice(60, "warn", eta_s=40, eta_lo_s=None, eta_hi_s=50)),
        notice(65, "marker", gen=1, eta_s=35.0),  # repeats what was said at 60
    ]
    panel = panels.forecast_panel(told(leak(), *said), "host")
    first, second = marks(panel, LineMark, "forecast")
    assert first.points == [(20, 90), (40, 90), (40, 100), (50, 100)]
    assert second.points == [(60, 100), (100, 100)]
    a, b = marks(panel, Band, "forecast faint")
    assert (a.rows, a.until) == ([(20, 70, float("inf")), (40, 95, 105)], 50)
    assert (b.rows, b.until) == ([(60, 100, 110)], 100)
    [dots] = marks(panel, Dots, "forecast")
    assert [point[:2] for point in dots.points] == [(20, 90), (40, 100), (60, 100)]
    [truth] = marks(panel, LineMark, "limit dashed")
    assert truth.points == [(0, 100), (100, 100)], "a good forecast is flat on it"
    assert 110 <= panel.y.high <= 200


def test_without_forecasts_and_growth_there_are_no_panels_of_them():
    story = told(leak(), notice(10), notice(20))
    assert panels.forecast_panel(story, "host") is None
    assert panels.growth_panel(story, "host") is None
    assert len(panels.run_panels(story)) == 1


def test_a_wild_forecast_does_not_flatten_the_others():
    said = [notice(t, eta_s=1e6 if t == 10 else 100 - t, eta_lo_s=None) for t in range(10, 90, 10)]
    assert panels.forecast_panel(told(leak(), *said), "host").y.high <= 200


def test_growth_as_estimated_beside_what_each_generation_brought():
    said = [
        *(notice(10, growth_per_gen=4 * GB), notice(20, growth_per_gen=5 * GB)),
        *(notice(20, "generation", delta=6 * GB), notice(30, "generation", delta=1, partial=True)),
    ]
    panel = panels.growth_panel(told(leak(), *said), "host")
    [line] = marks(panel, LineMark, "forecast")
    assert line.points == [(10, 4 * GB), (20, 4 * GB), (20, 5 * GB), (100, 5 * GB)]
    [dots] = marks(panel, Dots, "memory")
    assert [point[:2] for point in dots.points] == [(20, 6 * GB)]
    assert panel.y.low < 0 < 6 * GB < panel.y.high


# --- which resources ------------------------------------------------------------------------------------------------


def test_a_gpu_is_shown_when_it_moves_or_is_acted_on_and_the_decision_comes_first():
    def resources(gpu: list[float], *notices: Notice) -> list[str]:
        return list(told([sampled(t, GB, gpu0=(used, 100 * GB)) for t, used in enumerate(gpu)], *notices).memory)

    assert resources([GB] * 9) == ["host"]
    assert resources([GB * t for t in range(9)]) == ["host", "gpu0"]
    assert resources([GB] * 9, notice(5, "warn", resource="gpu0")) == ["host", "gpu0"]
    assert resources([GB] * 9, notice(5, "interrupt", resource="gpu0")) == ["gpu0", "host"]


def test_a_trace_of_a_gpu_alone():
    usage = Usage("gpu0", 5 * GB, None)
    story = told([Sampled(0.0, Sample((usage,))), Sampled(1.0, Sample((usage,)))])
    assert [panel.title for panel in panels.run_panels(story)] == ["gpu0: memory"]


# --- the page -------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Names and attributes of all start tags, and the text that is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


def page(story: RunData, name: str = "trace.csv", conclusion: str = "End.", suffix: str = ".html", **asked: str) -> str:
    return replay_page.render_replay(suffix, name, story, conclusion, asked)


def pointed(markup: str) -> list[list[str]]:
    """What the wide chart says under the pointer, column by column: a line for each of its panels."""
    wide = markup[markup.index("chart wide") : markup.index("chart narrow")]
    columns = re.findall(r'<g class="column">(.*?)</g>', wide)
    return [list(map(html.unescape, re.findall(r"<text[^>]*>([^<]*)</text>", column))) for column in columns]


def test_samples_that_come_densely_for_a_while_make_no_gaps_of_the_others():
    dense = [20 + i / 50 for i in range(500)]  # as while it is examined
    [line] = marks(
        panels.memory_panel(
            told([attached(0), *(sampled(t, GB) for t in (*range(20), *dense, *range(30, 60)))]), "host"
        ),
        LineMark,
        "memory",
    )
    assert len(line.points) == 550


def evil_story() -> RunData:
    events = [*leak(), PhaseSeen(100, EVIL), sampled(110, 9 * GB)]
    said = [notice(20, text=EVIL, verdict=EVIL, gen=3, eta_s=9), notice(70, "interrupt", text=EVIL, kind=EVIL)]
    return build_run_data(events, said, make_snapshot(unit=EVIL, checkpoint_origin=EVIL))


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_nothing_is_loaded_run_or_left_unescaped(suffix):
    text = page(evil_story(), EVIL, f"{EVIL}\n{EVIL}", suffix, limit=EVIL)
    assert "<script" not in text.lower()
    assert not re.search(r"url\(|@import|https?:", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    for tag, attributes in Elements(text).tags:
        assert tag not in ("script", "link", "img", "iframe", "object", "base", "foreignobject", "a", "image", "use")
        assert not any(name.startswith("on") or name in ("src", "href", "xlink:href", "style") for name in attributes)
    if suffix == ".svg":
        ElementTree.fromstring(text)
    else:
        assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in text


def test_the_page_tells_the_decision_the_truth_and_the_parameters():
    said = [notice(70, "interrupt", "30.0 GB left, no room", gen=7, kind="boundary", headroom=30 * GB)]
    shown = Elements(
        page(told(leak(), *said), conclusion="End after 1 m 40 s.\nInterrupted.", **{"--limit": "5 GB"})
    ).shown
    text = " ".join(shown)
    for words in ("after 1 m 10 s", "30.0 GB", "after 1 m 40 s", "30 s", "12 s (measured)", "101", "no room", "5 GB"):
        assert words in text, words
    assert shown.index("time to spare") == shown.index("30 s") - 1


@pytest.mark.parametrize(
    ("events", "said", "words"),
    [
        (leak(end=50), [], "not in this trace"),
        ([sampled(0, GB, None)], [], "no limit known"),
        (leak(), [notice(100.5, "interrupt")], "after 1 m 40 s, before the interrupt"),
    ],
)
def test_what_is_not_known_or_came_too_late_is_said(events, said, words):
    shown = Elements(page(told(events, *said))).shown
    assert shown[shown.index("limit reached") + 1] == words


def test_the_table_is_bounded_and_keeps_both_ends():
    said = [notice(t, "warn", f"warning {t}") for t in range(100)]
    shown = Elements(page(told(leak(), *said))).shown
    rows = [text for text in shown if text.startswith("warning ")]
    assert rows == [
        f"warning {t}" for t in (*range(replay_page.REPLAY_ROWS_FIRST), *range(100 - replay_page.REPLAY_ROWS_LAST, 100))
    ]
    assert "40 more" in shown


def test_all_panels_are_drawn_for_wide_and_for_narrow_screens():
    drawn = [a for tag, a in Elements(page(told(leak(), notice(20, eta_s=80)))).tags if "role" in a]
    assert [a["class"] for a in drawn] == ["chart wide", "chart narrow"]
    assert {a["aria-label"] for a in drawn} == {"Memory, Forecast time of reaching the limit"}


def test_the_pointer_reads_all_panels_at_once():
    columns = pointed(page(told(leak(), notice(20, eta_s=80, eta_lo_s=60))))
    early, late = columns[len(columns) // 10], columns[-2]
    assert re.fullmatch(r"1\d.0 GB - 1\d.0 GB of 100.0 GB, after 1\d s", early[0]), early
    assert early[1] == "Forecast time of reaching the limit"  # there was none yet
    assert late[1] == "forecast: limit after 1 m 40 s (1 m 20 s - never)"


def test_where_nothing_was_sampled_the_pointer_reads_nothing():
    events = [attached(0), *(sampled(t, GB) for t in (*range(30), *range(900, 930)))]
    columns = pointed(page(told(events)))
    assert 2 <= len(columns) < 20 and all(words[0].startswith("1.0 GB of 100.0 GB") for words in columns)


@pytest.mark.parametrize("events", [[sampled(7, 0, None)], [sampled(7, 5, 1)], [sampled(7, GB), sampled(7, 2 * GB)]])
@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_traces_of_no_length_are_drawn(events, suffix):
    text = page(
        told([attached(7), *events], notice(7, eta_s=0, eta_lo_s=0, eta_hi_s=0, growth_per_gen=0)), suffix=suffix
    )
    assert "nan" not in re.sub(r'[^"]*"', "", text) and "NaN" not in text
    assert 'class="chart' in text


def test_a_trace_without_any_reading_is_told_all_the_same():
    text = page(told([attached(0), Sampled(0, Sample(())), Sampled(9, Sample(()))]))
    assert "no limit known" in text and "<svg" not in text


def test_ninety_thousand_samples_are_less_than_a_megabyte_and_keep_their_peak():
    events = [attached(0)]
    for t in range(90_000):
        used = 95 * GB if t == 54_321 else (10 + t % 997 / 100) * GB
        events += [PhaseSeen(t, f"phase {t % 3}"), sampled(t, used)] if t % 300 == 0 else [sampled(t, used)]
    said = []
    for t in range(0, 90_000, 90):
        said += [
            notice(t, "marker", gen=t // 90, unit="generation"),
            notice(t, "generation", gen=t // 90, delta=GB * (t % 7 - 3)),
            notice(t, verdict="leak" if t % 180 else "growing", eta_s=90_000 - t + t % 700, growth_per_gen=GB),
        ]
    story = told(events, *said)
    text = page(story)
    assert len(text.encode()) < 1_000_000
    panel = panels.memory_panel(story, "host")
    [line] = marks(panel, LineMark, "memory")
    [path] = re.findall(r'<path class="line memory" d="(M[^"]{500,})"', re.split('class="chart ', text)[1])
    heights = [float(y) for y in re.findall(r",([\d.]+)", path)]
    expected = (95 - 10) * GB / panel.y.high * panel.height  # from the lowest sample to the peak
    assert max(heights) - min(heights) == pytest.approx(expected, abs=0.11)
    assert len(line.points) == 90_000


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.png", "out", "out.pdf", ".html", "out.html.gz"])
def test_other_kinds_are_refused_with_those_that_work(tmp_path, name):
    with (
        pytest.raises(ConfigError) as caught,
        private_files.atomic_writer(tmp_path / name, "--plot", replay_page.SUFFIXES),
    ):
        pytest.fail("it was opened")
    assert ".html or .svg" in caught.value.hint and not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").touch()
    for name in ("none/out.html", "folder.svg", "file/out.svg"):
        with (
            pytest.raises(ConfigError, match="cannot be written") as caught,
            private_files.atomic_writer(tmp_path / name, "--plot", replay_page.SUFFIXES),
        ):
            pytest.fail("it was opened")
        assert caught.value.hint


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "OUT.HTML"
    path.write_text("old")
    with pytest.raises(KeyError), private_files.atomic_writer(path, "--plot", replay_page.SUFFIXES):
        raise KeyError
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]
    with private_files.atomic_writer(path, "--plot", replay_page.SUFFIXES) as write:
        assert path.read_text() == "old"
        write("new ü")
    assert [file.read_text(encoding="utf-8") for file in tmp_path.iterdir()] == ["new ü"]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / f"{EVIL.replace('/', '')}.csv"
    rows = (f"{t},{10**9 + t * 10**7},{4 * 10**9},{t // 10},{'ab'[t % 10 // 5]},40,,\n" for t in range(290))
    path.write_text(HEADER + "".join(rows))
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    code = main(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err.splitlines()


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_replay_says_the_same_and_draws_it(capsys, trace, tmp_path, suffix):
    plain = said(capsys, "replay", str(trace))
    out = tmp_path / f"out{suffix}"
    code, text, err = said(capsys, "replay", str(trace), "--plot", str(out))
    assert (code, text, err) == (0, f"{plain[1]}plot: {out}\n", [])
    content = html.unescape(out.read_text())
    for line in plain[1].splitlines()[-2:]:
        assert " ".join(line.split()[:6]) in content
    as_json = said(capsys, "replay", str(trace), "--plot", str(out), "--json")
    assert as_json[2] == [f"plot: {out}"]
    assert all(json.loads(line) for line in as_json[1].splitlines())
    assert html.unescape(out.read_text()) == content, "the same trace, the same picture"


def test_the_picture_has_the_limit_of_the_command(capsys, trace, tmp_path):
    out = tmp_path / "out.html"
    said(capsys, "replay", str(trace), "--plot", str(out), "--limit", "2GB")
    text = " ".join(Elements(out.read_text()).shown)
    assert "limit 2.0 GB" in text and "limit 4.0 GB" not in text and "--limit 2.0 GB" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plot", "out.png"], "memwatch: --plot out.png: .png is not a kind of file"),
        (["--plot", "/nowhere/out.svg"], "memwatch: --plot /nowhere/out.svg: cannot be written: No such file"),
        (["--plot"], "memwatch: argument --plot: expected one argument"),
    ],
)
def test_what_cannot_be_drawn_is_told_before_the_replay_runs(capsys, trace, arguments, words):
    code, out, err = said(capsys, "replay", str(trace), *arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err[0].startswith(words)


def test_nothing_is_left_where_the_replay_fails(capsys, tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "out.html"
    for rows, words in (("", "holds no samples"), ("0,x,,,,,,\n", ":2: rss 'x'")):
        path.write_text(HEADER + rows)
        code, _, err = said(capsys, "replay", str(path), "--plot", str(out))
        assert code == ExitCode.USAGE and words in err[0]
        assert list(tmp_path.iterdir()) == [path]


def test_what_can_be_read_only_once_is_refused(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    code, out, err = said(capsys, "replay", str(tmp_path / "pipe.csv"), "--plot", str(tmp_path / "out.svg"))
    assert (code, out, "cannot be read twice" in err[0]) == (ExitCode.USAGE, "", True)


def test_times_count_from_the_first_row(capsys, tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "out.html"
    path.write_text(HEADER + "".join(f"{1.7e9 + t:.0f},5000000,9000000,,,,,\n" for t in range(100)))
    _, text, _ = said(capsys, "replay", str(path), "--plot", str(out))
    assert text.startswith("       0 s  attached") and "End after 1 m 39 s:" in text
    assert "1 m 30 s" in Elements(out.read_text()).shown, "a tick"


# --- in a browser ---------------------------------------------------------------------------------------------------

PROBE = """<!doctype html><meta charset="utf-8"><iframe srcdoc="{page}" width="{width}" height="900"></iframe>
<script>onload = () => {{
  const d = document.querySelector("iframe").contentDocument, w = d.defaultView;
  const svgs = [...d.querySelectorAll("svg[role=img]")].filter(s => s.getBoundingClientRect().width > 0);
  const text = svgs.flatMap(s => [...s.querySelectorAll("text")]);
  const size = t => parseFloat(w.getComputedStyle(t).fontSize) * t.getScreenCTM().a;
  const beyond = t => {{
    const a = t.getBoundingClientRect(), b = t.closest("svg[role=img]").getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
  }};
  document.documentElement.textContent = "PROBE" + JSON.stringify({{
    kinds: svgs.map(s => s.getAttribute("class")), heights: svgs.map(s => s.getBoundingClientRect().height),
    overflow: d.documentElement.scrollWidth - d.documentElement.clientWidth,
    paper: w.getComputedStyle(d.body).backgroundColor,
    line: w.getComputedStyle(d.querySelector("path.memory.line")).stroke,
    smallest: Math.min(...text.map(size)), beyond: text.filter(beyond).map(t => t.textContent),
  }}) + "END";
}}</script>"""


def in_chromium(folder: Path, text: str, width: int, dark: bool) -> tuple[dict[str, Any], str]:
    """What a headless Chromium, without any network, makes of a page; and its console."""
    probe = folder / "probe.html"
    probe.write_text(PROBE.format(page=html.escape(text), width=width))
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}"),
        *("--proxy-server=127.0.0.1:9", f"--blink-settings=preferredColorScheme={0 if dark else 1}"),
        *("--enable-logging=stderr", f"--window-size={width + 40},1000", "--dump-dom", probe.as_uri()),
    ]
    ended = subprocess.run([CHROMIUM or "", *flags], capture_output=True, text=True, timeout=90, check=True)
    found = re.search(r"PROBE(.*?)END", html.unescape(ended.stdout))
    assert found, ended.stderr
    return json.loads(found[1]), ended.stderr


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    trace, out = folder / "trace.csv", folder / "out.html"
    rows = (f"{t},{10**9 + t * 10**7},{4 * 10**9},{t // 10},{'ab'[t % 10 // 5]},40,,\n" for t in range(290))
    trace.write_text(HEADER + "".join(rows))
    assert main(["replay", str(trace), "--plot", str(out)]) == 0
    yield out.read_text()


@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: make tools")
@pytest.mark.parametrize(("width", "kind"), [(1200, "wide"), (860, "wide"), (360, "narrow")])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_it(rendered, tmp_path, width, kind, dark):
    seen, console = in_chromium(tmp_path, rendered, width, dark)
    assert seen["kinds"] and set(seen["kinds"]) == {f"chart {kind}"}
    assert min(seen["heights"]) > 100
    assert seen["overflow"] <= 0, "it scrolls sideways"
    assert seen["paper"] == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
    assert seen["line"] == ("rgb(86, 180, 233)" if dark else "rgb(0, 114, 178)")
    assert seen["smallest"] >= 9
    assert not seen["beyond"], "words stand out of their picture"
    assert "CONSOLE" not in console
