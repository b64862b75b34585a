"""Whatever a log line, a process or a type is called, no output passes on what steers a reader's terminal or page."""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Iterator
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from hostile.defiled import EVILS, defiled, harmful, hostile, notices_of, snapshot_of
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.examination import Diagnosis, Growth
from memwatch.core.snapshot import EarlierRun, Snapshot
from memwatch.outputs.charts import run_data
from memwatch.outputs.html import report_page, run_comparison, status_page
from memwatch.outputs.metrics.collector import LABEL_LENGTH, MOST_SERIES, MetricsCollector
from memwatch.outputs.status_json import snapshot_shape, snapshot_to_dict
from memwatch.outputs.terminal.live_view_layout import Mode, Viewport, ViewStatus, render_frame
from memwatch.outputs.terminal.plain_and_json_lines import JsonLines, PlainLines
from memwatch.outputs.text import diagnosis_text, exit_summary, process_snapshot_text, profile_formats
from memwatch.outputs.trackers import tracker_records
from memwatch.outputs.trackers.notification_messages import MESSAGE_TEMPLATES, NotificationMessages
from memwatch.system import json_and_yaml
from support.needed import needs_program
from support.snapshots import FakeClock, make_diagnosis, make_snapshot

few = settings(max_examples=25, deadline=None)
EVENTS = ("attached", "warn", "interrupt", "out_of_memory", "marker", "phase", "finding", "source_failed", "exited")


def scraped(snapshot: Snapshot, accept: str = "") -> str:
    return MetricsCollector(lambda: snapshot, {}, FakeClock(snapshot.t)).render(accept)[0].decode()


def printed(snapshot: Snapshot, word: str, **options: object) -> str:
    stream = io.StringIO()
    PlainLines(stream, True, local_time=time.gmtime, **options).publish(snapshot, notices_of(word, *EVENTS))  # type: ignore[arg-type]
    return stream.getvalue()


# --- people's eyes: terminal, lines, journal -------------------------------------------------------------------------


@few
@given(hostile, st.sampled_from(Mode), st.booleans())
def test_the_live_view_shows_no_control(word: str, mode: Mode, ascii_only: bool) -> None:
    look = Viewport(100, 30, local_time=time.gmtime, ascii_only=ascii_only)
    drawn = render_frame(snapshot_of(word), look, ViewStatus(mode=mode, footer=word[:200]))
    assert len(drawn) <= 30
    assert not harmful("".join(segment.text for line in drawn for segment in line))


@few
@given(hostile)
def test_a_notice_is_one_line_of_bounded_length(word: str) -> None:
    for options in ({}, {"journal_priority": lambda _: 4}):
        text = printed(make_snapshot(), word, **options)
        assert not harmful(text)
        assert len(text.splitlines()) == len(EVENTS)
        assert max(map(len, text.splitlines())) < 2000


@few
@given(hostile)
def test_text_for_people_holds_no_control(word: str) -> None:
    known = defiled(make_diagnosis(), word)
    for text in _texts(snapshot_of(word), known):
        assert not harmful(text)


def _texts(snapshot: Snapshot, known: Diagnosis) -> Iterator[str]:
    yield exit_summary.render_summary(snapshot)
    yield "\n".join(diagnosis_text.headlines(known))
    yield from ("\n".join(diagnosis_text.details(one)) for one in known.findings)
    assert known.latest.census is not None
    yield process_snapshot_text.render_census(known.latest.census)
    yield "\n".join(profile_formats.profile_rows(known.lines))
    yield profile_formats.folded(known.credits)


# --- people at a distance, trackers ----------------------------------------------------------------------------------


@few
@given(hostile)
def test_messages_and_trackers_get_no_control(word: str) -> None:
    for record in NotificationMessages(tuple(MESSAGE_TEMPLATES), word[:60], time.gmtime).records(
        snapshot_of(word), notices_of(word, *MESSAGE_TEMPLATES)
    ):
        assert "\n" not in str(record["title"])
        assert not harmful(str(record["title"]) + str(record["body"]))
        assert len(str(record["body"])) < 10_000
        json.loads(json_and_yaml.to_json(record))
    name = tracker_records.tag_name(word)
    assert not harmful(name, "") and len(name) < 300


# --- browsers --------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The tags of a page, the attributes of each, and where links lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()
        self.links: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {(tag, ""), *((tag, name) for name, _ in attrs)}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")}

    handle_startendtag = handle_starttag


def elements(page: str) -> tuple[set[tuple[str, str]], set[str]]:
    found = Elements(page)
    return found.seen, found.links


def pages(snapshot: Snapshot) -> Iterator[str]:
    earlier = [EarlierRun(snapshot.run_id, 1.0, 2.0, snapshot.command)]
    yield status_page.render_home_page(snapshot, ["/metrics"], time.gmtime, earlier=earlier)
    told = run_data.build_run_data((), snapshot.notices, snapshot)
    side = run_comparison.ComparedRun(
        snapshot.run_id, snapshot.run_id, told, report_page.describe_ending(snapshot, True)
    )
    yield run_comparison.document(side, side)
    yield report_page.render_report(told, side.ending, snapshot.run_id, time.gmtime, earlier=earlier)


@few
@given(hostile)
@example("<script>alert(1)</script>")
def test_a_page_has_no_element_that_a_harmless_one_has_not(word: str) -> None:
    harmless = [elements(page) for page in pages(snapshot_of("evaluate"))]
    for page, (seen, links) in zip(pages(snapshot_of(word)), harmless, strict=True):
        found, leads = elements(page)
        assert found <= seen and leads <= links
        assert not harmful(page)
        page.encode()


# --- programs --------------------------------------------------------------------------------------------------------


@few
@given(hostile, st.sampled_from(["", "application/openmetrics-text"]))
def test_the_exposition_is_read_back_and_bounded(word: str, accept: str) -> None:
    text = scraped(snapshot_of(word), accept)
    families = {f.name: f for f in (parse_openmetrics if accept else parse_text)(text)}
    harmless = (parse_openmetrics if accept else parse_text)(scraped(snapshot_of("evaluate"), accept))
    assert families.keys() == {family.name for family in harmless}
    labels = [value for f in families.values() for sample in f.samples for value in sample.labels.values()]
    assert max(map(len, labels)) <= LABEL_LENGTH
    assert not harmful("".join(labels), "")


@needs_program("promtool")
def test_promtool_reads_every_evil_name() -> None:
    for word in EVILS:
        text = scraped(snapshot_of(word))
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, (word[:80], checked.stdout + checked.stderr)


@few
@given(hostile)
def test_json_is_valid_utf_8_and_read_back(word: str) -> None:
    shown = json_and_yaml.to_json(snapshot_to_dict(snapshot_of(word)))
    assert snapshot_shape(json.loads(shown.decode()))["sentence"] == json.loads(shown)["sentence"]
    stream = io.StringIO()
    JsonLines(stream, to_json_line).publish(make_snapshot(), notices_of(word, *EVENTS))
    lines = stream.getvalue().split("\n")[:-1]
    assert [json.loads(line)["event"] for line in lines] == list(EVENTS)
    assert not harmful("".join(lines), "")


def test_series_are_bounded_whatever_is_found() -> None:
    many = make_diagnosis(
        types=tuple(Growth(f"type{i}", 1, 2, 1.0, 1.0, 1) for i in range(5000)),
        findings=tuple(defiled(make_diagnosis().findings[0], f"holder{i}") for i in range(5000)),
    )
    for family in parse_text(scraped(make_snapshot(diagnosis=many))):
        assert len(family.samples) <= MOST_SERIES
