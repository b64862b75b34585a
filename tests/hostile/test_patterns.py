"""The presets' own rules have no time limit, as a user's have: none needs one, whatever line a program prints."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import product

import pytest

from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import PATTERN_BYTES
from memwatch.sources.log.skippable_lines import pattern_for_any_digits
from support.presets import packaged_presets

MICROSECONDS = 8.0  # of CPU for a character, at most: 2 to 4 for the worst of them on a busy machine
LINE_SECONDS = 0.02  # for the longest line, by all rules and counters: 3 ms
MOST_WORDS = 40  # of a pattern that are each tried with all words of a log; of more, each with its share of these
LONGER = 8.0  # times as long for four times as much: 4 where time is linear, 16 where it is quadratic
WORDS = (
    "a",
    "0",
    "9 ",
    ",",
    " ",
    "\t",
    ".",
    "-",
    "=",
    "*",
    "[",
    "(",
    "|",
    "_",
    "é",
    "1:2 ",
    "{'",
    "'\"",
    ":",
    "/",
    "#",
)
SAYINGS = (
    *("Epoch 1/5 ", "loss: 0.5 ", "checkpoint saved ", "1:", "1.", "1e", "-1", "1/2 ", "12%|##|", "| 1/2 [", "step="),
    *(
        "]\t",
        "0x1f ",
        "1,",
        "generation 1 ",
        "*****",
        "(1",
        "[1]",
        "1 of 2 ",
        "│ 1 ",
        "１",
        "1_",
        "\x1b[0m",
        "MemoryError ",
    ),
)


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for preset in packaged_presets():
        for i, rule in enumerate(preset.rules):
            for kind, one in (
                ("", rule.pattern),
                ("unless", rule.unless),
                ("digits", pattern_for_any_digits(rule.pattern)),
            ):
                if one is not None and not (kind == "digits" and one is rule.pattern):
                    yield f"{preset.name}-{i}{kind}", one


def lines(pattern: str) -> Iterator[str]:
    """The longest, of all that a pattern is made of: repeated, and one of it before much of another."""
    own = list(dict.fromkeys(re.findall(r"[A-Za-z]{2,}(?:[ _][A-Za-z]{2,})*|[^\w\s]", pattern)))
    for one in (*WORDS, *own):
        yield one * PATTERN_BYTES
        yield f"{one} " * PATTERN_BYTES
    every = 1 + len(own) // MOST_WORDS
    for i, one in enumerate((*own, "")):
        for other in WORDS[i % every :: every]:
            yield one + other * PATTERN_BYTES
            yield (one + other) * PATTERN_BYTES


def seconds(pattern: re.Pattern[str], line: str) -> float:
    """The least of a few, since others work here too."""
    took = []
    for _ in range(3):
        begun = time.thread_time()
        pattern.search(line)
        took.append(time.thread_time() - begun)
    return min(took)


@pytest.mark.parametrize("pattern", [one for _, one in patterns()], ids=[name for name, _ in patterns()])
def test_a_rule_takes_time_in_proportion_to_the_line(pattern: re.Pattern[str]) -> None:
    worst, line = 0.0, ""
    for whole in lines(pattern.pattern):
        begun = time.thread_time()
        pattern.search(whole[:PATTERN_BYTES])
        took = time.thread_time() - begun
        if took > worst:
            worst, line = took, whole
    whole_seconds = seconds(pattern, line[:PATTERN_BYTES])
    assert whole_seconds * 1e6 / PATTERN_BYTES < MICROSECONDS, line[:60]
    if whole_seconds > 2e-4:
        longer = (line * 4)[: 4 * PATTERN_BYTES]
        assert seconds(pattern, longer) < LONGER * whole_seconds, line[:60]


def test_a_search_that_is_not_linear_is_found_out() -> None:
    stars = re.compile(r"\*{3,} Running \*{3,}")
    assert seconds(stars, "*" * 4 * PATTERN_BYTES) > LONGER * seconds(stars, "*" * PATTERN_BYTES)


def test_the_longest_line_takes_all_rules_and_counters_little_time() -> None:
    finder, worst = MarkerFinder(packaged_presets()), (0.0, "")
    for i, (one, other) in enumerate([*product(SAYINGS, ("", " ")), *zip(SAYINGS, SAYINGS[5:], strict=False)]):
        line = f"{i:x} {''.join(chr(97 + int(d)) for d in str(i))} " + (one + other) * PATTERN_BYTES
        begun = time.thread_time()
        finder.find_markers(line[:PATTERN_BYTES], 0, i, 0.0)
        worst = max(worst, (time.thread_time() - begun, line[:60]))
    assert worst[0] < LINE_SECONDS, worst
