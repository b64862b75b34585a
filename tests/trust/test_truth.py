from __future__ import annotations

import random

import pytest

from trust.schedules import FAMILIES, OWN_MB, draw
from trust.tables import PAGE, filled, kept
from trust.truth import Facts, judge

KILL, INT = ("SIGKILL",), ("SIGINT",)
TABLE = [
    ("status 0", Facts(0), "completed"),
    ("status 3", Facts(3), "failed"),
    ("an exception for want of memory", Facts(1, failure="memory_error"), "memory_error"),
    ("somebody's SIGKILL", Facts(None, "SIGKILL", sent=KILL), "signalled"),
    ("somebody's SIGKILL, a worker was killed", Facts(None, "SIGKILL", sent=KILL, kills=1), "signalled"),
    ("the kernel", Facts(None, "SIGKILL", kills=1), "oom_cgroup"),
    ("the kernel, as it saved", Facts(None, "SIGKILL", kills=1, heard=INT), "oom_cgroup"),
    ("the kernel, the child of a shell", Facts(137, child_killed=True), "oom_cgroup"),
    ("memwatch, saved", Facts(130, heard=INT, whole=True), "interrupted_saved"),
    ("memwatch, not saved", Facts(0, heard=INT), "interrupted_unsaved"),
    ("memwatch, not handled", Facts(None, "SIGTERM"), "interrupted_unsaved"),
    ("memwatch, then somebody", Facts(None, "SIGTERM", sent=("SIGTERM",), heard=INT), "interrupted_unsaved"),
    ("somebody's interrupt, saved", Facts(130, sent=INT, heard=INT, whole=True), "failed"),
    ("both", Facts(130, sent=INT, heard=(*INT, *INT), whole=True), "interrupted_saved"),
]
CAUSES = {cause for _, _, cause in TABLE}


@pytest.mark.parametrize(("facts", "cause"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_one_cause_is_true_of_an_end_and_hardly_another_is_no_lie(facts: Facts, cause: str) -> None:
    verdicts = {said: judge({"cause": said, "exit_code": None, "signal": None}, facts) for said in CAUSES}
    assert [said for said, verdict in verdicts.items() if verdict == "true"] == [cause]
    assert sum(verdict == "vague" for verdict in verdicts.values()) <= 1


def test_a_true_cause_with_another_status_is_wrong() -> None:
    assert judge({"cause": "failed", "exit_code": 4, "signal": None}, Facts(3)) == "wrong"
    assert judge({"cause": "failed", "exit_code": None, "signal": None}, Facts(3)) == "true"


def test_to_say_nothing_or_that_it_is_not_known_is_no_lie() -> None:
    assert judge(None, Facts(3)) == "nothing"
    assert judge({"cause": "unknown", "exit_code": None, "signal": None}, Facts(3)) == "unknown"


def test_the_page_says_what_was_measured() -> None:
    assert filled(PAGE.read_text(), kept()) == PAGE.read_text(), "python -m trust.tables"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("leaks", [True, False])
def test_a_schedule_meets_its_limit_when_it_is_drawn_to(family: str, leaks: bool) -> None:
    for seed in range(100):
        drawn = draw(family, leaks, random.Random(seed))
        most = max(drawn.levels)
        assert most > drawn.limit_mb * 1.05 if leaks else most + OWN_MB < drawn.limit_mb, (seed, most, drawn.limit_mb)
