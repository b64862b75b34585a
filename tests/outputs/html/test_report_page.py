"""The page of a run: what it says, that it fits its bounds, and that nothing in it runs that is not ours."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from memwatch.app import load_and_replay_run
from memwatch.app.load_and_replay_run import LoadedRun
from memwatch.cli.history_commands import report_html
from memwatch.cli.main import main
from memwatch.config.settings import Config
from memwatch.core.events import Attached
from memwatch.history import stored_runs
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.charts.panels import (
    growing_types,
    memory_by_generation_panel,
    phases_panel,
    types_panels,
)
from memwatch.outputs.charts.svg_axes_and_marks import Bars, LineMark
from memwatch.outputs.html import report_page
from memwatch.outputs.terminal.command_progress import ProgressBar
from support.recorded import GB, PHASES, T0, Recording, record
from support.snapshots import make_snapshot
from support.stopwatch import CpuStopwatch

EVIL = "<script>alert('1')</script><a href=javascript:alert(2)>&\"'"


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return recalled(tmp_path_factory.mktemp("leak") / "history.db", Recording(killed_in=13.4, limit=160 * GB, gpus=1))


def recalled(path: Path, recording: Recording) -> LoadedRun:
    record(path, recording)
    [run] = stored_runs.stored_runs(path)
    return load_and_replay_run.load_run(path, run, Config(), ProgressBar("reading"))


class Text(HTMLParser):
    """What a reader of a page sees, heading by heading."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: dict[str, list[str]] = {"": []}
        self._heading, self._skips = "", 0
        self._in_heading = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._skips += tag in ("script", "style", "svg", "title")
        if tag == "h2":
            self._heading, self._in_heading = "", True

    def handle_endtag(self, tag: str) -> None:
        self._skips -= tag in ("script", "style", "svg", "title")
        if tag == "h2":
            self._in_heading = False
            self.parts[self._heading] = []

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self._heading += data
        elif not self._skips and data.strip():
            self.parts[self._heading].append(data)


def test_it_tells_how_it_ended_and_what_that_rests_on(leak: LoadedRun) -> None:
    top = Text(report_html(leak)).parts[""]
    assert top[:2] == [
        "Ended: killed by the kernel's OOM killer at the cgroup's limit",
        "python main.py --population 32",
    ]
    assert "memory.events of /job: oom_kill 0 -> 1" in top
    below = Text(report_html(leak)).parts["What grows"]
    figures = below[below.index("began") :]
    facts = dict(zip(figures[::2], figures[1::2], strict=False))
    assert facts["progress"] == "generation 13 of 25"
    assert facts["host: peak"].endswith("of 160.0 GB")
    assert "warned" in facts


def test_a_finding_stands_with_its_evidence_and_its_remedy(leak: LoadedRun) -> None:
    part = Text(report_html(leak)).parts["What grows"]
    assert part[0].startswith("LEAK FOUND in ")  # the phase: of these examinations nothing tells it
    assert part[0].endswith(": +12.0 GB/generation since generation 1")
    assert "TradingEnvironment 64 -> 832, held by Population.environments[i]" in part
    assert any(line.startswith("what to do: make them once") for line in part)


def test_each_generation_is_in_the_table_with_its_phases(leak: LoadedRun) -> None:
    part = Text(report_html(leak)).parts["Generation by generation"]
    assert [name for name, _ in PHASES] == part[part.index("peak") + 1 : part.index("peak") + 4]
    assert part[part.index("peak") + 4 :][:2] == ["1", "1 m 40 s"]
    assert "40 s, in part" in part, "the last one"


def test_what_it_held_is_told_by_type_and_attribute(leak: LoadedRun) -> None:
    part = Text(report_html(leak)).parts["What it holds"]
    at = part.index("TradingEnvironment")
    assert part[at : at + 5] == ["TradingEnvironment", "64", "832", "64.0 MB", "832.0 MB"]
    at = part.index("Population.environments")
    assert part[at : at + 3] == ["Population.environments", "12.0 GB", "156.0 GB"]
    assert "dict" not in part, "there are no more of them than at first"


def test_the_timeline_has_what_was_said_at_the_time(leak: LoadedRun) -> None:
    page = report_page.render_report(leak.run_data, ["x"], "run", local_time=time.gmtime)
    part = Text(page).parts["Timeline"]
    assert part[4:8] == ["22:13:20", "attached", "watching: PID 4000000, python main.py --population 32", "22:13:20"]
    assert "warn" in part and "exited" in part and "marker" not in part
    assert part[-1].endswith("times: UTC") or "times: GMT" in part[-1]


def test_a_run_over_midnight_has_dates(tmp_path: Path) -> None:
    found = recalled(tmp_path / "h.db", Recording(generations=3, samples=50, seconds=60.0))
    page = report_page.render_report(found.run_data, ["x"], "run", local_time=time.gmtime)
    assert "11-14 22:13:20" in page and "11-15 00:" in page


def test_panels_by_generation(leak: LoadedRun) -> None:
    host = leak.end.resources[0]
    panel = memory_by_generation_panel(leak.run_data, host)
    [ends] = [mark for mark in panel.marks if isinstance(mark, LineMark) and mark.style == "memory"]
    assert [x for x, _ in ends.points] == list(range(1, 14)) and panel.y.high == pytest.approx(1.1 * 160 * GB)
    [phases] = phases_panel(leak.run_data, host)
    boxes = [mark for mark in phases.marks if isinstance(mark, Bars)]
    assert [len(one.boxes) for one in boxes] == [13, 13, 13]
    left, right, low, high, words = boxes[0].boxes[1]
    assert (left, right, low) == (pytest.approx(1.64), 2.36, 0.0) and high == pytest.approx(12 * GB, rel=0.02)
    assert words.startswith("evaluate of generation 2: +1")


def test_types_that_rise_are_drawn_the_largest_first(leak: LoadedRun) -> None:
    sizes = growing_types(leak.run_data, lambda one: one.bytes)
    assert list(sizes) == ["numpy.ndarray", "__main__.TradingEnvironment"]
    assert sizes["__main__.TradingEnvironment"][:2] == [(1.0, 64e6), (2.0, 128e6)]
    titles = [panel.title for panel in types_panels(leak.run_data)]
    assert titles == ["Memory of Python objects by type, by generation", "Python objects by type, by generation"]


def test_gpus_that_do_not_move_are_left_out(leak: LoadedRun) -> None:
    parts = Text(report_html(leak)).parts
    assert parts["Generation by generation"].count("generation") == 1 and "gpu0: growth" not in parts[""]


def test_an_end_that_nobody_saw_is_not_made_up() -> None:
    assert report_page.describe_ending(make_snapshot(), lives=True)[1] == "the trainer still runs"
    lines = report_page.describe_ending(make_snapshot(), lives=False)
    assert "not known" in lines[0] and "OOM at generation 13" in lines[2]


def test_a_run_without_markers_samples_or_examinations_is_told(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    store = HistoryStore.open(path)
    [attached] = [event for event in Recording(generations=1, samples=1).events() if isinstance(event, Attached)]
    store.open_run("x", attached, T0)
    store.append([attached], [])
    store.close()
    [run] = stored_runs.stored_runs(path)
    found = load_and_replay_run.load_run(path, run, Config(), ProgressBar("reading"))
    text = Text(report_html(found)).parts[""]
    assert "How it ended is not known: the record ends before the trainer did" in text


def test_what_a_log_or_a_command_says_never_becomes_markup(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    record(path, Recording(command=EVIL, generations=3, samples=20))
    [run] = stored_runs.stored_runs(path)
    found = load_and_replay_run.load_run(path, run, Config(), ProgressBar("reading"))
    phases = tuple((start, end, EVIL) for start, end, _ in found.run_data.phases)
    story = replace(found.run_data, phases=phases)
    written = report_page.render_report(story, [EVIL], EVIL)
    assert "<script>alert" not in written and "<a href=javascript" not in written
    assert "&lt;script&gt;alert" in written


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 generations, 90,000 samples."""
    path = tmp_path_factory.mktemp("long") / "history.db"
    record(path, Recording(samples=3600))
    return path


def test_a_page_of_90_000_samples_is_small_and_soon_there(long_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    stopwatch = CpuStopwatch()
    assert main(["report", str(long_run), "-o", str(out)]) == 0
    assert stopwatch.seconds < 7.5  # three times what it takes where nothing else runs
    assert 50_000 < out.stat().st_size <= 1_000_000
    page = out.read_text()
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "<script" not in page
