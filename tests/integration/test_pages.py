"""The pages in a real browser: the status page of a watch, reports, comparisons; on a phone, in the dark, with foes."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.cli.main import main
from memwatch.core.snapshot import Snapshot
from memwatch.outputs.http.server import WebServer
from support import chromium
from support.chromium import Browser
from support.recorded import GB, Recording, record
from support.snapshots import FakeClock, make_dead, make_diagnosis, make_snapshot

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(chromium.found() is None and "CI" not in os.environ, reason="needs chromium: make tools"),
]
EVIL = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">&\"'"
PICTURES = Path(os.environ.get("MEMWATCH_PICTURES", "/nonexistent"))  # where they are kept to be looked at


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def keep(page: chromium.Page, name: str, tmp_path: Path) -> None:
    folder = PICTURES if PICTURES.is_dir() else tmp_path
    assert len(page.picture(folder / f"{name}.png")) > 10_000, "there is something to see"


# --- the status page ------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[WebServer]:
    server = WebServer("127.0.0.1", 0, FakeClock())
    server.start()
    yield server
    server.on_watch_end(make_snapshot())


def shown(server: WebServer, snapshot: Snapshot) -> str:
    server.publish(snapshot, ())
    return server.url


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("desk", 1100, False), ("phone", 390, False), ("night", 390, True)]
)
def test_the_state_of_a_watch_is_readable_on_any_screen(
    browser: Browser, server: WebServer, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    snapshot = make_snapshot(9, gpus=1, diagnosis=make_diagnosis())
    page = browser.open(shown(server, snapshot), width, dark=dark)
    text = page.text
    for part in (snapshot.sentence, "117.3 GB of 175.0 GB", "LEAK FOUND in evaluate", "generation 9 of 25, evaluate"):
        assert part in text
    assert page.evaluate("document.querySelectorAll('.meter').length") == 2
    drawn = "[...document.querySelectorAll('svg.chart')].filter(one => one.getBoundingClientRect().width > 0).length"
    assert page.evaluate(drawn) == 1, "the chart that suits the screen"
    assert page.overflow <= 0
    sizes = "[...document.querySelectorAll('p,td,dd,li')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    assert min(page.evaluate(sizes)) >= 13
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light != dark
    assert page.problems == []
    keep(page, f"home-{name}", tmp_path)


def test_it_refreshes_itself(browser: Browser, server: WebServer) -> None:
    page = browser.open(shown(server, make_snapshot()))
    assert "OOM at generation 13" in page.text
    shown(server, make_dead())
    page.until("document.body && document.body.innerText.includes('OOM killer')")
    assert page.problems == []


def test_before_the_first_sample(browser: Browser, server: WebServer) -> None:
    assert "no sample yet" in browser.open(server.url).text


def test_links_lead_somewhere(browser: Browser, server: WebServer) -> None:
    page = browser.open(shown(server, make_snapshot()))
    paths = page.evaluate("[...document.querySelectorAll('nav a')].map(one => one.getAttribute('href'))")
    assert "metrics" in paths and "status.json" in paths, "they begin where the page is: it may be one of many"
    for path in paths:
        with urllib.request.urlopen(server.url + path) as answer:
            assert answer.status == 200


def test_nothing_that_a_log_says_becomes_markup(browser: Browser, server: WebServer) -> None:
    snapshot = make_snapshot(command=EVIL, sentence=EVIL, unit=EVIL, phase=EVIL)
    gauges = tuple(replace(one, name=EVIL) for one in snapshot.gauges)
    notices = tuple(replace(one, text=EVIL) for one in snapshot.notices)
    sources = tuple(replace(one, reason=EVIL, ok=False) for one in snapshot.sources)
    page = browser.open(shown(server, replace(snapshot, gauges=gauges, notices=notices, sources=sources)))
    assert "<script>" in page.text and page.evaluate("document.title") != "taken"
    assert page.evaluate("document.querySelectorAll('script,img,iframe,object').length") == 0
    assert page.overflow <= 0 and page.problems == []


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("histories")
    record(folder / "before.db", Recording(killed_in=13.4, limit=160 * GB, command=EVIL))
    record(folder / "after.db", Recording(growth=GB // 2, limit=160 * GB))
    return folder / "before.db", folder / "after.db"


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (390, True)])
def test_a_report_is_drawn_without_the_network(
    browser: Browser, histories: tuple[Path, Path], tmp_path: Path, width: int, dark: bool
) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(histories[0]), "-o", str(path)]) == 0
    page = browser.open(path.as_uri(), width, dark=dark)
    kind = "narrow" if width < 860 else "wide"
    assert page.evaluate(f"document.querySelectorAll('svg.chart.{kind} > text.title').length") >= 7, "a panel each"
    assert page.overflow <= 0
    assert {one.partition(":")[0] for one in page.requests} <= {"file", "data", "blob"}
    assert page.problems == []
    assert page.evaluate("document.querySelectorAll('img,script').length") == 0
    keep(page, f"report-{width}", tmp_path)


def test_under_the_pointer_a_report_says_what_each_panel_shows_there(
    browser: Browser, histories: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(histories[0]), "-o", str(path)]) == 0
    page = browser.open(path.as_uri(), 1100, 1600)
    shown = (
        "[...document.querySelector('svg.chart.wide').querySelectorAll(':scope > text.title, .column text')]"
        ".filter(one => getComputedStyle(one).visibility === 'visible').map(one => one.textContent)"
    )
    titles = page.evaluate(shown)
    assert titles[:2] == ["Memory", "Forecast time of reaching the limit"]
    box = page.evaluate(
        "(b => [b.x + b.width * 0.7, b.y + 120])(document.querySelector('svg.chart.wide').getBoundingClientRect())"
    )
    page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    memory, forecast, *_ = page.evaluate(shown)
    assert re.match(r"[0-9.]+ [MG]B.* of [0-9.]+ [MG]B, after ", memory), memory
    assert forecast.startswith("forecast: limit after ")


def test_two_runs_are_compared_in_one_chart(browser: Browser, histories: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "compare.html"
    assert main(["compare", *map(str, histories), "-o", str(path)]) == 0
    page = browser.open(path.as_uri())
    assert page.evaluate("document.querySelectorAll('svg.chart.wide').length") >= 2
    assert "-96%" in page.text or "-95%" in page.text
    styles = "['limit', 'memory'].map(style => `svg.chart.wide path.line.${style}`)"
    assert page.evaluate(f"{styles}.every(line => document.querySelector(line))") is True
    assert page.problems == [] and page.overflow <= 0
    keep(page, "compare", tmp_path)
