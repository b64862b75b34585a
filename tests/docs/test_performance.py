"""docs/performance and its page say what the results say: how many bars are met, and why one is missed that is."""

from __future__ import annotations

import copy
import re

import pytest

from bench import bars, run, tables

PAGE = tables.PAGE.read_text()
SUMMARY = (tables.ROOT / "docs" / "performance.md").read_text()
RESULTS = tables.read_results()


def missed(text: str) -> set[str]:
    """What the section in prose begins its paragraphs with."""
    section = re.search(r"^## Missed, and why$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section
    return set(re.findall(r"^- \*\*(.+?)\*\*", section[1], re.MULTILINE))


def test_the_tables_show_the_results() -> None:
    assert tables.filled(PAGE, RESULTS) == PAGE, "run `make tables`"


def test_every_result_is_of_a_program_that_make_bench_runs() -> None:
    assert set(RESULTS) <= set(run.PROGRAMS)
    assert {path.name for path in tables.RESULTS.iterdir()} == {f"{name}.json" for name in RESULTS} | {tables.PAGE.name}


@pytest.mark.skipif("scrape" not in RESULTS, reason="no results yet")
def test_another_result_makes_another_page() -> None:
    changed = copy.deepcopy(RESULTS)
    changed["scrape"]["results"]["cpu_ms_a_scrape"] += 1
    assert tables.filled(PAGE, changed) != PAGE
    del changed["scrape"]
    assert "not measured" in tables.filled(PAGE, changed)


def test_each_missed_bar_has_its_cause_and_no_other() -> None:
    judged = bars.judged(RESULTS)
    titles = {bar.of for bar in judged if not bar.met}
    told = missed(SUMMARY)
    assert f"The results meet {len(judged) - len(titles)} of {len(judged)} [bars]" in SUMMARY
    assert not {title for title in titles if not title.startswith(tuple(told))}
    assert not {words for words in told if not any(title.startswith(words) for title in titles)}


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="'bars'"):
        tables.filled(PAGE.replace("<!-- bars -->", ""), RESULTS)
