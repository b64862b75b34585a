"""The site as `make site` builds it: what is dead or misplaced fails it; it is whole without a network or a server."""

from __future__ import annotations

import os
import runpy
import subprocess
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support import chromium
from support.chromium import Browser

ROOT = Path(__file__).resolve().parents[2]
CONF = runpy.run_path(str(ROOT / "docs" / "conf.py"))
SPHINX = ROOT / ".venv" / "docs" / "bin" / "sphinx-build"

needs_sphinx = pytest.mark.skipif(not SPHINX.exists() and "CI" not in os.environ, reason="needs sphinx: make tools")
needs_chromium = pytest.mark.skipif(
    chromium.found() is None and "CI" not in os.environ, reason="needs chromium: make tools"
)


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """As the Makefile does."""
    strictly = ("-q", "-E", "-W", "--keep-going", "-c", str(ROOT / "docs"), "-d", str(folder / "doctrees"))
    return subprocess.run(
        [str(SPHINX), *strictly, str(root), str(folder / "site")], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "site"


def test_every_page_stands_in_the_navigation_once() -> None:
    found = {path for pattern in CONF["include_patterns"] for path in ROOT.glob(pattern.replace("**", "**/*"))}
    there = {str(path.relative_to(ROOT).with_suffix("")) for path in found} - {CONF["HOME"]}
    placed = Counter(page for pages in CONF["NAVIGATION"].values() for page in pages)
    assert not there - set(placed), "give each of these a place in NAVIGATION, docs/conf.py"
    assert not set(placed) - there, "take these out of NAVIGATION, docs/conf.py"
    assert set(placed.values()) == {1}


# --- what the build refuses -----------------------------------------------------------------------------------------

FAULTY = """# A

[a page](b.md), [a file](../configs/c.yaml), [an anchor](#nowhere), [another's](../README.md#nowhere) and ![](d.png)
"""
TOLD = (
    "docs/a.md:3: WARNING: 'myst' cross-reference target not found: 'b.md'",
    "docs/a.md:3: WARNING: 'myst' cross-reference target not found: '../configs/c.yaml'",
    "docs/a.md:3: WARNING: 'myst' cross-reference target not found: 'nowhere'",
    "docs/a.md:3: WARNING: local id not found in doc 'README': 'nowhere'",
    "docs/a.md:: WARNING: image file not readable: docs/d.png",
    "docs/a.md: WARNING: document isn't included in any toctree",
    "WARNING: toctree contains reference to nonexisting document 'docs/tutorial'",
)


@needs_sphinx
def test_what_is_dead_or_misplaced_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(FAULTY)
    (tmp_path / "README.md").write_text("# Home\n")
    done = build(tmp_path, tmp_path)
    assert done.returncode != 0
    assert [told for told in TOLD if told not in done.stderr] == [], done.stderr


# --- what was built -------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """Where a page leads, what it loads, and the places that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.leads: set[str] = set()
        self.loads: set[str] = set()
        self.places = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a":
            self.leads.add(given.get("href", ""))
        else:
            self.loads.update(given[name] for name in ("href", "src") if name in given)


@needs_sphinx
def test_every_link_leads_somewhere_and_nothing_is_loaded_from_afar(site: Path) -> None:
    pages = {path.resolve(): Links(path) for path in site.rglob("*.html")}
    assert len(pages) > 15
    afar, dead = set(), set()
    for path, page in pages.items():
        afar |= {target for target in page.loads if urlsplit(target).netloc}
        for target in {target for target in page.leads | page.loads if not urlsplit(target).scheme}:
            split = urlsplit(target)
            linked = (path.parent / unquote(split.path)).resolve() if split.path else path
            if not linked.exists() or (linked in pages and unquote(split.fragment) not in pages[linked].places):
                dead.add((path.name, target))
    assert (afar, dead) == (set(), set())


@needs_sphinx
def test_the_readme_is_the_first_page(site: Path) -> None:
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@needs_sphinx
@needs_chromium
def test_every_page_can_be_read_on_a_phone_from_a_file(site: Path, browser: Browser) -> None:
    for path in sorted(site.rglob("*.html")):
        page = browser.open(path.as_uri(), width=390, dark=True)
        assert (path.name, page.overflow, page.problems) == (path.name, 0, [])
        assert page.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)") == []
        assert {url.partition(":")[0] for url in page.requests} <= {"file", "data"}


@needs_sphinx
@needs_chromium
def test_what_is_searched_for_is_found_without_a_server(site: Path, browser: Browser) -> None:
    page = browser.open((site / "search.html").as_uri() + "?q=memwatch_memory_headroom_bytes")
    page.until("[...document.querySelectorAll('ul.search a')].some(a => a.href.includes('docs/metrics.html'))")
