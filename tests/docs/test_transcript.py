"""The comparison that the tutorial's test rests on: what it lets pass, and what it does not."""

from __future__ import annotations

import pytest

from support.transcript import difference, renamed, steps

SHOWN = """
16:41:33 warn         OOM at generation 17 of 25 (16-18), in 22 s; limit: --limit 600.0 MB; grows 34.7 MB/generation
...
ended: interrupted by memwatch (exit status 130)
"""
SEEN = """
09:01:02 warn         OOM at generation 16 of 25 (15-17), in 1 m 2 s; limit: --limit 600.0 MB; grows 33.1 MB/generation
and something else

  ended: interrupted by memwatch (exit status 130)
"""


def test_what_differs_from_run_to_run_may_differ() -> None:
    assert difference(SHOWN, SEEN) == difference(SHOWN, SHOWN) == difference("", "\n") == ""
    assert difference("PID 12, 20261123-164407-d6dfe5 ...", "PID 9876, 20261124-010203-abcdef  at last") == ""
    assert difference("...\nb\n...", "a\nb\nc") == ""
    assert difference("...\n25 end\nlast", "23 end\n24 end\n25 end\nlast") == "", "the one that the next line follows"


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("warn ", "forecast "),  # another word
        ("16 of 25", "9 of 25"),  # another generation than those of the interval
        ("33.1 MB", "331 MB"),
        ("33.1 MB", "33.1 kB"),
        ("--limit 600.0 MB", "--limit 601.0 MB"),
        ("(exit status 130)", "(exit status 129)"),
        (" (15-17)", ""),
        (")\n", ")\nand something at the end\n"),
    ],
)
def test_what_says_something_else_is_told(here: str, there: str) -> None:
    assert here in SEEN
    last = SEEN.rindex(here)
    assert difference(SHOWN, SEEN[:last] + there + SEEN[last + len(here) :])


def test_it_tells_what_is_missing_and_what_is_too_much() -> None:
    assert difference("a\nb", "a") == "not seen here: 'b'"
    assert difference("a\n...\nb", "a\nc") == "not seen here: 'b'"
    assert difference("a", "a\nb") == "not shown: 'b'"
    assert difference("", "Traceback") == "not shown: 'Traceback'"


def test_the_commands_of_a_page_are_those_of_its_consoles_in_order() -> None:
    page = "```console\n$ a\nx\ny\n$ b\n```\n\n    $ not this\n\n```\n$ nor this\n```\n\n```console\n$ c $!\n```\n"
    assert steps(page) == [("a", "x\ny\n"), ("b", ""), ("c $!", "")]


def test_runs_have_the_names_that_they_were_given_here() -> None:
    here = {"20261123-164407-d6dfe5": "20270101-000000-aaaaaa"}
    assert renamed("report --run 20261123-164407-d6dfe5@1", here) == "report --run 20270101-000000-aaaaaa@1"
    with pytest.raises(KeyError):
        renamed("report --run 20261123-164407-d6dfe6", here)
