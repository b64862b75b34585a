"""A log that invents a name with each line makes no more labels, and takes no more memory, than the bounds say."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families as parse_text

from memwatch.core.events import PhaseSeen
from memwatch.outputs.metrics.collector import MetricsCollector
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import load_presets
from support.presets import packaged_presets
from support.snapshots import FakeClock
from support.watch import GB, Watch

LINES = 4_000
NAMES = 64 + 1  # of phases or gauges, and `other`
INVENTS = load_presets(
    [
        (
            "ours.yaml",
            {
                "name": "ours",
                "rules": [
                    {"kind": "generation", "pattern": r"^Zyklus (?P<index>\d+)"},
                    {"kind": "phase", "pattern": r"^now (?P<phase>\S+)"},
                    {"kind": "gauge", "pattern": r"^(?P<name>\S+) holds (?P<value>\d+)"},
                    {"kind": "oom", "pattern": r"^lost \S+"},
                ],
            },
        )
    ]
)


def test_labels_of_an_inventive_log_are_bounded_over_the_whole_watch() -> None:
    watch, finder = Watch(), MarkerFinder((*INVENTS, *packaged_presets()))
    exposed = MetricsCollector(watch.engine.snapshot, {}, FakeClock())
    seen: defaultdict[str, set[tuple[tuple[str, str], ...]]] = defaultdict(set)
    tracemalloc.start()
    for i in range(LINES):
        for text in (
            f"Zyklus {i // 40}",
            f"now phase{i}",
            f"gauge{i} holds {i}",
            f"Epoch{i} {i}/{LINES}",
            f"lost {i}",
        ):
            for hit in finder.find_markers(text, 0, i, watch.t):
                watch.feed(hit.event)
        if i % 10 == 0:
            watch.look(rise=0.0001 * GB)
        if i % 400 == 399:
            for family in parse_text(exposed.render()[0].decode()):
                seen[family.name] |= {tuple(sorted(sample.labels.items())) for sample in family.samples}
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(seen["memwatch_phase_growth_bytes"]) > 2, sorted(seen)
    assert max(map(len, seen.values())) <= NAMES
    assert peak_bytes < 40e6, peak_bytes


def test_phases_beyond_the_bound_are_one() -> None:
    finder = MarkerFinder(INVENTS)
    hits = [
        hit
        for i in range(200)
        for hit in finder.find_markers(f"Zyklus {i}\n" if i == 0 else f"now phase{i}", 0, i, 0.0)
    ]
    hits += finder.find_markers("Zyklus 1", 0, 201, 0.0) + finder.find_markers("now phase7", 0, 202, 0.0)
    phases = [hit.event.phase for hit in hits if isinstance(hit.event, PhaseSeen)]
    assert len(set(phases)) == NAMES and "other" in phases
    assert phases[-1] == "phase7"
