"""The page of a running watch: what stands first, the children, and what the pointer reads in the chart."""

from __future__ import annotations

import time
from dataclasses import replace

from memwatch.core.measurements import ChildMemory
from memwatch.core.snapshot import EarlierRun, Snapshot
from memwatch.outputs.html.status_page import live_memory_panel, render_home_page
from support.snapshots import GB, make_dead, make_diagnosis, make_snapshot


def page(snapshot: Snapshot) -> str:
    return render_home_page(snapshot, ["/metrics"], time.gmtime)


def with_children(*children: ChildMemory) -> Snapshot:
    snapshot = make_snapshot()
    assert snapshot.sample is not None and snapshot.sample.tree is not None
    tree = replace(snapshot.sample.tree, processes=9, largest=children)
    return replace(snapshot, sample=replace(snapshot.sample, tree=tree))


def test_the_largest_children_are_named_and_the_others_counted() -> None:
    text = page(with_children(ChildMemory(77, "pt_<data>_worker", 3 * GB), ChildMemory(78, "python", GB)))
    assert "<td>pt_&lt;data&gt;_worker</td>" in text and ">77</td>" in text and ">3.0 GB</td>" in text
    assert "and 6 more; together" in text
    assert "Processes" not in page(make_snapshot()), "it is alone"


def test_what_grows_and_where_stand_before_the_figures() -> None:
    text = page(make_snapshot(diagnosis=make_diagnosis()))
    assert text.index("<h1") < text.index("What grows") < text.index("rose most in") < text.index("<dl>")


def test_at_the_end_the_logs_last_lines_stand_as_they_were_printed() -> None:
    dead = make_dead()
    assert dead.exited is not None
    tail = ("Traceback (most recent call last):", '  File "<main>.py", line 4', "\x1b[2Jboom")
    text = page(replace(dead, exited=replace(dead.exited, log_tail=tail)))
    shown = "Traceback (most recent call last):\n  File &quot;&lt;main&gt;.py&quot;, line 4\n?[2Jboom"
    assert f"<pre>{shown}</pre>" in text
    assert "<pre>" not in page(dead)


def test_earlier_runs_say_how_they_ended() -> None:
    runs = [EarlierRun("20260101-1", 0.0, 3600.0, "oom_cgroup"), EarlierRun("20260101-0", 0.0, 60.0, "")]
    text = render_home_page(make_snapshot(), ["/metrics"], time.gmtime, earlier=runs)
    rows = text.partition("Earlier runs")[2].partition("</table>")[0].split("<tr>")[2:]
    assert "1970-01-01 00:00" in rows[0] and "OOM killer at the cgroup" in rows[0] and "20260101-1" in rows[0]
    assert "no end recorded" in rows[1]
    assert "Earlier runs" not in page(make_snapshot())


def test_the_pointer_reads_what_was_used_and_what_is_expected() -> None:
    snapshot = make_snapshot()
    view = snapshot.resources[0]
    panel = live_memory_panel(view, snapshot)
    assert panel.words_between is not None and view.forecast is not None
    eta = view.forecast.eta_seconds
    assert eta is not None and view.usage.limit is not None
    began = view.timeline[0].t
    past = panel.words_between(100.0, 130.0)
    assert "GB" in past and past.endswith(", after 1 m 55 s, generation 1")
    now = snapshot.t - began
    assert panel.words_between(now + eta / 2 - 1, now + eta / 2 + 1).endswith("if it grows as forecast")
    assert panel.words_between(now + eta + 10, now + eta + 20) == ""
