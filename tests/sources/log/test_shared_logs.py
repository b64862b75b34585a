"""The recorded logs of real trainers: every marker at its byte and line, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memwatch.core.events import GenerationSeen
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.whole_log_scan import format_scan, scan_json, scan_log
from support.presets import packaged_presets

LOGS = Path(__file__).parents[3].parent / "shared" / "logs"
LABELS = sorted(LOGS.glob("*.label.json"))
NAMES = [path.name.removesuffix(".label.json") for path in LABELS]
# Found without any preset, by what counts up alone; the others need to be told what a line means.
BARE = ["cma", "deap_easimple", "document_samples", "inspyred", "lightning_tqdm", "sb3_dqn", "sb3_ppo", "sb3_sac_bar",
        "sklearn_gbr", "sklearn_mlp", "skorch", "tqdm_nested"]  # fmt: skip

pytestmark = pytest.mark.skipif(not LABELS, reason="the recorded logs (../shared/logs) are not here")


def load(name: str) -> tuple[Path, dict[str, Any]]:
    return LOGS / f"{name}.log", json.loads((LOGS / f"{name}.label.json").read_text())


def places(markers: list[dict[str, Any]]) -> list[tuple[float, int, int]]:
    return [(float(m["index"]), m["line"], m["byte"]) for m in markers]


@pytest.mark.parametrize("name", NAMES)
def test_every_marker_is_found_and_nothing_else(name: str) -> None:
    path, label = load(name)
    found = scan_json(scan_log(path, packaged_presets()))
    assert places(found["markers"]) == places(label["markers"])
    assert found["unit"] == label["unit"]
    assert label["total"] is None or found["total"] == label["total"]


@pytest.mark.parametrize("name", BARE if LABELS else [])
def test_counters_are_found_without_presets(name: str) -> None:
    path, label = load(name)
    assert places(scan_json(scan_log(path))["markers"]) == places(label["markers"])


@pytest.mark.parametrize("name", NAMES)
def test_markers_are_printed_when_the_label_says(name: str) -> None:
    path, label = load(name)
    kinds = {m["at"] for m in scan_json(scan_log(path, packaged_presets()))["markers"]}
    late = {"progress"} if name == "lightning_rich" else {"end"}  # that bar is drawn once, but says nothing of an end
    assert kinds == (late if label["marker_printed_at"] == "end" else {"start"})


def test_phases_and_gauges_of_the_documents() -> None:
    path, label = load("document_samples")
    found = scan_json(scan_log(path, packaged_presets()))
    told = [(p["phase"] + (" done" if p["at"] == "end" else ""), p["line"]) for p in found["phases"]]
    assert told == [(p["phase"], p["line"]) for p in label["phases"]]
    levels = [(g["value"], g["byte"]) for g in found["gauges"]]
    assert levels == [tuple(pair) for pair in label["other_counters"]["replay buffer"]]
    assert [g["capacity"] for g in found["gauges"]] == [50_000] * 3  # 10000 is a threshold


@pytest.mark.parametrize("name", NAMES)
def test_a_log_that_grows_tells_the_same_as_the_whole_log(name: str, tmp_path: Path) -> None:
    path, label = load(name)
    raw, grown = path.read_bytes(), tmp_path / "grown.log"
    grown.touch()
    source = LogSource(grown, packaged_presets(), catch_up=False)
    seen: list[float] = []
    for now, start in enumerate(range(0, len(raw) + 1, 777)):
        with grown.open("ab") as file:
            file.write(raw[start : start + 777])
        seen += [event.index for event in source.poll(float(now)) if isinstance(event, GenerationSeen)]
    seen += [event.index for event in source.poll(1e6) if isinstance(event, GenerationSeen)]
    source.close()
    assert seen == [float(m["index"]) for m in label["markers"]]
    assert label["total"] is None or source.finder.total == label["total"]


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_for_people_is_plain_text(name: str) -> None:
    path, label = load(name)
    text = format_scan(scan_log(path, packaged_presets()))
    assert label["unit"] in text.splitlines()[0]
    assert all(line.isprintable() for line in text.splitlines())
