"""The pictures of the documents: what they claim to show is in them, and they are the same each time."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("leak", "fill", "peaks", "sawtooth")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    draw = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["main"]
    folders = [tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("again")]
    for folder in folders:
        draw(folder)
    first, again = ({path.stem: path.read_text() for path in folder.iterdir()} for folder in folders)
    assert first == again, "the same code, the same pictures"
    return first


def test_there_is_each_of_them_in_the_repository_too(drawn):
    assert set(drawn) == set(NAMES)
    for name in NAMES:
        ElementTree.parse(ROOT / "docs" / "images" / f"{name}.svg")


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_stands_alone_on_light_paper(drawn, name):
    root = ElementTree.fromstring(drawn[name])
    shown = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert {"Memory", "generation", "verdict", "memory used"} <= set(shown)
    assert any(words.startswith("limit ") for words in shown)
    assert "prefers-color-scheme" not in drawn[name], "GitHub shows it on white, whatever the reader prefers"
    assert len(drawn[name]) < 120_000


def test_the_leak_has_the_fan_of_its_forecast(drawn):
    shown = ["".join(text.itertext()) for text in ElementTree.fromstring(drawn["leak"]).iter(f"{SVG}text")]
    assert any("the limit is reached in " in words for words in shown)
