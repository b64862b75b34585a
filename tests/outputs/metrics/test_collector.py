"""The exposition against its contract, against promtool, and against hostile names."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from memwatch.core.measurements import Neighbours, RunIdentity, Sample, TreeMemory, Usage
from memwatch.core.snapshot import Expectation, Forecast, Gauge, Snapshot
from memwatch.core.text_and_units import printable
from memwatch.outputs.metrics.collector import (
    LABEL_LENGTH,
    OPENMETRICS_CONTENT_TYPE,
    TEXT_CONTENT_TYPE,
    MetricsCollector,
    NodeMetricsCollector,
)
from memwatch.outputs.metrics.metric_registry import FAMILIES, NODE_TRAINERS, SERVER_EVENT_FAMILIES
from support.needed import needs_program
from support.snapshots import FakeClock, make_dead, make_diagnosis, make_snapshot, make_view

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def render(snapshot: Snapshot | None, accept: str = "", late: float = 0.0, **counts: int) -> str:
    clock = FakeClock((snapshot.t if snapshot else 0.0) + late)
    return MetricsCollector(lambda: snapshot, counts, clock).render(accept)[0].decode()


def values(snapshot: Snapshot | None, **options) -> dict[tuple[str, frozenset], float]:
    families = parse_text(render(snapshot, **options))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def names(snapshot: Snapshot | None) -> set[str]:
    return {name for name, _ in values(snapshot)}


def value(snapshot: Snapshot | None, name: str, late: float = 0.0, **labels: str) -> float:
    return values(snapshot, late=late)[name, frozenset(labels.items())]


def full_snapshot() -> Snapshot:
    """One in which everything is known."""
    expected = Expectation("growth < 5GB/generation", met=False, breaches=3, first="generation 1: +12.9 GB")
    run = RunIdentity("job-7", "node-a", 3, 2)
    beside = Neighbours("/kubepods/pod7", 10**9, 1, 0, 0)
    return make_snapshot(7, 2, diagnosis=make_diagnosis(), expectations=(expected,), run=run, neighbours=beside)


def exported() -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (type, labels) of all that a full, and a dead, snapshot export."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for snapshot in (full_snapshot(), make_dead()):
        for family in parse_openmetrics(render(snapshot, OPENMETRICS)):
            for sample in family.samples:
                found[sample.name] = (family.type, frozenset(sample.labels))
    return found


def registered() -> dict[str, tuple[str, frozenset[str]]]:
    return {one.sample_name: (one.kind, frozenset(one.labels)) for one in FAMILIES}


def node_families() -> list[Metric]:
    """What a node of two trainers exports, each with labels of its own."""
    trainers = [({"instance": f"a/{pid}", "pid": pid}, full_snapshot(), {"tick": 1}) for pid in ("7", "8")]
    collector = NodeMetricsCollector(lambda: trainers, {}, FakeClock(1e9))
    return list(parse_openmetrics(collector.render(OPENMETRICS_CONTENT_TYPE)[0].decode()))


def test_a_node_exports_each_metric_once_with_all_trainers() -> None:
    found = {family.name: family for family in node_families()}
    assert len(found) == len(node_families())
    used = {sample.labels["pid"]: sample for sample in found["memwatch_memory_used_bytes"].samples}
    assert used.keys() == {"7", "8"} and used["7"].labels["instance"] == "a/7"
    own = {"memwatch_node_trainers", "memwatch_build", "memwatch_scrape_duration_seconds"}
    for name, family in found.items():
        of_trainers = {"pid" in sample.labels for sample in family.samples}
        is_own = name in own or name.startswith("process_") or name in {one.name for one in SERVER_EVENT_FAMILIES}
        assert of_trainers == {not is_own}, name
    assert "pid" in found["memwatch_rank"].samples[0].labels, "the rank's own"


def documented() -> dict[str, tuple[str, frozenset[str], str]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows}


def test_the_page_the_registry_and_the_export_say_the_same():
    of_node = {NODE_TRAINERS.sample_name: ("gauge", frozenset[str]())}
    assert {name: row[:2] for name, row in documented().items()} == registered() == exported() | of_node


def test_the_help_that_is_scraped_is_that_of_the_registry():
    scraped = {
        family.name: family.documentation
        for snapshot in (full_snapshot(), make_dead())
        for family in parse_openmetrics(render(snapshot, OPENMETRICS))
    }
    assert scraped == {one.name: one.text for one in FAMILIES if one is not NODE_TRAINERS}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.sample_name)
def test_the_help_is_what_the_page_begins_with(family):
    text = documented()[family.sample_name][2]
    assert text.startswith(family.text.removesuffix(".")), text


def test_the_unit_ends_the_name():
    named, ends = (
        re.compile("_(bytes|seconds|ratio)"),
        re.compile("_(bytes(_per_second|_per_generation)?|seconds|ratio)$"),
    )
    assert [one.name for one in FAMILIES if named.search(one.name) and not ends.search(one.name)] == []


@needs_program("promtool")
@pytest.mark.parametrize("snapshot", [None, full_snapshot(), make_dead(), make_snapshot(0, resources=(), sample=None)])
def test_promtool_is_silent(snapshot):
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=render(snapshot), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_figures_are_those_of_the_snapshot():
    snapshot = full_snapshot()
    view = snapshot.resources[0]
    assert value(snapshot, "memwatch_memory_used_bytes", resource="host") == view.usage.used_bytes
    assert value(snapshot, "memwatch_memory_limit_bytes", resource="host", origin="cgroup /kubepods/pod7") == 175e9
    assert value(snapshot, "memwatch_oom_eta_seconds", resource="host") == 18600
    assert value(snapshot, "memwatch_oom_generation", resource="host") == 13
    assert value(snapshot, "memwatch_run_finishes", resource="host") == 0
    assert value(snapshot, "memwatch_verdict", resource="host", verdict="leak") == 1
    assert value(snapshot, "memwatch_verdict", resource="host", verdict="stable") == 0
    assert value(snapshot, "memwatch_warned", resource="host") == 1
    assert value(snapshot, "memwatch_warned", resource="gpu1") == 0
    assert value(snapshot, "memwatch_warn_horizon_seconds") == 4500
    assert value(snapshot, "memwatch_source_up", source="nvml") == 0
    assert value(snapshot, "memwatch_gpu_used_bytes", gpu="gpu1", uuid="GPU-0000-1", attribution="exact") == 30e9
    assert value(snapshot, "memwatch_generation_delta_bytes", resource="host") == view.generations[-2].delta_bytes
    assert value(snapshot, "memwatch_generation_duration_seconds") == 1500


def test_sample_age_is_taken_at_the_scrape():
    assert value(make_snapshot(), "memwatch_sample_age_seconds", late=7.0) == pytest.approx(7.5)


def test_unknown_is_absent():
    bare = TreeMemory(1, 5, 5, "rss")
    view = make_view(0, usage=Usage("host", 5, None), trend=None, forecast=None)
    snapshot = make_snapshot(
        0, resources=(view,), sample=Sample((view.usage,), bare), generation=None, total=None, phase=None
    )
    shown = names(snapshot)
    assert "memwatch_process_tree_used_bytes" in shown
    for absent in ("limit_bytes", "headroom_bytes"):
        assert f"memwatch_memory_{absent}" not in shown
    for absent in ("process_tree_anon_bytes", "oom_eta_seconds", "growth_bytes_per_second", "generation", "phase_info"):
        assert f"memwatch_{absent}" not in shown
    assert not [name for name in shown if name.startswith(("memwatch_cgroup", "memwatch_gpu", "memwatch_host"))]


def test_a_forecast_out_of_sight_or_not_finite_is_absent():
    far = make_view(forecast=Forecast(None, 100.0, math.inf, None, math.nan, None, None))
    shown = names(make_snapshot(resources=(far,)))
    assert [name for name in sorted(shown) if name.startswith("memwatch_oom")] == ["memwatch_oom_eta_low_seconds"]


def test_a_dead_target_leaves_only_that_it_is_down_and_why():
    dead = make_dead()
    assert value(dead, "memwatch_target_up") == 0
    assert value(dead, "memwatch_target_exit_info", cause="oom_cgroup", exit_code="", signal="SIGKILL") == 1
    kept = {
        "memwatch_build_info",
        "memwatch_target_up",
        "memwatch_armed",
        "memwatch_severity",
        "memwatch_state",
        "memwatch_source_up",
        "memwatch_target_exit_info",
        "memwatch_target_exit_timestamp_seconds",
        "memwatch_scrape_duration_seconds",
        *(family.sample_name for family in FAMILIES if family.event),
    }
    assert {name for name in names(dead) if name.startswith("memwatch")} == kept


def test_before_the_first_tick_only_memwatch_itself_is_shown():
    shown = names(None)
    assert "memwatch_target_up" not in shown
    assert {"process_resident_memory_bytes", "memwatch_build_info", "memwatch_ticks_total"} <= shown


def test_every_counted_event_is_a_counter():
    assert values(None, interrupt=3)["memwatch_interrupts_total", frozenset()] == 3


def test_log_gauges_are_bounded():
    gauges = tuple(Gauge(f"gauge {i}", float(i), None, 0.0) for i in range(1000))
    text = render(make_snapshot(gauges=gauges))
    assert text.count("\nmemwatch_log_value{") == 64


# --- the two formats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT_CONTENT_TYPE),
        ("*/*", TEXT_CONTENT_TYPE),
        ("text/plain;version=0.0.4", TEXT_CONTENT_TYPE),
        ("application/openmetrics-text", OPENMETRICS_CONTENT_TYPE),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2",
            OPENMETRICS_CONTENT_TYPE,
        ),
        ("text/html, Application/OpenMetrics-Text ; version=0.0.1", OPENMETRICS_CONTENT_TYPE),
        ("application/openmetrics-texts", TEXT_CONTENT_TYPE),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept, kind):
    body, content_type = MetricsCollector(lambda: None, {}, FakeClock(0.0)).render(accept)
    assert content_type == kind
    assert body.endswith(b"# EOF\n") == (kind == OPENMETRICS_CONTENT_TYPE)


def test_both_formats_have_the_same_samples_and_none_of_prometheus_clients_own():
    ours = ("memwatch_scrape_duration", "process_")  # differ from scrape to scrape
    plain, open_metrics = (
        [
            (s.name, s.labels, s.value)
            for family in parse(render(full_snapshot(), accept))
            for s in family.samples
            if not s.name.startswith(ours)
        ]
        for parse, accept in ((parse_text, ""), (parse_openmetrics, OPENMETRICS))
    )
    assert plain == open_metrics
    assert {name.partition("_")[0] for name, _, _ in plain} == {"memwatch"}
    assert not [name for name, _, _ in plain if name.endswith("_created")]
    assert len({name for name in names(full_snapshot()) if name.startswith("process_")}) == 6


@given(st.text(max_size=120).filter(str.isprintable), st.floats(allow_nan=False, allow_infinity=False))
def test_any_label_and_value_come_back(label, level):
    snapshot = make_snapshot(gauges=(Gauge(label, level, None, 0.0),))
    shown = printable(label, LABEL_LENGTH)  # white space collapsed
    assert values(snapshot)["memwatch_log_value", frozenset({("name", shown)})] == level


def test_quotes_and_backslashes_come_back():
    snapshot = make_snapshot(command='say "\\n" \\', run_id="")
    [labels] = [set(labels) for name, labels in values(snapshot) if name == "memwatch_target_info"]
    assert ("command", 'say "\\n" \\') in labels


hostile = st.text(st.characters(), max_size=300)


@settings(max_examples=60, deadline=None)
@given(hostile, st.lists(hostile, max_size=5), st.floats())
def test_no_name_breaks_the_exposition(command, gauge_names, level):
    gauges = tuple(Gauge(name, level, level, 0.0) for name in [*gauge_names, *gauge_names])
    snapshot = make_snapshot(command=command, gauges=gauges, phase=command)
    text = render(snapshot)
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))  # Prometheus refuses a scrape with a series twice
    assert "\x1b" not in text
    list(parse_text(text))
    list(parse_openmetrics(render(snapshot, OPENMETRICS)))
